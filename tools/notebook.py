"""Run docs/notebook.ipynb and store what its cells show: ``python -m tools.notebook``.

A cell is run as Jupyter runs it: its last expression is shown, and so are the figures that it drew.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs/notebook.ipynb"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of all cells, run in order."""
    import matplotlib

    matplotlib.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = _outputs("".join(cell["source"]), cell["id"], names, number)
            cell = {**cell, "execution_count": number, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, name: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree, shown, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), names)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if shown is not None:
        data = (
            {"text/html": shown._repr_html_()}
            if hasattr(shown, "_repr_html_")
            else {"text/plain": repr(shown)}
        )
        outputs.append(
            {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}
        )
    return [*outputs, *map(_picture, _figures())]


def _figures() -> list[Any]:
    from matplotlib import pyplot

    return [pyplot.figure(number) for number in pyplot.get_fignums()]


def _picture(figure: Any) -> dict[str, Any]:
    from matplotlib import pyplot

    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=72)
    pyplot.close(figure)
    data = {"image/png": base64.b64encode(sink.getvalue()).decode()}
    return {"data": data, "metadata": {}, "output_type": "display_data"}


def main() -> None:
    """Run the notebook and write it back."""
    done = run(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
