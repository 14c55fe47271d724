"""Restrict files with Landlock: only the interpreter's own files can be read, and only the working folder written.

Each version of Landlock supports more. The first two do not cover truncation, which the filter of :mod:`system_calls`
refuses there. The fourth covers connections, the sixth abstract sockets and signals; the filter refuses those on every
kernel.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from functools import cache

from verl_like_graders.programs.kernel import LIBC, call

KNOWS_TRUNCATING = 3
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 5,
    1 << 8,
    1 << 14,
)
# Rights that apply to a file itself; the others apply to folders and cannot be granted for a file.
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # of each version; later ones have one more
_MAX_FILE_RIGHTS = 16
_NETWORK = 3  # binding and connecting TCP sockets, since version 4
_SCOPES = 3  # abstract sockets of, and signals to, processes outside, since version 6
# Folders without personal files. /usr itself is excluded because it may hold a project (/usr/src/app).
# Numerical libraries read the CPU type when they are loaded.
_READABLE = (
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/locale",
    "/usr/share/zoneinfo",
    "/lib",
    "/lib64",
    "/etc/localtime",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
)


def version() -> int:
    """Return the version of the kernel's Landlock, or 0 if there is none or a container's profile hides it."""
    return max(0, int(LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


@cache
def interpreter_folders() -> tuple[str, ...]:
    """List the folders of the interpreter's modules and libraries, below its prefixes and never a prefix itself."""
    of_modules = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    of_libraries = [os.path.join(prefix, name) for prefix in prefixes for name in ("lib", "lib64")]
    return tuple(dict.fromkeys(map(os.path.realpath, (*of_modules, *of_libraries))))


def is_interpreters(path: str) -> bool:
    """Return whether a path is in one of the interpreter's folders."""
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(folder + os.sep) for folder in interpreter_folders())


@cache
def readable(site_folders: tuple[str, ...] = ()) -> tuple[tuple[int, bool], ...]:
    """Open the readable paths once for all confined processes; return (descriptor, whether it is a folder) of each.

    Args:
        site_folders: package folders in addition to the interpreter's own.
    """
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    wanted = dict.fromkeys(map(os.path.realpath, (*interpreter_folders(), *site_folders, *libraries, *_READABLE)))
    outermost = [path for path in wanted if not any(path.startswith(other + os.sep) for other in wanted)]
    return tuple(
        (os.open(path, os.O_PATH | os.O_CLOEXEC), os.path.isdir(path)) for path in outermost if os.path.exists(path)
    )


def restrict(folder: str, version: int, *, site_folders: tuple[str, ...] = ()) -> None:
    """Permanently give up all files except the readable ones and those in ``folder``.

    Args:
        version: at most the kernel's.

    Raises:
        OSError: the kernel refuses.
    """
    handled = (1 << _NUM_FILE_RIGHTS.get(version, _MAX_FILE_RIGHTS)) - 1
    words = [handled, *([_NETWORK] if version >= 4 else []), *([_SCOPES] if version >= 6 else [])]
    attributes = struct.pack(f"{len(words)}Q", *words)
    ruleset = call("syscall", _CREATE_RULESET, attributes, len(attributes), 0)

    def allow(fd: int, rights: int, *, is_folder: bool) -> None:
        rights &= handled if is_folder else handled & _OF_FILES
        call("syscall", _ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)  # 1: everything beneath a path

    for fd, is_folder in readable(site_folders):
        allow(fd, _READ_FILE | _READ_DIR, is_folder=is_folder)
    for path, rights in (
        ("/dev/null", _READ_FILE | _WRITE_FILE | _TRUNCATE),
        (folder, _READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE),
    ):
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allow(fd, rights, is_folder=path == folder)
        os.close(fd)
    call("syscall", _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
