"""Change a function that is known by its name: what stands in it, as a syntax tree, becomes something else.

A breach names its function as `package.module:Class.method` (`package.module:` is the module itself) and one
expression, or some statements that follow one another, as they would be written; spaces, line ends and comments do not
matter. A function that is gone, or in which that expression is not found exactly once, is an error.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutants.breaches import Breach

__all__ = ["Gone", "mutated", "source_file"]


class Gone(LookupError):
    """What a breach would change is not in the code any more."""


def source_file(target: str, root: Path) -> Path:
    """Return the file of the module of this target."""
    parts = target.partition(":")[0].split(".")[1:]
    path = root.joinpath(*([] if parts[0] in ("transforms", "pipelines") else ["core"]), *parts)
    for found in (path.with_suffix(".py"), path / "__init__.py"):
        if found.exists():
            return found
    raise Gone(f"there is no module {target.partition(':')[0]}")


def mutated(breach: Breach, root: Path) -> tuple[Path, str]:
    """Return the file of the breach, and its text with the breach."""
    path = source_file(breach.target, root)
    tree = ast.parse(path.read_text())
    owner = _named(tree, breach.target)
    if not breach.old:
        owner.body[_after_docstring(owner) : _after_docstring(owner)] = ast.parse(breach.new).body
        return path, ast.unparse(tree)
    old, new = ast.parse(breach.old).body, ast.parse(breach.new).body
    if len(old) == 1 and isinstance(old[0], ast.Expr):
        (only,) = new
        assert isinstance(only, ast.Expr)
        found = _replace_expression(owner, old[0].value, only.value)
    else:
        found = _replace_statements(owner, old, new)
    if found != 1:
        raise Gone(f"{breach.target} holds `{breach.old}` {found} times")
    return path, ast.unparse(ast.fix_missing_locations(tree))


def _named(tree: ast.Module, target: str) -> ast.Module | ast.ClassDef | ast.FunctionDef:
    found: ast.Module | ast.ClassDef | ast.FunctionDef = tree
    for name in filter(None, target.partition(":")[2].split(".")):
        for node in found.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                found = node
                break
        else:
            raise Gone(f"there is no {target}")
    return found


def _after_docstring(owner: ast.Module | ast.ClassDef | ast.FunctionDef) -> int:
    for place, node in enumerate(owner.body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not text and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return place
    return len(owner.body)


def _replace_expression(owner: ast.AST, old: ast.expr, new: ast.expr) -> int:
    wanted, found = ast.dump(old), 0
    for node in [*ast.walk(owner)]:
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr) and ast.dump(value) == wanted:
                setattr(node, name, new)
                found += 1
            elif isinstance(value, list):
                for place, item in enumerate(value):
                    if isinstance(item, ast.expr) and ast.dump(item) == wanted:
                        value[place] = new
                        found += 1
    return found


def _replace_statements(owner: ast.AST, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    wanted, found = [ast.dump(node) for node in old], 0
    for node in [*ast.walk(owner)]:
        for body in (value for _, value in ast.iter_fields(node) if isinstance(value, list)):
            for place in range(len(body) - len(old) + 1):
                if [ast.dump(item) for item in body[place : place + len(old)]] == wanted:
                    body[place : place + len(old)] = new
                    found += 1
    return found
