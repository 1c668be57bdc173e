"""A page that asks sketches, served on loopback: read-only, bounded requests, a token in its address.

    http://127.0.0.1:PORT/TOKEN/?view=keys&k=…    the page; the address says what it shows
    GET csv?…                                     the numbers of that page as CSV
    GET names?q=…                                 known keys that contain a text
    POST keys?name=…                              a key file, which is kept in memory

Other users of the machine do not know the token (it is printed to the terminal of who started the page), and other
pages in the browser cannot use it: every request must name this host, a request with an Origin must name this origin,
and answers can neither be framed nor read by others.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from hushgram.errors import HushgramError, printable
from hushgram.pipelines.pages import content_policy, render
from hushgram.pipelines.pages.explore_questions import VIEWS, KeyFile, Question
from hushgram.pipelines.pages.explore_views import Explorer
from hushgram.pipelines.terminal import csv_bytes
from hushgram.sketch.reader import Sketch

__all__ = ["LARGEST_FILE", "make_app", "serve"]


LARGEST_FILE = 32 << 20
_LEVELS = (0.5, 0.8, 0.95, 0.99)
_RATES = (0.01, 0.05, 0.1, 0.2)
_MORE = 1_000  # rows that a page shows at most
_HEADERS = {
    "Content-Security-Policy": content_policy("explore") + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_app(
    sketches: Sequence[tuple[str, Sketch]], token: str, port: int, files: Sequence[KeyFile] = ()
) -> Starlette:
    """Return the application behind ``http://127.0.0.1:port/token/``; each sketch has a name."""
    pages = _Pages(Explorer(sketches, files), token, port)
    app = Starlette(routes=[Route("/{rest:path}", pages, methods=["GET", "POST"])])
    app.router.redirect_slashes = False  # it would answer before the host is looked at
    return app


class _Pages:
    """The one route: whatever is wrong with a request is answered before anything else is looked at."""

    def __init__(self, explorer: Explorer, token: str, port: int) -> None:
        self._explorer = explorer
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        if explorer.sketches:  # read and fit now what the first answers need
            for question in (Question(), Question(k=("key",)), Question("changes")):
                self._page(question)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._answer(Request(scope, receive))
        response.headers.update(_HEADERS)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.headers.get("host", "") not in self._hosts:
            return _refuse(421, "this page is served to 127.0.0.1 only")
        origin = request.headers.get("origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return _refuse(403, "requests from other pages are refused")
        token, slash, path = request.path_params["rest"].partition("/")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()) or not slash:
            return _refuse(404, "there is nothing here; open the address that the command printed")
        asked = request.query_params
        try:
            if (request.method, path) == ("POST", "keys"):
                return await self._take_file(request)
            if request.method != "GET" or path not in ("", "csv", "names"):
                return self._page(Question(), f"there is no page {path[:60]!r} here", 404)
            if path == "names":
                found = self._explorer.suggest(asked.get("q", "")[:1000], asked.get("file", ""))
                return JSONResponse({"names": [{"key": key, "text": printable(key)} for key in found]})
            question = Question.parse(asked.multi_items())
            return self._csv(question) if path == "csv" else self._page(question)
        except ClientDisconnect:
            return _refuse(400, "the request was cut short")
        except HushgramError as problem:
            if path == "":
                return self._page(Question(), str(problem), 400)
            return _refuse(400, str(problem))

    def _page(self, question: Question, error: str = "", status: int = 200) -> Response:
        """Return the page that answers a question; where that cannot be answered, a sentence that says why."""
        explorer, answer = self._explorer, None
        ways: list[tuple[str, str]] = []
        try:
            if not error:
                answer = explorer.answer(question)
                ways = explorer.ways_to_group(question) if question.view == "groups" else []
        except HushgramError as problem:
            error, status = str(problem), 400
        file = explorer.files.get(question.file)
        text = render(
            "explore",
            error=error,
            question=question,
            answer=answer,
            chart=Markup(answer.chart) if answer else "",
            ways=ways,
            explorer=explorer,
            file=file,
            views=[(name, VIEWS[name], Question(name, question.k, question.file, question.level).address())
                   for name in explorer.views()],
            levels=sorted({*_LEVELS, question.level}),
            rates=sorted({*_RATES, question.rate}),
            more=min(_MORE, answer.number) if answer else 0,
        )  # fmt: skip
        return HTMLResponse(text, status)

    def _csv(self, question: Question) -> Response:
        """Return CSV for spreadsheets: formulas get a quote in front; `hushgram query` gives keys exactly."""
        content = csv_bytes(self._explorer.answer(question, True).data, safe=True)
        named = {"Content-Disposition": f'attachment; filename="hushgram-{question.view}.csv"'}
        return Response(content, media_type="text/csv", headers=named)

    async def _take_file(self, request: Request) -> Response:
        if request.headers.get("content-type", "") != "application/octet-stream":
            return _refuse(415, "send the key file as application/octet-stream")
        held = bytearray()
        async for piece in request.stream():
            held += piece
            if len(held) > LARGEST_FILE:
                return _refuse(413, "the key file is larger than 32 MiB; start with --keys-file to load it")
        file = KeyFile.read(request.query_params.get("name", ""), bytes(held))
        self._explorer.add(file)
        return JSONResponse({"file": file.id, "name": file.name, "keys": len(file.keys)})


def _refuse(status: int, error: str) -> JSONResponse:
    return JSONResponse({"error": printable(error)}, status)


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
