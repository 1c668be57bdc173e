"""ReleaseSparseHistogram: records of every form, one sketch; and the key shows nowhere."""

from __future__ import annotations

import doctest
import json
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import FixedWindows

from hushgram import ReleaseKey, ReleaseParams, Sketch, Threshold, Weights
from hushgram.errors import InputError, OutputError, ParameterError
from hushgram.pipelines.run.progress import read_counters
from hushgram.release_in_memory import release
from hushgram.sparse_histogram import users as users_histogram
from hushgram.transforms import ReleaseSparseHistogram
from hushgram.transforms.release_sparse_histogram import URN
from tests.transforms.releases import KEY, SMALL, collect, contents, params, pieces, records

TABLE = records(300, users=30)
CHOSEN = params(**SMALL)


class Visit(NamedTuple):
    user: str
    url: str


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("library") / "a.sketch"
    release(TABLE["user"], TABLE["url"], CHOSEN, path, release_key=KEY, name="urls")
    return contents(path)


def mixed() -> list[Any]:
    """A sixth of the records in each form."""
    rows = TABLE.to_pylist()
    return [
        TABLE.slice(0, 50),
        *pieces(TABLE.slice(50, 50), [10]),
        *(beam.Row(**row) for row in rows[100:150]),
        *(Visit(**row) for row in rows[150:200]),
        *rows[200:250],
        *((row["user"], row["url"]) for row in rows[250:]),
    ]


def test_every_form_of_records_gives_the_librarys_bytes(expected: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "a.sketch"
    step = ReleaseSparseHistogram(CHOSEN, user="user", key="url", path=path, name="urls", release_key=KEY)
    assert collect(lambda p: p | beam.Create(mixed()) | step) == [str(path)]
    assert contents(path) == expected


def test_the_example_in_its_docstring_runs() -> None:
    from hushgram.transforms import release_sparse_histogram as module

    results = doctest.testmod(module)
    assert (results.failed, results.attempted > 4) == (0, True)


def test_windows_of_the_input_make_no_difference(expected: dict[str, bytes], tmp_path: Path) -> None:
    step = ReleaseSparseHistogram(
        CHOSEN, user="user", key="url", path=tmp_path / "a", name="urls", release_key=KEY
    )
    with beam.Pipeline(runner="FnApiRunner") as p:
        batches = p | beam.Create(list(enumerate(pieces(TABLE, [50, 50]))))
        stamped = batches | beam.Map(lambda pair: beam.window.TimestampedValue(pair[1], 100 * pair[0]))
        stamped | beam.WindowInto(FixedWindows(10)) | step
    assert contents(tmp_path / "a") == expected


def test_the_key_is_in_no_text_of_the_pipeline(tmp_path: Path) -> None:
    step = ReleaseSparseHistogram(CHOSEN, user="user", key="url", path=tmp_path / "a", release_key=KEY)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | beam.Create([("ann", "/a")]) | step
    shown = str(DisplayData.create_from(step).to_proto()) + repr(step) + step.label
    graph = pipeline.to_runner_api()
    for transform in graph.components.transforms.values():
        shown += transform.unique_name + str(transform.display_data) + str(transform.annotations)
    shown += str(pipeline.options.get_all_options())
    assert "max_contributions" in shown
    for release_key in (KEY, step._spec.release_key):
        raw = bytes.fromhex(release_key.hex())
        assert release_key.hex() not in shown
        assert repr(raw)[2:20] not in shown


FORMS: dict[str, Any] = {
    "tables": lambda rows: [pa.Table.from_pylist(rows[:30]), pa.Table.from_pylist(rows[30:])],
    "dicts": lambda rows: rows,
    "rows": lambda rows: [Visit(**row) for row in rows],
    "pairs": lambda rows: [(row["user"], row["url"]) for row in rows],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "choice", [{}, {"max_contributions": "auto"}, {"public_keys": ["/a"]}, {"user": None}]
)
@pytest.mark.long
def test_too_many_rejected_records_are_refused_before_anything_is_published(
    form: str, choice: dict[str, Any], tmp_path: Path
) -> None:
    choice = {"user": "user", **choice}
    chosen = params(**SMALL | {"max_contributions": choice.pop("max_contributions", 4)})
    bad = {"user": None, "url": "/b"} if choice["user"] else {"user": "u", "url": None}
    records = FORMS[form]([{"user": f"u{i}", "url": "/a"} for i in range(50)] + [bad] * 3)
    path = tmp_path / "a"
    expected = (
        r"the records: (user|url) is null; more than max_rejected_share \(0.05\) of the records would be"
    )
    with pytest.raises(InputError, match=expected), beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(records) | ReleaseSparseHistogram(chosen, key="url", path=path, **choice)
    assert not path.exists()
    with beam.Pipeline(runner="FnApiRunner") as p:
        (
            p
            | beam.Create(records)
            | ReleaseSparseHistogram(chosen, key="url", path=path, max_rejected_share="0.06", **choice)
        )
    assert path.exists()


def test_a_fresh_key_each_time(tmp_path: Path) -> None:
    make = lambda: ReleaseSparseHistogram(CHOSEN, user="user", key="url", path=tmp_path / "a")  # noqa: E731
    assert make()._spec.release_key != make()._spec.release_key


def test_mistakes_are_told_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"params must be ReleaseParams, such as .*, got dict"):
        ReleaseSparseHistogram({}, key="url", path=tmp_path / "a")  # type: ignore[arg-type]
    for choice, said in (
        ({"params": CHOSEN, "epsilon": "1"}, "give params or epsilon, not both"),
        ({"epsilon": "1", "max_contribution": 2}, "there is no argument 'max_contribution'"),
        ({"delta": "1e-6", "epsilon": "1"}, "max_contributions must be given"),
        ({"params": CHOSEN, "output": "table"}, "output must be path or rows, got 'table'"),
        ({"params": CHOSEN, "output": "rows"}, "a release names no keys; give lookup"),
    ):
        with pytest.raises(ParameterError, match=said):
            ReleaseSparseHistogram(key="url", path=tmp_path / "a", **choice)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="max_rejected_share must be from 0 to 1, got 5"):
        ReleaseSparseHistogram(CHOSEN, key="url", path=tmp_path / "a", max_rejected_share=5)


def test_a_release_key_binds_to_its_parameters(tmp_path: Path) -> None:
    other = ReleaseParams(epsilon="1", max_contributions=4)
    one = ReleaseSparseHistogram(CHOSEN, key="url", path=tmp_path / "a", release_key=KEY)
    two = ReleaseSparseHistogram(other, key="url", path=tmp_path / "a", release_key=KEY)
    assert isinstance(one._spec.release_key, ReleaseKey)
    assert one._spec.release_key != two._spec.release_key


CHOICES: dict[str, dict[str, Any]] = {
    "fingerprints": {},
    "threshold": {"delta": "1e-6", "selection": Threshold()},
    "one name": {"delta": "1e-6", "max_contributions": 1, "max_per_key": 1},
    "weights": {"delta": "1e-6", "max_contributions": 12},
    "paper": {"preset": "paper"},
    "paper with names": {"preset": "paper", "delta": "1e-6"},
}


@pytest.mark.parametrize("name", CHOICES)
def test_every_selection_gives_the_librarys_bytes(name: str, tmp_path: Path) -> None:
    chosen = params(**CHOICES[name])
    release(TABLE["user"], TABLE["url"], chosen, tmp_path / "a", release_key=KEY)
    step = ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "b", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(TABLE, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    lists = {file for file in contents(tmp_path / "a") if file.startswith("heavy")}
    expected = {"heavy.bin"} if "delta" not in CHOICES[name] else {"heavy.parquet"}
    assert lists == expected | ({"heavy.bin"} if name in ("threshold", "one name") else set())


@pytest.mark.parametrize("choice", [{}, {"delta": "1e-6", "max_per_key": 1}])
@pytest.mark.long
def test_a_bound_chosen_from_the_data_is_the_librarys(choice: dict[str, Any], tmp_path: Path) -> None:
    chosen = params(**{"max_contributions": "auto", **choice})
    by_library = release(TABLE["user"], TABLE["url"], chosen, tmp_path / "a", release_key=KEY)
    step = ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "b", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(TABLE, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    plan = by_library.plan
    assert plan.users is not None
    assert plan.params.max_contributions in users_histogram.CHOICES
    assert {part.kind: part.epsilon for part in plan.guarantee().parts}["contributions"] == Fraction(1, 10)
    assert by_library.guarantee.epsilon == 2


@pytest.mark.parametrize(("keys", "rounds"), [(1, 1), (3, 2), (20, 3)])
@pytest.mark.parametrize("most", [4, "auto"])
@pytest.mark.long
def test_rounds_chosen_from_the_data_are_the_librarys(
    keys: int, rounds: int, most: int | str, tmp_path: Path
) -> None:
    chosen = ReleaseParams(epsilon=20, delta="1e-3", max_contributions=most, selection=Weights(20))
    number = np.arange(1200 if keys == 20 else 600)
    table = pa.table(
        {
            "user": [f"u{i}" for i in number // keys],
            "url": [f"/{i}" for i in (number % 7) ** 2 // (1 if keys == 20 else 5)],
        }
    )
    by_library = release(table["user"], table["url"], chosen, tmp_path / "a", release_key=KEY)
    plan = by_library.plan
    assert plan.users is not None
    assert plan.params.rounds == plan.users.rounds() == rounds
    assert plan.rounds is not None
    assert len(plan.rounds.rounds) == rounds
    assert by_library.heavy(all=True).num_rows > 2
    assert plan.guarantee().parts[0].epsilon == Fraction(20, 20 if most == "auto" else 100)
    assert by_library.guarantee.epsilon == 20
    step = ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "b", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(table, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def test_a_bound_cannot_be_chosen_without_users(tmp_path: Path) -> None:
    chosen = params(max_contributions="auto")
    with pytest.raises(ParameterError, match="needs users"):
        ReleaseSparseHistogram(chosen, key="url", path=tmp_path / "a")
    with pytest.raises(ParameterError, match="needs users"):
        ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "a", public_keys=["/a"])
    with pytest.raises(ParameterError, match="needs users"):
        release(None, TABLE["url"], chosen)


def test_public_keys_with_gaussian_noise_are_the_librarys(tmp_path: Path) -> None:
    from hushgram import release_public

    chosen = params("1e-6", max_contributions=40, max_per_key=1)
    listed = sorted(set(TABLE["url"].to_pylist()))[:30]
    sketch = release_public(TABLE["user"], TABLE["url"], listed, chosen, path=tmp_path / "a", release_key=KEY)
    assert sketch.plan.noise_name == "gaussian"
    step = ReleaseSparseHistogram(
        chosen, user="user", key="url", path=tmp_path / "b", public_keys=listed, release_key=KEY
    )
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(TABLE, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


def arguments(tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The release of `CHOSEN` in plain values."""
    (tmp_path / "key").write_text(KEY.hex())
    return {
        "epsilon": "2",
        "max_contributions": 4,
        "max_per_key": 2,
        **SMALL,
        "user": "user",
        "key": "url",
        "path": str(tmp_path / "plain.sketch"),
        "name": "urls",
        "release_key": str(tmp_path / "key"),
        "shards": 3,
        **more,
    }


def test_plain_arguments_give_the_librarys_bytes(expected: dict[str, bytes], tmp_path: Path) -> None:
    step = ReleaseSparseHistogram(**arguments(tmp_path))
    assert collect(lambda p: p | beam.Create(mixed()) | step) == [str(tmp_path / "plain.sketch")]
    assert contents(tmp_path / "plain.sketch") == expected


def test_constructing_reads_nothing_and_applying_changes_nothing(tmp_path: Path) -> None:
    given = arguments(tmp_path, path=str(tmp_path / "nowhere" / "a"), release_key=str(tmp_path / "no key"))
    ReleaseSparseHistogram(**given, dataset="views", ledger=f"sqlite:///{tmp_path}/none.db")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["key"]
    step = ReleaseSparseHistogram(**arguments(tmp_path))
    before = dict(vars(step))
    pipeline = beam.Pipeline(runner="FnApiRunner")
    records = pipeline | beam.Create([("ann", "/a")])
    records | step
    assert {
        name: value for name, value in vars(step).items() if name != "_resource_hints"
    } == before  # Beam's own
    (tmp_path / "b").write_text("")
    with pytest.raises(OutputError, match="exists already"):
        records | "Again" >> ReleaseSparseHistogram(**arguments(tmp_path, path=str(tmp_path / "b")))


@pytest.mark.parametrize(
    "choice", [{"lookup": ["/a", "/b"]}, {"delta": "1e-2"}, {"public_keys": ["/a", "/b"]}]
)
def test_rows_are_what_the_sketch_says(choice: dict[str, Any], tmp_path: Path) -> None:
    given = arguments(tmp_path, output="rows", **choice)
    visits = [(f"u{i}", "/a") for i in range(400)]
    rows = collect(lambda p: p | beam.Create(visits) | ReleaseSparseHistogram(**given))
    sketch = Sketch.open(given["path"])
    found = sketch.estimate(choice["lookup"]) if "lookup" in choice else sketch.heavy()
    assert [row.key for row in rows] == found["key"].to_pylist()
    assert [row.low for row in rows] == found["low"].to_pylist()
    assert abs(rows[0].low + rows[0].high - 800) <= 2 * (rows[0].high - rows[0].low)  # of 95 %: twice as wide


def test_the_graph_names_the_transform_and_can_be_loaded(tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | beam.Create([("ann", "/a")]) | ReleaseSparseHistogram(**arguments(tmp_path))
    graph = pipeline.to_runner_api()
    (named,) = [t for t in graph.components.transforms.values() if t.spec.urn == URN]
    assert KEY.hex().encode() not in named.spec.payload
    assert json.loads(named.spec.payload)["epsilon"] == "2"
    beam.Pipeline.from_runner_api(graph, pipeline.runner, pipeline.options)


@pytest.mark.parametrize("counters", [False, True])
def test_exact_counters_are_there_on_request_alone(counters: bool, tmp_path: Path) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline | beam.Create(mixed()) | ReleaseSparseHistogram(**arguments(tmp_path), counters=counters)
    result = pipeline.run()
    result.wait_until_finish()
    assert set(read_counters(result)) == ({"offered", "records", "keys"} if counters else set())
