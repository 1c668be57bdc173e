"""Made-up page views: Zipf URLs, many users with few views and a few with many, as Parquet.

The only place where numpy.random is allowed: these are data to try things on, never noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.errors import OutputError, ParameterError

__all__ = ["PageViews", "write_page_views"]

_CHUNK_ROWS = 1_000_000
_FILE_ROWS = 10_000_000
_MOST_ROWS = 100_000_000
_SECTIONS = ("news", "sport", "wiki", "shop", "video", "forum", "maps", "help")


@dataclass(frozen=True)
class PageViews:
    """What to make up. `exponent` is that of the Zipf law of the URLs."""

    rows: int = 2_000_000
    urls: int | None = None
    users: int | None = None
    exponent: float = 1.05
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= _MOST_ROWS:
            raise ParameterError(f"--rows must be from 1 to {_MOST_ROWS:,}, got {self.rows:,}")

    @property
    def url_count(self) -> int:
        """Distinct URLs that can occur."""
        return self.urls or max(10, self.rows // 10)

    @property
    def user_count(self) -> int:
        """Distinct users that can occur."""
        return self.users or max(1, self.rows // 4)

    def chunks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """(user numbers, URL numbers), a million rows at a time; the same for the same seed."""
        random = np.random.default_rng(self.seed)
        shares = np.cumsum(np.arange(1, self.url_count + 1, dtype=np.float64) ** -self.exponent)
        shares /= shares[-1]
        left = self.rows
        while left:
            size = min(left, _CHUNK_ROWS)
            left -= size
            urls = np.searchsorted(shares, np.sort(random.random(size)))  # sorted: the search stays in cache
            # The square of a uniform number: a tenth of the users make about a third of the views.
            users = (random.random(size) ** 2 * self.user_count).astype(np.int64)
            order = random.permutation(size)
            yield users, np.minimum(urls, self.url_count - 1)[order].astype(np.int64)

    def url_texts(self, numbers: NDArray[np.int64]) -> pa.Array:
        """The URLs with these numbers."""
        sections = pa.array(_SECTIONS).take(pa.array(numbers % len(_SECTIONS)))
        pages = pa.array(numbers).cast(pa.string())
        return pc.binary_join_element_wise("https://example.org/", sections, "/", pages, "")


def write_page_views(views: PageViews, folder: Path) -> NDArray[np.int64]:
    """Writes Parquet files (user_id, url) into `folder` and returns the true number of views of each URL."""
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise OutputError(
            f"{folder} cannot be made: {problem.strerror}; give an empty place with --keep"
        ) from None
    truth = np.zeros(views.url_count, np.int64)
    schema = pa.schema({"user_id": pa.int64(), "url": pa.string()})
    writer: pq.ParquetWriter | None = None
    try:
        for number, (users, urls) in enumerate(views.chunks()):
            truth += np.bincount(urls, minlength=views.url_count)
            if number % (_FILE_ROWS // _CHUNK_ROWS) == 0:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(folder / f"part-{number:04d}.parquet", schema, compression="snappy")
            assert writer is not None
            writer.write_batch(pa.record_batch([pa.array(users), views.url_texts(urls)], schema=schema))
    finally:
        if writer is not None:
            writer.close()
    return truth
