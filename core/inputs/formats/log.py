r"""Log lines: a regular expression with named groups makes columns of them.

The expression is RE2's (linear time, whatever the line), searched in each line; ``^`` and ``$`` anchor it. A
line that does not match is rejected. Presets (`PRESETS`) are expressions for the logs of web servers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.blocks import BOM, Block, line_blocks, read_head
from hushgram.inputs.columns import Texts, keep_good, valid_text
from hushgram.inputs.formats.format import FilePlan, Format, Parsed, chunks, plan_lines
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem, first_line

__all__ = ["FORMAT", "PRESETS", "LogOptions", "preset_columns", "preset_patterns"]


# Formats of web servers' logs: their columns, and the expressions that find them in a line.
#
# | preset | columns |
# |---|---|
# | `access-log` | ip, time, method, path, status, bytes, referer, agent: Common or Combined Log Format |
# | `common-log` | the same without referer and agent, and nothing behind them |
# | `vhost_combined` | vhost and port before those of `access-log` (Apache's vhost_combined) |
# | `w3c` | those that the file's first ``#Fields:`` line names (IIS); lines that begin with # are not records |
#
# ``-`` means that there is no value. A preset checks what it can: the client of `access-log` is an address or a name
# without a port, and what follows it is not an address, so that lines of another preset do not match.

# An address or name; with colons only as in IPv6, so that host:port is none. What follows (identd) is not an address.
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
    """Return the columns of a file; those of `w3c` from its beginning."""
    if preset in _SERVERS:
        return _SERVERS[preset][0]
    found = re.search(rb"^#Fields:[ \t]*([^\r\n]*)", head, re.MULTILINE)
    if found is None:
        if not head.strip():
            return ()
        raise InputError(f"{path}: no line #Fields: at its beginning; preset w3c needs one")
    return tuple(found.group(1).decode("utf-8", "replace").split())


def preset_patterns(preset: str, columns: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    """Return the expressions to try on a line, one after the other; only what `names` needs is captured."""
    if preset not in _SERVERS:
        fields = (rf"(?P<{_group_of(name)}>\S+)" if name in names else r"\S+" for name in columns)
        return ["^" + " ".join(fields) + "$"]
    _, before, tailed, behind = _SERVERS[preset]
    tail = _PLAIN_TAIL if tailed and {"referer", "agent"} & set(names) else ""
    general = _LINE + (f"(?:{_TAIL})?" if tailed else "")
    plain = (f"(?P<ip>{client})" + _PLAIN_LINE + tail for client in (_NAME, _IPV6))
    patterns = ("^" + before + pattern + behind for pattern in (*plain, general))
    unused = re.compile(r"\(\?P<(?:" + "|".join(set(columns) - set(names)) + ")>")
    return [unused.sub("(?:", pattern) for pattern in patterns]


def _group_of(name: str) -> str:
    """Return the name of a group for a column such as cs(User-Agent)."""
    return re.sub(r"\W", "_", name)


@dataclass(frozen=True)
class LogOptions:
    """How lines become columns: one of the two is given."""

    preset: str | None = field(default=None, metadata={"about": f"for log lines: {', '.join(PRESETS)}"})
    pattern: str | None = field(
        default=None, metadata={"about": "for log lines: a regular expression with named groups"}
    )

    def __post_init__(self) -> None:
        if self.preset not in (None, *PRESETS):
            raise ParameterError(f"preset must be one of {', '.join(PRESETS)}, got {self.preset!r}")
        if self.preset is not None and self.pattern is not None:
            raise ParameterError("pattern and input.preset exclude each other; keep one")
        if self.preset is None and self.pattern is None:
            raise ParameterError("format log needs preset: access-log, or a pattern with named groups")


def _groups_of(pattern: str) -> list[str]:
    """Return the named groups of an expression, checked by the engine that will run it."""
    try:
        kind = pc.extract_regex(pa.array([], pa.string()), pattern=pattern).type
    except (pa.ArrowInvalid, pa.ArrowKeyError) as problem:
        reason = first_line(problem).removeprefix("Invalid regular expression: ")
        raise ParameterError(
            f"input.pattern must be a regular expression (RE2) with named groups, such as (?P<url>\\S+), "
            f"got {pattern[:80]!r}: {reason}"
        ) from None
    return [kind.field(index).name for index in range(kind.num_fields)]


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    options = source.option(LogOptions)
    if source.secrets:
        raise InputError(
            f"{file.path}: column {source.secrets[0]!r} is secret, and whether a line matches a pattern could "
            "reveal it; write the records as CSV, JSON lines or Parquet first"
        )
    head = read_head(file.path, compression, opener)
    types: dict[str, pa.DataType] = {}
    if options.preset is None:
        columns = tuple(_groups_of(str(options.pattern)))
    else:
        columns = preset_columns(options.preset, file.path, head)
        if options.preset in _SERVERS:
            types = {"status": pa.int64(), "bytes": pa.int64()}
    types = {name: kind for name, kind in (types | source.kinds).items() if name not in source.texts}
    return plan_lines(
        file, "log", compression, source, head=head, columns=columns, types=types, header=columns
    )


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Read an item."""
    rejects = Rejects(item.path, plan.source.keep_rejected)
    options = plan.source.option(LogOptions)
    if options.preset is None:
        patterns = [str(options.pattern)]
    else:
        patterns = preset_patterns(options.preset, item.header, plan.source.names)
    for block in line_blocks(item, opener, plan.source.block_bytes, rejects):
        lines, places = _split(block)
        if options.preset == "w3c":  # directives are not records
            records = pc.invert(pc.starts_with(lines, "#"))
            lines, places = lines.filter(records), places[records.to_numpy(zero_copy_only=False)]
        good = valid_text(lines)
        if good is not None:
            rejects.add_rows("line is not UTF-8", np.flatnonzero(~good), places, _bytes_of(lines))
            lines, places = lines.filter(pa.array(good)), places[good]
        parts, kept = [], []
        for pattern in patterns:
            found = pc.extract_regex(lines, pattern=pattern)
            matched = found.is_valid()
            rows = matched.to_numpy(zero_copy_only=False)
            parts.append(found.filter(matched))
            kept.append(places[rows])
            lines, places = lines.filter(pc.invert(matched)), places[~rows]
        rejects.add_rows("line does not match", np.arange(len(lines)), places, _bytes_of(lines))
        arrays = [_column(parts, field.name, plan.source) for field in plan.raw]
        typed, starts = _typed(arrays, np.concatenate(kept), plan, rejects)
        yield from chunks(keep_good(typed, plan, rejects, starts, decoded=True), block.size, plan, rejects)


def _split(block: Block) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return (lines without their ends, where they begin), without blank ones; no Python object per line."""
    data = block.data
    if BOM in data:  # at the beginning of a line it is no part of it (places behind it are less exact then)
        data = data.removeprefix(BOM).replace(b"\n" + BOM, b"\n")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate((np.zeros(1, np.int64), ends))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    lines = pc.ascii_rtrim(pa.Array.from_buffers(pa.string(), len(ends), buffers), characters="\r\n")
    full = pc.not_equal(pc.binary_length(lines), 0)
    return lines.filter(full), offsets[:-1][full.to_numpy(zero_copy_only=False)] + block.offset


def _bytes_of(lines: pa.Array) -> Callable[[int], bytes]:
    return lambda row: bytes(lines[row].cast(pa.binary()).as_py())


def _column(parts: list[pa.StructArray], name: str, source: Source) -> pa.Array:
    column = pa.concat_arrays([part.field(_group_of(name)) for part in parts])
    none = pc.equal(column, "")
    if source.option(LogOptions).preset is not None:
        none = pc.or_(none, pc.equal(column, "-"))
    return pc.if_else(none, pa.scalar(None, pa.string()), column)


def _typed(arrays: list[pa.Array], places: NDArray[np.int64], plan: InputPlan, rejects: Rejects) -> Parsed:
    """Convert columns to the types of the plan; a line with a number that is too large for its type is rejected."""
    try:
        return [column.cast(f.type) for column, f in zip(arrays, plan.raw, strict=True)], places
    except pa.ArrowInvalid:
        texts = Texts(plan)
        rows = zip(*(column.cast(pa.binary()).to_pylist() for column in arrays), strict=True)
        for place, row in zip(places, rows, strict=True):
            texts.add(list(row), int(place), b" ".join(value or b"-" for value in row))
        return texts.arrays(rejects)


FORMAT = Format("log", (".log",), _plan, _read, pieces="file and byte ranges", options=LogOptions, flat=True)
