"""The sparse vector stage: batch meaning and retries, and the online stage under TestStream."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that

from hushgram.errors import ParameterError
from hushgram.mechanisms.svt import ABOVE, BELOW, HALTED, SvtParams, run_batch
from hushgram.mechanisms.svt.histogram import HistogramParams
from hushgram.mechanisms.svt.online import advance, begin
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, digest
from hushgram.sensitivity import ExactVector, Sensitivity
from hushgram.transforms.sparse_vector import SparseVector
from tests.exact_counts import exact_counts

SECRET = bytes(range(32))
KEY = ReleaseKey(SECRET)
# The only local runner that knows TestStream.
DIRECT = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
CLEAR = SvtParams(epsilon="50", threshold=100, cutoff=2, answers="numeric")
NOISY = SvtParams(epsilon="1/2", threshold=100, cutoff=3, answers="numeric")


def gathered(build, runner="FnApiRunner", streaming=False):
    """All elements that ``build`` makes; through a file, because functions are copied to workers."""
    with tempfile.NamedTemporaryFile() as file:
        path = file.name

        def collect(rows):
            Path(path).write_bytes(pickle.dumps(list(rows)))

        with beam.Pipeline(runner=runner, options=PipelineOptions([], streaming=streaming)) as pipe:
            assert_that(build(pipe), collect)
        return pickle.loads(Path(path).read_bytes())


def plain(released):
    return [tuple(int(x) for x in row) for row in zip(*released, strict=True)]


def batch(elements, params, **options):
    """What the stage releases, by stream; parameters that are not given by stream are those of each."""
    params = params if isinstance(params, dict) else {name: params for name, _ in elements}
    key = InteractiveKey(SECRET) if options.get("online") else KEY
    rows = gathered(
        lambda pipe: pipe | beam.Create(elements) | SparseVector(params, release_key=key, **options)
    )
    return {name: plain(released) for name, released in rows}


def test_order_is_by_sequence_number_however_it_arrives():
    numbers, answers = np.arange(6), np.array([0, 500, 0, 500, 500, 0])
    shuffled = [("s", (numbers[i : i + 2], answers[i : i + 2])) for i in (4, 0, 2)]
    rows = batch(shuffled, CLEAR)["s"]
    assert [row[0] for row in rows] == list(range(6))
    assert [row[1] for row in rows] == [BELOW, ABOVE, BELOW, ABOVE, HALTED, HALTED]
    assert abs(rows[1][3] - 500) < 20


def test_noise_does_not_depend_on_how_the_input_was_cut():
    numbers = np.arange(50)
    answers = numbers * 4
    whole = batch([("s", (numbers, answers))], NOISY)
    cut = batch([("s", (n, a)) for n, a in zip(numbers[::-1], answers[::-1], strict=True)], NOISY)
    assert whole == cut
    release = digest(digest("s", numbers, answers))
    direct = run_batch(exact_counts(answers), NOISY, KEY, "s", sequence=numbers, release=release)
    assert [row[1] for row in whole["s"]] == direct.outcome.tolist()


def test_a_change_anywhere_changes_the_noise_of_every_stream():
    params = SvtParams(epsilon="1/10", threshold=0, cutoff=200, answers="gap")
    one, two = (np.arange(40), np.full(40, 10**6)), (np.arange(40), np.full(40, 10**6))
    before = batch([("one", one), ("two", two)], params)
    changed = two[1] + (np.arange(40) == 7)
    after = batch([("one", one), ("two", (two[0], changed))], params)
    for name in ("one", "two"):
        assert sum(a == b for a, b in zip(before[name], after[name], strict=True)) < 5


def test_sequence_numbers_are_part_of_what_keys_the_noise():
    params = SvtParams(epsilon="1/10", threshold=0, cutoff=200, answers="gap")
    answers = np.full(40, 10**6)
    gaps = {
        first: [row[2] for row in batch([("s", (np.arange(first, first + 40), answers))], params)["s"]]
        for first in (0, 40)
    }
    assert sum(a == b for a, b in zip(gaps[0], gaps[40], strict=True)) < 5


@pytest.mark.parametrize("online_", [False, True])
def test_answers_that_are_no_whole_numbers_are_refused_and_large_ones_clamped(online_):
    with pytest.raises(Exception, match="SparseVector: answers must be whole numbers"):
        batch([("s", ([0], [1.7]))], CLEAR, online=online_)
    rows = gathered(
        lambda pipe: (
            pipe
            | beam.Create([("s", (0, 2**63)), ("s", ([1, 2], [-(2**70), 2**64]))])
            | SparseVector(
                {"s": CLEAR}, release_key=InteractiveKey(SECRET) if online_ else KEY, online=online_
            )
        )
    )
    assert sorted(row[:2] for _, released in rows for row in plain(released)) == [
        (0, ABOVE),
        (1, BELOW),
        (2, ABOVE),
    ]


def test_a_repeated_number_is_answered_once():
    rows = batch([("s", ([0, 1], [5, 500])), ("s", ([1], [500]))], CLEAR)["s"]
    assert [row[:2] for row in rows] == [(0, BELOW), (1, ABOVE)]


def test_streams_have_their_own_noise_and_parameters():
    one = ("one", (np.arange(200), np.full(200, 100)))
    two = ("two", (np.arange(200), np.full(200, 100)))
    rows = batch([one, two], {"one": NOISY, "two": NOISY})
    assert rows["one"] != rows["two"]
    high = SvtParams(epsilon="50", threshold=1000, cutoff=2)
    rows = batch([one, two], {"one": CLEAR, "two": high})
    assert rows["two"][0][1] == BELOW


@pytest.mark.parametrize("online_", [False, True])
def test_a_stream_that_was_not_named_is_refused(online_):
    """Each stream spends ε of its own: with any number of them nobody could say what the stage spends."""
    two = ("two", ([0, 1], [5, 500]))
    with pytest.raises(Exception, match="no parameters for stream 'two'; it has one"):
        batch([two], {"one": CLEAR}, online=online_)
    for unnamed in (CLEAR, {}):
        with pytest.raises(ParameterError, match="params must name every stream"):
            SparseVector(unnamed, release_key=KEY, online=online_)


def test_display_data_has_the_guarantee_and_no_secret():
    shown = SparseVector({"s": NOISY, "t": CLEAR}, release_key=KEY).display_data()
    assert list(shown) == ["s", "t"]
    assert "epsilon 0.5" in shown["s"]
    assert KEY.hex() not in str(shown)


# --- online -----------------------------------------------------------------------------------------------


def online(events, params, first=0):
    """Released answers in the order in which the stage gives them."""
    named = {name: params for name, _ in filter(None, events)}
    stream = test_stream.TestStream()
    for event in events:
        stream = stream.advance_processing_time(1) if event is None else stream.add_elements([event])
    stream = stream.advance_watermark_to_infinity()
    rows = gathered(
        lambda pipe: pipe | stream | SparseVector(named, release_key=InteractiveKey(SECRET), first=first),
        DIRECT,
        streaming=True,
    )
    return [(name, *plain(released)[0]) for name, released in rows]


def one(number, answer, stream="s"):
    return stream, (number, answer)


def test_online_holds_back_early_arrivals():
    rows = online([one(2, 0), None, one(1, 500), None, one(3, 500), None, one(0, 0)], CLEAR)
    assert [(row[1], row[2]) for row in sorted(rows)] == [(0, BELOW), (1, ABOVE), (2, BELOW), (3, ABOVE)]


def test_online_equals_the_core_whatever_the_order():
    answers = [80, 120, 95, 300, 10, 400, 90]
    key = InteractiveKey(SECRET).take("tests")
    state, expected = begin(NOISY, key, "s"), []
    for number, answer in enumerate(answers):
        state, released = advance(NOISY, key, state, answer)
        expected.append((number, released.outcome, released.gap or 0, released.value or 0))
    in_order = online([one(i, a) for i, a in enumerate(answers)], NOISY)
    backwards = online([one(i, a) for i, a in reversed(list(enumerate(answers)))], NOISY)
    assert [row[1:] for row in sorted(in_order)] == expected
    assert [row[1:] for row in sorted(backwards)] == expected


def test_online_duplicates_are_answered_as_before():
    events = [
        one(0, 120),
        one(1, 300),
        one(1, 300),
        None,
        one(0, 120),
        one(3, 9),
        one(3, 9),
        one(2, 90),
        one(3, 9),
    ]
    rows = online(events, NOISY)
    by_number = {}
    for row in rows:
        by_number.setdefault(row[1], set()).add(row[2:])
    assert sorted(by_number) == [0, 1, 2, 3]
    assert all(len(seen) == 1 for seen in by_number.values())
    assert len(rows) == len(events) - 1  # all but the pause


def test_online_halts_and_says_so():
    events = [one(9, 1), one(0, 500), one(1, 500), None, one(2, 500), one(0, 500), one(7, 500)]
    rows = online(events, CLEAR)
    outcomes = {(row[1], row[2]) for row in rows}
    assert outcomes == {(0, ABOVE), (1, ABOVE), (2, HALTED), (7, HALTED), (9, HALTED)}
    assert sum(row[1] == 0 for row in rows) == 2


def test_online_streams_do_not_mix_and_may_begin_anywhere():
    rows = online([one(10, 500, "a"), one(10, 0, "b"), one(11, 500, "b"), one(3, 500, "a")], CLEAR, first=10)
    assert {row[:3] for row in rows} == {
        ("a", 10, ABOVE),
        ("b", 10, BELOW),
        ("b", 11, ABOVE),
        ("a", 3, HALTED),
    }


def test_bounded_input_can_be_answered_online():
    numbers, answers = np.arange(4), np.array([0, 500, 0, 500])
    element = ("s", (numbers, answers))
    rows = batch([element], CLEAR)["s"]
    found = gathered(
        lambda pipe: (
            pipe
            | beam.Create([element])
            | SparseVector({"s": CLEAR}, release_key=InteractiveKey(SECRET), online=True)
        )
    )
    assert sorted(plain(released)[0][:2] for _, released in found) == [row[:2] for row in rows]


def test_an_online_stage_takes_no_key_that_may_be_used_again():
    """The key of a release that is run again with other answers; one that another stage has; one of a batch."""
    element, once = ("s", (0, 5)), InteractiveKey.generate()
    stage = SparseVector({"s": CLEAR}, release_key=once, online=True)
    for _ in range(2):
        with pytest.raises(ParameterError, match=r"SparseVector: .* needs an InteractiveKey, got ReleaseKey"):
            gathered(
                lambda pipe: (
                    pipe | beam.Create([element]) | SparseVector({"s": CLEAR}, release_key=KEY, online=True)
                )
            )
    with pytest.raises(ParameterError, match="a batch may be run again and needs a ReleaseKey"):
        gathered(
            lambda pipe: (
                pipe | beam.Create([element]) | SparseVector({"s": CLEAR}, release_key=once, online=False)
            )
        )
    assert gathered(lambda pipe: pipe | beam.Create([element]) | stage)
    for again in (stage, SparseVector({"s": CLEAR}, release_key=once, online=True)):
        with pytest.raises(ParameterError, match="taken by another mechanism"):
            gathered(lambda pipe, again=again: pipe | beam.Create([element]) | again)


def test_an_online_stage_without_a_key_makes_one_of_its_own():
    wide = SvtParams(epsilon="1/10000000", threshold=0, answers="gap")
    gaps = {
        int(
            gathered(
                lambda pipe: pipe | beam.Create([("s", (0, 10**12))]) | SparseVector({"s": wide}, online=True)
            )[0][1].gap[0]
        )
        for _ in range(2)
    }
    assert len(gaps) == 2


def test_noise_on_every_answer_needs_the_sensitivity_of_all_parts_together():
    """Each part says how far a user moves it; noise for one of them is too little for all."""
    moved = Sensitivity(2, 1)
    parts = [("s", (np.array([i]), ExactVector(np.array([10 * i]), moved))) for i in range(4)]
    enough = HistogramParams(epsilon=1, threshold=5, sensitivity=Sensitivity(8, 1))
    assert len(batch(parts, enough)["s"]) == 4
    with pytest.raises(Exception, match=r"bounded to at most 8 per user .* calibrated for at most 2"):
        batch(parts, HistogramParams(epsilon=1, threshold=5, sensitivity=moved))
    plain_parts = [("s", (np.array([i]), np.array([10 * i]))) for i in range(4)]
    assert len(batch(plain_parts, enough)["s"]) == 4  # the caller's promise is about all of them
