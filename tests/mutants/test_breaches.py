"""Every deliberate breach finds its function and expression in the code: one that does not would test nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, main
from tests.mutants.breaches import BREACHES, Breach
from tests.mutants.patching import Gone, mutated


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
def test_its_target_is_there(breach: Breach) -> None:
    file, text = mutated(breach, ROOT)
    compile(text, file, "exec")
    assert all((ROOT / test).exists() for test in breach.tests)


def test_names_differ() -> None:
    assert len({breach.name for breach in BREACHES}) == len(BREACHES)


CODE = """\
class A:
    def f(self, x):
        # why
        return min( x , 1 )

    def g(self, x):
        first = min(x, 1)
        second = min(x, 1)
        return first + second
"""
BREACH = Breach("tried", "hushgram.a:A.f", "min(x, 1)", "x", ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"target": "hushgram.gone:A.f"}, "there is no module hushgram.gone"),
        ({"target": "hushgram.a:A.renamed"}, "there is no hushgram.a:A.renamed"),
        ({"target": "hushgram.a:f"}, "there is no hushgram.a:f"),
        ({"old": "max(x, 1)"}, "hushgram.a:A.f holds `max(x, 1)` 0 times"),
        ({"target": "hushgram.a:A.g"}, "hushgram.a:A.g holds `min(x, 1)` 2 times"),
        ({"old": "return x"}, "hushgram.a:A.f holds `return x` 0 times"),
    ],
)
def test_a_target_that_is_gone_is_an_error(change: dict[str, str], told: str, tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/a.py").write_text(CODE)
    with pytest.raises(Gone) as problem:
        mutated(replace(BREACH, **change), tmp_path)
    assert str(problem.value) == told


def test_one_function_is_changed_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/a.py").write_text(CODE)
    _, text = mutated(BREACH, tmp_path)
    assert "return x" in text
    assert text.count("min(x, 1)") == 2
    statements = replace(BREACH, target="hushgram.a:A.g", old="first = min(x, 1)", new="first = 0; x = 7")
    assert "first = 0\n        x = 7\n        second" in mutated(statements, tmp_path)[1]
    assert (
        "import random\n\nclass A" in mutated(Breach("", "hushgram.a:", "", "import random", ()), tmp_path)[1]
    )


def test_a_mutant_whose_target_is_gone_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutants.__main__.BREACHES", (replace(BREACH, target="hushgram.errors:gone"),))
    assert main([]) == 1
    with pytest.raises(SystemExit, match="there is no mutant nothing"):
        main(["nothing"])
