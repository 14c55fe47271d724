"""Calls into the kernel that Python has no function for."""

from __future__ import annotations

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: object) -> int:
    """What a function of the C library returns; numbers are passed as long as they are given.

    Raises:
        OSError: it returned -1.
    """
    longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in args]
    result: int = LIBC[name](*longs)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}({', '.join(map(str, args))}): {os.strerror(number)}")
    return result
