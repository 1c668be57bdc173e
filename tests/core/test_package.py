"""The package as a user meets it: every public name completes, typing errors are errors, and imports stay small."""

from __future__ import annotations

import json
import os
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hushgram as hg
from hushgram import errors
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


@pytest.mark.long
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
    settings = (
        tmp_path / "mypy.ini"
    )  # what the names are, not whether the library is typed: that is `make lint`
    settings.write_text(
        "[mypy]\nstrict = True\n[mypy-hushgram.*]\nignore_errors = True\n"
        "[mypy-numpy.*,sqlalchemy.*,cryptography.*,pandas.*]\nfollow_imports = skip\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings)]
    command += ["--cache-dir", str(tmp_path / "cache")]
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


BASE = {"click", "cryptography", "mmh3", "mpmath", "numpy", "pyarrow"}
GOLDEN = Path(__file__).parents[1] / "golden/sketches/text.sketch"
WITHOUT_EXTRAS = """
import sys
import tomllib
from importlib.abc import MetaPathFinder
from hushgram.errors import EXTRAS

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {*EXTRAS, "scipy", "pandas", "polars"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without_extras(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code where no package of an extra can be imported."""
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_every_dependency_is_required_or_in_an_extra() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert {re.split(r"[\[>]", name)[0] for name in project["dependencies"]} == BASE
    assert set(errors.EXTRAS.values()) <= set(extras)
    assert set(extras) == {"ledger", "beam", "gcp", "aws", "yaml", "postgres", "pages", "plot", "dev"}


@pytest.mark.parametrize(
    "command",
    [
        f"query {GOLDEN} a", f"total {GOLDEN} a b", f"heavy {GOLDEN}", f"inspect {GOLDEN}", f"verify {GOLDEN}",
        "doctor", "example ages --rows 100", "calculate sparse --queries 1000 --cutoff 10 --epsilon 1", "--help",
        "release --help",
    ],
)  # fmt: skip
@pytest.mark.long
def test_the_reader_needs_no_extra(command: str, tmp_path: Path) -> None:
    done = without_extras(f"from hushgram.pipelines.cli import main; main({command.split()})", tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_library_needs_no_extra(tmp_path: Path) -> None:
    code = (
        "import hushgram as hg\n"
        "for delta, most in ((0, 3), ('1e-6', 3), ('1e-6', 1)):\n"
        "    params = hg.ReleaseParams(epsilon=1, delta=delta, max_contributions=most)\n"
        "    hg.release(['u', 'v'] * 9, list('abcabc') * 3, params).estimate(['a', 'b'])\n"
    )
    done = without_extras(code, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("release urls.yaml", "beam"),
        ("top top.yaml --check", "beam"),
        ("demo --rows 1000", "beam"),
        ("plan urls.yaml", "beam"),
        ("ledger show", "ledger"),
        ("calculate rdp --order 10 --loss 0.5 --delta 1e-6", "ledger"),
        (f"report {GOLDEN}", "pages"),
        (f"explore {GOLDEN}", "pages"),
        ("plan --records 50M --keys 1e6 -o plan.html", "pages"),
    ],
)
@pytest.mark.long
def test_what_is_missing_names_its_extra_before_computing(command: str, extra: str, tmp_path: Path) -> None:
    done = without_extras(f"from hushgram.pipelines.cli import main; main({command.split()})", tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"which is not installed; pip install 'hushgram[{extra}]'\n")
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_missing_packages_of_the_library_name_their_extra(tmp_path: Path) -> None:
    done = without_extras("import hushgram as hg; hg.ledger", tmp_path)
    assert "MissingPackage: this needs the package sqlalchemy" in done.stderr
    done = without_extras("from hushgram.transforms import ReleaseSparseHistogram", tmp_path)
    assert "pip install 'hushgram[beam]'" in done.stderr
