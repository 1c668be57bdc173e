"""The wheel alone, in a fresh environment outside of the repository, runs a release and reads it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = """\
release: urls
input: {path: in.csv, user: user, key: url}
privacy: {epsilon: 1.0, max_contributions: 2}
sizes: {records: 100, keys: 50}
output: {path: out.sketch}
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_wheel_alone_runs_a_release(tmp_path: Path) -> None:
    """Dependencies come from this environment by PYTHONPATH, which ignores its link to the repository."""
    source = tmp_path / "source"  # so that nothing is built inside the repository
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("core", "transforms", "pipelines", "configs"):
        shutil.copytree(ROOT / folder, source / folder, ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source / file)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ".", cwd=source)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.rmtree(source)
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env/bin/python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=tmp_path,
    )

    work = tmp_path / "work"
    work.mkdir()
    (work / "urls.yaml").write_text(CONFIG)
    (work / "in.csv").write_text("user,url\n" + "".join(f"u{i},/{i % 7}\n" for i in range(60)))
    libraries = sysconfig.get_paths()["purelib"]
    where = run(python, "-c", "import hushgram; print(hushgram.__file__)", cwd=work, PYTHONPATH=libraries)
    assert where.startswith(str(tmp_path / "env"))
    command = tmp_path / "env/bin/hushgram"
    run(command, "example", "urls", "--config", "--rows", "100", cwd=work, PYTHONPATH=libraries)
    shipped = (ROOT / "configs/urls.yaml").read_bytes()
    assert (work / "configs/urls.yaml").read_bytes() == shipped.partition(b"\n")[2]  # the line for editors
    said = run(command, "release", "urls.yaml", cwd=work, PYTHONPATH=libraries)
    assert "out.sketch" in said
    assert "/3" in run(command, "query", "out.sketch", "/3", cwd=work, PYTHONPATH=libraries)
