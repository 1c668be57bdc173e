"""Noise that is a function of the test: what `os.urandom` returns, in a test's process and in those that it starts.

All random bits of the product come from `os.urandom` (`core/noise/entropy.py`), and so do those of `secrets`, `uuid`
and unseeded numpy generators. Here the n-th draw of one function is a hash of

    what draws (id of the test, or of a fixture or module that several tests share) ‖ process ‖ function ‖ n

so that draws in other threads, or of libraries, do not change those of a test. A process is known by its command line
without paths, and by its turn among those of the same test with the same command line: two runs of one command have
different keys, as in production. A forked process counts as another one.

The product knows nothing of this. Processes inherit PYTHONPATH, which names this folder, and `VARIABLE`; Python imports
`sitecustomize` from it when it starts. Names of temporary files stay random, so that two runs of the tests never meet.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator

__all__ = ["VARIABLE", "aside", "begin", "install"]

VARIABLE = (
    "TESTS_DRAW_NOISE_FOR"  # "folder:what draws"; the folder holds one empty file per process that has drawn
)
_PASS_ON = {"hushgram.noise.entropy", "random", "secrets", "uuid", __name__}

_what, _fork = "", ""
_process: str | None = None
_drawn: Counter[str] = Counter()
_main = False


def install(what: str | None = None) -> None:
    """Replace `os.urandom` for the rest of this process, which draws for `what` if it is that of the tests."""
    global _main
    _main = what is not None
    os.urandom = _urandom
    if "random" in sys.modules:
        sys.modules["random"]._urandom = _urandom  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=_forked)
    if what is not None:
        begin(what)
    else:
        _seed()


def begin(what: str) -> None:
    """Draw for `what` from here on, from its first draw."""
    global _what, _drawn
    _what, _drawn = what, Counter()
    os.environ[VARIABLE] = f"{os.environ[VARIABLE].partition(':')[0]}:{what}"
    _seed()


@contextlib.contextmanager
def aside(what: str) -> Iterator[None]:
    """Draw for `what` in between, then go on as if nothing had been drawn."""
    import random

    global _what, _drawn
    before, plain = (_what, _drawn, os.environ[VARIABLE]), random.getstate()
    arrays = sys.modules["numpy.random"].get_state()
    begin(what)
    try:
        yield
    finally:
        _what, _drawn, os.environ[VARIABLE] = before
        random.setstate(plain)
        sys.modules["numpy.random"].set_state(arrays)


def _seed() -> None:
    """Seed the generators that have a state of their own."""
    import random

    seed = "\0".join(_who())
    random.seed(seed)
    if "numpy.random" in sys.modules:  # else it asks os.urandom when it is imported
        sys.modules["numpy.random"].seed(random.Random(seed).getrandbits(32))


def _urandom(size: int) -> bytes:
    import hashlib

    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _PASS_ON:
        frame = frame.f_back
    # `co_name`: the module of a test has another name where it is imported by a process
    function = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}"
    what, process = _who()
    name = f"{what}\0{process}\0{function}"
    _drawn[name] += 1
    return hashlib.shake_256(f"{name}\0{_drawn[name]}".encode()).digest(size)


def _who() -> tuple[str, str]:
    """Return what this process draws for, and its name among all that draw for it."""
    global _process
    if _main and not _fork:
        return _what, ""
    folder, _, what = os.environ.get(VARIABLE, "").partition(":")
    if _process is None:
        _process = _turn(folder, what, f"{_command()}{_fork}")
    return what, _process


def _command() -> str:
    """Return the command line without paths, numbers and what else differs from run to run."""
    import re

    return re.sub(r"/[^\s'\",:;=()\[\]]*|\d+", "", "\0".join(sys.orig_argv))


def _turn(folder: str, what: str, command: str) -> str:
    """Return `command` and how many processes have drawn for `what` under it before this one."""
    import hashlib

    name = hashlib.sha256(f"{what}\0{command}".encode()).hexdigest()
    for turn in range(100_000):
        try:
            os.close(os.open(f"{folder}/{name}-{turn}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return f"{command}\0{turn}"
        except FileExistsError:
            continue
        except OSError:  # another user's process, or one that outlives the tests
            break
    return f"{command}\0pid {os.getpid()}"


def _forked() -> None:
    global _fork, _process
    _fork, _process = f"{_fork}/fork", None
    _drawn.clear()
    _seed()
