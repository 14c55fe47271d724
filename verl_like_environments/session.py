"""Define the interface between the training process and an environment; every contract is adapted to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]  # role, content, and where present tool_calls, name, tool_call_id


class BadReturn(TypeError):
    """The user's code returned a value of a form that its contract does not have."""


@dataclass(kw_only=True)
class EpisodeRow:
    """One sample of one prompt.

    Args:
        messages: the prompt of the data set, as a chat.
        columns: all other columns of its row, ``ground_truth``, ``data_source`` and ``extra_info`` among them.
        seed: seed of this sample; equal in every run.
    """

    messages: list[Message]
    columns: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def accepted_by(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return what a function takes of prompt, seed and columns; all if it takes any keywords."""
        parameters = inspect.signature(function).parameters.values()
        known = {"prompt": self.messages, "seed": self.seed, **self.columns}
        if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
            return known
        return {parameter.name: known[parameter.name] for parameter in parameters if parameter.name in known}


@dataclass(kw_only=True)
class Turn:
    """A turn of the policy.

    Args:
        text: the sampled text without the token that ended it.
        message: the same as a message, with reasoning and tool calls parsed from it.
    """

    text: str
    message: Message


@dataclass(kw_only=True)
class Observation:
    """Holds the environment's answer to a reset or a turn.

    Args:
        messages: the first chat after a reset, and the messages to append after a turn.
        reward: reward of the turn.
        is_done: whether the episode has ended.
        state_key: name of the state, for estimators that compare equal states; None if there is none.
        num_tool_calls, num_tool_errors: calls made for this turn, and how many of them failed.
        numbers: further numbers to record.
    """

    messages: list[Message] = field(default_factory=list)
    reward: float = 0.0
    is_done: bool = False
    state_key: str | None = None
    num_tool_calls: int = 0
    num_tool_errors: int = 0
    numbers: dict[str, float] = field(default_factory=dict)


def state_key_of(environment: Any) -> str | None:
    """Return the name of a user's environment's state: its attribute or method ``state_key``; None if it has none."""
    key = getattr(environment, "state_key", None)
    found = key() if callable(key) else key
    return None if found is None else str(found)


class Session(Protocol):
    """One episode of an environment."""

    async def reset(self, row: EpisodeRow) -> Observation:
        """Begin the episode and return the first chat."""

    async def step(self, turn: Turn) -> Observation:
        """Take the policy's turn."""

    async def reward(self) -> float | None:
        """Return the reward of the whole episode; None if the environment gives none."""

    def attributes(self) -> dict[str, Any]:
        """Return what reward functions see of the environment."""

    async def close(self) -> None:
        """Release what the episode holds."""


class Kind(Protocol):
    """A user's code, loaded once; it makes a session for each episode."""

    name: str  # of the contract, as messages name it

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        """Return the schemas of the tools that an episode of this row offers."""

    def session(self) -> Session: ...
