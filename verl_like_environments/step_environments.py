"""Environments with ``step``: a turn goes in, and messages, a reward and whether the episode has ended come out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from verl_like_environments.attributes import public_attributes
from verl_like_environments.calls import called
from verl_like_environments.pictures import parts_of
from verl_like_environments.session import BadReturn, EpisodeRow, Message, Observation, Session, Turn, state_key_of


class StepClass:
    """A class, or a function that makes an object, with ``step`` and ``reset`` or ``init``.

    The contracts, by what the object has and returns:

    - ``init(prompt) -> (messages, metadata)`` and ``step(text) -> dict`` with ``observations``, ``reward`` and
      ``done``: SkyRL-gym.
    - ``reset(seed=...) -> (observation, info)`` and ``step(text) -> (observation, reward, terminated, truncated,
      info)``: gem and Gymnasium.
    - ``reset(states) -> dict`` with ``observation`` and ``step(states) -> dict`` with ``rewards``, ``scores``,
      ``environment_feedback`` and ``done``: OpenRLHF.
    - ``reset(**row) -> messages or text`` and ``step(text) -> (messages or text, reward, done)``: this project.
    """

    name = "a class with step"

    def __init__(self, factory: Callable[..., Any]) -> None:
        self._factory = factory

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        return []

    def session(self) -> Session:
        return _StepSession(self._factory)


class _StepSession:
    def __init__(self, factory: Callable[..., Any]) -> None:
        self._factory = factory
        self._score: float | None = None
        self._total = 0.0
        self._text = ""

    async def reset(self, row: EpisodeRow) -> Observation:
        observation = await self._begin(row)
        observation.state_key = state_key_of(self._environment)
        return observation

    async def _begin(self, row: EpisodeRow) -> Observation:
        self._row = row
        self._environment = await self._made(row)
        self._takes_states = _takes(self._environment.step, "states", "state_dict", "state")
        environment = self._environment
        if hasattr(environment, "init"):
            found = await called(environment.init, row.messages)
            return Observation(messages=_chat(found[0], "init"))
        if self._takes_states:
            label = row.columns.get("ground_truth")
            last = row.messages[-1]["content"] if row.messages else ""
            self._text = _text(last)
            states = {"observation": self._text, "prompt": self._text, "label": label}  # of several versions
            found = await called(environment.reset, states)
            observation = found["observation"]
            self._text = observation
            content = observation if isinstance(last, str) else _retold(last, observation)
            return Observation(messages=[*row.messages[:-1], {"role": "user", "content": content}])
        if _takes(environment.reset, "seed"):
            found = await called(environment.reset, seed=row.seed % 2**32)
            text, info = found if isinstance(found, tuple) else (found, {})
            return Observation(messages=_begun(row.messages, text, info))
        found = await called(environment.reset, **row.accepted_by(environment.reset))
        return Observation(messages=row.messages if found is None else _begun(row.messages, found, {}))

    async def _made(self, row: EpisodeRow) -> Any:
        """Make the environment; a constructor may take SkyRL's ``env_config`` and ``extras``."""
        factory, accepts = self._factory, inspect.signature(self._factory).parameters
        truth = {"ground_truth": row.columns.get("ground_truth"), **(row.columns.get("reward_model") or {})}
        known = {"env_config": {}, "extras": {"reward_spec": truth, **row.columns}}
        arguments = {name: value for name, value in known.items() if name in accepts}
        if not inspect.isclass(factory) or not inspect.iscoroutinefunction(factory.__init__):
            return factory(**arguments)
        made = factory.__new__(factory)  # examples of OpenRLHF have an async constructor, which Python does not await
        await factory.__init__(made, **arguments)
        return made

    async def step(self, turn: Turn) -> Observation:
        if self._takes_states:
            states = {
                "observation_text": self._text,
                "action_text": turn.text,
                "label": self._row.columns.get("ground_truth"),
                "sampling_params": None,
            }
            return self._of_states(await called(self._environment.step, states), turn)
        found = await called(self._environment.step, turn.text)
        if isinstance(found, Mapping):
            return self._counted(
                _chat(found.get("observations", []), "step"),
                found["reward"],
                bool(found["done"]),
                numbers=_numbers(found.get("metadata")),
            )
        if isinstance(found, tuple) and len(found) == 5:
            text, reward, terminated, truncated, info = found
            return self._counted(_following(text, info), reward, bool(terminated or truncated), numbers=_numbers(info))
        if isinstance(found, tuple) and len(found) == 3:
            messages, reward, is_done = found
            return self._counted(_following(messages, {}), reward, bool(is_done), numbers={})
        raise BadReturn(
            f"step returned {_described(found)}; expected (messages, reward, done), Gymnasium's five values, or a dict "
            f"with observations, reward and done."
        )

    def _counted(
        self, messages: list[Message], reward: Any, is_done: bool, *, numbers: dict[str, float]
    ) -> Observation:
        self._total += float(reward)
        self._score = self._total
        return Observation(
            messages=[] if is_done else messages,
            reward=float(reward),
            is_done=is_done,
            state_key=state_key_of(self._environment),
            numbers=numbers,
        )

    def _of_states(self, found: Mapping[str, Any], turn: Turn) -> Observation:
        feedback = str(found.get("environment_feedback", ""))
        self._text += turn.text + feedback
        observation = self._counted(
            _following(feedback, {}), found["rewards"], bool(found["done"]), numbers=_numbers(found.get("extra_logs"))
        )
        self._score = float(found.get("scores", self._total))
        return observation

    async def reward(self) -> float | None:
        return self._score

    def attributes(self) -> dict[str, Any]:
        return public_attributes(self._environment)

    async def close(self) -> None:
        if close := getattr(self._environment, "close", None):
            await called(close)


def _takes(function: Callable[..., Any], *names: str) -> bool:
    parameters = list(inspect.signature(function).parameters.values())
    return bool(parameters) and any(parameter.name in names for parameter in parameters[:1])


def _chat(found: Any, method: str) -> list[Message]:
    if not isinstance(found, list) or not all(isinstance(each, Mapping) and "role" in each for each in found):
        raise BadReturn(
            f"{method} returned {_described(found)} where messages were expected: a list of dicts with a role."
        )
    return [dict(message) for message in found]


def _text(content: Any) -> str:
    """Return the text of a content, without its pictures."""
    if not isinstance(content, list):
        return str(content)
    return "".join(str(part.get("text", "")) for part in content)


def _retold(content: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return the pictures of a content, with another text after them."""
    return [*(part for part in content if part.get("type") != "text"), {"type": "text", "text": text}]


def _begun(prompt: list[Message], found: Any, info: Mapping[str, Any]) -> list[Message]:
    """Return the first chat: messages as they are, or a text as the user's, after the prompt's system message."""
    system = [message for message in prompt if message["role"] == "system"]
    if (parts := _parts(found, info)) is not None:
        return [*system, {"role": "user", "content": parts}]
    if not isinstance(found, str):
        return _chat(found, "reset")
    return [*system, {"role": "user", "content": found + _suffix(info)}]


def _following(found: Any, info: Mapping[str, Any]) -> list[Message]:
    if (parts := _parts(found, info)) is not None:
        return [{"role": "user", "content": parts}]
    if isinstance(found, str):
        return [{"role": "user", "content": found + _suffix(info)}] if found else []
    return _chat(found, "step")


def _parts(found: Any, info: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return an observation with a picture as parts, with gem's suffix; None for another."""
    parts, suffix = parts_of(found), _suffix(info)
    return parts if parts is None or not suffix else [*parts, {"type": "text", "text": suffix}]


def _suffix(info: Any) -> str:
    """Return gem's suffix, which asks for the next action."""
    suffix = info.get("suffix", "") if isinstance(info, Mapping) else ""
    return f"\n{suffix}" if suffix else ""


def _numbers(found: Any) -> dict[str, float]:
    if not isinstance(found, Mapping):
        return {}
    numbers = {}
    for name, value in found.items():
        with suppress(TypeError, ValueError, RuntimeError):  # a tensor of several elements has no float
            if not isinstance(value, str):
                numbers[str(name)] = float(value)
    return numbers


def _described(found: Any) -> str:
    return f"a tuple of {len(found)}" if isinstance(found, tuple) else f"a {type(found).__name__}"
