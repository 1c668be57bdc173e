"""The documentation site: it builds strictly, its reference is whole, and it loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from hushgram.pipelines.cli import cli

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
#: what makes a browser fetch something: scripts, style sheets, images, frames, and CSS imports or fonts
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link[^>]*rel=[\"']?(?:stylesheet|preload|preconnect|icon)[^>]*href=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    missing = [name for name in ("mkdocs", "material", "mkdocstrings") if find_spec(name) is None]
    if missing:
        if os.environ.get("HUSHGRAM_REQUIRE_ENGINES"):
            pytest.fail(f"{missing[0]} is required to build the documentation")
        pytest.skip(f"{missing[0]} is not installed; make setup installs it")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(["make", "tree", f"TREE={folder}/tree"], cwd=ROOT, check=True, capture_output=True)
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace(".build/tree", f"{folder}/tree")
    (folder / "mkdocs.yml").write_text(
        config.replace("docs_dir: docs", f"docs_dir: {ROOT}/docs").replace("[tools/", f"[{ROOT}/tools/"),
        encoding="utf-8",
    )
    words = ["-m", "mkdocs", "build", "--strict", "-f", folder / "mkdocs.yml", "-d", folder / "site"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    found = {
        (path.relative_to(site).as_posix(), "".join(match))
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for match in FETCHED.findall(path.read_text(encoding="utf-8"))
    }
    assert not found


def test_the_reference_has_every_command(site: Path) -> None:
    page = (site / "reference/cli/index.html").read_text(encoding="utf-8")
    for name in cli.list_commands(click.Context(cli)):
        assert f"hushgram {name}" in page


def test_the_reference_has_the_fields_of_a_config(site: Path) -> None:
    page = (site / "reference/config/index.html").read_text(encoding="utf-8")
    for field in (
        "input.path",
        "privacy.epsilon",
        "privacy.max_contributions",
        "input.csv.delimiter",
        "sizes.records",
    ):
        assert f"<code>{field}</code>" in page


def test_the_reference_has_the_python_api(site: Path) -> None:
    page = (site / "reference/api/index.html").read_text(encoding="utf-8")
    for name in ("release", "ReleaseParams", "Sketch", "ReleaseSparseHistogram", "Ledger", "ParameterError"):
        assert re.search(rf'id="hushgram\.[a-z_.]*{name}"', page), name


def test_the_check_notices_what_would_be_fetched() -> None:
    for text in (
        '<script src="https://cdn.example/x.js">',
        '<link rel="stylesheet" href="https://fonts.example/css?family=X">',
        "@import url(//fonts.example/x.css)",
    ):
        assert FETCHED.search(text)
    assert not FETCHED.search('<a href="https://example.org">a link that nobody has to follow</a>')


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """What the build above stands on: strict means that a warning is a failure."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed; make setup installs it")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[nowhere](nowhere.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: test\n")
    words = ["-m", "mkdocs", "build", "--strict"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr
