"""Some seconds at each door (HUSHGRAM_FUZZ_SECONDS, 1 unless said); `make fuzz` stays longer."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.__main__ import knock, stay
from tests.fuzz.doors import DOORS

pytestmark = pytest.mark.long


@pytest.mark.parametrize("door", [door for door in DOORS if not door.startswith(("input", "sketch"))])
def test_only_our_own_errors(door: str) -> None:
    stay(door)


def test_what_goes_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign error, a try that takes long, one that fills memory, one that asks for too much."""

    def bad(draws: random.Random, _folder: Path) -> None:
        kind = draws.randrange(200)
        if kind == 0:
            raise ValueError("foreign")
        if kind == 1:
            end = time.thread_time() + 1.1
            while time.thread_time() < end:
                pass
        if kind == 2:
            bytearray(200 << 20)[:: 1 << 12] = b"x" * (200 << 8)
        if kind == 3:
            np.zeros(1 << 31, np.uint8)

    monkeypatch.setitem(DOORS, "bad", bad)
    _, finds = knock("bad", 1000, 30.0, seed=2)
    for word in ("ValueError: foreign", "took 1.1 s", "MiB", "Unable to allocate"):
        assert any(word in find for find in finds), (word, finds)
