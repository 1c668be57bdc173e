"""Windows of the input make no difference to any stage: what is released is one release, for all time.

Each stage runs on data in the global window and on the same data cut into fixed windows (and sessions).
"""

from __future__ import annotations

import pickle
import tempfile
from copy import copy
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue

from hushgram.contributions.bounding import BoundingSpec, Bounds
from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.mechanisms.clipping import ClipParams
from hushgram.mechanisms.domains import KeyDomain
from hushgram.mechanisms.pmw.mechanism import PmwParams
from hushgram.mechanisms.pmw.synthetic import LinearQuery
from hushgram.mechanisms.selection import SelectionParams
from hushgram.mechanisms.svt.exact_answers import QueryPlan, pack_records
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.mechanisms.svt.queries import check_stream, parse_query
from hushgram.noise.entropy import InteractiveKey, ReleaseKey
from hushgram.transforms.bound_contributions import BoundContributions
from hushgram.transforms.count_domain import CountDomain
from hushgram.transforms.merge_histograms import MergeHistograms
from hushgram.transforms.release_clipped import ReleaseClipped
from hushgram.transforms.release_domain import AnswerLinear, SelectTop
from hushgram.transforms.shuffle.combining import OneWindow
from hushgram.transforms.sparse_vector import AnswerQueries, SparseVector
from tests.exact_counts import exact_counts

KEY = ReleaseKey(bytes(range(32)))
KEYS = ["/a", "/b", "/c", "/d"]
VIEWS = [(f"u{i % 5}", KEYS[i % 4]) for i in range(40)]
SCHEMA = pa.schema([("user", pa.string()), ("url", pa.string())])
NUMBERS = pa.schema([("n", pa.int64())])
SVT = SvtParams(epsilon="1/2", threshold=100, cutoff=3, answers="numeric")
PLAN = QueryPlan(
    check_stream([parse_query({"key": "/a"}, 0, "q"), parse_query({"prefix": "/"}, 1, "q")], "test"),
    SCHEMA,
    "url",
)


def histograms(texts=False):
    return [Histogram.of_column([key for _, key in VIEWS[i : i + 10]], texts=texts) for i in range(0, 40, 10)]


def vectors():
    return [exact_counts([900, 20, 50, 5 * i]) for i in range(4)]


def values():
    parts = [pa.table({"n": [3 * i, 5, 80, i]}) for i in range(4)]
    return [Histogram.of_column(pack_records(part, NUMBERS), texts=True) for part in parts]


def streams():
    return [("s", (np.arange(3 * i, 3 * i + 3), np.array([90, 110, 100]))) for i in range(4)]


def total(parts):
    """Counts of all parts together, by fingerprint."""
    merged = Histogram.merge(parts)
    return dict(zip(merged.fingerprints.tolist(), merged.counts.tolist(), strict=True))


STAGES = {
    "bound": (
        VIEWS,
        BoundContributions(BoundingSpec("user", "url", KEY, (Bounds(3, 2),), texts=False), 3),
        total,
    ),
    "count records": (
        VIEWS,
        BoundContributions(BoundingSpec(None, "url", KEY, (Bounds(1, 1),), texts=False)),
        total,
    ),
    "merge": (
        histograms(),
        MergeHistograms(2, texts=False),
        lambda groups: total([part for _, part in groups]),
    ),
    "count domain": (
        histograms(),
        CountDomain(KeyDomain.of(KEYS)),
        lambda out: [v.values.tolist() for v in out],
    ),
    "queries": (
        {"keys": histograms(texts=True)},
        AnswerQueries(PLAN, [("s", range(2))]),
        lambda out: [(stream, answers.values.tolist()) for stream, (_, answers) in out],
    ),
    "clip": (values(), ReleaseClipped(ClipParams(epsilon=3, stop=100), NUMBERS, KEY, "record"), list),
    "linear": (
        vectors(),
        AnswerLinear(
            KeyDomain.of(KEYS),
            [LinearQuery("q", {"all": True})],
            PmwParams(1, max_updates=2),
            release_key=KEY,
        ),
        lambda out: [(o.answers.scaled.tolist(), o.units.tolist(), o.updates) for o in out],
    ),
    "top": (
        vectors(),
        SelectTop(KEYS, SelectionParams("0.001", count=3), release_key=KEY),
        list,
    ),
    "sparse vector": (
        streams(),
        SparseVector({"s": SVT}, release_key=KEY, online=False),
        lambda out: [(stream, [column.tolist() for column in released]) for stream, released in out],
    ),
}


def stamp(element):
    number, value = element
    return TimestampedValue(value, 100 * number)


def run(data, stage, windows):
    """Elements that a stage makes of data at different times, in these windows."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "out"))
        with beam.Pipeline(runner="FnApiRunner") as pipeline:

            def collection(elements, name):
                made = pipeline | f"Create {name}" >> beam.Create(list(enumerate(elements)))
                made = made | f"Stamp {name}" >> beam.Map(stamp)
                return made if windows is None else made | f"Window {name}" >> beam.WindowInto(windows)

            if isinstance(data, dict):
                given = {name: collection(elements, name) for name, elements in data.items()}
            else:
                given = collection(data, "data")
            done = given | copy(stage)  # Beam binds a stage to its pipeline
            if windows is not None:
                assert done.windowing.windowfn == beam.window.GlobalWindows()
            _ = done | beam.combiners.ToList() | beam.Map(keep, path)
        return pickle.loads(Path(path).read_bytes())


def keep(elements, path):
    Path(path).write_bytes(pickle.dumps(elements))


@pytest.mark.parametrize("name", STAGES)
def test_windows_make_no_difference(name):
    data, stage, shown = STAGES[name]
    expected = shown(run(data, stage, None))
    assert shown(run(data, stage, FixedWindows(10))) == expected
    assert shown(run(data, stage, Sessions(5))) == expected


@pytest.mark.parametrize("name", STAGES)
def test_overlapping_windows_are_refused(name):
    data, stage, _ = STAGES[name]
    with pytest.raises(ParameterError, match="in SlidingWindows, where a record may count several times"):
        run(data, stage, SlidingWindows(20, 10))


def test_a_stream_online_has_one_cutoff_for_all_windows():
    """Equal days: on windowed input each began anew, with equal noise."""
    clear = {"s": SvtParams(epsilon="50", threshold=100, cutoff=2)}
    days = [("s", (np.array([i]), np.array([500]))) for i in range(6)]
    out = run(days, SparseVector(clear, release_key=InteractiveKey.generate(), online=True), FixedWindows(10))
    outcomes = sorted((int(r.sequence[0]), int(r.outcome[0])) for _, r in out)
    assert [outcome for _, outcome in outcomes] == [1, 1, -1, -1, -1, -1]


def test_unbounded_input_is_refused_when_the_pipeline_is_built() -> None:
    spec = BoundingSpec("user", "url", KEY, (Bounds(3, 2),), texts=False)
    pipeline = beam.Pipeline(runner="FnApiRunner")
    stream = pipeline | TestStream().add_elements([("u", "/a")])
    with pytest.raises(ParameterError, match="the input is unbounded"):
        stream | BoundContributions(spec)


def test_the_global_window_costs_no_step() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    whole = pipeline | beam.Create([("u", "/a")])
    assert whole | OneWindow() is whole
