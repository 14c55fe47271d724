"""Messages between a scorer process and its parent.

Requests are pickled, because they come from the parent. Answers are lines of JSON, because the process that writes
them runs arbitrary reward functions: only numbers and text cross, and a malformed line counts as an intrusion.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, BinaryIO

from verl_like.reward.forks import end_if_forked
from verl_like.reward.scorer_messages import (
    COMPARED_AS_TEXT,
    COMPARED_AS_VALUE,
    FAILURES,
    NOT_READ,
    UNREADABLE,
    Answer,
    Ended,
    Gone,
    GroundTruthReading,
    GroundTruthsRead,
    Intrusion,
    Message,
    Outcome,
    Ready,
    Unusable,
)

HELLO = b"\n"  # an empty line, from which the parent learns the pid of the scorer process
GATHER_S = 5e-4  # quick functions give 50 answers in it; to wake up for each of them would cost most of their time
MAX_LINE = 16 << 20  # bytes; several times the limits on messages, details and ground truths
_CREDENTIALS = struct.Struct("3i")  # pid, user, group
_LENGTH = struct.Struct("Q")
_MAX_CHUNKS = 64
_MAX_WAIT_S = 1e6  # poll takes milliseconds as an int
_ANSWER_TYPES = [[str, int, int, str, score, dict, str, float] for score in (float, type(None))]
_DETAIL_TYPES = frozenset({float, str})
_READINGS = (NOT_READ, COMPARED_AS_VALUE, COMPARED_AS_TEXT, UNREADABLE)
# Created before a reward function could replace it. No message contains itself, so cycles need no check.
_json = json.JSONEncoder(check_circular=False).encode


def send_request(connection: socket.socket, number: int, wanted: Any) -> None:
    """Write a request; raise OSError if the process has ended, or does not read."""
    request = pickle.dumps((number, wanted), pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(request)) + request)


def next_request(file: BinaryIO) -> tuple[int, Any]:
    """Read the next request and its number; raise EOFError if there is none."""
    header = file.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    number, wanted = pickle.loads(file.read(*_LENGTH.unpack(header)))
    return number, wanted


def encoded(message: Message) -> bytes:
    """Encode a message as a line."""
    fields: list[Any]
    if isinstance(message, Answer):  # a class pattern in match takes three times as long
        o = message.outcome
        fields = ["answer", message.request, message.position, o.status, o.score, o.details, o.message, o.seconds]
        return _json(fields).encode() + b"\n"
    match message:
        case GroundTruthsRead(request, readings):
            fields = ["readings", request, [[each.status, each.reason] for each in readings]]
        case Ready(mode):
            fields = ["ready", mode]
        case Unusable(reason):
            fields = ["refused", reason]
        case Ended(code, num_printed, num_passed_on, last_output):
            fields = ["ended", code, num_printed, num_passed_on, last_output]
        case _:
            raise AssertionError(f"{message} is not a message of a scorer process")
    return _json(fields).encode() + b"\n"


def decoded(line: bytes) -> Message:
    """Decode a line; return an :class:`Intrusion` if it is not a valid message."""
    try:
        return _message(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return Intrusion(f"the line {line[:80]!r}")


def decoded_lines(lines: Sequence[bytes]) -> list[Message]:
    """Decode lines as :func:`decoded` does, by one call of the parser if all are valid."""
    try:
        values = json.loads(b"[" + b",".join(lines) + b"]")
        if len(values) == len(lines):
            return [_message(value) for value in values]
    except (ValueError, TypeError, RecursionError):
        pass
    return [decoded(line) for line in lines]


def _message(value: Any) -> Message:
    """Return the message with these fields.

    Raises:
        ValueError, TypeError: there is none.
    """
    if [*map(type, value)] in _ANSWER_TYPES and value[0] == "answer":  # a pattern of types takes three times as long
        _, request, position, status, score, details, text, seconds = value
        fits = status in FAILURES if score is None else status == "ok" and math.isfinite(score)
        if fits and _DETAIL_TYPES.issuperset(map(type, details.values())):
            return Answer(request, position, Outcome(status, score, details, text, seconds))
    match value:
        case ["readings", int(request), list(pairs)]:
            return GroundTruthsRead(request, [_reading(*pair) for pair in pairs])
        case ["ready", str(mode)]:
            return Ready(mode)
        case ["refused", str(reason)]:
            return Unusable(reason)
        case ["ended", int(code), int(num_printed), int(num_passed_on), str(last_output)]:
            return Ended(code, num_printed, num_passed_on, last_output)
    raise ValueError(value)


def _reading(status: str, reason: str) -> GroundTruthReading:
    if status not in _READINGS or not isinstance(reason, str):
        raise ValueError(status)
    return GroundTruthReading(status, reason)


class AnswerReader:
    """The parent's reading end. It learns from the kernel which process has written each chunk.

    A process that a reward function forked may hold the socket, and write the same messages as the scorer process.

    Args:
        connection: one end of a pair of stream sockets, on which ``SO_PASSCRED`` was set before the other was used.
        subreaper_pid: pid of the subreaper. The first other process that writes is taken as the scorer process.
    """

    def __init__(self, connection: socket.socket, subreaper_pid: int) -> None:
        self._connection, self._subreaper_pid = connection, subreaper_pid
        self._scorer_pid: int | None = None
        self._is_at_end = False
        self._rest = {True: b"", False: b""}  # unfinished line; by whether the subreaper wrote it
        self._arrived: deque[Message] = deque()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def next(self, timeout_s: float, *, more_follow: bool = False) -> Message | None:
        """Return the next message; None if none arrives in time.

        Args:
            more_follow: whether further messages are expected; they get ``GATHER_S`` to arrive with this one.
        """
        if self._arrived:
            return self._arrived.popleft()
        deadline = time.monotonic() + min(timeout_s, _MAX_WAIT_S)
        while not self._arrived:
            if self._is_at_end:
                return Gone()
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1e3):
                return None
            if more_follow:
                time.sleep(GATHER_S)
            self._read()
        return self._arrived.popleft()

    def arrived(self) -> Sequence[Message]:
        """Return the messages that have arrived and that :meth:`next` has not returned."""
        for _ in range(_MAX_CHUNKS):  # an intruder may write endlessly
            if self._is_at_end or not self._poll.poll(0):
                break
            self._read()
        return self._arrived

    def _read(self) -> None:
        try:
            # The kernel never mixes the bytes of two writers in one chunk.
            chunk, ancillary, _, _ = self._connection.recvmsg(1 << 18, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:  # connection reset
            chunk, ancillary = b"", []
        if not chunk:
            self._is_at_end = True
            return
        pid = next(
            (_CREDENTIALS.unpack(fields)[0] for _, kind, fields in ancillary if kind == socket.SCM_CREDENTIALS), 0
        )
        is_subreaper = pid == self._subreaper_pid
        if self._scorer_pid is None and not is_subreaper:
            self._scorer_pid = pid
        if pid not in (self._subreaper_pid, self._scorer_pid):
            self._arrived.append(Intrusion(f"an answer of process {pid}"))
            return
        *lines, rest = (self._rest[is_subreaper] + chunk).split(b"\n")
        self._rest[is_subreaper] = rest
        messages = decoded_lines([line for line in lines if line])
        self._arrived.extend(map(_of_subreaper if is_subreaper else _of_scorer, messages))
        if len(rest) > MAX_LINE:
            self._rest[is_subreaper] = b""
            self._arrived.append(Intrusion(f"a line of more than {MAX_LINE} bytes"))


def _of_subreaper(message: Message) -> Message:
    return message if isinstance(message, Ended) else Intrusion(f"the subreaper's {message}"[:100])


def _of_scorer(message: Message) -> Message:
    return Intrusion("the subreaper's final message") if isinstance(message, Ended) else message


class AnswerWriter:
    """The scorer process's end."""

    def __init__(self, fd: int) -> None:
        self._connection = socket.socket(fileno=fd)
        os.set_inheritable(fd, False)  # programs that a reward function starts do not get it
        self.requests: BinaryIO = self._connection.makefile("rb")

    def send(self, message: Message) -> None:
        end_if_forked()
        self._connection.sendall(encoded(message))

    def greet(self) -> None:
        """Identify this process to the parent, before a reward function's code runs."""
        self._connection.sendall(HELLO)
