"""Noise in tests follows from the test, in its own process and in those that it starts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np

import hushgram as hg
from tests.noise import fixed_noise

ROOT = Path(__file__).parents[2]
DRAW = """\
import random, sys, uuid
import numpy as np
import hushgram as hg
print(hg.ReleaseKey.generate().hex(), hg.os_entropy().take(4).tobytes().hex(), uuid.uuid4(), random.random(),
      np.random.default_rng().integers(1 << 60), np.random.random(), random.SystemRandom().random())
"""
FORK = """\
import os
import hushgram as hg
for _ in range(2):
    if os.fork() == 0:
        print(hg.ReleaseKey.generate().hex(), flush=True)
        os._exit(0)
    os.wait()
print(hg.ReleaseKey.generate().hex())
"""
SESSION = """\
import subprocess, sys
import hushgram as hg
import numpy as np
import pytest
from hypothesis import given, strategies as st

MODULE = hg.ReleaseKey.generate().hex()

@pytest.fixture(scope="module")
def shared():
    np.random.random(7)
    return hg.ReleaseKey.generate().hex()

def test_other(shared):
    print("other", hg.ReleaseKey.generate().hex())

def test_it(shared):
    print("own", MODULE, shared, hg.ReleaseKey.generate().hex(), hg.os_entropy().take(8).tobytes().hex())
    print("own", np.random.random(), np.random.default_rng().random())
    for _ in range(2):
        print("own", subprocess.run([sys.executable, "-c", DRAW], capture_output=True, text=True, check=True).stdout)

@given(st.integers())
def test_property(number):
    print("own", number)
"""


def drawn(code: str) -> list[str]:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_everything_that_draws_is_fixed() -> None:
    """These are other numbers only if the name of this test, or the way they are drawn, changes."""
    assert hg.ReleaseKey.generate().hex()[:16] == "dea696413abb0baa"
    assert uuid.uuid4().hex[:16] == "ac5ce62be1dc441c"
    assert random.randrange(10**9) == 15148013
    assert np.random.default_rng().integers(10**9) == 254531660
    assert np.random.randint(10**9) == 475046579


def test_processes_draw_numbers_of_their_own_that_follow_from_the_test() -> None:
    first, second, forks = drawn(DRAW), drawn(DRAW), drawn(FORK)
    assert not set(first) & set(second)
    assert len({*forks, hg.ReleaseKey.generate().hex()}) == 4
    assert [first[0][:16], second[0][:16], forks[1][:16]] == [
        "1176a05371794ce8",
        "0749ff0d810e7f8c",
        "562bcf50ec1fae52",
    ]


def test_a_run_of_one_test_in_another_place_draws_the_same(tmp_path: Path) -> None:
    told = []
    for place, only in (("a", []), ("b", ["-k", "test_it or test_property"])):
        folder = tmp_path / place / "tests"
        folder.mkdir(parents=True)
        (folder / "test_it.py").write_text(f"DRAW = '''{DRAW}'''\n{SESSION}")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.conftest",
        ]
        outside = {name: value for name, value in os.environ.items() if name != fixed_noise.VARIABLE}
        environment = {**outside, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / place)}
        run = subprocess.run(
            [*command, "--rootdir", str(folder.parent), *only, str(folder)],
            cwd=folder.parent, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
        told.append([line for line in run.stdout.splitlines() if "own " in line])
        assert not [path for path in (tmp_path / place).iterdir() if path.name.startswith("hushgram-noise")]
    assert len(told[0]) > 10
    assert told[0] == told[1]


def test_the_product_knows_nothing_of_it() -> None:
    names = {fixed_noise.VARIABLE, "fixed_noise", "sitecustomize"}
    for folder in ("core", "transforms", "pipelines"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not [name for name in names if name in path.read_text()], path


FRESH = """\
import pathlib
import pytest
import hushgram as hg
KEY = hg.ReleaseKey(bytes(32))

def told(word):
    with open("told", "a") as file:
        file.write(word + "\\n")

@pytest.mark.fresh_noise(rate=1e-5)
def test_chance():
    told("chance " + str(KEY.source("a").words(1)[0]))
    assert pathlib.Path("told").read_text().count("chance") == 2

@pytest.mark.fresh_noise(rate=1e-5)
def test_always():
    told("always")
    assert False

@pytest.mark.fresh_noise(rate=1e-9)
def test_never():
    told("never " + hg.ReleaseKey.generate().hex())
    assert False

def test_other():
    told("other")
"""


def test_a_failure_with_fresh_noise_is_tried_until_chance_does_not_explain_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FRESH)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    words = []
    for _ in range(2):
        run = subprocess.run(
            [*command, "--rootdir", str(tmp_path), "--fresh-noise"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "2 failed, 1 passed, 1 deselected" in run.stdout, run.stdout
        words += (tmp_path / "told").read_text().splitlines()
        (tmp_path / "told").unlink()
    assert [word.split()[0] for word in words] == ["chance", "chance", "always", "always", "never"] * 2
    assert len({word for word in words if word != "always"}) == 6
