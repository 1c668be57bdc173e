"""The server behind the explore page: connections that do not show the token are closed soon, so that they cannot
take the place of the owner's.

Anybody on the machine can connect to a port of 127.0.0.1. A browser sends the first line of a request, with the token
in it, at once; whoever has not shown the token by then is not answered for long, however many they are.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["serve"]

#: Seconds in which a connection must show the token: where few have not, and where many have not.
_PATIENCE, _HASTE = 2.0, 0.2
_FEW = 64
_LONGEST_START = 256  # bytes of a first line in which the token stands


def serve(app: Any, token: str, listener: socket.socket) -> None:
    """Serve ``app`` on a listening socket until the process is told to end."""
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
