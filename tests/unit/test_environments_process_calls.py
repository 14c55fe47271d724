"""Reading the answers of an environment's process."""

from __future__ import annotations

import socket

from verl_like.environments.process_calls import MAX_STRAYS, CallAnswer, CallFailure, OpenCall, Process, read_answers
from verl_like_environments.frames import encoded

STRAYS = encoded(0) * (MAX_STRAYS + 1)


def read(content: bytes) -> tuple[Process, tuple[list[CallAnswer], bool] | CallFailure]:
    own, theirs = socket.socketpair()
    own.setblocking(False)
    process = Process(number=1, max_message_mib=1.0, connection=own)
    process.calls[7] = OpenCall(what="reset", limit_s=1.0, frame=b"")
    with own, theirs:
        theirs.sendall(content)
        return process, read_answers(process)


def test_an_answer_closes_its_call() -> None:
    process, found = read(encoded({"id": 7, "result": "fine"}))
    assert found == ([CallAnswer(call=7, result="fine")], False) and not process.calls


def test_a_call_whose_answer_comes_with_a_flood_is_still_to_be_answered() -> None:
    process, found = read(encoded({"id": 7, "result": "fine"}) + STRAYS)
    assert isinstance(found, CallFailure) and found.reason == "junk" and list(process.calls) == [7]
