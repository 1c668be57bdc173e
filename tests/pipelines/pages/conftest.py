"""A real browser (Debian's Chromium, driven by Playwright) and two sketches to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hushgram as hg
from tests.pipelines.page_checks import CONTRAST

SHOTS = Path(__file__).parents[3] / ".build" / "screenshots"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("HUSHGRAM_REQUIRE_ENGINES"):
            pytest.fail("there is no chromium on this machine")
        pytest.skip("there is no chromium on this machine; apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


class Looked:
    """A page, what went wrong on it, and what it asked the network for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda problem: self.errors.append(str(problem)))
        page.on("request", lambda request: self.requests.append(request.url))

    def contrast(self) -> list[str]:
        """Texts that are too faint."""
        return list(self.page.evaluate(CONTRAST))

    def keep(self, name: str) -> None:
        """A picture of the whole page, kept for people."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


@pytest.fixture(params=["light", "dark"])
def looked(browser: Any, request: pytest.FixtureRequest) -> Iterator[Looked]:
    context = browser.new_context(color_scheme=request.param, viewport={"width": 1000, "height": 900})
    yield Looked(context.new_page())
    context.close()


@pytest.fixture(scope="session")
def sketches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A pure and a text release of the same page views; one key tries to be markup."""
    home = tmp_path_factory.mktemp("sketches")
    rng = np.random.default_rng(3)
    rows = 60_000
    pages = np.minimum(rng.zipf(1.3, rows), 5000)
    urls = [f"/page/{page}" if page > 1 else '<script>alert("x")</script>' for page in pages]
    users = rng.integers(0, 20_000, rows)
    out = {}
    for name, delta in (("pure", "0"), ("text", "1e-6")):
        out[name] = home / f"{name}.sketch"
        params = hg.ReleaseParams(epsilon="2", delta=delta, max_contributions=3)
        hg.release(users, urls, params, out[name], name=f"urls-{name}")
    return out
