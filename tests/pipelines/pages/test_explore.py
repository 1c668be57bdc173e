"""The explore page: asked by a person in a browser, and by others who should not."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hushgram.pipelines.pages.explore import LARGEST_REQUEST, MAX_KEYS
from hushgram.sketch.reader import Sketch


@pytest.fixture(scope="module")
def address(sketches: dict[str, Path]) -> Iterator[str]:
    paths = [str(path) for path in sketches.values()]
    process = subprocess.Popen(
        [sys.executable, "-m", "hushgram.pipelines", "explore", *paths], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(20)


def ask(url: str, body: Any, **headers: str) -> tuple[int, Any]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, content, sent), timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read()


def test_intervals_hold_for_all_keys_that_are_asked_at_once(address: str, sketches: dict[str, Path]) -> None:
    keys = [f"/page/{number}" for number in range(100)]
    status, body = ask(f"{address}ask", {"keys": keys})
    answer = json.loads(body)
    assert status == 200
    assert answer["among"] == 128
    name, path = next(iter(sketches.items()))
    held = Sketch.open(path).estimate(keys, among=128)
    at = answer["pages"][answer["names"].index(name)]
    assert [row[at[2]] for row in answer["rows"]] == held["high"].to_pylist()
    for texts, row in zip(answer["texts"], held.to_pylist(), strict=True):
        told = texts[answer["names"].index(name)]
        assert told.startswith("unresolved, ") == (not row["resolved"]), told
    assert json.loads(ask(f"{address}ask", {"keys": keys[:1]})[1])["among"] == 1
    text = ask(f"{address}csv", {"keys": keys})[1].decode()
    assert f"{name}: among" in text.splitlines()[0]


def test_answers_as_one_types(address: str, looked: Any) -> None:
    page = looked.page
    page.goto(address)
    page.wait_for_selector("#keys")
    assert page.evaluate("document.activeElement.id") == "keys"
    page.keyboard.type("/page/2\n/page/3\n/nowhere")
    page.wait_for_selector("#answers tbody tr:nth-child(3)")
    assert page.locator("#totals tbody tr").count() == 2  # one for each sketch
    assert "/nowhere" in page.inner_text("#answers")
    assert looked.contrast() == []
    looked.keep("explore")
    with page.expect_download() as download:
        page.click("#csv")
    text = Path(download.value.path()).read_text()
    assert text.splitlines()[0].startswith('"key","pure: estimate"')
    assert len(text.splitlines()) == 4
    assert looked.errors == []
    assert all(url.startswith((address, "data:", "blob:")) for url in looked.requests)


def test_only_who_knows_the_token_and_asks_from_here(address: str) -> None:
    host = address.rsplit("/", 2)[0]
    good = {"keys": ["/page/2"]}
    assert ask(address + "ask", good)[0] == 200
    assert ask(address + "ask", good, Origin=host)[0] == 200
    assert ask(host + "/" + "0" * 32 + "/ask", good)[0] == 404
    assert ask(host + "/ask", good)[0] == 404
    assert ask(address + "ask", good, Host="example.org")[0] == 421  # a name that was bound to 127.0.0.1
    assert ask(address + "ask", good, Origin="http://example.org")[0] == 403
    assert ask(address + "ask", good, Origin="null")[0] == 403
    assert ask(address + "ask", good, Content_Type="text/plain")[0] == 415  # what a form could send
    assert ask(address + "elsewhere", good)[0] == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "request must be"),
        (b"[]", "request must be"),
        (b"[" * 100_000, "request must be"),
        ({"keys": "a"}, "list of texts"),
        ({"keys": [1]}, "list of texts"),
        ({"keys": ["a"], "level": 2}, "between 0 and 1"),
        ({"keys": ["a"], "level": True}, "between 0 and 1"),
        ({"keys": ["\ud800"]}, "not text"),
        ({"keys": ["a"] * (MAX_KEYS + 1)}, "keys at a time"),
        (b" " * (LARGEST_REQUEST + 1), "4 MiB"),
    ],
)  # fmt: skip
def test_odd_requests_are_refused_in_a_sentence(address: str, body: Any, said: str) -> None:
    status, answer = ask(address + "ask", body)
    assert status == 400
    assert said in json.loads(answer)["error"]


def half_sent(address: str, start: bytes) -> socket.socket:
    host, port = address.split("/")[2].split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(start)
    return connection


STARTS = {
    "nothing": b"",
    "a first line": b"GET / HTTP/1.1\r\n",
    "headers": b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    "a body": b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\nabc",
    "another token": b"POST /" + b"0" * 32 + b"/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n",
}


@pytest.mark.parametrize("start", STARTS)
def test_half_sent_requests_without_the_token_do_not_keep_the_owner_out(address: str, start: str) -> None:
    """200 connections wait with part of a request: the owner is answered among them, and they are closed."""
    with contextlib.ExitStack() as held:
        strangers = [held.enter_context(half_sent(address, STARTS[start])) for _ in range(200)]
        begun = time.monotonic()
        for _ in range(20):
            status, answer = ask(address + "ask", {"keys": ["/page/2"]})
            assert (status, len(json.loads(answer)["rows"])) == (200, 1)
            strangers.append(held.enter_context(half_sent(address, STARTS[start])))
        assert time.monotonic() - begun < 10
        for stranger in strangers:  # closed or reset, well before the time of the socket itself
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while stranger.recv(1 << 16):
                    pass
        assert time.monotonic() - begun < 15


def test_a_slow_owner_is_waited_for(address: str) -> None:
    """Who has shown the token may take its time with the rest."""
    token = address.rsplit("/", 2)[1]
    host = address.split("/")[2]
    body = b'{"keys": ["/page/2"]}'
    head = f"POST /{token}/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with half_sent(address, head.encode()) as owner:
        time.sleep(3)
        owner.sendall(f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode())
        time.sleep(0.5)
        owner.sendall(body)
        assert owner.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_the_downloaded_csv_is_safe_for_spreadsheets(address: str) -> None:
    status, answer = ask(address + "csv", {"keys": ["=1+1", "@x", "/page/2"]})
    assert status == 200
    assert [line.split(b",")[0] for line in answer.splitlines()[1:]] == [b'"\'=1+1"', b'"\'@x"', b'"/page/2"']


def test_nothing_asked_is_nothing_found(address: str) -> None:
    status, answer = ask(address + "ask", {"keys": []})
    assert status == 200
    assert json.loads(answer)["rows"] == []


def test_it_listens_on_loopback_alone(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    port = int(address.split(":")[2].split("/")[0])
    bound = [
        line.split()[1]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    assert [place for place in bound if place.endswith(f":{port:04X}") and "0100007F" not in place] == []
