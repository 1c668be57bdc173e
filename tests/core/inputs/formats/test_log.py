"""Log lines: the access-log preset on lines as servers write them, and patterns of one's own."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.formats.log import preset_columns, preset_patterns
from tests.core.inputs.helpers import plan_of, read, read_all, write

COMMON = '127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326\n'
COMBINED = (
    '2001:db8::1 - - [10/Oct/2000:13:55:37 -0700] "POST /a%20b?q=\\"x\\" HTTP/2.0" 404 - '
    '"http://ref/\\"q\\"" "Mozilla/5.0 (X11; \\"Linux\\")"\n'
)
NO_PROTOCOL = '10.0.0.3 - - [10/Oct/2000:13:55:38 -0700] "GET /old" 200 5 "-" "-"\n'
SPACED_USER = '10.0.0.4 - "a b" [10/Oct/2000:13:55:38 -0700] "GET /u HTTP/1.1" 200 5\n'
BROKEN_REQUEST = '10.0.0.5 - - [10/Oct/2000:13:55:39 -0700] "-" 408 - "-" "-"\n'

ALL = ("time", "method", "status", "bytes", "referer", "agent")


def test_access_log_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "a.log", COMMON + COMBINED + NO_PROTOCOL + SPACED_USER)
    rows, rejected, _ = read_all(plan_of(file, ids=("ip", "path"), columns=ALL, preset="access-log"))
    assert not rejected
    by_ip = {row["ip"]: row for row in rows}
    assert by_ip["127.0.0.1"] == {
        "ip": "127.0.0.1", "path": "/apache_pb.gif", "time": "10/Oct/2000:13:55:36 -0700", "method": "GET",
        "status": 200, "bytes": 2326, "referer": None, "agent": None,
    }  # fmt: skip
    assert by_ip["2001:db8::1"] == {
        "ip": "2001:db8::1", "path": '/a%20b?q=\\"x\\"', "time": "10/Oct/2000:13:55:37 -0700",
        "method": "POST", "status": 404, "bytes": None, "referer": 'http://ref/\\"q\\"',
        "agent": 'Mozilla/5.0 (X11; \\"Linux\\")',
    }  # fmt: skip
    assert (by_ip["10.0.0.3"]["path"], by_ip["10.0.0.3"]["referer"]) == ("/old", None)
    assert by_ip["10.0.0.4"]["path"] == "/u"


def test_only_the_needed_groups_and_lines_without_a_path(tmp_path: Path) -> None:
    text = (COMMON + COMBINED + BROKEN_REQUEST + "garbage\n\n").encode() + b"\xff\xfe\n"
    plan = plan_of(
        write(tmp_path / "access.log.gz", text), ids=("ip", "path"), preset="access-log", keep_rejected=True
    )
    rows, rejected, bad = read_all(plan)
    assert [row["path"] for row in rows] == ["/apache_pb.gif", '/a%20b?q=\\"x\\"']
    assert rejected == {"path is null": 1, "line does not match": 1, "line is not UTF-8": 1}
    assert {row["record"] for row in bad} >= {b"garbage", b"\xff\xfe"}


def test_the_fast_expression_agrees_with_the_general_one() -> None:
    plain = COMBINED.replace("\\", "").replace('"x"', "x").replace('/"q"', "/q").replace('"Linux"', "Linux")
    lines = pa.array(
        [
            COMMON,
            plain,
            plain.replace("2001:db8::1", "h.org"),
            COMMON.replace("127.0.0.1", "::1"),
            COMBINED,
            NO_PROTOCOL,
            SPACED_USER,
            BROKEN_REQUEST,
            "x",
            COMMON.replace("GET", "get"),
        ]
    )
    for names in (("ip", "path"), ("ip", "time", "status", "bytes"), ("referer", "agent")):
        four, six, general = (
            pc.extract_regex(pc.ascii_rtrim(lines, characters="\n"), pattern=pattern).to_pylist()
            for pattern in preset_patterns("access-log", preset_columns("access-log", "", b""), names)
        )
        for fast in (four, six):
            assert any(fast)
            assert all(quick in (None, slow) for quick, slow in zip(fast, general, strict=True))


def test_own_pattern_and_windows_line_ends(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "user=1 url=/a\r\nuser=2 url=/b\r\nuser= url=/c\r\n")
    rows, rejected = read(file, pattern=r"user=(?P<user>\w*) url=(?P<key>\S+)$", format="log")
    assert rows == [{"user": "1", "key": "/a"}, {"user": "2", "key": "/b"}]
    assert rejected == {"user is null": 1}


@pytest.mark.parametrize("item_bytes", [1, 40, 1000])
def test_ranges(tmp_path: Path, item_bytes: int) -> None:
    file = write(tmp_path / "a.log", COMMON * 3)
    rows, _ = read(file, ids=("ip", "path"), preset="access-log", item_bytes=item_bytes, block_bytes=100)
    assert len(rows) == 3


def test_pattern_mistakes_are_one_line(tmp_path: Path) -> None:
    file = write(tmp_path / "a.log", "x\n")
    with pytest.raises(ParameterError, match=r"input.pattern must be a regular expression"):
        plan_of(file, pattern=r"(?P<user>[")
    with pytest.raises(ParameterError, match="named groups"):
        plan_of(file, pattern=r"(\w+)")
    with pytest.raises(InputError, match=r"no column 'key'.*columns are: user, keys"):
        plan_of(file, pattern=r"(?P<user>\w+) (?P<keys>\w+)")
    with pytest.raises(ParameterError, match=r"preset: access-log, or a pattern"):
        plan_of(file)


VHOST = "www.example.org:443 " + COMBINED
W3C = (
    "#Software: Microsoft Internet Information Services 10.0\n#Version: 1.0\n"
    "#Fields: date time s-ip cs-method cs-uri-stem c-ip cs(User-Agent) sc-status\n"
    "2026-11-15 09:30:00 10.0.0.1 GET /a 1.2.3.4 Mozilla/5.0+(X) 200\n"
    "#Date: 2026-11-15\n"
    "2026-11-15 09:30:01 10.0.0.1 GET /b 1.2.3.5 - 404\n"
    "2026-11-15 09:30:02 10.0.0.1 GET /c 1.2.3.6\n"
)


def test_vhost_combined_and_common(tmp_path: Path) -> None:
    file = write(tmp_path / "a.log", VHOST + VHOST.replace(":443", "") + COMBINED)
    rows, rejected, _ = read_all(
        plan_of(file, ids=("ip", "path"), columns=("vhost", "port", "agent"), preset="vhost_combined")
    )
    assert {row["ip"] for row in rows} == {"2001:db8::1"}
    assert [(row["vhost"], row["port"]) for row in rows] == [
        ("www.example.org", "443"),
        ("www.example.org", None),
    ]
    assert rejected == {"line does not match": 1}
    rows, rejected = read(
        write(tmp_path / "b.log", COMMON + COMBINED), ids=("ip", "path"), preset="common-log"
    )
    assert ([row["ip"] for row in rows], rejected) == (["127.0.0.1"], {"line does not match": 1})


def test_lines_with_a_virtual_host_are_no_access_log(tmp_path: Path) -> None:
    """Else the host would be taken for the user."""
    lines = VHOST + VHOST.replace(":443", "") + "www.example.org:80 " + COMMON + "www.example.org " + COMMON
    rows, rejected = read(write(tmp_path / "a.log", lines), ids=("ip", "path"), preset="access-log")
    assert (rows, rejected) == ([], {"line does not match": 4})


def test_w3c_columns_come_from_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "u_ex.log", W3C)
    columns = ("cs(User-Agent)", "sc-status")
    plan = plan_of(
        file, ids=("c-ip", "cs-uri-stem"), columns=columns, preset="w3c", block_bytes=50, item_bytes=60
    )
    rows, rejected, _ = read_all(plan)
    assert rows == [
        {"c-ip": "1.2.3.4", "cs-uri-stem": "/a", "cs(User-Agent)": "Mozilla/5.0+(X)", "sc-status": "200"},
        {"c-ip": "1.2.3.5", "cs-uri-stem": "/b", "cs(User-Agent)": None, "sc-status": "404"},
    ]
    assert rejected == {"line does not match": 1}
    with pytest.raises(InputError, match="no line #Fields"):
        plan_of(write(tmp_path / "b.log", COMMON), ids=("c-ip",), preset="w3c")
    with pytest.raises(
        ParameterError, match="preset must be one of access-log, common-log, vhost_combined, w3c"
    ):
        plan_of(file, preset="nginx")
