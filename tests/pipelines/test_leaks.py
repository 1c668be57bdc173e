"""Neighbouring data under one fixed stream of noise: outputs differ in what the mechanism releases, and nowhere else.

Every draw is made a function of release key, step and shard alone, as if the data did not key it, so that all noise is
the same in both runs; then any other difference (names, sizes of public files, order, logs, metrics) would be a leak.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hushgram.noise.entropy import ReleaseKey
from hushgram.pipelines.cli import cli
from hushgram.pipelines.terminal import EXACT

CONFIG = """\
release: urls
input: {path: in/*.parquet, user: user, key: url}
privacy: {epsilon: 30, delta: %s, max_contributions: 3%s}
sizes: {records: 2000, keys: 200}
output: {path: out/urls.sketch}
"""
#: what a release may differ in: heavy keys, blocks, their digests, and sums over released blocks
RELEASED = {"sums", "heavy", "files", "checksum"}


@pytest.fixture
def one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ReleaseKey._derive

    def derive(self: ReleaseKey, kind: bytes, step: str, shard: int, context: bytes) -> bytes:
        return real(self, kind, step, shard, b"" if kind == b"noise" or step == "data" else context)

    monkeypatch.setattr(ReleaseKey, "_derive", derive)


def write(folder: Path, extra: bool) -> None:
    rows = [(f"u{i % 120}", f"/{(i * i) % 90}") for i in range(900)]
    if extra:
        rows[450:450] = [("the neighbour", "/3"), ("the neighbour", "/nobody-else"), ("the neighbour", "/5")]
    (folder / "in").mkdir(parents=True)
    users, urls = zip(*rows, strict=True)
    pq.write_table(pa.table({"user": users, "url": urls}), folder / "in/a.parquet")
    (folder / "key").write_text("11" * 32)


def run(folder: Path, config: str, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> tuple[list[str], str]:
    """(log lines without times, metrics without times)."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HUSHGRAM_RELEASE_KEY_FILE", str(folder / "key"))
    (folder / "c.yaml").write_text(config)
    capfd.readouterr()
    cli.main(args=["release", "c.yaml", "--log", "json", "--metrics", "m.prom"], standalone_mode=False)
    out, err = capfd.readouterr()
    return _plain_lines(out + err), re.sub(r"(_seconds\S*) \S+", r"\1 T", (folder / "m.prom").read_text())


def _plain_lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        try:
            fields = json.loads(line)
        except ValueError:
            lines.append(line)
            continue
        # `private` is the operator's, and says so; `digest` is that of the release, which differs
        for name in ("time", "private", "seconds", "duration", "digest"):
            fields.pop(name, None)
        lines.append(re.sub(r"in [\d.]+ s\b", "in T", json.dumps(fields, sort_keys=True)))
    return lines


@pytest.mark.parametrize(
    ("delta", "more"),
    [("0", ""), ("1e-6", ""), ("0", ", preset: paper")],
    ids=["fingerprints", "weights", "paper"],
)
@pytest.mark.long
def test_nothing_but_the_release_differs(
    delta: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, one_stream: None
) -> None:
    seen = []
    for extra in (False, True):
        folder = tmp_path / ("with" if extra else "without")
        write(folder, extra)
        seen.append(run(folder, CONFIG % (delta, more), monkeypatch, capfd))
    assert seen[0] == seen[1]
    one, two = (tmp_path / name / "out/urls.sketch" for name in ("without", "with"))
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert sorted(p.name for p in one.parent.iterdir()) == sorted(p.name for p in two.parent.iterdir())
    bodies = [json.loads((path / "manifest.json").read_text()) for path in (one, two)]
    for body in bodies:
        body["plan"]["params"].pop("users", None)  # released with noise
    differing = {name for name in bodies[0] if bodies[0][name] != bodies[1][name]}
    assert differing <= RELEASED, differing
    assert differing, "the two data sets must differ in something, or this test sees nothing"


@pytest.mark.parametrize(
    "words", ["release", "release --check", "release --check --format json", "check", "check --format json"]
)
def test_a_file_has_no_exact_figures(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table(
        {"user": [f"u{i % 6}" for i in range(61)], "url": [f"/{i % 7}" for i in range(60)] + [None]}
    )
    pq.write_table(rows, "in.parquet")
    Path("urls.yaml").write_text(
        "release: urls\ninput: {path: in.parquet, user: user, key: url}\n"
        "privacy: {epsilon: 1.0, max_contributions: 2}\noutput: {path: out.sketch}\n"
    )
    result = CliRunner().invoke(cli, [*words.split(), "urls.yaml", "-o", "told"])
    assert result.exit_code == 0, result.output
    assert all(word in result.stderr for word in (EXACT, "kept"))
    written = Path("told").read_text()
    assert "guarantee" in written
    # With their words, so that no noisy number is taken for an exact one.
    exact = [line.partition(f" ({EXACT}")[0] for line in result.stderr.splitlines() if EXACT in line]
    assert not [word for word in (EXACT, "bounding dropped", "rejected", *exact) if word in written]
