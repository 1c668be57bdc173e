"""Sparse vector on a stream that never ends: state, order, duplicates, and noise that survives recomputation.

An engine may restore a checkpoint and process the same arrivals again. So nothing is drawn from an open
source: the noise of sequence number i comes from the release key through

    (stream, parameters, i, digest of all exact answers up to and including i)

and a replay of the same answers gives the same released answers. The threshold is drawn with the first
answer, so that its noise too is a function of data. The state of a stream is O(cutoff): next sequence
number, count, noisy threshold, the running digest, and the yes-answers. A sequence number below
the next one that is not among the yes-answers was answered ⊥, so that a duplicate is answered as before
without a log of the past.

The state holds the noisy threshold and the digest of exact answers. It belongs to the private side: it is
never written to an output or a log. It also holds a tag of the release key, the stream and the parameters:
continued under another key, one checkpoint would give a new transcript of the same data each time, each of
them for ε of its own, so a state goes on only with what it was begun with.

The key is a `StreamKey`, taken from an `InteractiveKey`: that of a release that may be run again would give every
rerun, with other answers, other noise on the same data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from hushgram.errors import FormatError, ParameterError
from hushgram.mechanisms.laplace import whole_numbers
from hushgram.mechanisms.svt.mechanism import ABOVE, BELOW, HALTED, Answer, Sparse
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import StreamKey, digest

__all__ = ["StreamState", "advance", "begin", "recall"]


@dataclass(frozen=True)
class StreamState:
    """The state of one stream between arrivals."""

    stream: str
    tag: bytes  # of release key, stream and parameters
    first: int  # sequence number that the stream begins with
    next: int  # sequence number that is answered next
    count: int  # yes-answers so far
    bar: int | None  # noisy threshold; none before the first answer
    chain: bytes  # digest of the exact answers so far
    above: tuple[tuple[int, int | None, int | None], ...]  # (sequence number, gap, value) of each ⊤
    halted: bool = False

    def to_bytes(self) -> bytes:
        """Return the state as bytes, for the engine's state backend."""
        head = [self.stream, self.tag.hex(), self.first, self.next, self.count, self.bar]
        fields = [*head, self.chain.hex(), self.above, self.halted]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> StreamState:
        """Return the state that `to_bytes` wrote."""
        try:
            stream, tag, first, number, count, bar, chain, above, halted = json.loads(data)
            tops = tuple(tuple(top) for top in above)
            return cls(
                stream, bytes.fromhex(tag), first, number, count, bar, bytes.fromhex(chain), tops, halted
            )
        except (ValueError, TypeError):
            raise FormatError("stream state cannot be read: it was written by another version") from None


def begin(params: SvtParams, key: StreamKey, stream: str, first: int = 0) -> StreamState:
    """Return the state of a new stream; nothing is drawn yet."""
    _check(key)
    start = digest(stream, params.fingerprint)
    return StreamState(stream, _tag(params, key, stream), first, first, 0, None, start, ())


def _check(key: object) -> None:
    if not isinstance(key, StreamKey):
        raise ParameterError(
            f"SparseVector: a stream needs a StreamKey, got {type(key).__name__}; use "
            "InteractiveKey.generate().take(NAME), or run.interactive_key.take(NAME) of "
            "open_budget(…, interactive=True)"
        )


def _tag(params: SvtParams, key: StreamKey, stream: str) -> bytes:
    """Return what tells key, stream and parameters from all others, and says nothing about the key."""
    return digest(key.subkey("svt-online state"), stream, params.fingerprint)[:16]


def advance(params: SvtParams, key: StreamKey, state: StreamState, answer: int) -> tuple[StreamState, Answer]:
    """Answer sequence number ``state.next``, whose exact answer is ``answer``."""
    _check(key)
    if state.tag != _tag(params, key, state.stream):
        raise ParameterError(
            f"SparseVector: the state of stream {state.stream!r} was saved under another release key or other "
            "parameters; go on with those it was begun with, or begin a new stream"
        )
    if state.halted:
        return replace(state, next=state.next + 1), Answer(HALTED)
    exact = int(whole_numbers([answer], "SparseVector")[0])
    chain = digest(state.chain, state.next, exact)
    source = key.source("svt-online", state.next, chain)
    mechanism = Sparse.from_params(params, source, bar=state.bar, count=state.count)
    released = mechanism.ask(exact)
    above = state.above
    if released.outcome == ABOVE:
        above = (*above, (state.next, released.gap, released.value))
    after = replace(
        state,
        next=state.next + 1,
        count=mechanism.count,
        bar=mechanism.bar,
        chain=chain,
        above=above,
        halted=mechanism.halted,
    )
    return after, released


def recall(state: StreamState, number: int) -> Answer | None:
    """Return the answer that ``number`` has; HALTED outside the stream; None if it is still to come."""
    if number < state.first:
        return Answer(HALTED)
    for seen, gap, value in state.above:
        if seen == number:
            return Answer(ABOVE, gap, value)
    if state.halted and (not state.above or number > state.above[-1][0]):
        return Answer(HALTED)
    return Answer(BELOW) if number < state.next else None
