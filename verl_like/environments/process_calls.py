"""Calls to one process of an environment, and its answers, of which nothing is believed."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from verl_like_environments.frames import FrameReader, FrameTooLarge

Reason: TypeAlias = Literal["error", "crash", "timeout", "junk"]
MAX_STRAYS = 100  # frames that answer no call, until the process counts as junk
MAX_ERROR = 2000  # characters of an error, and MAX_TRACEBACK of its traceback, from the end
MAX_TRACEBACK = 8000
_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CallFailure:
    """Why a call has no result.

    Args:
        reason: "error" (the code raised), "crash" (its process ended), "timeout", or "junk" (no answer, or one that is
            too large or of a form that cannot be used).
        text: one line for messages and samples.
        traceback: of the user's code, if it raised.
    """

    reason: Reason
    text: str
    traceback: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallAnswer:
    call: int
    result: Any = None
    failure: CallFailure | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenCall:
    """A call that has no answer yet; ``limit_s`` counts from the start of its process, if that has not started."""

    what: str
    limit_s: float
    frame: bytes


@dataclass(kw_only=True)
class Process:
    """The process of an episode, or the wish for one.

    Args:
        number: number of the episode.
        fork: the nursery's number of the process, that of its first episode.
        connection: None before it is asked for, and once it has ended.
        has_started: whether the nursery has forked it.
        code: its exit code, once the nursery has reported it.
        failure: why it was ended; the failure of all later calls.
    """

    number: int
    max_message_mib: float
    fork: int = -1
    connection: socket.socket | None = None
    has_started: bool = False
    unsent: bytearray = field(default_factory=bytearray)
    calls: dict[int, OpenCall] = field(default_factory=dict)
    code: int | None = None
    failure: CallFailure | None = None
    num_strays: int = 0
    num_episodes: int = 1
    is_clean: bool = False  # it has said that its episode is over and has left nothing

    def __post_init__(self) -> None:
        self.reader = FrameReader(int(self.max_message_mib * 2**20))

    def can_serve_again(self, most: int) -> bool:
        """Return whether the process can serve another episode, of ``most`` in all."""
        is_fine = self.is_clean and self.connection is not None and self.code is None and self.failure is None
        return is_fine and not self.calls and not self.unsent and self.num_episodes < most

    def take_over(self, idle: Process) -> None:
        """Take the process of an episode that has ended."""
        self.connection, self.reader, self.fork = idle.connection, idle.reader, idle.fork
        self.has_started, self.num_episodes = True, idle.num_episodes + 1

    def rewind(self) -> None:
        """Prepare to send everything again, to another process."""
        self.connection, self.unsent = None, bytearray(b"".join(call.frame for call in self.calls.values()))

    def how_ended(self) -> str:
        """Describe how it ended."""
        if self.code is None:
            return "the environment's process ended, or closed its connection"
        if self.code < 0:
            return f"the environment's process was ended by signal {-self.code}"
        return f"the environment's process ended with code {self.code}"


def read_answers(process: Process) -> tuple[list[CallAnswer], bool] | CallFailure:
    """Read once from a process: its answers, and whether its connection is at its end; or why it must be ended."""
    assert process.connection is not None, "the process has no connection"
    try:
        content = process.connection.recv(_CHUNK)
        frames = process.reader.feed(content) if content else []
    except BlockingIOError:
        return [], False
    except OSError:
        content, frames = b"", []
    except FrameTooLarge as error:
        return CallFailure(reason="junk", text=f"the environment answered with {error}")
    except (ValueError, RecursionError) as error:
        return CallFailure(reason="junk", text=f"the environment's answer is no JSON: {printable(str(error))}")
    calls = dict(process.calls)
    answers = [_answer(process, frame) for frame in frames]
    process.num_strays += answers.count(None)
    if process.num_strays > MAX_STRAYS:
        process.calls = calls  # those that these frames answer fail with the rest
        return CallFailure(reason="junk", text=f"the environment wrote {process.num_strays} answers to no call")
    return [answer for answer in answers if answer is not None], not content


def _answer(process: Process, frame: Any) -> CallAnswer | None:
    call = frame.get("id") if isinstance(frame, dict) else None
    if type(call) is not int or process.calls.pop(call, None) is None:  # True would be taken for 1
        return None  # no answer to a call: the user's code has written it
    process.is_clean = frame.get("is_clean") is True
    if "error" not in frame:
        return CallAnswer(call=call, result=frame.get("result"))
    error, traceback = frame["error"], frame.get("traceback", "")
    if not isinstance(error, str) or not isinstance(traceback, str):
        return CallAnswer(call=call, failure=CallFailure(reason="junk", text="the environment's error is no text"))
    failure = CallFailure(
        reason="error", text=printable(error[:MAX_ERROR]), traceback=printable(traceback[-MAX_TRACEBACK:])
    )
    return CallAnswer(call=call, failure=failure)


def printable(text: str) -> str:
    """Return text that can be written as UTF-8: lone surrogates, which JSON can express, become question marks."""
    return text.encode("utf-8", "replace").decode()
