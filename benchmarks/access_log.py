"""Generate a synthetic access log: a site with sections, days of a week, people, readers and bots.

What makes logs hard to foresee is in it: a page's popularity depends on its section, its age and the day; a visitor
stays in a section and comes back to the same pages; a few readers load far more than others; bots walk through the
whole site, or hammer one page; scanners ask for paths that do not exist; and a page in the news outshines its section.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["access_log"]

SECTIONS = ("news", "forum", "wiki", "shop", "blog", "help", "tags", "users")
PAGES = (40_000, 60_000, 30_000, 12_000, 5_000, 1_500, 8_000, 45_000)
DAYS = (1.0, 1.05, 1.1, 1.0, 0.95, 0.6, 0.55)
VISITORS = 60_000
Ints = NDArray[np.int64]


def access_log(rng: np.random.Generator, week: int, size: int = 1) -> tuple[pa.Array, pa.Array]:
    """Client and path of every request of a week; the same site in another week has other visitors and news.

    ``size``: as many times the pages, visitors and bots.
    """
    site = np.random.default_rng(4)  # pages and their standing popularity, the same every week
    starts = np.cumsum((0, *(size * pages for pages in PAGES)))  # of the sections; then come all other paths
    end, people = int(starts[-1]), size * VISITORS
    standing = [site.lognormal(0.0, 1.6 + 0.1 * i, size * pages) for i, pages in enumerate(PAGES)]
    who, where = [], []
    for day, busy in enumerate(DAYS):
        number = int(people * busy * 0.25)
        visitors = rng.choice(people, number, p=_regulars(people, week))
        section = rng.choice(len(SECTIONS), number, p=[0.3, 0.22, 0.18, 0.1, 0.05, 0.05, 0.04, 0.06])
        length = np.minimum(np.ceil(rng.lognormal(1.3, 1.1, number)), 2_000).astype(np.int64)
        for which, weights in enumerate(standing):
            rows = np.flatnonzero(section == which)
            fresh = weights * _news(rng, len(weights), week * len(DAYS) + day)
            visits = np.repeat(visitors[rows], length[rows])
            pages = np.searchsorted(np.cumsum(fresh) / fresh.sum(), rng.random(len(visits)))
            again = rng.random(len(visits)) < 0.2  # back to the page before
            pages = pages[np.maximum.accumulate(np.where(again, 0, np.arange(len(pages))))]
            who.append(visits)
            where.append(starts[which] + pages)
        who.append(visitors)  # everybody loads the front page and a style sheet
        where.append(np.full(number, end))
        who.append(visitors)
        where.append(np.full(number, end + 1))
    bots = [_bot(rng, people + i, end) for i in range(12 * size)]
    users = np.concatenate([*who, *(bot[0] for bot in bots)])
    paths = np.concatenate([*where, *(bot[1] for bot in bots)])
    return _clients(users), _paths(paths, starts)


def _regulars(visitors: int, week: int) -> NDArray[np.float64]:
    """Some come every day, most once; who they are differs a little from week to week."""
    weight = np.random.default_rng(7).pareto(1.3, visitors) + 0.2
    weight *= np.random.default_rng(70 + week).lognormal(0.0, 0.4, visitors)
    return np.asarray(weight / weight.sum())


def _news(rng: np.random.Generator, pages: int, day: int) -> NDArray[np.float64]:
    """A factor for each page: a few are in the news today."""
    factor = rng.lognormal(0.0, 0.3, pages)
    factor[rng.integers(0, pages, 3)] *= 2_000.0
    factor[(day * 37) % pages] *= 500.0
    return factor


def _bot(rng: np.random.Generator, client: int, end: int) -> tuple[Ints, Ints]:
    """A crawler of the site, a monitor of one page, or a scanner."""
    kind = client % 3
    if kind == 0:
        pages = rng.integers(0, end, 15_000)
    elif kind == 1:
        pages = np.full(10_080, end)
    else:
        pages = end + 2 + rng.integers(0, 6_000, 5_000)
    return np.full(len(pages), client), pages


def _clients(users: Ints) -> pa.Array:
    known, place = np.unique(users, return_inverse=True)
    names = [f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in known.tolist()]
    return pa.array(names).take(pa.array(place))


def _paths(numbers: Ints, starts: Ints) -> pa.Array:
    known, place = np.unique(numbers, return_inverse=True)
    section = np.searchsorted(starts, known, side="right") - 1
    names = []
    for number, which in zip(known.tolist(), section.tolist(), strict=True):
        page = number - int(starts[which])
        if which < len(SECTIONS):
            names.append(f"/{SECTIONS[which]}/{page % 97}/{page}")
        else:
            names.append({0: "/", 1: "/static/site.css"}.get(page, f"/wp-{page}/login.php"))
    return pa.array(names).take(pa.array(place))
