"""A page that asks sketches, served on loopback: read-only, bounded requests, a token in its address.

    http://127.0.0.1:PORT/TOKEN/        the page
    POST ask, csv                       {"keys": [...], "level": 0.95}

Answers hold the numbers and, for people, the same as texts that are rounded to what the noise supports.

Other users of the machine do not know the token (it is printed to the terminal of who started the page), and other
pages in the browser cannot use it: every request must name this host, a request with an Origin must name this origin,
and answers can neither be framed nor read by others.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from hushgram.errors import HushgramError, ParameterError
from hushgram.names import printable
from hushgram.pipelines.pages import content_policy, render
from hushgram.pipelines.terminal import csv_bytes, key_warnings, round_columns, rounded
from hushgram.sketch.reader import Sketch

__all__ = ["LARGEST_REQUEST", "MAX_KEYS", "make_app", "serve"]


LARGEST_REQUEST = 4 << 20
MAX_KEYS = 20_000
_HEADERS = {
    "Content-Security-Policy": content_policy("explore") + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(sketches: Sequence[tuple[str, Sketch]], token: str, port: int) -> Starlette:
    """Return the application behind ``http://127.0.0.1:port/token/``; each sketch has a name."""
    app = Starlette(routes=[Route("/{rest:path}", _Pages(sketches, token, port), methods=["GET", "POST"])])
    app.router.redirect_slashes = False  # it would answer before the host is looked at
    return app


class _Pages:
    """The one route: whatever is wrong with a request is answered before anything else is looked at."""

    def __init__(self, sketches: Sequence[tuple[str, Sketch]], token: str, port: int) -> None:
        self._sketches = [(printable(name), sketch) for name, sketch in sketches]
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        shown = [
            {
                "name": name,
                "guarantee": sketch.guarantee.sentence(),
                "limit": sketch.detection_limit().sentence(),
            }
            for name, sketch in self._sketches
        ]
        self._page = render("explore", names=[name for name, _ in self._sketches], sketches=shown)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._answer(Request(scope, receive))
        response.headers.update(_HEADERS)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("host", "") not in self._hosts:
            return _no(421, "this page is served to 127.0.0.1 only")
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return _no(403, "requests from other pages are refused")
        token, _, path = request.path_params["rest"].partition("/")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return _no(404, "not found; open the address that the command printed")
        if request.method == "GET":
            return HTMLResponse(self._page) if path == "" else _no(404, "not found")
        if path not in ("ask", "csv"):
            return _no(404, "not found")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return _no(415, "send JSON")
        try:
            keys, level = _question(await _body(request))
            table, totals, texts = self._look_up(keys, level)
        except ClientDisconnect:
            return _no(400, "the request was cut short")
        except HushgramError as problem:
            return _no(400, str(problem))
        if path == "csv":
            return _csv(table)
        odd = [warning for _, sketch in self._sketches for warning in key_warnings(keys, sketch)]
        return _json(table, totals, texts, [name for name, _ in self._sketches], list(dict.fromkeys(odd)))

    def _look_up(
        self, keys: list[str], level: float
    ) -> tuple[pa.Table, list[dict[str, Any]], list[list[str]]]:
        """Return the table, the total of each sketch, and for each sketch the answers as texts."""
        columns: dict[str, Any] = {"key": keys}
        among = 1 << max(len(set(keys)) - 1, 0).bit_length()  # few tables serve any number of keys
        totals, texts = [], []
        for name, sketch in self._sketches:
            found = sketch.estimate(keys, level=level, among=among)
            before = f"{name}: " if len(self._sketches) > 1 else ""
            for column in found.column_names[1:]:
                columns[before + column.replace("_", " ")] = found[column]
            totals.append(_total(name, sketch, keys, level))
            texts.append(_in_words(found, sketch.per_count))
        return pa.table(columns), totals, texts


def _in_words(found: pa.Table, finest: float) -> list[str]:
    """Return each answer as text: 120 (90 to 150), or unresolved, 0 to 40."""
    told = round_columns(found, finest)
    columns = (told[name].to_pylist() for name in ("estimate", "low", "high", "resolved"))
    return [
        "not in this release" if low == "-"
        else f"{estimate}  ({low} to {high})" if resolved
        else f"unresolved, {low} to {high}"
        for estimate, low, high, resolved in zip(*columns, strict=True)
    ]  # fmt: skip


def _total(name: str, sketch: Sketch, keys: list[str], level: float) -> dict[str, Any]:
    distinct = len(set(keys))
    try:
        found = sketch.total(keys, level=level)
    except ParameterError as problem:  # keys that are not on a public list
        return {"sketch": name, "keys": distinct, "error": printable(str(problem))}
    return {
        "sketch": name,
        "keys": distinct,
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "texts": rounded(found.estimate, found.low, found.high, sketch.per_count),
    }


async def _body(request: Request) -> bytes:
    held = bytearray()
    async for piece in request.stream():
        held += piece
        if len(held) > LARGEST_REQUEST:
            raise ParameterError("the request is larger than 4 MiB; ask for fewer keys at a time")
    return bytes(held)


def _question(body: bytes) -> tuple[list[str], float]:
    try:
        asked = json.loads(body)
        keys, level = asked["keys"], asked.get("level", 0.95)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ParameterError('the request must be {"keys": ["..."], "level": 0.95}') from None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ParameterError("keys must be a list of texts")
    if len(keys) > MAX_KEYS:
        raise ParameterError(f"at most {MAX_KEYS:,} keys at a time; use hushgram query for more")
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ParameterError("level must be between 0 and 1")
    if any("\ud800" <= letter <= "\udfff" for key in keys for letter in key):
        raise ParameterError("a key is not text; remove the broken characters")
    return keys, float(level)


def _no(status: int, error: str) -> JSONResponse:
    return JSONResponse({"error": printable(error)}, status)


def _json(
    table: pa.Table, totals: list[dict[str, Any]], texts: list[list[str]], names: list[str], odd: list[str]
) -> JSONResponse:
    """Return rows, totals, for how many keys intervals hold at once, and where each sketch's answers are in a row."""
    keys, *numbers = table.columns
    columns = [[printable(key) for key in keys.to_pylist()], *map(_plain, numbers)]
    rows = [list(row) for row in zip(*columns, strict=True)]
    found = [name.rpartition(": ")[2] for name in table.column_names]
    starts = [i for i, name in enumerate(found) if name == "estimate"]
    pages = [[i, i + 1, i + 2] for i in starts]
    among = rows[0][found.index("among")] if rows and names else 1
    told = [list(row) for row in zip(*texts, strict=True)]
    body = {"names": names, "pages": pages, "rows": rows, "texts": told, "totals": totals, "among": among}
    return JSONResponse({**body, "warnings": [printable(warning) for warning in odd]})


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return [None if value is None or value != value else value for value in column.to_pylist()]


def _csv(table: pa.Table) -> Response:
    """Return CSV for spreadsheets: formulas get a quote in front; `hushgram query` gives keys exactly."""
    return Response(csv_bytes(table, safe=True), media_type="text/csv")


#: Seconds in which a connection must show the token: where few have not, and where many have not.
_PATIENCE, _HASTE = 2.0, 0.2
_FEW = 64
_LONGEST_START = 256  # bytes of a first line in which the token stands


def serve(app: Any, token: str, listener: socket.socket) -> None:
    """Serve ``app`` on a listening socket until the process is interrupted."""
    config = uvicorn.Config(
        app, http=_guarded(token), ws="none", log_level="error", access_log=False, server_header=False
    )
    uvicorn.Server(config).run(sockets=[listener])


def _guarded(token: str) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a time limit on connections without the token."""
    strangers: dict[asyncio.Protocol, asyncio.TimerHandle] = {}

    class Guarded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _start = b""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            patience = _PATIENCE if len(strangers) < _FEW else _HASTE
            strangers[self] = asyncio.get_running_loop().call_later(patience, transport.abort)

        def data_received(self, data: bytes) -> None:
            if self in strangers:
                self._start = (self._start + data)[:_LONGEST_START]
                shown = self._start.partition(b" /")[2][: len(token) + 1]
                if hmac.compare_digest(shown, f"{token}/".encode()):
                    self._leave()
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            self._leave()
            super().connection_lost(exc)

        def _leave(self) -> None:
            timer = strangers.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Guarded
