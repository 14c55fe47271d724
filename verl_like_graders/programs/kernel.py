"""Calls into the kernel that Python has no function for."""

from __future__ import annotations

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: object) -> int:
    """Return the result of a C library function; integers are passed as C longs.

    Raises:
        OSError: the function returned -1.
    """
    longs = [ctypes.c_long(each) if isinstance(each, int) else each for each in args]
    result: int = LIBC[name](*longs)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}({', '.join(map(str, args))}): {os.strerror(number)}")
    return result
