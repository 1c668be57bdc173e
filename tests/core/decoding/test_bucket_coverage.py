"""Coverage of the intervals of buckets at each single count, on real releases of crowded buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hushgram as hg
from hushgram.decoding.buckets import Background
from hushgram.noise.laws import LaplaceLaw

pytestmark = pytest.mark.long

KEYS, FEW = 60_000, 4_000
NAMES = pa.array([f"https://example.org/{number}" for number in range(KEYS)])
DATA: dict[str, Any] = {
    "geometric": lambda rng: rng.geometric(1 / 16, KEYS),
    "powers of two": lambda rng: 2 ** rng.integers(0, 7, KEYS),
    "log-normal": lambda rng: np.ceil(rng.lognormal(1.5, 1.4, KEYS)),
    "uniform": lambda rng: rng.integers(1, 21, KEYS),
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("epsilon", ["1", "2"])
def test_every_count_is_held_beside_named_keys_too(data: str, epsilon: str) -> None:
    """Sizes are stated, so buckets are few. Each record is that of another user."""
    counts = DATA[data](np.random.default_rng(3)).astype(np.int64)
    sizes = (int(counts.sum()), KEYS)
    params = hg.ReleaseParams(epsilon=epsilon, delta="1e-6", max_contributions=2, sizes=sizes)
    keys = NAMES.take(pa.array(np.repeat(np.arange(KEYS), counts))).dictionary_encode()
    often, held = np.zeros(counts.max() + 1), np.zeros(counts.max() + 1)
    for number in range(2):
        key = hg.ReleaseKey(bytes([number + 1] * 32))
        found = hg.release(np.arange(len(keys)), keys, params, release_key=key).estimate(NAMES)
        inside = (found["low"].to_numpy() <= counts) & (counts <= found["high"].to_numpy())
        often += np.bincount(counts)
        held += np.bincount(counts, inside)
    common = np.flatnonzero(often >= FEW)
    shares = held[common] / often[common]
    assert len(common) >= 6
    assert shares.min() >= 0.94, dict(zip(common.tolist(), shares.round(4).tolist(), strict=True))


def test_values_that_the_model_cannot_explain_stay_in_the_background() -> None:
    """A tenth of the buckets lie 20 below what the model holds possible."""
    noise, rng = LaplaceLaw(1.0), np.random.default_rng(1)
    cells = 1 << 15
    model = np.full(cells, 1e-15)
    model[np.arange(-30, 31)] += noise.pmf(np.arange(-30.0, 31.0))
    seen = rng.geometric(0.6, 5_000) - rng.geometric(0.6, 5_000)
    seen[:500] -= 20
    background = Background(1, model, seen, 1, noise)
    assert background.below(np.array([-10.0]))[0] == pytest.approx(0.1, abs=0.01)
    assert background.quantile(0.05) == pytest.approx(-20.0, abs=1.0)
