"""Sizing: the library's plan, from tallies in any order; nothing is drawn where sizes are public."""

from __future__ import annotations

import dataclasses

import apache_beam as beam
import pytest

from hushgram import ReleaseKey
from hushgram.errors import ParameterError
from hushgram.exact.histogram import Histogram
from hushgram.sparse_histogram.plan import Plan, make_plan
from hushgram.sparse_histogram.sizing import Tally, release_sizes
from hushgram.transforms.plan_release import PlanFromTallies, PlanRelease, checked_plan
from hushgram.transforms.shuffle.sharding import split_groups
from tests.transforms.releases import KEY, SMALL, bounded, collect, params, records

CHOSEN = params()
HISTOGRAM = bounded(records(), CHOSEN)


def reference(key: ReleaseKey = KEY) -> Plan:
    sizes = release_sizes(Tally.of(HISTOGRAM), CHOSEN.split.size, CHOSEN.max_contributions, key)  # type: ignore[union-attr]
    return make_plan(CHOSEN, sizes)


def test_tallies_add_up_in_any_order() -> None:
    fn = PlanFromTallies(CHOSEN, KEY)
    tallies = [Tally.of(part) for _, part in split_groups(HISTOGRAM, 16)]
    plans = []
    for order in (tallies, tallies[::-1]):
        one, two = fn.create_accumulator(), fn.create_accumulator()
        for i, tally in enumerate(order):
            one, two = (fn.add_input(one, tally), two) if i % 3 else (one, fn.add_input(two, tally))
        plans.append(fn.extract_output(fn.merge_accumulators([two, one])))
    assert plans[0] == plans[1] == reference()
    assert PlanFromTallies(CHOSEN, ReleaseKey(bytes(32))).extract_output(Tally.of(HISTOGRAM)) != reference()


def test_the_stage_gives_the_librarys_plan() -> None:
    shards = list(split_groups(HISTOGRAM, 4))
    made = beam.Create(shards).with_output_types(tuple[int, Histogram])
    assert collect(lambda p: p | made | PlanRelease(CHOSEN, KEY)) == [reference()]


def test_public_sizes_need_no_data() -> None:
    chosen = params(**SMALL)
    made = beam.Create([]).with_output_types(tuple[int, Histogram])
    (plan,) = collect(lambda p: p | made | PlanRelease(chosen, KEY))
    assert (plan.sizes.records, plan.sizes.keys, plan.sizes.scale) == (2000, 400, 0)


def test_a_plan_whose_maps_do_not_hold_is_refused() -> None:
    plan = reference()
    broken = dataclasses.replace(plan, scale=plan.scale / 2)
    with pytest.raises(ParameterError):
        checked_plan(broken)
