"""Plain data between processes that do not trust each other: JSON, with the built-in types that JSON lacks.

A received value consists of exact built-in types, so comparing it runs none of the sender's code.
"""

from __future__ import annotations

import json
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_MESSAGE_BYTES = 2**24


class BadMessage(Exception):
    """Raised for a message that the protocol does not allow."""


class Channel:
    """Sends and receives messages over a stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: Mapping[str, Any], *, timeout_s: float | None = None) -> None:
        """Send a message. Raises OSError if the other side is gone or does not read (TimeoutError)."""
        body = json.dumps(message).encode()
        self._socket.settimeout(timeout_s)
        self._socket.sendall(struct.pack("!I", len(body)) + body)

    def receive(self, *, timeout_s: float | None = None, max_bytes: int = MAX_MESSAGE_BYTES) -> dict[str, Any]:
        """Return the next message.

        Raises:
            EOFError: the other side is gone.
            TimeoutError: the message was not complete in time.
            BadMessage: the message is malformed or larger than ``max_bytes``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        [size] = struct.unpack("!I", self._exactly(4, deadline))
        if size > max_bytes:
            raise BadMessage(f"an answer of {size:,} bytes; at most {max_bytes:,} are read")
        try:
            message = json.loads(self._exactly(size, deadline))
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"an answer that is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise BadMessage("an answer that is not a message")
        return message

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while size:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            poll = select.poll()  # not select, which supports no descriptor above 1023
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(None if left_s is None else left_s * 1e3):
                raise TimeoutError("no answer in time")
            try:
                part = self._socket.recv(min(size, 2**20))
            except ConnectionError as error:
                raise EOFError(str(error)) from error
            if not part:
                raise EOFError("the other side is gone")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def encode(value: Any, refer: Callable[[Any], Any]) -> Any:
    """Encode ``value`` as JSON.

    ``refer`` returns the reference to an object that is not plain data, as ``{"object": ..., ...}``. Instances of
    subclasses are sent as the built-in type (Counter as dict), NumPy numbers and arrays as Python's.
    """
    if value is None or isinstance(value, bool | float | str):
        return value
    if isinstance(value, int):
        # Python refuses to convert a number of thousands of digits to or from decimal.
        return int(value) if -(2**63) <= value < 2**63 else {"int": f"{value:x}"}
    if isinstance(value, list):
        return [encode(item, refer) for item in value]
    for name, kind in (("tuple", tuple), ("set", set), ("frozenset", frozenset)):
        if isinstance(value, kind):
            return {name: [encode(item, refer) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key, refer), encode(item, refer)] for key, item in value.items()]}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, Fraction):
        return {"fraction": [f"{value.numerator:x}", f"{value.denominator:x}"]}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if type(value).__module__.partition(".")[0] == "numpy" and not isinstance(value, type):
        return encode(value.tolist(), refer)
    return refer(value)


def decode(message: Any, resolve: Callable[[Any], Any]) -> Any:
    """Decode the output of :func:`encode`; ``resolve`` receives what ``refer`` returned.

    Raises:
        BadMessage: ``encode`` does not produce such a message.
    """
    try:
        return _decode(message, resolve)
    except (TypeError, ValueError, RecursionError, KeyError, ArithmeticError) as error:
        raise BadMessage(f"an answer that is not a value: {error}") from error


def _decode(message: Any, resolve: Callable[[Any], Any]) -> Any:
    if isinstance(message, list):
        return [_decode(item, resolve) for item in message]
    if not isinstance(message, dict):
        return message
    if "object" in message:
        return resolve(message)
    [(name, content)] = message.items()
    if name in ("tuple", "set", "frozenset"):
        kind = {"tuple": tuple, "set": set, "frozenset": frozenset}[name]
        return kind(_decode(item, resolve) for item in content)
    if name == "dict":
        return {_decode(key, resolve): _decode(item, resolve) for key, item in content}
    if name == "int":
        return int(content, 16)
    if name == "bytes":
        return bytes.fromhex(content)
    if name == "complex":
        real, imaginary = content
        return complex(real, imaginary)
    if name == "fraction":
        over, under = content
        return Fraction(int(over, 16), int(under, 16))
    if name == "decimal":
        return Decimal(content)
    raise ValueError(f"unknown type {name!r:.40}")


def as_json(message: Any, *, deadline: float = math.inf) -> Any:
    """Return the output of :func:`encode` as if stored as JSON: tuples as lists, keys as text.

    The time is linear in the message's length. No number becomes a dict key or a set member here: a sender could choose
    numbers with the same hash, and each insertion would then take time linear in their count.

    Raises:
        BadMessage: ``encode`` does not produce such a message, or it is not JSON.
        TimeoutError: the ``deadline`` on time.monotonic's clock has passed.
    """
    try:
        return _as_json(message, deadline)
    except (TypeError, ValueError, RecursionError, KeyError) as error:
        raise BadMessage(f"an answer that is not a value: {error}") from error


def _as_json(message: Any, deadline: float) -> Any:
    if not isinstance(message, list | dict):
        return message
    if time.monotonic() > deadline:
        raise TimeoutError("no answer in time")
    if isinstance(message, list):
        return [_as_json(item, deadline) for item in message]
    if "object" in message:
        raise BadMessage(f"an object ({text(message.get('type'))!s:.40}), which is not plain data")
    [(name, content)] = message.items()
    if name == "tuple":
        return [_as_json(item, deadline) for item in content]
    if name == "dict":
        return {_as_key(key): _as_json(item, deadline) for key, item in content}
    if name == "int":
        return int(content, 16)
    raise BadMessage(f"a {name!s:.40}, which is not JSON")


def _as_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, int | float):
        return json.dumps(key)
    raise BadMessage("a dict with keys that are neither text nor numbers, which is not JSON")


def text(message: Any) -> str:
    """Return a message's text for people, or "?" if it is not text; other values may be nested too deeply to print."""
    return message if isinstance(message, str) else "?"
