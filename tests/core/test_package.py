"""The package as a user meets it: every public name completes, typing errors are errors, and imports stay small."""

from __future__ import annotations

import json
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import hushgram as hg
from hushgram.mechanisms import pmw

PARSERS = ("hushgram.inputs", "hushgram.transforms", "apache_beam")


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after this code."""
    script = f"{code}\nimport json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_every_public_name_completes_and_is_there() -> None:
    assert set(dir(hg)) == set(hg.__all__)
    for name in hg.__all__:
        assert getattr(hg, name) is not None
    assert hg.pmw is pmw
    assert {"errors", "ledger", "planner", "svt", "pmw"} <= set(dir(hg))


def test_names_that_are_not_public_are_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'relese'"):
        _ = hg.relese  # type: ignore[attr-defined]


def test_type_checkers_know_every_name_and_refuse_others(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    names = [name for name in hg.__all__ if name != "__version__"]
    good.write_text("import hushgram as hg\n" + "".join(f"hg.{name}\n" for name in names))
    bad.write_text("import hushgram as hg\nhg.relese\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "hushgram").symlink_to(
        Path(hg.__file__).resolve().parent
    )  # type checkers do not see editable installs
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    told = {**os.environ, "MYPYPATH": str(tree)}
    done = subprocess.run(
        [*command, str(good), str(bad)], capture_output=True, text=True, check=False, env=told
    )
    assert 'Module has no attribute "relese"' in done.stdout
    assert done.stdout.count("error:") == 1, done.stdout


def test_help_shows_modules_too() -> None:
    text = pydoc.plain(pydoc.render_doc(hg))
    for name in ("errors", "ledger", "planner"):
        assert name in text.partition("PACKAGE CONTENTS")[2]


def test_importing_the_package_loads_nothing_else() -> None:
    found = loaded("import hushgram")
    assert not {name for name in found if name.startswith("hushgram.")}
    assert "numpy" not in found


def test_a_lookup_imports_no_parser(tmp_path: Path) -> None:
    users, keys = [f"u{i}" for i in range(200)], [f"k{i % 5}" for i in range(200)]
    hg.release(users, keys, hg.ReleaseParams(epsilon=4, max_contributions=2), tmp_path / "s.sketch")
    found = loaded(
        "from hushgram.pipelines.cli import cli\n"
        f"cli(['query', {str(tmp_path / 's.sketch')!r}, 'k1'], standalone_mode=False)"
    )
    assert "hushgram.sketch.reader" in found
    assert not {name for name in found if name.startswith(PARSERS)}


def test_a_release_loads_neither_multiplicative_weights_nor_selection() -> None:
    found = loaded(
        "import hushgram as hg\n"
        "hg.release(['u'] * 9, list('abcabcabc'), hg.ReleaseParams(epsilon=1, max_contributions=2))"
    )
    assert "hushgram.release_in_memory" in found
    apart = ("hushgram.mechanisms.pmw", "hushgram.mechanisms.selection", "hushgram.mechanisms.svt")
    assert not {name for name in found if name.startswith(apart)}
