"""Synthetic data: page views (Zipf URLs, many users with few views and a few with many), ages, a survey, a web log.

The only product module that may use numpy.random: it generates input data, never noise.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hushgram.errors import OutputError, ParameterError

__all__ = ["PageViews", "write_access_log", "write_ages", "write_page_views", "write_survey"]

_CHUNK_ROWS = 1_000_000
_FILE_ROWS = 10_000_000
_MAX_ROWS = 100_000_000
_SECTIONS = ("news", "sport", "wiki", "shop", "video", "forum", "maps", "help")


@dataclass(frozen=True)
class PageViews:
    """Size and shape of generated page views; URLs follow a Zipf law with `exponent`."""

    rows: int = 2_000_000
    urls: int | None = None
    users: int | None = None
    exponent: float = 1.05
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= _MAX_ROWS:
            raise ParameterError(f"--rows must be from 1 to {_MAX_ROWS:,}, got {self.rows:,}")

    @property
    def url_count(self) -> int:
        """Return how many distinct URLs can occur."""
        return self.urls or max(10, self.rows // 10)

    @property
    def user_count(self) -> int:
        """Return how many distinct users can occur."""
        return self.users or max(1, self.rows // 4)

    def chunks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (user numbers, URL numbers), a million rows at a time; equal seeds give equal rows."""
        random = np.random.default_rng(self.seed)
        shares = np.cumsum(np.arange(1, self.url_count + 1, dtype=np.float64) ** -self.exponent)
        shares /= shares[-1]
        left = self.rows
        while left:
            size = min(left, _CHUNK_ROWS)
            left -= size
            urls = np.searchsorted(shares, np.sort(random.random(size)))  # sorted: the search stays in cache
            # The square of a uniform number: a tenth of the users generate about a third of the views.
            users = (random.random(size) ** 2 * self.user_count).astype(np.int64)
            order = random.permutation(size)
            yield users, np.minimum(urls, self.url_count - 1)[order].astype(np.int64)

    def url_texts(self, numbers: NDArray[np.int64]) -> pa.Array:
        """Return the URLs with these numbers."""
        sections = pa.array(_SECTIONS).take(pa.array(numbers % len(_SECTIONS)))
        pages = pa.array(numbers).cast(pa.string())
        return pc.binary_join_element_wise("https://example.org/", sections, "/", pages, "")


def write_page_views(views: PageViews, folder: Path) -> NDArray[np.int64]:
    """Write Parquet files (user_id, url) into a new `folder`; return the true number of views of each URL."""
    try:
        folder.mkdir(parents=True)
    except OSError as problem:
        raise OutputError(f"{folder} cannot be created: {problem.strerror}; choose an empty place") from None
    truth = np.zeros(views.url_count, np.int64)
    schema = pa.schema({"user_id": pa.int64(), "url": pa.string()})
    with contextlib.ExitStack() as files:
        for number, (users, urls) in enumerate(views.chunks()):
            truth += np.bincount(urls, minlength=views.url_count)
            if number % (_FILE_ROWS // _CHUNK_ROWS) == 0:
                files.close()  # the file before, if there is one
                path = folder / f"part-{number:04d}.parquet"
                writer = files.enter_context(pq.ParquetWriter(path, schema, compression="snappy"))
            writer.write_batch(pa.record_batch([pa.array(users), views.url_texts(urls)], schema=schema))
    return truth


def write_ages(path: Path, rows: int, seed: int = 1) -> None:
    """Write one record per person: an age from 18 to about 100."""
    random = np.random.default_rng(seed)
    ages = np.clip(random.normal(42, 17, rows).round(), 18, 104).astype(np.int64)
    pq.write_table(pa.table({"person": np.arange(rows), "age": ages}), path)


def write_survey(path: Path, rows: int, seed: int = 1) -> None:
    """Write one record per person: two public columns and two sensitive ones."""
    random = np.random.default_rng(seed)
    age = random.integers(18, 90, rows)
    table = {
        "city": random.choice(["Paris", "Rome", "Oslo"], rows),
        "age": age,
        "smokes": random.random(rows) < 0.25,
        "income": (random.lognormal(10.6, 0.5, rows) * (0.7 + age / 150)).astype(np.int64),
    }
    pq.write_table(pa.table(table), path)


def write_access_log(path: Path, rows: int, day: datetime.date, seed: int = 1) -> None:
    """Write lines of a web server in the Combined Log Format, all of one day."""
    random = np.random.default_rng(seed)
    pages = np.minimum(random.zipf(1.4, rows), 2000)
    hosts = random.integers(1, max(rows // 5, 2), rows)
    seconds = np.sort(random.integers(0, 86_400, rows))
    status = random.choice([200, 200, 200, 200, 304, 404], rows)
    with path.open("w", encoding="ascii") as file:
        for page, host, second, code in zip(pages, hosts, seconds, status, strict=True):
            time = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
            file.write(
                f"10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255} - - [{day:%d/%b/%Y}:{time} +0000] "
                f'"GET /page/{page} HTTP/1.1" {code} {200 + page % 5000} "-" "Mozilla/5.0"\n'
            )
