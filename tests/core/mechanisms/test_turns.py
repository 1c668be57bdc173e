"""Mechanisms that answer questions as they come: one at a time, in one process, without copies."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import LaplaceAnswers
from hushgram.mechanisms.pmw.mechanism import OnlinePMW, PmwParams
from hushgram.mechanisms.pmw.workload import Workload
from hushgram.mechanisms.svt import NumericSparse
from hushgram.noise.entropy import InteractiveKey
from hushgram.sensitivity import exact


def sparse() -> tuple[Any, Callable[[int], object]]:
    made = NumericSparse(epsilon=1, threshold=0, cutoff=100)
    return made, lambda answer: made.ask(answer).value


def laplace() -> tuple[Any, Callable[[int], object]]:
    made = LaplaceAnswers(1, 100, 1, InteractiveKey.generate())
    return made, lambda answer: made.answer(np.array([answer]), b"q")[0]


def weights() -> tuple[Any, Callable[[int], object]]:
    counts = exact([900, 50, 50], max_contributions=1)
    made = OnlinePMW(counts, PmwParams(1, max_updates=5), InteractiveKey.generate())
    return made, lambda _: made.answer(Workload.of([[1, 0, 0]])).values[0]


MECHANISMS = pytest.mark.parametrize("make", [sparse, laplace, weights], ids=lambda make: make.__name__)


@MECHANISMS
def test_a_forked_process_asks_nothing(make: Callable[[], tuple[Any, Callable[[int], object]]]) -> None:
    """Its draws are those of the process that it was forked from: two answers would differ by exact numbers."""
    fork = multiprocessing.get_context("fork")
    (_, ask), queue = make(), fork.SimpleQueue()

    def child() -> None:
        try:
            queue.put(str(ask(10**6)))
        except ParameterError as problem:
            queue.put(str(problem))

    process = fork.Process(target=child)
    process.start()
    process.join(30)
    assert "was begun in another process" in queue.get()
    assert ask(10**6) is not None


@MECHANISMS
def test_questions_of_several_threads_take_turns(
    make: Callable[[], tuple[Any, Callable[[int], object]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ask = make()
    held: list[bool] = []
    drawing, name = (made._noise, "queries") if make is sparse else (type(made._key), "source")
    real = getattr(drawing, name)

    def draws(*arguments: Any) -> Any:
        held.append(made._turns._lock.locked())
        return real(*arguments)

    monkeypatch.setattr(drawing, name, draws)
    ask(10**6)
    assert held == [True]
    assert not made._turns._lock.locked()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda way: way.__name__)
def test_a_sparse_vector_is_not_copied(again: Callable[[Any], Any]) -> None:
    """Each copy would count its yes-answers from the same number on."""
    with pytest.raises(TypeError, match="a copy would answer for free"):
        again(sparse()[0])
