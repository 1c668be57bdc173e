"""Finite domains: which keys fall where, which queries can be asked, and saved hypotheses that were altered."""

import json

import numpy as np
import pytest

from hushgram.accounting import Guarantee
from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints
from hushgram.errors import FormatError, InputError, ParameterError
from hushgram.mechanisms.domains import BucketDomain, KeyDomain, RangeDomain
from hushgram.mechanisms.pmw import GRID, OnlinePMW, PmwParams
from hushgram.mechanisms.pmw.synthetic import ReleasedAnswers, SyntheticHistogram, read_queries, workloads
from hushgram.noise.entropy import InteractiveKey
from tests.exact_counts import exact_counts

KEYS = ["a", "b", "c", "7", "12.5", "-3", "x9"]
PART = {texts: Histogram.of_column(KEYS + ["a"] * 4, texts=texts) for texts in (False, True)}


def test_listed_keys_count_and_others_do_not():
    cells = KeyDomain.of(["c", "a", "none"])
    assert cells.count(PART[False]).values.tolist() == [1, 5, 0]
    inside, replaced = cells.keep(KEYS)
    assert inside.tolist() == [True, False, True, False, False, False, False]
    assert replaced is None
    assert cells.row({"keys": ["a"]}, "q").tolist() == [0, GRID, 0]
    assert cells.row({"prefix": "n"}, "q").tolist() == [0, 0, GRID]


def test_heavy_keys_of_a_sketch_are_found_by_their_text():
    bits = 20
    prints = fingerprints(["a", "b"]) >> np.uint64(64 - bits)
    cells = KeyDomain.of_heavy(prints, bits)
    inside, named = cells.keep(KEYS + ["a"] * 4)
    assert inside.sum() == len(named) == 6
    assert cells.count(Histogram.of_column(named, texts=False)).values.tolist() == [5, 1]
    assert cells.positions(["b", cells.labels[0]]) == [1, 0]
    with pytest.raises(ParameterError, match="'zz' is not among the 2 keys"):
        cells.positions(["zz"])
    with pytest.raises(ParameterError, match="known by their text"):
        cells.row({"prefix": "a"}, "q")


def test_keys_that_share_a_fingerprint_are_refused():
    """Both would count the same records: a user would move the histogram by twice the bound."""
    with pytest.raises(ParameterError, match="share a fingerprint"):
        KeyDomain(["a", "b"], np.array([5, 5], np.uint64))


def test_buckets_hold_every_key_once():
    cells = BucketDomain(5)
    counts = cells.count(PART[False])
    assert counts.values.sum() == len(KEYS) + 4
    assert counts.values[cells.positions(["a"])[0]] >= 5
    assert cells.keep(KEYS)[0].all()
    with pytest.raises(ParameterError, match="at least 1"):
        BucketDomain(0)


def test_ranges_parse_numbers_and_leave_the_rest_out():
    cells = RangeDomain([-5, 0, 10, 20])
    assert cells.count(PART[True]).values.tolist() == [1, 1, 1]
    assert cells.keep(KEYS)[0].tolist() == [False, False, False, True, True, True, False]
    assert cells.positions(["10"]) == [2]
    assert cells.row({"between": [-5, 5]}, "q").tolist() == [GRID, GRID // 2, 0]
    assert cells.row({"between": [-(10**400), 5]}, "q").tolist() == [GRID, GRID // 2, 0]
    assert cells.row({"between": [2**63, 10**400]}, "q").tolist() == [0, 0, 0]
    for wrong in ("20", "x", "nan"):
        with pytest.raises(ParameterError, match="not in the domain's ranges"):
            cells.positions([wrong])
    for edges in ([1], [2, 1], [0, float("inf")]):
        with pytest.raises(ParameterError, match="rising"):
            RangeDomain(edges)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"keys": "a"}, "q: keys must be a list of texts"),
        ({"keys": [1]}, "q: keys must be a list of texts"),
        ({"weights": [1]}, "weights must be an object"),
        ({"weights": {"a": "much"}}, "numbers from 0 to 1"),
        ({"weights": {"a": True}}, "numbers from 0 to 1"),
        ({"cells": [2]}, "numbers from 0 to 1"),
        ({"dense": [1]}, "a list of 2 weights"),
        ({"dense": [1, 2]}, "from 0 to 1, got 2"),
        ({"between": [0, 1]}, "domain of ranges"),
        ({"keys": ["a"], "all": True}, "exactly one of"),
    ],
)
def test_queries_that_cannot_be_read(query, message):
    with pytest.raises(ParameterError, match=message):
        KeyDomain.of(["a", "b"]).row(query, "q")


def test_query_files():
    assert [q.id for q in read_queries([b'{"all": true}', "", '{"id": "x", "all": true}'], "f")] == ["0", "x"]
    for lines, message in [
        (["{"], "f, line 1: not JSON"),
        (["[]"], "must be an object"),
        (['{"keys": ["\\ud800"]}'], "f, line 1: is not Unicode text"),
        (['{"id": "\\ud800", "all": true}'], "f, line 1: is not Unicode text"),
        (['{"id": 1, "all": 1}', '{"id": "1", "all": 1}'], "id '1' occurs twice"),
        ([], "holds no query"),
    ]:
        with pytest.raises(InputError, match=message):
            read_queries(lines, "f")


@pytest.mark.parametrize(
    "domain", [KeyDomain.of(["a", "b", "c"]), BucketDomain(3), RangeDomain([0, 1, 2, 3])]
)
def test_saved_hypotheses_answer_as_they_did(tmp_path, domain):
    params = PmwParams(5, max_updates=3)
    pmw = OnlinePMW(exact_counts(np.array([100, 20, 3])), params, InteractiveKey(bytes(32)))
    queries = read_queries(['{"cells": [0]}', '{"all": true}', '{"dense": [0.5, 0.25, 1]}'], "f")
    parts = [pmw.answer(work) for work in workloads(queries, domain)]
    released = ReleasedAnswers.of(pmw, parts)
    for name, body in released.files(queries, domain, params, "name", Guarantee(())).items():
        (tmp_path / name).write_bytes(body)
    opened = SyntheticHistogram.open(tmp_path)
    assert opened.domain.labels == domain.labels
    (work,) = workloads(queries, domain)
    assert opened.answer(queries) == pytest.approx(pmw.hypothesis.estimate(work) / GRID, abs=1e-3)
    assert opened.histogram().column("count").to_numpy() == pytest.approx(pmw.hypothesis.counts())
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    for change, message in [
        ({"format": "x"}, "not of released answers"),
        ({"version": 9}, "version 9"),
        ({"files": {}}, "lacks a field"),
        ({"domain": {"kind": "keys"}}, "lacks a field"),
    ]:
        (tmp_path / "manifest.json").write_text(json.dumps({**manifest, **change}))
        with pytest.raises(FormatError, match=message):
            SyntheticHistogram.open(tmp_path)
