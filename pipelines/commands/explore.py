"""`hushgram explore`: ask sketches in a browser."""

from __future__ import annotations

import socket

import click

from hushgram.pipelines.terminal import print_line

__all__ = ["command"]


@click.command("explore")
@click.argument("sketches", nargs=-1, required=True, type=click.Path())
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="A port of 127.0.0.1; 0 takes a free one."
)
def command(sketches: tuple[str, ...], port: int) -> None:
    """Serve a page on this machine that answers as you type: estimates, intervals, totals, CSV.

    Several SKETCHES are shown side by side. The address holds a token: who does not know it cannot ask.
    """
    from pathlib import Path

    from hushgram.errors import OutputError
    from hushgram.noise.entropy import os_entropy
    from hushgram.pipelines.pages.explore import make_app, serve
    from hushgram.sketch.reader import Sketch

    opened = [(Path(path).name.removesuffix(".sketch") or path, Sketch.open(path)) for path in sketches]
    if len({name for name, _ in opened}) < len(opened):
        opened = [(path, sketch) for path, (_, sketch) in zip(sketches, opened, strict=True)]
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as problem:
        raise OutputError(
            f"port {port} of 127.0.0.1 cannot be had: {problem.strerror}; leave --port out"
        ) from None
    listener.listen(64)  # from here on the address answers
    number = int(listener.getsockname()[1])
    token = os_entropy().take(16).tobytes().hex()
    print_line(f"http://127.0.0.1:{number}/{token}/")
    print_line("Ctrl-C ends it. Whoever has this address can ask; it reaches this machine alone.", err=True)
    serve(make_app(opened, token, number), token, listener)
