"""Cases of the black-box audit: whole releases by the library.

Everything is the code that ships, with savings that change nothing of what is drawn: nothing is written to files; of
the 256 noise shards of the list only those are released that a case looks at, for the noise of each is its own; and
what follows from parameters and exact data alone (histogram, digests, plans) is kept for fifty releases, each under a
fresh key. `test_blackbox` shows that what is seen so is what the full release with the same key says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import hushgram as hg
from hushgram import release_in_memory
from hushgram.exact.histogram import Histogram
from hushgram.exact.keys import fingerprints
from hushgram.noise.entropy import ReleaseKey
from hushgram.sparse_histogram import steps
from hushgram.sparse_histogram.sizing import Survey
from hushgram.sparse_histogram.threshold import Heavy
from tests.privacy.blackbox import Case

__all__ = ["CASES", "KEY", "PURE_LIST", "Pair", "Seen", "observing", "release_case"]

_AGAIN = 50
KEY, KEY2 = "/the-key", "/another"
_CONCAT = Heavy.concat
_NOTHING = Heavy(np.zeros(0, np.uint64), np.zeros(0, np.int64))
_KEPT_PLANS = lru_cache(1 << 12)(steps.make_plan)


@cache
def _print(key: str) -> int:
    return int(fingerprints([key])[0])


@dataclass(frozen=True)
class Seen:
    """The parts of a release that a case looks at."""

    plan: Any
    heavy: Heavy
    blocks: list[Any]
    release_key: ReleaseKey

    def value(self, key: str = KEY) -> int | None:
        """The noisy count of a key in the list."""
        place = _print(key) if self.plan.domain_bits is None else _print(key) >> (64 - self.plan.domain_bits)
        found = np.flatnonzero(self.heavy.fingerprints == np.uint64(place))
        return int(self.heavy.values[found[0]]) if len(found) else None

    def encoded(self, key: str = KEY) -> Any:
        """What the encoding shows of a key."""
        place = self.plan.kind.place(np.array([_print(key)], np.uint64), self.plan.domain_bits)
        seeds = release_in_memory.seeds_of(self.plan, self.release_key)
        contents = [block.content for block in self.blocks]  # in order
        return self.plan.space.look_up(place, seeds, lambda block: np.frombuffer(contents[block], np.uint8))[
            0
        ]


@contextlib.contextmanager
def observing(watched: tuple[str, ...]) -> Iterator[None]:
    """Releases give what is `Seen`; of their lists only the shards of some keys are drawn."""
    shards = {_print(key) >> 56 for key in watched}
    surveys: dict[int, tuple[Any, Any]] = {}
    parts: dict[int, tuple[Any, list[Any]]] = {}

    def shards_of(histogram: Histogram) -> list[Any]:
        if id(histogram) not in parts:
            parts.clear()
            parts[id(histogram)] = histogram, all_shards(histogram)
        return parts[id(histogram)][1]

    def survey_of(numbered: Iterable[tuple[int, Histogram]]) -> Any:
        held = [part for _, part in numbered]
        if id(held[0]) not in surveys:  # all of one histogram are made at once, and kept beside their survey
            surveys.clear()
            survey = Survey.of(enumerate(held))
            told = SimpleNamespace(
                **{name: getattr(survey, name) for name in ("records", "profile", "digests", "admit")}
            )
            told.data_digest = cache(survey.data_digest)
            surveys[id(held[0])] = held, told
        return surveys[id(held[0])][1]

    def heavy_of_shard(shard: int, *rest: Any) -> Heavy:
        return real["heavy_of_shard"](shard, *rest) if shard in shards else _NOTHING  # type: ignore[no-any-return]

    def concat(parts: list[Heavy]) -> Heavy:
        return _CONCAT([part for part in parts if part is not _NOTHING] or [_NOTHING])

    def keep(_path: Any, plan: Any, heavy: Heavy, blocks: Any, key: ReleaseKey, _name: str) -> Seen:
        return Seen(plan, heavy, list(blocks), key)

    changes = {"heavy_of_shard": heavy_of_shard, "_write": keep, "Survey": SimpleNamespace(of=survey_of)}
    all_shards = Histogram.shards
    real = {name: getattr(release_in_memory, name) for name in changes}
    with (
        mock.patch.multiple(release_in_memory, **changes),
        mock.patch.object(steps, "make_plan", _KEPT_PLANS),
        mock.patch.object(Heavy, "concat", concat),
        mock.patch.object(Histogram, "shards", shards_of),
    ):
        yield


@dataclass(frozen=True)
class Pair:
    """Draws releases of data without and with one user, and reduces each to an outcome."""

    params: dict[str, Any]
    without: tuple[list[str], list[str]]
    user: tuple[list[str], list[str]]
    outcome: Callable[[Seen], Hashable]
    watched: tuple[str, ...] = (KEY,)
    public: tuple[str, ...] = ()
    value: float | None = None  # of each record

    def columns(self, added: bool) -> tuple[list[Any], list[Any]]:
        """Users and keys."""
        users, keys = list(self.without[0]), list(self.without[1])
        return (users + self.user[0], keys + self.user[1]) if added else (users, keys)

    def __call__(self, added: bool, runs: int) -> Iterator[Hashable]:
        params = hg.ReleaseParams(**self.params)
        users, keys = self.columns(added)
        more = {} if self.value is None else {"values": [self.value] * len(users)}
        with observing(self.watched):
            if self.public:
                for _ in range(runs):
                    yield self.outcome(hg.release_public(users, keys, list(self.public), params))  # type: ignore[arg-type]
                return
            for at in range(0, runs, _AGAIN):
                again = min(_AGAIN, runs - at) - 1
                users, keys = self.columns(added)
                with mock.patch.object(
                    release_in_memory, "_release", wraps=release_in_memory._release
                ) as inner:
                    yield self.outcome(hg.release(users, keys, params, **more))  # type: ignore[arg-type]
                histogram, _, path, _, *rest = inner.call_args.args
                for _ in range(again):
                    if params.choose_contributions:
                        yield self.outcome(hg.release(users, keys, params, **more))  # type: ignore[arg-type]
                        continue
                    key = steps.key_for(params, None)
                    yield self.outcome(release_in_memory._release(histogram, params, path, key, *rest))  # type: ignore[arg-type]


def release_case(name: str, pair: Pair, **more: Any) -> Case:
    params = hg.ReleaseParams(**pair.params)
    return Case(name, float(params.epsilon), pair, delta=float(params.delta), **more)


_SIZED = {"expected_keys": 16, "expected_records": 16}
_PURE = {"domain_bits": 8, "false_keys": 100}
_ONE = {"max_contributions": 1}
_THIRDS = dict.fromkeys(("contributions", "threshold", "encoding"), "1/3")  # so that C is 1 mostly


def _list_and_bit(seen: Seen) -> Hashable:
    """Above the threshold, and the bit of the first level."""
    return seen.value() is not None, bool(seen.encoded()[0])


def _two_keys(seen: Seen) -> Hashable:
    listed = (seen.value(KEY) is not None) + (seen.value(KEY2) is not None)
    return listed, int(seen.encoded(KEY)[0]) + int(seen.encoded(KEY2)[0])


def _list_and_bucket(seen: Seen) -> Hashable:
    return seen.value() is not None, min(max(int(seen.encoded()[1]), -3), 4)


def _sizes_list_and_bit(seen: Seen) -> Hashable:
    """Both numbers that the user moves by most, and what the rest shows."""
    return seen.plan.sizes.records > 0, seen.plan.sizes.keys > 0, *_list_and_bit(seen)  # type: ignore[misc]


def _totals_list_and_bit(seen: Seen) -> Hashable:
    """The number of users with a total of 1, and whether C is 1, on top of the rest."""
    return seen.plan.params.max_contributions == 1, seen.plan.totals.users[0] > 0, *_list_and_bit(seen)  # type: ignore[misc]


def _value_and_last_bit(seen: Seen) -> Hashable:
    """The list, and the bit of the level that the tenth user reaches and nine do not."""
    value = seen.value()
    return None if value is None else min(value - seen.plan.threshold, 12), bool(seen.encoded()[-1])


def _precision(seen: Seen) -> Hashable:
    """Both readings of a count, weighed by their precision: the log-likelihood ratio of two Gaussians."""
    value, level = seen.value(), int(seen.encoded()[1])
    if value is None:
        return None
    of_list, of_bucket = float(seen.plan.scale) ** -2, float(seen.plan.space.scale) ** -2
    mixed = (value * of_list + level * seen.plan.space.step * of_bucket) / (of_list + of_bucket)
    return round(4 * mixed * (of_list + of_bucket) ** 0.5)


def _users(count: int, key: str = KEY) -> tuple[list[str], list[str]]:
    return [f"u{i}" for i in range(count)], [key] * count


_USER = (["v"], [KEY])
_BOTH = (["v", "v"], [KEY, KEY2])
PURE_LIST = Pair({"epsilon": "1", **_PURE, **_SIZED, **_ONE}, ([], []), _USER, _list_and_bit)
CASES = (
    release_case("δ = 0, list and ALP", PURE_LIST),
    release_case(
        "δ = 0, list and ALP with flat columns, two keys of one user",
        Pair(
            {"epsilon": "2", "columns": "flat", "max_contributions": 2, **_PURE, **_SIZED},
            (["a"], ["/other"]),
            _BOTH,
            _two_keys,
            (KEY, KEY2),
        ),
    ),
    release_case(
        "δ = 0, list and buckets",
        Pair(
            {"epsilon": "1", "encoding": "buckets", **_PURE, **_SIZED, **_ONE}, ([], []), _USER, _list_and_bucket
        ),
    ),
    release_case(
        "δ = 0, sums of values, list and ALP",
        Pair(
            {"epsilon": "1", "unit": "0.5", "max_value": 1, **_PURE, **_SIZED, **_ONE},
            (["a"], ["/other"]),
            _USER,
            _list_and_bit,
            value=1.5,
        ),
    ),
    release_case(
        "δ = 0, sizes, list and ALP",
        Pair({"epsilon": "2", **_PURE, **_ONE}, ([], []), _USER, _sizes_list_and_bit),
    ),
    release_case(
        "δ = 0, C by the data, list and ALP",
        Pair(
            {"epsilon": "3", "max_contributions": "auto", "split": _THIRDS, **_PURE, **_SIZED},
            ([], []),
            _USER,
            _totals_list_and_bit,
        ),
    ),
    release_case(
        "δ > 0, list with Laplace noise and ALP, a key of ten users",
        Pair(
            {"epsilon": "1", "delta": "0.01", "noise": "laplace", **_SIZED, **_ONE},
            _users(9),
            _USER,
            _value_and_last_bit,
        ),
    ),
    release_case(
        "δ > 0, list and buckets with Gaussian noise, a key of sixty users",
        Pair(
            {"epsilon": "1", "delta": "0.005", "noise": "gaussian", "encoding": "buckets", **_SIZED, **_ONE},
            _users(59),
            _USER,
            _precision,
        ),
    ),
    release_case(
        "δ > 0, list with Laplace noise, a key of one user alone",
        Pair(
            {"epsilon": "1", "delta": "0.02", "noise": "laplace", **_SIZED, **_ONE},
            (["a"], ["/other"]),
            _USER,
            lambda seen: seen.value() is not None,
        ),
        of_delta=True,
    ),
    release_case(
        "a public list",
        Pair(
            {"epsilon": "1", **_ONE},
            _users(3),
            _USER,
            lambda seen: min(max(seen.value() or 0, 0), 8),
            public=(KEY, KEY2),
        ),
    ),
)  # fmt: skip
