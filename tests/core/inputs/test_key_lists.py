"""Lists of keys: one reading of marks, line ends, blanks, repetitions and bytes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from hushgram.errors import InputError
from hushgram.inputs.source import read_key_list, read_text_keys


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [b"", b"\n", b"\r\n"])
def test_marks_and_line_ends_are_no_part_of_a_key(
    tmp_path: Path, mark: bytes, end: bytes, last: bytes
) -> None:
    file = tmp_path / "keys"
    file.write_bytes(mark + end.join([b"/a", b"", " é\u2028x ".encode(), b"a\rb"]) + last)
    assert read_key_list(str(file), "keys") == [b"/a", " é\u2028x ".encode(), b"a\rb"]
    assert read_text_keys(str(file), "keys") == ["/a", " é\u2028x ", "a\rb"]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa\r\n\xff\n")))
    assert read_key_list("-", "--keys-file") == [b"a", b"\xff"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be opened: No such file"),
        (b"", "has no keys; write one key per line"),
        (b"\xef\xbb\xbf\r\n", "has no keys; write one key per line"),
        (b"a\nb\na\n", "lists 'a' twice; list each key once"),
        ("a\nb\n".encode("utf-16"), "is UTF-16 text; convert it to UTF-8"),
        (b"a\n\xff\n", "is not UTF-8 text; convert it to UTF-8"),
    ],
)
def test_lists_that_are_none(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=f"^domain.keys {file}: {message}") as caught:
        read_text_keys(str(file), "domain.keys")
    assert "\n" not in str(caught.value)


def test_a_lookup_may_repeat_a_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"a\na\n")
    assert read_key_list(str(file), "--keys-file", repeated=True) == [b"a", b"a"]
