"""Memory of a process: settings of glibc's allocator, where there is one."""

from __future__ import annotations

import pytest

from hushgram import processes


@pytest.fixture(autouse=True)
def _forget() -> None:
    processes.reuse_memory.cache_clear()
    processes._glibc.cache_clear()


def test_memory_is_reused_and_returned() -> None:
    assert processes.reuse_memory() == (processes._glibc() is not None)
    processes.return_memory()


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.platform, "libc_ver", lambda: ("", ""))
    assert not processes.reuse_memory()
    processes.return_memory()
