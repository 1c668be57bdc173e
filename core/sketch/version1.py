"""Version 1 of the format, which is read for ever: its manifest in the words of version 2.

It knew one encoding (alp-1), one noise (laplace) and one unit (it always said "user"); its blocks have no digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["blocks_name", "upgraded"]


def blocks_name(index: int) -> str:
    """Name of a file of blocks."""
    return f"bits-{index:05d}.bin"


def upgraded(body: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest of version 1 as one of version 2 (but for its number and its files)."""
    plan, params, columns = body["plan"], body["plan"]["params"], body["columns"]
    if not isinstance(columns, list) or [column["bits"] for column in columns] != plan["column_sizes"]:
        raise ValueError("'columns': its bits are not those of 'plan.column_sizes'")
    split = {"encoding" if name == "alp" else name: share for name, share in params["split"].items()}
    public = plan["kind"] == "public"
    space = {
        "alpha": params["alpha"],
        "cap": plan["bound"],
        "width": plan["width"],
        "column_sizes": plan["column_sizes"],
    }
    return {
        **body,
        "plan": {
            **{name: plan[name] for name in ("sizes", "keys", "kind", "scale")},
            "unit": "user",
            "params": {**params, "split": split},
            "domain_bits": None if public else plan["domain_bits"],
            "threshold": plan["bound"],
            "noise": "laplace",
            "encoding": None if public else body["encoding"],
            "space": None if public else space,
        },
        "seeds": [column["seeds"] for column in columns],
        "sums": [column["ones"] for column in columns],
    }
