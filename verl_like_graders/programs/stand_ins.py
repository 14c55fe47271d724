"""Stand-ins for the solution's objects in the process of the tests.

A result that is not plain data stays in the solution's process, and operations on it run there, in the solution's code.
To keep that code from deciding a test, only plain data takes part in arithmetic. An object never equals plain data, is
never added to it and never found in it, whatever the object's methods return. Two objects of the solution are compared
and added by their own methods, because only those are defined. An instance that the tests create by calling a class is
the object under test, and may do more.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

from verl_like_graders.programs.values import BadMessage, Channel, decode, encode

# The kinds of stand-in: a name of the solution, a name that looks like a class, an instance that the tests created by
# calling such a class, a method of an instance, and the result of any other call.
_NAME, _CLASS, _INSTANCE, _METHOD, _RESULT = "name", "class", "instance", "method", "result"
_CLASS_NAME = re.compile(r"[A-Z]+[A-Za-z0-9]*[a-z][A-Za-z0-9]*")
# Methods by which plain data answers yes or no; an object of the solution could always answer yes.
_PREDICATES = frozenset(
    name
    for kind in (str, bytes, float, set, frozenset)
    for name in dir(kind)
    if name.startswith(("is", "starts", "ends"))
)


class SolutionEnded(BaseException):
    """Raised when the solution's process has ended; a test's ``except Exception`` does not catch it."""


class UnusableTests(BaseException):
    """Raised when the tests need something that this harness cannot do for any solution."""


class Link:
    """Sends operations to the solution's process and returns their results."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._raised: Exception | None = None  # the solution's last exception
        self.end_reason = ""  # why there are no more answers

    def receive(self) -> dict[str, Any]:
        try:
            return self._channel.receive()
        except EOFError:
            raise self._lost("the solution ended its process") from None
        except BadMessage as error:
            raise self._lost(f"the solution sent {error}") from None

    def named(self, name: str) -> Any:
        """Return the solution's object of this name, or raise NameError."""
        return self.do("named", name, gives=_CLASS if _CLASS_NAME.fullmatch(name) else _NAME)

    def has_raised(self, error: BaseException) -> bool:
        """Return whether this exception is the solution's rather than the tests' own."""
        return error is self._raised

    def do(self, operation: str, *args: Any, gives: str = _RESULT, **kwargs: Any) -> Any:
        """Return the result of an operation of :mod:`solution`, or raise the solution's exception as the nearest
        built-in one.

        Args:
            gives: the kind of stand-in to create if the result is an object.
        """

        def refer(value: Any) -> dict[str, int]:
            if isinstance(value, StandIn):
                return {"object": value._number}
            raise _cannot_be_sent(value, operation, args)

        request = {
            "do": operation,
            "args": [encode(item, refer) for item in args],
            "kwargs": {name: encode(item, refer) for name, item in kwargs.items()},
        }
        if self.end_reason:
            raise SolutionEnded(self.end_reason)
        try:
            self._channel.send(request)
        except OSError:
            raise self._lost("the solution ended its process") from None
        answer = self.receive()

        def stand_in(message: dict[str, Any]) -> StandIn:
            return StandIn(self, int(message["object"]), gives)

        try:
            if "error" in answer:
                names, text = answer["error"]
                self._raised = _exception(names, str(text))
                raise self._raised
            for position, changed in answer["changed"].items():
                _update(args[int(position)], decode(changed, stand_in))
            return decode(answer["value"], stand_in)
        except (KeyError, IndexError, TypeError, ValueError, BadMessage) as error:
            if error is self._raised:
                raise
            raise self._lost(f"the solution sent an invalid answer: {error!r:.80}") from None

    def _lost(self, why: str) -> SolutionEnded:
        self.end_reason = why
        return SolutionEnded(why)


def _cannot_be_sent(value: Any, operation: str, args: tuple[Any, ...]) -> BaseException:
    """Return the exception to raise for an argument that cannot be sent.

    If the tests call a name, no solution could pass. If they call a result, only its type may be wrong.
    """
    why = (
        f"the tests pass a {type(value).__name__} to the solution; only plain data and the solution's objects can be "
        "passed"
    )
    is_called_by_name = operation == "call" and isinstance(args[0], StandIn) and args[0]._kind != _RESULT
    return UnusableTests(f"{why}. Rewrite the test.") if is_called_by_name else TypeError(why)


def _exception(names: list[str], text: str) -> Exception:
    for name in names:
        kind = vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(text)
            except TypeError:  # UnicodeDecodeError needs more arguments; its base class does not
                continue
    return RuntimeError(text)


def _update(original: Any, changed: Any) -> None:
    """Apply to an argument here the changes that the call made to its copy."""
    if isinstance(original, list | bytearray):
        original[:] = changed
    elif isinstance(original, dict | set):
        original.clear()
        original.update(changed)


class StandIn:
    """Represents an object of the solution's process."""

    __slots__ = ("_kind", "_link", "_number")
    _link: Link
    _number: int
    _kind: str

    def __init__(self, link: Link, number: int, kind: str) -> None:
        for name, value in {"_link": link, "_number": number, "_kind": kind}.items():
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.do("call", self, *args, gives=_INSTANCE if self._kind == _CLASS else _RESULT, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if self._kind == _RESULT and name in _PREDICATES:
            raise AttributeError(f"the solution returned an object that is not plain data; its {name}() is not used")
        return self._link.do("getattr", self, name, gives=_RESULT if self._kind == _RESULT else _METHOD)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.do("setattr", self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and self._link.do("eq", self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self._link.do("bool", self) is True

    def __hash__(self) -> int:
        return int(self._link.do("hash", self))

    def __iter__(self) -> Any:
        return self._link.do("iter", self)

    def __contains__(self, item: object) -> bool:
        if isinstance(item, StandIn) or self._kind == _INSTANCE:
            return self._link.do("contains", self, item) is True
        return any(each is item or each == item for each in self)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, StandIn) and self._link.do("isinstance", instance, self) is True


def _forwarding(operation: str) -> Any:
    def forwarded(self: StandIn, *others: Any) -> Any:
        return self._link.do(operation, self, *others)

    return forwarded


def _comparing(operation: str) -> Any:
    def compared(self: StandIn, other: Any) -> Any:
        if not isinstance(other, StandIn):
            return NotImplemented  # otherwise an object could claim to be smaller than any number
        return self._link.do(operation, self, other)

    return compared


def _calculating(operation: str) -> Any:
    def calculated(self: StandIn, other: Any) -> Any:
        if isinstance(other, StandIn):
            return self._link.do(operation, self, other, gives=self._kind)
        if self._kind != _INSTANCE:
            return NotImplemented  # otherwise an object could claim to be arbitrarily near a number
        found = self._link.do(operation, self, other, gives=_INSTANCE)
        if not isinstance(found, StandIn):
            raise TypeError(
                f"only plain data takes part in arithmetic: the solution's object took a {type(other).__name__}"
            )
        return found

    return calculated


for _name in ("getitem", "setitem", "len", "next", "str", "repr", "neg"):
    setattr(StandIn, f"__{_name}__", _forwarding(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(StandIn, f"__{_name}__", _comparing(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor"):
    setattr(StandIn, f"__{_name.strip('_')}__", _calculating(_name))
