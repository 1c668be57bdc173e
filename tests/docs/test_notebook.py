"""Python of the documents: docs/notebook.ipynb is valid and its cells run in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_it_is_a_notebook_without_outputs() -> None:
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert {cell["cell_type"] for cell in NOTEBOOK["cells"]} == {"code", "markdown"}
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CODE)


def test_every_cell_runs() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in CODE:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    assert names["one"].num_rows == 1
    assert names["several"]["above_zero"].to_pylist()[:2] == [True, True]
    assert names["total"].low < names["total"].estimate < names["total"].high
    assert names["heavy"].num_rows > 3
    assert "<strong>hushgram sketch" in names["card"]
