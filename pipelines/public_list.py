"""The file of a public list of keys (`privacy.domain.public_keys`).

Where the possible keys are known beforehand (countries, products, status codes), nothing need be hidden about
which of them occur: all of ε goes to the counts (Wang, lecture 3, §3.5), and with probability 1 − β no count is
further from the truth than ln(k/β)·C/ε. `run_release(..., public_keys=read_list(path))` releases it.
"""

from __future__ import annotations

from hushgram.inputs.key_lists import read_key_list
from hushgram.transforms.files import open_file

__all__ = ["read_list"]


def read_list(path: str) -> list[bytes]:
    """The keys of a file with one key a line, each once; through Beam's file systems."""
    return read_key_list(path, "privacy.domain.public_keys", open_file)
