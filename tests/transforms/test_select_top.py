"""The stage that picks the most frequent keys of a public list: right keys, same keys on every run, errors."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.mechanisms.domains import KeyDomain
from hushgram.mechanisms.selection import SelectionParams
from hushgram.noise.entropy import ReleaseKey
from hushgram.transforms.count_domain import CountDomain
from hushgram.transforms.release_domain import SelectTop, _choose
from tests.exact_counts import exact_counts

KEY = ReleaseKey(bytes(range(32)))
LISTED = ["a", "b", "c", "d", "absent"]
COUNTS = {"a": 500, "b": 900, "c": 20, "d": 700, "not listed": 5000}


def parts(pieces):
    keys = [key for key, count in COUNTS.items() for _ in range(count)]
    order = np.random.default_rng(pieces).permutation(len(keys))
    return [
        Histogram.of_column([keys[i] for i in part], texts=False) for part in np.array_split(order, pieces)
    ]


@pytest.mark.parametrize("pieces", [1, 7])
def test_picks_the_most_frequent_listed_keys_however_the_data_are_cut(pieces):
    params = SelectionParams(2, count=3)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        counts = pipeline | beam.Create(parts(pieces)) | CountDomain(KeyDomain.of(LISTED))
        chosen = counts | SelectTop(LISTED, params, release_key=KEY, unit="record")
        assert_that(chosen, equal_to([["b", "d", "a"]]))


def test_no_data_at_all_still_chooses():
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        empty = pipeline | beam.Create([], reshuffle=False) | CountDomain(KeyDomain.of(LISTED))
        chosen = empty | SelectTop(LISTED, SelectionParams(1, count=2), release_key=KEY)
        assert_that(chosen | beam.Map(len), equal_to([2]))


def test_noise_is_a_function_of_key_list_and_counts():
    params = SelectionParams("0.01", count=5)
    labels = [str(i) for i in range(40)]

    def chosen(counts, key=KEY):
        return _choose(exact_counts(counts), labels, params, key, "user")

    counts = np.arange(40)
    first = chosen(counts)
    assert chosen(counts) == first
    assert chosen(counts + 1) != first
    assert chosen(counts, ReleaseKey(bytes(32))) != first


def test_counts_of_records_are_refused_where_users_are_protected():
    def run():
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            counts = pipeline | beam.Create(parts(2)) | CountDomain(KeyDomain.of(LISTED))
            _ = counts | SelectTop(LISTED, SelectionParams(2), release_key=KEY)

    with pytest.raises(ParameterError, match="at most 1 per record, but the noise is calibrated for"):
        run()


def test_mistakes_show_when_the_pipeline_is_built():
    with pytest.raises(ParameterError, match="count must be at most the 5 keys, got 6"):
        SelectTop(LISTED, SelectionParams(1, count=6))
    with pytest.raises(ParameterError, match="listed twice"):
        SelectTop(["a", "a"], SelectionParams(1))
