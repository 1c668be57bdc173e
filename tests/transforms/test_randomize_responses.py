"""Randomized responses on workers: retry-proof, position-bound and never linkable noise; exact bits stay inside."""

import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushgram.errors import ParameterError
from hushgram.inputs import Source
from hushgram.inputs.conditions import parse
from hushgram.mechanisms.randomized_response.mechanism import RandomizedResponseParams, randomize
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.pipelines.run.progress import read_counters
from hushgram.transforms.randomize_responses import RandomizeResponses, Secret, randomize_batch
from hushgram.transforms.read_records import plan_records

KEY = ReleaseKey(bytes(range(32)))
SICK = Secret("sick", "ill")
PARAMS = RandomizedResponseParams(1)
ROWS = 3000


def batch(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    return pa.record_batch({"city": rng.choice(["Paris", "Rome"], rows), "ill": rng.random(rows) < 0.3})


def released(part, key=KEY, item=0, number=0):
    table = randomize_batch(part, [SICK], ["city"], PARAMS, key, item=item, number=number)
    return np.asarray(table.column("sick"))


def test_same_place_and_bits_same_noise_anything_else_other_noise():
    one = batch()
    exact = np.asarray(one.column("ill"))
    first = released(one) ^ exact
    assert (first == (released(one) ^ exact)).all()
    other = batch(1)
    for noise in (
        released(one, item=1) ^ exact,  # an equal batch elsewhere: not linkable
        released(one, number=1) ^ exact,
        released(one, key=ReleaseKey(bytes(32))) ^ exact,
        released(other) ^ np.asarray(other.column("ill")),
    ):
        # Independent flips agree with probability p² + (1 − p)² ≈ 0.607.
        assert abs((noise == first).mean() - 0.607) < 5.5 * np.sqrt(0.607 * 0.393 / ROWS)


def test_broken_twin_noise_from_the_bits_alone_is_linked():
    """Without the place in the digest, equal batches get equal noise: the check above would see it."""
    bits = np.asarray(batch().column("ill"))
    here, there = (randomize(bits, PARAMS, KEY.source("rr", 0, digest("sick", bits))) for _ in range(2))
    assert abs((here == there).mean() - 0.607) > 5.5 * np.sqrt(0.607 * 0.393 / ROWS)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(2):  # two equal files, but for the number of each record
        write(tmp_path, number, batch())
    return tmp_path


def write(folder, number, records):
    table = pa.Table.from_batches([records]).append_column("id", [pa.array(np.arange(ROWS) + number * ROWS)])
    pq.write_table(table, folder / f"in/{number}.parquet", row_group_size=1000)


def released_bits(out):
    """The released bits by the number of their record."""
    table = pq.read_table(sorted(out.glob("part-*.parquet"))).sort_by("id")
    assert table.column("id").to_pylist() == list(range(2 * ROWS))
    return np.asarray(table.column("sick"))


def run(files, name, counted=None, **more):
    source = Source(ids=(), columns=("ill", "city", "id"), secrets=("ill",), item_bytes=4000)
    plan = plan_records([str(files / "in/*.parquet")], source)
    out = files / name
    out.mkdir()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        parts = pipeline | RandomizeResponses(
            plan, [SICK], ["city", "id"], RandomizedResponseParams(1), path=str(out), release_key=KEY, **more
        )
        _ = parts | beam.Map(lambda held: (out / "parts").write_text(json.dumps(held, sort_keys=True)))
    if counted is not None:
        counted.update(read_counters(pipeline.result))
    return out


def test_exact_figures_are_counted_only_on_request(files):
    silent, counted = {}, {}
    run(files, "one", silent)
    run(files, "two", counted, counters=True)
    assert not silent
    assert counted == {"rows": 2 * ROWS}


def test_reruns_are_byte_equal_and_equal_files_are_not_linkable(files):
    first, second = run(files, "one"), run(files, "two")
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted(p.name for p in second.iterdir())
    assert all((first / name).read_bytes() == (second / name).read_bytes() for name in names)
    stated = json.loads((first / "parts").read_text())
    assert set(stated) == {name for name in names if name != "parts"}
    assert all((first / name).stat().st_size == stated[name]["bytes"] for name in stated)
    assert pq.read_table(first / names[0]).column_names == ["city", "id", "sick"]
    exact = np.asarray(batch().column("ill"))
    noise = released_bits(first) ^ np.concatenate([exact, exact])
    assert abs((noise[:ROWS] == noise[ROWS:]).mean() - 0.607) < 5.5 * np.sqrt(0.607 * 0.393 / ROWS)
    assert abs(noise.mean() - RandomizedResponseParams(1).flip) < 5.5 * np.sqrt(0.2 / (2 * ROWS))


def test_a_secret_that_changes_anywhere_changes_the_noise_of_the_whole_table(files):
    """Under one key, batches without the changed record must not repeat their noise."""
    first = run(files, "one")
    flipped = np.asarray(batch()["ill"]).copy()
    flipped[-1] ^= True
    changed = batch().set_column(1, "ill", pa.array(flipped))
    write(files, 1, changed)
    second = run(files, "two")
    here, there = (released_bits(out)[:1000] for out in (first, second))
    assert abs((here == there).mean() - 0.607) < 5.5 * np.sqrt(0.607 * 0.393 / len(here))


@pytest.mark.parametrize(
    ("secret", "column", "bits"),
    [
        (Secret("s", "c"), pa.array([True, False, None]), [True, False, False]),
        (Secret("s", "c"), pa.array([0, 1, None]), [False, True, False]),
        (Secret("s", "c"), pa.array(["yes", "no", None, "True"]), [True, False, False, True]),
        (Secret("s", "c", equals="Paris"), pa.array(["Paris", "Rome", None]), [True, False, False]),
        (Secret("s", "c", equals="3"), pa.array([3, 4]), [True, False]),
        (
            Secret("s", where=parse("c >= 2.5 OR c = 1")),
            pa.array([3, 2, None, 1]),
            [True, False, False, True],
        ),
        (Secret("s", "c", at_least=2.5), pa.array([3, 2, None]), [True, False, False]),
        (Secret("s", "c", at_least=2.5), pa.array(["2.5", "x", "-1"]), [True, False, False]),
        (Secret("s", "c"), pa.array([b"\xff", b"YES", b"yes\n", None]), [False, True, False, False]),
        (Secret("s", "c", equals="é"), pa.array([b"\xe9", "é".encode(), b""]), [False, True, False]),
        (Secret("s", "c", at_least=2.5), pa.array([b"\xff3", b"3", b"2"]), [False, True, False]),
        (Secret("s", "c", equals="a"), pa.array(["a", "b", None]).dictionary_encode(), [True, False, False]),
    ],
)
def test_bits_of_every_kind_of_column(secret, column, bits):
    assert secret.bits(pa.record_batch({"c": column})).tolist() == bits


def test_mistakes_show_when_the_pipeline_is_built(files):
    paths, columns = [str(files / "in/*.parquet")], ("ill", "city")
    with pytest.raises(ParameterError, match="'ill' is secret; name it in Source"):
        RandomizeResponses(
            plan_records(paths, Source(ids=(), columns=columns)),
            [SICK],
            [],
            PARAMS,
            path="x",
            release_key=KEY,
        )
    plan = plan_records(paths, Source(ids=(), columns=columns, secrets=("ill",)))
    with pytest.raises(ParameterError, match="'ill' is secret and cannot be public"):
        RandomizeResponses(plan, [SICK], ["ill"], RandomizedResponseParams(1), path="x", release_key=KEY)
    with pytest.raises(ParameterError, match="split for 2 secrets, got 1"):
        RandomizeResponses(
            plan, [SICK], [], RandomizedResponseParams(1, secrets=2), path="x", release_key=KEY
        )
