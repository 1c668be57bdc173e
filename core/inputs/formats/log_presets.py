r"""Formats of web servers' logs: their columns, and the expressions that find them in a line.

| preset | columns |
|---|---|
| `access-log` | ip, time, method, path, status, bytes, referer, agent: Common or Combined Log Format |
| `common-log` | the same without referer and agent, and nothing behind them |
| `vhost_combined` | vhost and port before those of `access-log` (Apache's vhost_combined) |
| `w3c` | those that the file's first ``#Fields:`` line names (IIS); lines that begin with # are no records |

``-`` means that there is no value. A preset checks what it can: the client of `access-log` is an address or a name
without a port, and what follows it is no address, so that lines of another preset do not match.
"""

from __future__ import annotations

import re

import pyarrow as pa

from hushgram.errors import InputError

__all__ = ["PRESETS", "group_of", "preset_columns", "preset_patterns", "preset_types"]

# An address or name; with colons only as in IPv6, so that host:port is none. What follows it (identd) is no address.
_NAME, _IPV6, _IDENT = r"[^\s:]+", r"[^\s:]*:[^\s:]*:\S*", r" [^\s.:]+ "
# The request line is METHOD path PROTOCOL; quotes inside a field are escaped with a backslash.
_LINE = (
    rf"(?P<ip>{_NAME}|{_IPV6}){_IDENT}"
    r'(?:[^"\[]*|"[^"]*") ?\[(?P<time>[^\]]*)\] '
    r'"(?:(?P<method>[A-Za-z_-]+) )?(?P<path>(?:[^"\\ ]|\\.)*)(?: (?:[^"\\]|\\.)*)?" '
    r"(?P<status>\d{3}|-) (?P<bytes>\d+|-)"
)
_TAIL = r' "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
# The same for lines without escapes and oddities, in a form that RE2 matches five times as fast (each byte decides
# what comes next, at most five groups). Where both match they agree; what this one refuses goes to the other.
_PLAIN_LINE = (
    _IDENT + r'[^ "\[]+ \[(?P<time>[^\]]*)\] '
    r'"(?P<method>[A-Z]+) (?P<path>[^ "\\]*) [^"\\]*" (?P<status>[0-9]{3}) (?P<bytes>[0-9]+|-)'
)
_PLAIN_TAIL = r' "(?P<referer>[^"\\]*)" "(?P<agent>[^"\\]*)"'
_VHOST = r"(?P<vhost>[^\s:]+)(?::(?P<port>[0-9]+))? "
_COMMON = ("ip", "time", "method", "path", "status", "bytes")
_ACCESS = (*_COMMON, "referer", "agent")

#: preset: (its columns, what stands before a line, whether referer and agent may follow, what stands behind)
_SERVERS = {
    "access-log": (_ACCESS, "", True, ""),
    "common-log": (_COMMON, "", False, "$"),
    "vhost_combined": (("vhost", "port", *_ACCESS), _VHOST, True, ""),
}
PRESETS = (*_SERVERS, "w3c")


def preset_columns(preset: str, path: str, head: bytes) -> tuple[str, ...]:
    """The columns of a file; those of `w3c` from the beginning of it."""
    if preset in _SERVERS:
        return _SERVERS[preset][0]
    found = re.search(rb"^#Fields:[ \t]*([^\r\n]*)", head, re.MULTILINE)
    if found is None:
        if not head.strip():
            return ()
        raise InputError(f"{path}: no line #Fields: at its beginning; preset w3c needs one")
    return tuple(found.group(1).decode("utf-8", "replace").split())


def preset_types(preset: str) -> dict[str, pa.DataType]:
    """Types of columns that hold numbers."""
    return {"status": pa.int64(), "bytes": pa.int64()} if preset in _SERVERS else {}


def preset_patterns(preset: str, columns: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """The expressions to try on a line, one after the other; only what `names` needs is captured."""
    if preset not in _SERVERS:
        fields = (rf"(?P<{group_of(name)}>\S+)" if name in names else r"\S+" for name in columns)
        return ["^" + " ".join(fields) + "$"]
    _, before, tailed, behind = _SERVERS[preset]
    tail = _PLAIN_TAIL if tailed and {"referer", "agent"} & set(names) else ""
    general = _LINE + (f"(?:{_TAIL})?" if tailed else "")
    plain = (f"(?P<ip>{client})" + _PLAIN_LINE + tail for client in (_NAME, _IPV6))
    patterns = ("^" + before + pattern + behind for pattern in (*plain, general))
    return [_only(pattern, columns, names) for pattern in patterns]


def _only(pattern: str, columns: tuple[str, ...], names: tuple[str, ...]) -> str:
    for name in columns:
        if name not in names:
            pattern = pattern.replace(f"(?P<{name}>", "(?:")
    return pattern


def group_of(name: str) -> str:
    """The name of a group for a column such as cs(User-Agent)."""
    return re.sub(r"\W", "_", name)
