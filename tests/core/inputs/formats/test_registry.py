"""The registry: a further format is one file and one line; config, errors and docs follow from it."""

from __future__ import annotations

import dataclasses
import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hushgram.inputs.blocks import COMPRESSIONS
from hushgram.inputs.formats import FORMATS

ROOT = Path(__file__).parents[4]

TOY = '''"""Pairs: user and key on one line, joined by a sign."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.inputs.blocks import line_blocks, read_head
from hushgram.inputs.columns import keep_good
from hushgram.inputs.formats.format import Format, chunks, plan_lines
from hushgram.inputs.source import Chunk, Rejects


@dataclass(frozen=True)
class ToyOptions:
    sign: str = field(default="=", metadata={"about": "what joins them"})

    def __post_init__(self):
        if not self.sign:
            raise ParameterError("sign must not be empty, got ''")


def _plan(file, compression, source, opener):
    head = read_head(file.path, compression, opener)
    columns = ["user", "key"]
    return plan_lines(file, "toy", compression, source, head=head, columns=columns)


def _read(item, plan, opener):
    rejects = Rejects(item.path, plan.source.keep_rejected)
    sign = plan.source.option(ToyOptions).sign
    for block in line_blocks(item, opener, plan.source.block_bytes, rejects):
        pairs = [line.split(sign) for line in block.data.decode().splitlines()]
        columns = {"user": [p[0] for p in pairs], "key": [p[1] for p in pairs]}
        arrays = [pa.array(columns[name], pa.string()) for name in plan.schema.names]
        good = keep_good(arrays, plan, rejects, np.full(len(pairs), block.offset))
        yield from chunks(good, block.size, plan, rejects)


FORMAT = Format("toy", (".toy",), _plan, _read, pieces="file and byte ranges", options=ToyOptions)
'''

CONFIG = """
release: toys
input: {path: "*.toy.gz", user: user, key: key, toy: {sign: ":"}}
privacy: {epsilon: 50, delta: 1e-9, max_contributions: 1}
output: {path: out.sketch}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as installed, with the toy in its place and its line in the registry."""
    root = tmp_path_factory.mktemp("tree")
    for package, place in (("core", "."), ("transforms", "transforms"), ("pipelines", "pipelines")):
        shutil.copytree(ROOT / package, root / "hushgram" / place, dirs_exist_ok=True)
    formats = root / "hushgram" / "inputs" / "formats"
    (formats / "toy.py").write_text(TOY)
    registry = (formats / "__init__.py").read_text()
    registry = registry.replace("import csv, jsonl, log, parquet", "import csv, jsonl, log, parquet, toy")
    (formats / "__init__.py").write_text(registry.replace("log.FORMAT)", "log.FORMAT, toy.FORMAT)"))
    return root


def hushgram(tree: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(tree)!r}); from hushgram.pipelines.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.long
def test_a_format_is_one_file_and_one_line(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    with gzip.open(tmp_path / "a.toy.gz", "wt") as file:
        file.write("".join(f"{i}:k\n" for i in range(500)))
    done = hushgram(tree, tmp_path, "release", "c.yaml", "--quiet")
    assert done.returncode == 0, done.stderr
    told = hushgram(tree, tmp_path, "query", "out.sketch", "k", "--format", "csv")
    assert 490 < float(told.stdout.splitlines()[1].split(",")[1]) < 510, told.stdout

    wrong = hushgram(tree, tmp_path, "release", "c.yaml", "--check", "--set", "input.toy.sign=''")
    assert "input.toy.sign must not be empty" in wrong.stderr
    wrong = hushgram(tree, tmp_path, "release", "c.yaml", "--check", "--set", "input.format=toi")
    assert "auto, parquet, csv, jsonl, log, toy, got 'toi'; did you mean toy?" in wrong.stderr


def test_the_docs_list_every_format_with_its_endings_and_options() -> None:
    inputs = (ROOT / "docs" / "inputs.md").read_text()
    configuration = (ROOT / "docs" / "configuration.md").read_text()
    for format in FORMATS.values():
        endings = ", ".join(f"`{suffix}`" for suffix in format.suffixes)
        row = next((line for line in inputs.splitlines() if line.startswith(f"| `{format.name}` |")), "")
        assert endings in row, format.name
        assert format.pieces in row, format.name
        assert ("inside the file" in row) is not format.compressible
        for option in dataclasses.fields(format.options) if format.options else ():
            group = "input" if format.flat else f"input.{format.name}"
            assert re.search(rf"`({group})?\.{option.name}`", configuration), f"{group}.{option.name}"
    listed = next(line for line in configuration.splitlines() if line.startswith("| `input.format`"))
    assert all(f"`{name}`" in listed for name in ("auto", *FORMATS))
    assert all(f"`{ending}`" in inputs for ending in COMPRESSIONS if ending not in (".gzip", ".zstd"))
