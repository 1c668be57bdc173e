"""Jobs on engines, with a stand-in for Flink's REST interface and for the results of Beam's runners."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hushgram.pipelines.run.engine_jobs as module
from hushgram.accounting import Budget, Event
from hushgram.errors import HushgramError
from hushgram.ledger import Ledger
from hushgram.pipelines.run.beam_runners import pipeline_options
from hushgram.pipelines.run.budget import open_budget
from hushgram.pipelines.run.engine_jobs import EngineJob, await_earlier, name_job, stop
from hushgram.pipelines.run.progress import read_counters, run_pipeline

JOB = EngineJob("FlinkRunner", "id-7", "hushgram-urls-1")


class Flink(http.server.ThreadingHTTPServer):
    """The requests of Flink's REST interface that are used; `states` are what it tells, in turn."""

    def __init__(self, states: list[str]) -> None:
        self.states, self.cancelled = states, False
        self.accumulators: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Flink

    def do_GET(self) -> None:
        if self.path == "/jobs/2/accumulators":
            self._reply(json.dumps({"user-task-accumulators": self.server.accumulators}))
            return
        assert self.path == "/jobs/overview"
        states = self.server.states
        state = states[0] if len(states) == 1 else states.pop(0)
        jobs = [{"name": "other", "jid": "1", "state": "RUNNING"}]
        if state:
            jobs.append({"name": JOB.name, "jid": "2", "state": state})
        self._reply(json.dumps({"jobs": jobs}))

    def do_PATCH(self) -> None:
        assert self.path == "/jobs/2?mode=cancel"
        self.server.cancelled, self.server.states = True, ["CANCELLING", "CANCELED"]
        self._reply("{}")

    def _reply(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def flink(monkeypatch: pytest.MonkeyPatch) -> Iterator[Flink]:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.01)
    server = Flink(["RUNNING"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def options(flink: Flink):
    return pipeline_options(
        ["--runner=FlinkRunner", f"--flink_master=127.0.0.1:{flink.server_port}", "--job_endpoint=localhost:1",
         "--environment_type=EXTERNAL", "--environment_config=localhost:2"]
    )  # fmt: skip


def test_names_are_unique_and_valid(flink: Flink) -> None:
    names = [name_job(options(flink), "Urls_2026@é") for _ in range(2)]
    assert names[0] != names[1]
    assert names[0].startswith("hushgram-urls-2026-")
    assert EngineJob.read(JOB.write()) == JOB


def test_a_running_job_is_cancelled(flink: Flink) -> None:
    assert stop(JOB, options(flink))
    assert flink.cancelled


def test_a_job_that_has_ended_is_left_alone(flink: Flink) -> None:
    flink.states = ["FAILED"]
    assert stop(JOB, options(flink))
    assert not flink.cancelled


@pytest.mark.parametrize(
    ("states", "finished", "said"),
    [
        (["RUNNING", "RESTARTING", "FINISHED"], True, "ended as DONE: its output is published"),
        (["RUNNING", "FAILED"], False, "ended as FAILED"),
        ([""], False, "is not known to the engine any more"),
    ],
)
def test_an_earlier_job_is_waited_for(flink: Flink, states: list[str], finished: bool, said: str) -> None:
    flink.states, lines = states, []
    assert await_earlier(JOB, options(flink), lines.append) is finished
    assert said in lines[-1]


def test_an_interrupt_while_waiting_cancels_it(flink: Flink) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await_earlier(JOB, options(flink), interrupt)
    assert flink.cancelled


class Result:
    """A job as Beam's runners return it, whose watcher is interrupted."""

    _job_id, told = "id-7", "RUNNING"

    @property
    def state(self) -> str:
        if self.interrupted:
            return self.told
        self.interrupted = True
        raise KeyboardInterrupt

    interrupted = False

    def run(self) -> Result:
        return self

    def cancel(self) -> None:
        self.told = "CANCELLED"


def test_an_interrupted_run_cancels_its_job(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.pipelines.run.progress.name_job", lambda *_: JOB.name)
    seen: list[EngineJob | None] = []
    with pytest.raises(KeyboardInterrupt):
        run_pipeline(Result(), options(flink), title="urls", quiet=True, on_job=seen.append)
    assert seen == [JOB, None]
    assert flink.cancelled


class SlowServer(Result):
    """A job whose end Beam's job server has not noticed yet."""

    def __init__(self) -> None:
        self.ended, self._metrics, self.interrupted = threading.Event(), None, True

    def wait_until_finish(self) -> None:
        self.ended.wait(60)
        self.told = "DONE"

    def metrics(self) -> Any:
        return self._metrics


def _accumulator(name: str, value: int) -> dict[str, str]:
    """Counters as Beam 2.62 shows them in Flink: the answer of its job server as JSON."""
    labels = {"NAMESPACE": "hushgram", "NAME": name, "PTRANSFORM": "read"}
    counter = {"urn": "beam:metric:user:sum_int64:v1", "type": "beam:metrics:sum_int64:v1", "labels": labels}
    counter["payload"] = base64.b64encode(bytes([value])).decode()
    return {"name": "__metricscontainers", "value": json.dumps({"metrics": {"attempted": [counter]}})}


def test_the_end_is_learned_from_flink_itself(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.pipelines.run.progress.name_job", lambda *_: JOB.name)
    flink.states, flink.accumulators = ["", "RUNNING", "FINISHED"], [_accumulator("rows", 7)]
    job, seen = SlowServer(), []
    result = run_pipeline(job, options(flink), title="urls", quiet=True, on_job=seen.append)
    assert job.state == "RUNNING"
    assert read_counters(result) == {"rows": 7}
    assert seen == [JOB, None]
    job.ended.set()


def test_counters_that_cannot_be_read_are_left_to_beam(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.pipelines.run.progress.name_job", lambda *_: JOB.name)
    flink.states, job = ["FINISHED"], SlowServer()
    threading.Timer(0.2, job.ended.set).start()
    assert run_pipeline(job, options(flink), title="urls", quiet=True).state == "DONE"


class Server:
    """A job server that Beam starts."""

    def __init__(self, _: object) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False


def test_a_job_server_of_beam_ends_with_its_job(flink: Flink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hushgram.pipelines.run.progress.name_job", lambda *_: JOB.name)
    flink.states, flink.accumulators = ["FINISHED"], [_accumulator("rows", 7)]
    started: list[Server] = []

    class Started(SlowServer):
        runner = SimpleNamespace(default_job_server=Server)

        def run(self) -> Started:
            started.append(self.runner.default_job_server(None))
            return self

    result = run_pipeline(Started(), options(flink), title="urls", quiet=True)
    assert read_counters(result) == {"rows": 7}
    assert [server.running for server in started] == [False]


def test_a_job_of_another_engine_is_asked_for_in_its_job_server() -> None:
    chosen = pipeline_options(
        ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--environment_type=EXTERNAL",
         "--environment_config=localhost:2"]
    )  # fmt: skip
    lines: list[str] = []
    assert not await_earlier(EngineJob("PortableRunner", "id-7", "urls"), chosen, lines.append)
    assert "is not known to the engine any more" in lines[-1]


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, Any]:
    """A release on an engine, with a ledger."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    with Ledger.create(url) as ledger:
        ledger.add_dataset("views", Budget(2))
    about = {"dataset": "views", "ledger": url, "release": "monday", "engine": True}
    return {"job": "release", "events": [Event("threshold", "1")], "target": tmp_path / "out", **about}


def submit_and_fail(wanted: dict[str, Any]) -> Path:
    """Lose a job that may still run; return where it writes."""
    work: list[Path] = []

    def run() -> None:
        with open_budget(**wanted) as first:
            assert first.earlier_job is None
            _ = first.key
            work.append(Path(first.output))
            first.keep_job(JOB.write())
            raise HushgramError("the engine is gone")

    with pytest.raises(HushgramError, match="the engine is gone"):
        run()
    assert work[0].exists()
    return work[0]


def test_the_ledger_keeps_a_job_that_may_run(wanted: dict[str, Any], tmp_path: Path) -> None:
    work = submit_and_fail(wanted)
    (work / "manifest.json").write_text("{}")
    with open_budget(**wanted) as second:  # and ends before it asks the engine
        assert second.earlier_job == JOB.write()
    with open_budget(**wanted) as third:
        assert third.earlier_job == JOB.write()
        assert third.adopt(True)
        assert third.output == str(work)
        third.publish()
    assert (tmp_path / "out/manifest.json").read_text() == "{}"
    assert not work.exists()


@pytest.mark.parametrize("finished", [False, True])  # as DONE, but without its output
def test_a_job_that_failed_is_run_again(wanted: dict[str, Any], finished: bool) -> None:
    work = submit_and_fail(wanted)
    with open_budget(**wanted) as second:
        assert not second.adopt(finished)
        assert not work.exists()
        assert second.output != str(work)
    with open_budget(**wanted) as third:
        assert third.earlier_job is None
