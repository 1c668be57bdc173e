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
@click.option(
    "--keys-file", "keys_files", multiple=True, metavar="FILE",
    help="File with one key per line, to look up and to name fingerprints; may be repeated.",
)  # fmt: skip
@click.option(
    "--link", default="", metavar="ADDRESS", help="Print the new address of a page that was open before."
)
def command(sketches: tuple[str, ...], port: int, keys_files: tuple[str, ...], link: str) -> None:
    """Serve a page on this machine: top keys and totals, lookups, groups, changes and series, with intervals and CSV.

    Several SKETCHES are shown side by side, with their differences; where their names have dates, as a line over time.
    The address says what a page shows, and holds a token: who does not know it cannot ask. Costs no privacy budget.
    """
    from pathlib import Path
    from urllib.parse import urlsplit

    from hushgram.errors import OutputError
    from hushgram.noise.entropy import os_entropy
    from hushgram.pipelines.pages.explore import make_app, serve
    from hushgram.pipelines.pages.explore_questions import KeyFile
    from hushgram.sketch.reader import Sketch

    opened = [(Path(path).name.removesuffix(".sketch") or path, Sketch.open(path)) for path in sketches]
    if len({name for name, _ in opened}) < len(opened):
        opened = [(path, sketch) for path, (_, sketch) in zip(sketches, opened, strict=True)]
    files = [KeyFile.open(path) for path in keys_files]
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
    query = urlsplit(link).query
    print_line(f"http://127.0.0.1:{number}/{token}/{query and '?' + query}")
    print_line("Ctrl-C ends it. Whoever has this address can ask; it reaches this machine alone.", err=True)
    serve(make_app(opened, token, number, files), token, listener)
