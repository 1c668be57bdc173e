"""Cases of the black-box audit: whole releases, each by the job that a command runs (`tests.privacy.blackbox_jobs`)."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import hushgram as hg
from hushgram.inputs.key_expressions import bound_record
from hushgram.noise.entropy import ReleaseKey
from tests.neighbours.data import COLLIDING
from tests.privacy.blackbox_jobs import Pair, Seen, job_case

__all__ = ["CASES", "CELLS", "KEY", "PURE_LIST", "QUARTERS", "WORDS"]

KEY, KEY2 = "/the-key", "/another"
_SIZED = {"sizes": {"records": 16, "keys": 16}}
_ONE = {"max_contributions": 1}


def _list_and_bit(seen: Seen, key: str = KEY) -> tuple[bool, bool]:
    """Above the threshold, and the bit of the first level."""
    return seen.value(key) is not None, bool(seen.encoded(key)[0])


def _two_keys(seen: Seen) -> Hashable:
    listed = (seen.value(KEY) is not None) + (seen.value(KEY2) is not None)
    return listed, int(seen.encoded(KEY)[0]) + int(seen.encoded(KEY2)[0])


def _sizes_list_and_bit(seen: Seen) -> Hashable:
    """Both numbers that the user moves by most, and what the rest shows."""
    return seen.plan.sizes.records > 0, seen.plan.sizes.keys > 0, *_list_and_bit(seen)


def _totals_list_and_bit(seen: Seen) -> Hashable:
    """The number of users with a total of 1, and whether C is 1, on top of the rest."""
    return seen.plan.params.max_contributions == 1, seen.plan.users.users[0] > 0, *_list_and_bit(seen)


def _value_and_last_bit(seen: Seen) -> Hashable:
    """The list, and the bit of the level that the tenth user reaches and nine do not."""
    value = seen.value(KEY)
    return None if value is None else min(value - seen.plan.threshold, 12), bool(seen.encoded(KEY)[-1])


def _users(count: int, key: str = KEY) -> list[tuple[Any, ...]]:
    return [(f"u{i}", key) for i in range(count)]


def _key_list(*keys: str) -> Any:
    """Write the file of public keys."""
    return lambda folder: (folder / "keys.txt").write_text("\n".join(keys) + "\n")


_PUBLIC = {"domain": {"public_keys": "{folder}/keys.txt"}}
_OTHERS: list[tuple[Any, ...]] = [("a", "/other")]
_USER: list[tuple[Any, ...]] = [("v", KEY)]
_VALUES = ("user", "key", "value")
PURE_LIST = Pair({"privacy": {"epsilon": "1", **_ONE}, **_SIZED}, [], _USER, _list_and_bit, (KEY,))

# --- three hundred users with four keys of a quarter unit each ------------------------------------------------------

# At C = 3 about one unit of each user counts. Cut to three keys per user it would be a quarter less; when batches were
# cut so, one line more or less in a batch decided whether they were.
_FOUR = ("/a", "/b", "/c", "/d")


def _line_and_crowd(seen: Seen) -> Hashable:
    """What the user's line adds, and whether the others' sums are nearer to four keys per user than to three."""
    return seen.value(KEY) >= 3, sum(seen.value(key) for key in _FOUR) >= 262  # type: ignore[misc, operator]


QUARTERS = Pair(
    {
        "input": {"value": "value"},
        "privacy": {"epsilon": "1/2", "max_contributions": 3, "max_value": 3, "granularity": 1, **_PUBLIC},
    },
    [(f"u{i}", key, 0.25) for i in range(300) for key in _FOUR],
    [("v", KEY, 3)],
    _line_and_crowd,
    (KEY, *_FOUR),
    beside=_key_list(KEY, *_FOUR),
    whole=True,
    columns=_VALUES,
)

# --- one record of twenty words, without a column of users ----------------------------------------------------------

_TEXT = tuple(f"word{i}" for i in range(20))
_COUNTED = _TEXT[bound_record(pa.array(_TEXT).dictionary_encode(), np.zeros(len(_TEXT), np.int64), 1, 1)[0]]


def _words(seen: Seen) -> Hashable:
    """The word of the record that counts, and how much shows of the words that do not."""
    above = {word: seen.value(word) >= 1 for word in _TEXT}  # type: ignore[operator]
    return above.pop(_COUNTED), sum(above.values()) // 4


WORDS = Pair(
    {"input": {"key": "text | words"}, "privacy": {"epsilon": "1/2", **_ONE, **_PUBLIC}},
    [("other",)],
    [(" ".join(_TEXT),)],
    _words,
    _TEXT,
    beside=_key_list(*_TEXT),
    columns=("text",),
)

# --- the larger of two cells of a sketch, and a user with four keys in one of them ----------------------------------


def _sketch_of_two_cells(folder: Path) -> None:
    params = hg.ReleaseParams(epsilon=50, max_contributions=1)
    keys, path = ["a", "b"] * 400, folder / "cells.sketch"
    if not path.exists():
        hg.release(None, keys, params, path, release_key=ReleaseKey(bytes(32)))


CELLS = Pair(
    {
        "sketch": "{folder}/cells.sketch",
        "count": 1,
        "privacy": {"epsilon": "1/2", "max_contributions": 1 + len(COLLIDING)},
    },
    [(f"u{i}", "a") for i in range(5)] + [(f"w{i}", "b") for i in range(6)],
    [("v", key) for key in ("a", *COLLIDING)],
    lambda chosen: chosen[0],
    beside=_sketch_of_two_cells,
    whole=True,
    job_name="top",
)

# --- keys selected by weights ---------------------------------------------------------------------------------------

# A user counts 16 times for one key, so that noise is on a fine grid. Nearly all precision is that of the part that is
# seen: of counts, where a key that sixty users have has one more, or of selection, where one user alone has a key.
_WEIGHTED = {"epsilon": "2", "delta": "0.02", "max_contributions": 16, "max_per_key": 16}
_SEEN_COUNTS, _SEEN_NAMES = Fraction(3, 100), Fraction(97, 100)


def _crowd(keys: int) -> list[tuple[Any, ...]]:
    """Users with so many keys each, from which the number of rounds follows."""
    return [(f"w{i}", f"/w{(i + j) % 40}") for i in range(800) for j in range(keys)]


def _counts(*seen: Seen) -> Hashable:
    """The counts of the key in all sketches together, or that it is not named."""
    values = [each.value(KEY) for each in seen]
    return None if None in values else round(sum(values) / 6)  # type: ignore[arg-type]


def _of_rounds(keys: int) -> Pair:
    """Keys of sixty users and one more, beside users with so many keys."""
    return Pair(
        {"privacy": _WEIGHTED, **_SIZED}, _users(60) + _crowd(keys), _USER * 16, _counts, (KEY,),
        selection_share=_SEEN_COUNTS,
    )  # fmt: skip


CASES = (
    job_case("δ > 0, keys by weights in one round, a key of sixty users", _of_rounds(1)),
    job_case("δ > 0, keys by weights in two rounds, a key of sixty users", _of_rounds(3)),
    job_case(
        "δ > 0, keys by weights, a key of one user alone",
        Pair(
            {"privacy": _WEIGHTED, **_SIZED}, _crowd(1), _USER, lambda seen: seen.value(KEY) is not None, (KEY,),
            selection_share=_SEEN_NAMES,
        ),
        of_delta=True,
    ),
    job_case(
        "δ > 0, keys by weights once for two metrics, a key of sixty users",
        Pair(
            {"privacy": _WEIGHTED, "each": {"visits": _SIZED, "again": _SIZED}},
            _users(60) + _crowd(1),
            _USER * 16,
            _counts,
            (KEY,),
            job_name="metrics",
            selection_share=_SEEN_COUNTS,
        ),
    ),
    job_case("δ = 0, list and ALP", PURE_LIST),
    job_case(
        "δ = 0, list and ALP, two keys of one user",
        Pair(
            {"privacy": {"epsilon": "2", "max_contributions": 2}, **_SIZED},
            _OTHERS,
            [("v", KEY), ("v", KEY2)],
            _two_keys,
            (KEY, KEY2),
        ),
    ),
    job_case(
        "δ = 0, sums of values, list and ALP",
        Pair(
            {
                "input": {"value": "value"},
                "privacy": {"epsilon": "1", "granularity": "0.5", "max_value": 1, **_ONE},
                **_SIZED,
            },
            [(*row, 1.5) for row in _OTHERS],
            [(*row, 1.5) for row in _USER],
            _list_and_bit,
            (KEY,),
            columns=_VALUES,
        ),
    ),
    job_case(
        "δ = 0, sizes, list and ALP",
        Pair({"privacy": {"epsilon": "2", **_ONE}}, [], _USER, _sizes_list_and_bit, (KEY,)),
    ),
    job_case(
        "δ = 0, C by the data, list and ALP",
        Pair(
            {"privacy": {"epsilon": "3", "max_contributions": "auto"}, **_SIZED},
            [],
            _USER,
            _totals_list_and_bit,
            (KEY,),
            whole=True,
        ),
    ),
    job_case(
        "δ = 0, two metrics, lists and ALP",
        Pair(
            {
                "privacy": {"epsilon": "2", **_ONE},
                "each": {"visits": _SIZED, "bytes": {"value": "value", "max_value": 1, "granularity": 1, **_SIZED}},
            },
            [(*row, 1) for row in _OTHERS],
            [(*row, 1) for row in _USER],
            lambda visits, bytes: (*_list_and_bit(visits), *_list_and_bit(bytes)),
            (KEY,),
            job_name="metrics",
            columns=_VALUES,
        ),
    ),
    job_case(
        "δ > 0, names, cells and ALP, a key of ten users",
        Pair(
            {"privacy": {"epsilon": "1", "delta": "0.01", **_ONE}, **_SIZED},
            _users(9),
            _USER,
            _value_and_last_bit,
            (KEY,),
        ),
    ),
    job_case(
        "δ > 0, names, a key of one user alone",
        Pair(
            {"privacy": {"epsilon": "1", "delta": "0.02", **_ONE}, **_SIZED},
            _OTHERS,
            _USER,
            lambda seen: seen.named(KEY),
            (KEY,),
        ),
        of_delta=True,
    ),
    job_case(
        "a public list",
        Pair(
            {"privacy": {"epsilon": "1", **_ONE, **_PUBLIC}},
            _users(3),
            _USER,
            lambda seen: min(max(seen.value(KEY), 0), 8),
            (KEY, KEY2),
            beside=_key_list(KEY, KEY2),
        ),
    ),
    job_case("a public list, sums of 300 users with four keys of a quarter unit", QUARTERS),
    job_case("a public list, a record of twenty words without a user", WORDS),
    job_case("the larger of two cells of a sketch, a user with four keys in it", CELLS),
)  # fmt: skip
