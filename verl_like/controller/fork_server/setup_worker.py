"""Start a process of Ray: fork it from the fork server, or start Python.

The raylet runs this file in place of Ray's own, which imports all of Ray for 0.4 s before it starts Python again. It
needs the same file name: the raylet leaves out a program of this name if a process needs no environment (2.60). This
module imports only the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTEXT, LANGUAGE = "--serialized-runtime-env-context=", "--language="
SOCKET_VARIABLE = "VERL_LIKE_FORK_SERVER"  # name of the server's socket, in processes that are to be forked
REFUSED_VARIABLE = "VERL_LIKE_FORK_REFUSED"  # why such a process was started in the plain way
ANSWER_S = 30.0  # the raylet waits 60 s for a process to register, and a plain start takes a while too
SIZE_BYTES = 8


def words_and_variables(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]] | None:
    """Return the command line of a Python process and the variables to set; None if only Ray's own file can start it.

    Args:
        arguments: as the raylet passes them: Ray's program for workers, its arguments, environment and language.
    """
    context = [word.removeprefix(CONTEXT) for word in arguments if word.startswith(CONTEXT)]
    if len(context) != 1 or f"{LANGUAGE}PYTHON" not in arguments:
        return None
    found = json.loads(context[0])
    variables = found.pop("env_vars", {})
    python = found.pop("py_executable", "")
    if any(found.values()) or "$" in "".join(variables.values()) or not os.path.isabs(python) or " " in python:
        return None
    words = [word for word in arguments if not word.startswith((CONTEXT, LANGUAGE))]
    return [python, *words], variables


def address(name: str) -> str:
    """Return the address of a socket of Linux that has a name but no file, of which nothing is left at its end."""
    return f"\0{name}"


def forked(name: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Have the server fork this process; return why it did not, or an empty string.

    Args:
        name: of the server's socket.
        words: the command line, from the program that Python runs on.
    """
    request = json.dumps({"words": words, "environment": dict(environment), "folder": os.getcwd()}).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(ANSWER_S)
            server.connect(address(name))
            socket.send_fds(server, [len(request).to_bytes(SIZE_BYTES, "little")], [0, 1, 2])
            server.sendall(request)
            with server.makefile("rb") as answered:
                answer = answered.read()  # until the server closes its end
    except TimeoutError:
        return f"the fork server gave no answer for {ANSWER_S:.0f} s"
    except OSError as error:
        return f"the fork server cannot be reached ({error.strerror})"
    if not answer:
        return "the fork server has ended"
    return str(json.loads(answer)["refused"])


def main(arguments: list[str]) -> None:
    """Replace this process by the one that the raylet wants, or end it if that one was forked."""
    planned = words_and_variables(arguments)
    if planned is None:
        own = str(Path(arguments[0]).with_name("setup_worker.py"))
        os.execv(sys.executable, [sys.executable, own, *arguments])
    words, variables = planned
    os.environ.update(variables)
    if name := os.environ.get(SOCKET_VARIABLE):
        if not (refused := forked(name, words[1:], os.environ)):
            return
        os.environ[REFUSED_VARIABLE] = refused
    os.execv(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1:])
