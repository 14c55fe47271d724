"""The state of this process that has no other owner: one object of each class, reached by ``current(Class)``.

Examples are the seconds per stage (``Ledger``), the heartbeat, the request to end the run (``Interrupt``) and the
findings of the watchdog (``Verdicts``). ``tests/unit/test_context.py`` fails on such an object anywhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

T = TypeVar("T")


class Context:
    """Holds one object of each class and makes it, without arguments, when it is first needed. Thread-safe."""

    def __init__(self) -> None:
        self._objects: dict[type[object], object] = {}
        self._lock = threading.RLock()  # reentrant: a signal handler may need an object while another is being made

    def current(self, kind: type[T]) -> T:
        """Return the object of this class."""
        found = self._objects.get(kind)
        if found is None:
            with self._lock:
                found = self._objects.get(kind)
                if found is None:
                    made = kind()  # may itself need objects
                    found = self._objects.setdefault(kind, made)
        return cast("T", found)

    @contextmanager
    def replaced(self, kind: type[T], by: T) -> Iterator[None]:
        """Use another object inside the context, as tests do."""
        before = self.current(kind)
        self._objects[kind] = by
        try:
            yield
        finally:
            self._objects[kind] = before


_CONTEXT = Context()
current, replaced = _CONTEXT.current, _CONTEXT.replaced
