"""Whatever an environment's process answers, its episode continues or ends as junk; nothing else is raised."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_environments_episode import ROOMY, CharacterCodec, observation
from verl_like.environments.answers import checked_finish, checked_observation, checked_reward
from verl_like.environments.episode import Action, Ask, EnvironmentEpisode, EpisodeEnd, NextTurn, SampledTurn, contained
from verl_like.environments.processes import CallFailure
from verl_like_environments.frames import FrameReader, FrameTooLarge, encoded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [*observation(), "tools", "role", "content", "tool_calls", "function", "name", "type", "text"]
# Values in the places where the right ones belong.
NEAR = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(observation(), JSON),
        "messages": st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4), max_size=3) | JSON,
        "tools": st.lists(st.dictionaries(st.sampled_from(FIELDS), JSON), max_size=2) | JSON,
    },
)
FRAMES: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("no dict", lambda _: [1]),
    ("no reward", lambda found: {name: value for name, value in found.items() if name != "reward"}),
    ("nan", lambda found: {**found, "reward": math.nan}),
    ("inf", lambda found: {**found, "reward": -math.inf}),
    ("bool", lambda found: {**found, "reward": True}),
    ("huge", lambda found: {**found, "reward": 1e39}),
    ("huge integer", lambda found: {**found, "reward": 10**400}),
    ("text", lambda found: {**found, "reward": "1"}),
    ("negative count", lambda found: {**found, "num_tool_calls": -1}),
    ("no count", lambda found: {**found, "num_tool_errors": 1.5}),
    ("huge count", lambda found: {**found, "num_tool_calls": 10**30}),
    ("done", lambda found: {**found, "is_done": 1}),
    ("key", lambda found: {**found, "state_key": ["a"]}),
    ("numbers", lambda found: {**found, "numbers": {"a": "b"}}),
    ("role", lambda found: {**found, "messages": [{"role": 1, "content": "a"}]}),
    ("unknown role", lambda found: {**found, "messages": [{"role": "me", "content": "a"}]}),
    ("content", lambda found: {**found, "messages": [{"role": "user", "content": 5}]}),
    ("parts", lambda found: {**found, "messages": [{"role": "user", "content": [5]}]}),
    ("calls", lambda found: {**found, "messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}),
    ("surrogate", lambda found: {**found, "messages": [{"role": "user", "content": "\ud800"}]}),
    ("tools", lambda found: {**found, "tools": [{"type": "function"}]}),
    ("parameters", lambda found: {**found, "tools": [{"function": {"name": "f", "parameters": 1}}]}),
]


def begun() -> EnvironmentEpisode:
    row = {"messages": [{"role": "user", "content": "hi"}], "columns": {}, "seed": 1}
    episode = EnvironmentEpisode(row, CharacterCodec(), ROOMY)
    episode.begin()
    return episode


def in_turn() -> EnvironmentEpisode:
    episode = begun()
    assert isinstance(episode.answered({**observation("go"), "tools": []}, None), NextTurn)
    found = SampledTurn(token_ids=[ord("x"), ord("$")], log_probs=[-0.5, -0.5], finish_reason="stop", version=1)
    assert isinstance(episode.sampled(found), Ask)
    return episode


def in_finish() -> EnvironmentEpisode:
    episode = in_turn()
    assert isinstance(episode.answered(observation(is_done=True), None), Ask)
    return episode


def after(episode: EnvironmentEpisode, result: Any) -> Action:
    return contained(episode, lambda: episode.answered(result, None))


@pytest.mark.parametrize(("spoilt"), [pytest.param(spoilt, id=name) for name, spoilt in FRAMES])
def test_an_answer_of_another_form_ends_the_episode_as_junk(spoilt: Callable[[dict[str, Any]], Any]) -> None:
    for episode in (begun(), in_turn()):
        end = after(episode, spoilt({**observation("a"), "tools": []}))
        assert isinstance(end, EpisodeEnd) and end.failure is not None and end.failure.reason == "junk"
        assert end.failure.text.encode() and len(end.failure.text) < 500


@pytest.mark.parametrize("reward", [math.nan, math.inf, True, "1", [1.0], {}, 10**400, 1e31])
def test_a_final_reward_that_is_no_finite_number_is_junk(reward: Any) -> None:
    end = after(in_finish(), {"reward": reward, "attributes": {}})
    assert isinstance(end, EpisodeEnd) and end.reward is None
    assert end.failure is not None and end.failure.reason == "junk" and "the reward is" in end.failure.text


@pytest.mark.parametrize("found", [1.0, None, {"attributes": {}}, {"reward": 1.0}, {"reward": 1.0, "attributes": [1]}])
def test_an_end_without_reward_and_attributes_is_junk(found: Any) -> None:
    end = after(in_finish(), found)
    assert isinstance(end, EpisodeEnd) and end.failure is not None and end.failure.reason == "junk"


def test_the_right_forms_pass() -> None:
    assert checked_finish({"reward": None, "attributes": {"board": [1]}}) == (None, {"board": [1]})
    assert checked_reward(None) is None and checked_reward(2) == 2.0
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant", "content": None}]
    found = checked_observation({**observation(), "messages": parts, "numbers": {"a": math.nan, "b": 1}})
    assert found.messages == parts and found.numbers["b"] == 1.0 and math.isnan(found.numbers["a"])


@settings(deadline=None, max_examples=150)
@given(result=JSON | NEAR | st.builds(lambda more: {**observation("a"), "tools": [], **more}, NEAR))
def test_any_answer_continues_the_episode_or_ends_it(result: Any) -> None:
    for episode in (begun(), in_turn(), in_finish()):
        action = after(episode, json.loads(json.dumps(result)))
        if isinstance(action, EpisodeEnd) and action.failure is not None:
            assert action.failure.reason == "junk"
            assert action.failure.text.encode() is not None
        elif isinstance(action, EpisodeEnd):
            assert action.reward is None or math.isfinite(action.reward)


@settings(deadline=None, max_examples=200)
@given(
    content=st.lists(
        st.binary(max_size=40)
        | JSON.map(lambda value: bytes(encoded(value)))
        | st.integers(0, 2**32 - 1).map(lambda size: struct.pack(">I", size))
        | st.sampled_from([bytes(encoded("x"))[:3], struct.pack(">I", 6000) + b"[" * 6000, b"\0\0\0\x04NaN "]),
        max_size=4,
    ).map(b"".join)
)
def test_any_bytes_give_frames_or_a_named_error(content: bytes) -> None:
    reader = FrameReader(1 << 16)
    try:
        for at in range(0, len(content), 7):
            reader.feed(content[at : at + 7])
    except (FrameTooLarge, ValueError, RecursionError):
        pass


@settings(deadline=None)
@given(value=JSON, size=st.integers(1, 9))
def test_frames_arrive_whole_however_they_are_cut(value: Any, size: int) -> None:
    frames = bytes(encoded(value)) * 2
    reader, found = FrameReader(), []
    for at in range(0, len(frames), size):
        found += reader.feed(frames[at : at + size])
    expected = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    assert repr(found) == repr([expected, expected])  # NaN does not equal itself


def test_a_failure_of_a_call_passes_unchanged() -> None:
    failure = CallFailure(reason="timeout", text="step did not return in time")
    end = in_turn().answered(None, failure)
    assert isinstance(end, EpisodeEnd) and end.failure is failure
