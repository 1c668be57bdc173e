"""One digest of everything: what keys the noise of a release where its data are in many elements."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from hushgram.noise.entropy import digest

__all__ = ["DigestAll"]


class DigestAll(beam.PTransform):
    """Digests of parts, in any order → one digest of them all; exact and private."""

    def expand(self, digests: Any) -> Any:
        return digests | "Gather" >> beam.combiners.ToList() | "Digest" >> beam.Map(_digest_sorted)


def _digest_sorted(digests: list[bytes]) -> bytes:
    return digest(*sorted(digests))
