"""ReleaseSparseHistogram: records of every form, one sketch; and the key shows nowhere."""

from __future__ import annotations

import doctest
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import FixedWindows

from hushgram import ReleaseKey, ReleaseParams
from hushgram.errors import InputError, OutputError, ParameterError
from hushgram.release_in_memory import release
from hushgram.sparse_histogram.contribution_bounds import GRID
from hushgram.transforms import ReleaseSparseHistogram
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
    with pytest.raises(ParameterError, match="params must be ReleaseParams, got dict"):
        ReleaseSparseHistogram({}, key="url", path=tmp_path / "a")  # type: ignore[arg-type]
    (tmp_path / "b").write_text("")
    with pytest.raises(OutputError, match="exists already"):
        ReleaseSparseHistogram(CHOSEN, key="url", path=tmp_path / "b")
    with pytest.raises(ParameterError, match="max_rejected_share must be from 0 to 1, got 5"):
        ReleaseSparseHistogram(CHOSEN, key="url", path=tmp_path / "a", max_rejected_share=5)
    with pytest.raises(ParameterError, match="levels"):
        ReleaseSparseHistogram(
            params(epsilon="0.1", alpha="0.01", optimize="totals"), key="url", path=tmp_path / "a"
        )


def test_a_release_key_binds_to_its_parameters(tmp_path: Path) -> None:
    other = ReleaseParams(epsilon="1", max_contributions=4)
    one = ReleaseSparseHistogram(CHOSEN, key="url", path=tmp_path / "a", release_key=KEY)
    two = ReleaseSparseHistogram(other, key="url", path=tmp_path / "a", release_key=KEY)
    assert isinstance(one._spec.release_key, ReleaseKey)
    assert one._spec.release_key != two._spec.release_key


@pytest.mark.parametrize(
    "choice",
    [
        {"encoding": "buckets"},
        {"encoding": "buckets", "delta": "1e-6", "noise": "laplace"},
        {"encoding": "buckets", "delta": "1e-6", "noise": "gaussian", "max_contributions": 12},
        {"encoding": "alp", "delta": "1e-6", "noise": "gaussian", "max_per_key": 1},
    ],
    ids=["pure", "text", "gaussian", "gaussian-alp"],
)
def test_every_encoding_and_noise_gives_the_librarys_bytes(choice: dict[str, Any], tmp_path: Path) -> None:
    chosen = params(**choice)
    release(TABLE["user"], TABLE["url"], chosen, tmp_path / "a", release_key=KEY)
    step = ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "b", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(TABLE, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")


@pytest.mark.parametrize("choice", [{}, {"delta": "1e-6", "encoding": "buckets", "max_per_key": 1}])
def test_a_bound_chosen_from_the_data_is_the_librarys(choice: dict[str, Any], tmp_path: Path) -> None:
    chosen = params(**{"max_contributions": "auto", **choice})
    by_library = release(TABLE["user"], TABLE["url"], chosen, tmp_path / "a", release_key=KEY)
    step = ReleaseSparseHistogram(chosen, user="user", key="url", path=tmp_path / "b", release_key=KEY)
    with beam.Pipeline(runner="FnApiRunner") as p:
        p | beam.Create(pieces(TABLE, [7, 120])) | step
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    plan = by_library.plan
    assert plan.totals is not None
    assert plan.params.max_contributions in GRID
    assert {part.kind: part.epsilon for part in plan.guarantee().parts}["contributions"] == Fraction(1, 10)
    assert by_library.guarantee.epsilon == 2


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
