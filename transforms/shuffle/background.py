"""Work on several batches at once in a DoFn: numpy and Arrow leave the interpreter free while they work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["OrderedPool"]


class OrderedPool:
    """Calls ``work`` on what is given, ``threads`` at a time, and hands results back in order.

    With one thread the work is done at once and in the caller's thread.
    """

    def __init__(self, work: Callable[[Any], Any], threads: int) -> None:
        self._work, self._threads = work, threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._waiting: deque[Future[Any]] = deque()

    def give(self, item: Any) -> Iterator[Any]:
        """Take one item; yield what is ready, waiting only where too much is under way."""
        if self._pool is None:
            yield self._work(item)
            return
        self._waiting.append(self._pool.submit(self._work, item))
        while len(self._waiting) > self._threads:
            yield self._waiting.popleft().result()

    def rest(self) -> Iterator[Any]:
        """Everything that is under way."""
        while self._waiting:
            yield self._waiting.popleft().result()

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
