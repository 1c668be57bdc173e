"""Every deliberate breach finds its text in the code: one that does not would test nothing."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT
from tests.mutants.breaches import BREACHES, Breach


@pytest.mark.parametrize("breach", BREACHES, ids=lambda breach: breach.name)
def test_its_text_is_there(breach: Breach) -> None:
    assert breach.old in (ROOT / breach.file).read_text()
    assert all((ROOT / test).exists() for test in breach.tests)
