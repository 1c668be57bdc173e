"""What a portable pipeline carries to its workers: every pickled function and coder, opened."""

from __future__ import annotations

import base64
import bz2
import contextlib
import zlib
from collections.abc import Iterator
from typing import Any

__all__ = ["payloads", "pickles"]


def payloads(proto: Any) -> Iterator[tuple[str, bytes]]:
    """Name and payload of each user function: DoFns, CombineFns, window functions, coders."""
    from apache_beam.portability.api import beam_runner_api_pb2

    for name, transform in proto.components.transforms.items():
        if transform.spec.urn == "beam:transform:pardo:v1":
            pardo = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            yield f"{transform.unique_name or name}", pardo.do_fn.payload
        elif transform.spec.urn.startswith("beam:transform:combine"):
            combine = beam_runner_api_pb2.CombinePayload.FromString(transform.spec.payload)
            yield f"{transform.unique_name or name}", combine.combine_fn.payload
    for name, coder in proto.components.coders.items():
        if coder.spec.urn == "beam:coder:pickled_python:v1":
            yield f"coder {name}", coder.spec.payload.split(b"$", 1)[-1]  # its name, and the pickle
    for name, strategy in proto.components.windowing_strategies.items():
        if "pickled" in strategy.window_fn.urn:
            yield f"windows {name}", strategy.window_fn.payload


def pickles(payload: bytes) -> bytes:
    """The pickle inside a payload: Beam packs it with zlib or bz2 and base64."""
    raw = payload
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(payload, validate=True)
    for unpack in (zlib.decompress, bz2.decompress):
        with contextlib.suppress(zlib.error, OSError, ValueError):
            return unpack(raw)
    return raw
