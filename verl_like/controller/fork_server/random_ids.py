"""Keep Ray's generator of random ids unused until a fork: a copy of its state gives two processes the same ids.

The generator, which is written in C++, seeds itself at its first use. Modules of Ray that declare actors use it when
they are imported (2.60, actor.py), and the first object of a worker has a random id: of two workers with the same one,
Ray ends the second.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


@contextmanager
def ids_of_kernel() -> Iterator[None]:
    """Give the actors that modules declare ids from the kernel's generator."""
    actor: Any = importlib.import_module("ray.actor")
    own = actor.ActorClassID
    actor.ActorClassID = SimpleNamespace(from_random=lambda: own(os.urandom(own.size())))
    try:
        yield
    finally:
        actor.ActorClassID = own


def repeated() -> bool:
    """Return whether processes forked from this one would draw the same ids."""
    return _drawn_after_fork() == _drawn_after_fork()


def _drawn_after_fork() -> bytes:
    """Return an id that a forked process draws."""
    ids: Any = importlib.import_module("ray._raylet")
    read, write = os.pipe()
    if not (forked := os.fork()):
        try:
            os.write(write, ids.UniqueID.from_random().binary())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as drawn:
        found = drawn.read()
    os.waitpid(forked, 0)
    return found
