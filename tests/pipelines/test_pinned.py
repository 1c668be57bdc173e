"""Every job under a fixed key writes the bytes that it always wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pipelines.pinned import CONFIGS, run, write_inputs

EXPECTED = json.loads(Path(__file__).with_name("pinned.json").read_text())


@pytest.mark.parametrize("name", CONFIGS)
def test_bytes_are_as_recorded(name: str, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    assert run(tmp_path, name) == EXPECTED[name]
