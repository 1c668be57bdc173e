"""A stream answered one by one: replay, duplicates, saved state."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pytest

from hushgram.errors import FormatError, ParameterError
from hushgram.mechanisms.svt import ABOVE, BELOW, HALTED, SvtParams
from hushgram.mechanisms.svt.online import StreamState, advance, begin, recall
from hushgram.noise.entropy import InteractiveKey, ReleaseKey, StreamKey
from tests.privacy.svt_exact import BOTTOM, HALT, TOP, Model, laws_of

SECRET = bytes(range(32))
KEY = InteractiveKey(SECRET).take("tests")


def play(params, answers, stream="s", key=KEY):
    state, released = begin(params, key, stream), []
    for answer in answers:
        state, one = advance(params, key, StreamState.from_bytes(state.to_bytes()), answer)
        released.append(one)
    return state, released


@pytest.mark.parametrize("variant", ["optimal", "dwork-roth"])
def test_replay_gives_the_same_answers(variant):
    params = SvtParams(epsilon="1", threshold=20, cutoff=4, variant=variant, answers="numeric")
    answers = [3, 18, 25, 60, 2, 22, 19, 90, 100]
    state, first = play(params, answers)
    again_state, again = play(params, answers)
    assert first == again
    assert state == again_state
    assert play(params, answers, stream="other")[1] != first


def test_a_changed_answer_changes_all_noise_after_it():
    params = SvtParams(epsilon="1/10", threshold=0, cutoff=200, answers="gap")
    answers = [1_000_000] * 40
    gaps = [one.gap for one in play(params, answers)[1]]
    changed = [one.gap for one in play(params, [1001, *answers[1:]])[1]]
    assert sum(a == b for a, b in zip(gaps[1:], changed[1:], strict=True)) < 5


def test_recall_and_halt():
    params = SvtParams(epsilon="50", threshold=100, cutoff=2, answers="gap")
    state, released = play(params, [0, 500, 0, 500, 500])
    assert [one.outcome for one in released] == [BELOW, ABOVE, BELOW, ABOVE, HALTED]
    assert [recall(state, i) for i in range(5)] == released
    assert recall(state, 99).outcome == HALTED
    assert state.halted
    early, _ = play(params, [0, 500])
    assert recall(early, 2) is None


def test_redrawn_threshold_is_kept_in_state():
    params = SvtParams(epsilon="1/2", threshold=100, cutoff=5, variant="dwork-roth")
    before, _ = play(params, [0])
    after, released = play(params, [0, 5000])
    assert released[1].outcome == ABOVE
    assert before.bar != after.bar


def test_the_threshold_too_is_a_function_of_data():
    params = SvtParams(epsilon="1/100", threshold=0)
    assert begin(params, KEY, "s").bar is None
    assert play(params, [5])[0].bar != play(params, [6])[0].bar


def test_a_state_goes_on_only_with_its_own_key_and_parameters():
    params = SvtParams(epsilon="1", threshold=20, cutoff=4)
    saved = play(params, [3, 18])[0].to_bytes()
    assert advance(params, KEY, StreamState.from_bytes(saved), 25)
    other = SvtParams(epsilon="2", threshold=20, cutoff=4)
    for wrong_params, wrong_key in ((params, InteractiveKey(bytes(32)).take("tests")), (other, KEY)):
        with pytest.raises(ParameterError, match="stream 's' was saved under another release key or other"):
            advance(wrong_params, wrong_key, StreamState.from_bytes(saved), 25)
    assert SECRET.hex() not in saved.decode()


@pytest.mark.parametrize("answer", [1.7, "3", None, True, float("nan")])
def test_an_answer_is_a_whole_number(answer):
    params = SvtParams(epsilon="1", threshold=20)
    with pytest.raises(ParameterError, match="must be whole numbers"):
        advance(params, KEY, begin(params, KEY, "s"), answer)


def test_a_stream_takes_no_key_that_may_be_used_again():
    """Neither to begin nor to go on; whoever reruns a release with other answers would average the noise away."""
    params = SvtParams(epsilon="1", threshold=20)
    state = begin(params, KEY, "s")
    for wrong in (ReleaseKey(SECRET), InteractiveKey(SECRET), SECRET, None):
        with pytest.raises(ParameterError, match=r"needs a StreamKey, got \w+; use InteractiveKey.generate"):
            begin(params, wrong, "s")
        with pytest.raises(ParameterError, match="needs a StreamKey"):
            advance(params, wrong, state, 3)
    assert pickle.loads(pickle.dumps(KEY)) == StreamKey(SECRET)  # workers of an engine need it


def test_unreadable_state():
    with pytest.raises(FormatError, match="another version"):
        StreamState.from_bytes(b"[1]")


RUNS, REJECT_AT = 800, 40.0  # χ² with 4 degrees of freedom exceeds 40 with probability 4e-8


def test_online_outcomes_have_the_exact_distribution():
    """The stream draws its noise number by number; its outcomes follow the same model as the batch."""
    params = SvtParams(epsilon="4", threshold=0, cutoff=1, monotone=True)
    answers, values = [-4, -1, -4], np.arange(-4, 1)
    seen = Counter(
        tuple(one.outcome for one in play(params, answers, stream=f"run {run}")[1]) for run in range(RUNS)
    )
    mark = {BOTTOM: BELOW, TOP: ABOVE, HALT: HALTED}

    def statistic(factor):
        model = Model(*laws_of(params.noise, factor), 1, False)
        total = 0.0
        for output in model.outputs(3):
            expected = RUNS * float(model.probabilities(output, values)[0, 3, 0])
            total += (seen[tuple(mark[s[0]] for s in output)] - expected) ** 2 / expected
        return total

    assert statistic(1.0) < REJECT_AT
    assert statistic(0.5) > REJECT_AT
    assert statistic(2.0) > REJECT_AT
