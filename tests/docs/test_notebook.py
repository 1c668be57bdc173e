"""Python of the documents: docs/notebook.ipynb is valid, and its stored outputs are those of its cells."""

from __future__ import annotations

import json
from typing import Any

from tools.notebook import NOTEBOOK, run

STORED = json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def shown(notebook: Any) -> list[list[str]]:
    """Return what each cell shows, pictures by their kind alone."""
    return [
        [
            "".join(output["text"])
            if output["output_type"] == "stream"
            else next(kind if kind == "image/png" else text for kind, text in output["data"].items())
            for output in cell["outputs"]
        ]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_it_is_a_notebook() -> None:
    assert (STORED["nbformat"], STORED["nbformat_minor"]) == (4, 5)
    assert {cell["cell_type"] for cell in STORED["cells"]} == {"code", "markdown"}
    assert len({cell["id"] for cell in STORED["cells"]}) == len(STORED["cells"])


def test_its_outputs_are_those_of_its_cells() -> None:
    found = shown(run(STORED))
    assert found == shown(STORED), "run python -m tools.notebook"
    assert sum("image/png" in outputs for outputs in found) == 2
