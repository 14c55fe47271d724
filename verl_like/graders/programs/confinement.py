"""What a process gives up before it runs code that nobody has read. None of it needs privileges, and none can be taken
back.

Network, processes, signals and other processes' memory go by a seccomp filter; files by Landlock, so that only the
interpreter's own can be read and only the working folder written. A kernel without Landlock (before 5.13) cannot tell
folders apart: there, everything can be read and nothing written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one confined process may use."""

    memory_mib: int  # address space
    cpu_s: int
    file_bytes: int  # size of each file it writes, among them its standard output; not of all together
    num_files: int = 64  # open at once


def confine(limits: Limits, folder: str, *, has_landlock: bool) -> None:
    """Give up everything but computing, and reading and writing in ``folder``, for this process and all its threads.

    Raises:
        OSError: the kernel refuses; nothing unread may then be run.
    """
    _limit_resources(limits)
    _drop_capabilities()
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if has_landlock:
        _restrict_files(folder)
    _filter_system_calls(_program(may_write=has_landlock))


def die_with_parent(parent_pid: int, signal_number: int) -> None:
    """Get ``signal_number`` when the thread that started this process ends;
    exit now where that has happened already.
    """
    _call("prctl", _PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def _call(name: str, *args: object) -> int:
    result: int = _LIBC[name](*args)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}({', '.join(map(str, args))}): {os.strerror(number)}")
    return result


# --- resources and privileges ---


def _limit_resources(limits: Limits) -> None:
    # No RLIMIT_NPROC: it counts all of the user's processes, and the filter below denies new ones anyway.
    wanted = {
        resource.RLIMIT_AS: limits.memory_mib * 2**20,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.num_files,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _drop_capabilities() -> None:
    """Root without capabilities can neither raise a limit nor reach into processes that have some."""
    header = struct.pack("Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    _call("capset", header, bytes(24))


# --- files: Landlock ---

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_FILE, _MAKE_FILE, _TRUNCATE = (
    1 << 1,
    1 << 2,
    1 << 3,
    1 << 5,
    1 << 8,
    1 << 14,
)
# Rights to a file itself; the others are rights to a folder and cannot be granted for a file.
_OF_FILES = _WRITE_FILE | _READ_FILE | _TRUNCATE
# Numerical libraries ask for the kind of processor when they are loaded.
_READABLE = (
    "/usr",
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


def landlock_version() -> int:
    """The version of the kernel's Landlock; 0 where it has none."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def interpreter_folders() -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(map(os.path.realpath, (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)))
    )


def _restrict_files(folder: str) -> None:
    version = landlock_version()
    handled = (1 << {1: 13, 2: 14}.get(version, 15)) - 1  # all rights that the version knows, up to truncating
    ruleset = _call("syscall", _LANDLOCK_CREATE_RULESET, struct.pack("Q", handled), ctypes.c_size_t(8), 0)
    libraries = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    for path in (*interpreter_folders(), *libraries, *_READABLE):
        _allow(ruleset, path, handled & (_READ_FILE | _READ_DIR))
    _allow(ruleset, "/dev/null", handled & (_READ_FILE | _WRITE_FILE | _TRUNCATE))
    _allow(ruleset, folder, handled & (_READ_FILE | _READ_DIR | _WRITE_FILE | _REMOVE_FILE | _MAKE_FILE | _TRUNCATE))
    _call("syscall", _LANDLOCK_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rights = rights if os.path.isdir(path) else rights & _OF_FILES
    _call("syscall", _LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, fd), 0)  # 1: everything beneath a path
    os.close(fd)


# --- system calls: seccomp ---

# Name, number on x86-64, number on aarch64 ("-": has none).
_NUMBERS = """
socket 41 198; ptrace 101 117; process_vm_readv 310 270; process_vm_writev 311 271; kill 62 129; tkill 200 130; tgkill
234 131; rt_sigqueueinfo 129 138; rt_tgsigqueueinfo 297 240; pidfd_send_signal 424 424; pidfd_open 434 434;
pidfd_getfd 438 438; fork 57 -; vfork 58 -; clone 56 220; clone3 435 435; execve 59 221; execveat 322 281; unshare 272
97; setns 308 268; prlimit64 302 261; setpriority 141 140; sched_setaffinity 203 122; sched_setscheduler 144 119;
sched_setparam 142 118; sched_setattr 314 274; ioprio_set 251 30; migrate_pages 256 238; move_pages 279 239; fcntl 72
25; ioctl 16 29; prctl 157 167; shmget 29 194; semget 64 190; msgget 68 186; mq_open 240 180; io_uring_setup 425 425;
keyctl 250 219; add_key 248 217; request_key 249 218; openat2 437 437; chmod 90 -; fchmod 91 52; fchmodat 268 53;
fchmodat2 452 452; chown 92 -; lchown 94 -; fchown 93 55; fchownat 260 54; utime 132 -; utimes 235 -; futimesat 261 -;
utimensat 280 88; setxattr 188 5; lsetxattr 189 6; fsetxattr 190 7; removexattr 197 14; lremovexattr 198 15;
fremovexattr 199 16; mkdir 83 -; mkdirat 258 34; mknod 133 -; mknodat 259 33; link 86 -; linkat 265 37; symlink 88 -;
symlinkat 266 36; rename 82 -; renameat 264 38; renameat2 316 276; unlink 87 -; unlinkat 263 35; rmdir 84 -; truncate
76 45; creat 85 -; open 2 -; openat 257 56
"""
# The C library falls back to the older call where a newer one is missing, but not where it is forbidden.
_ABSENT = ("clone3", "openat2", "fchmodat2")
# Sockets; other processes; what outlives the process; what Landlock does not cover. Folders and links would make the
# working folder costly to remove. Signals to itself are denied with those to others: who is who cannot be told by
# number.
_DENIED = (
    "socket",
    "io_uring_setup",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kill",
    "tkill",
    "tgkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "pidfd_send_signal",
    "pidfd_open",
    "pidfd_getfd",
    "fork",
    "vfork",
    "execve",
    "execveat",
    "unshare",
    "setns",
    "setpriority",
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "ioprio_set",
    "migrate_pages",
    "move_pages",
    "shmget",
    "semget",
    "msgget",
    "mq_open",
    "keyctl",
    "add_key",
    "request_key",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
)
_WRITING = ("rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "truncate", "creat")
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# One step of the filter's machine, linux/bpf_common.h.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
# linux/seccomp.h: where the filter finds the number, the architecture, and the low half of argument i.
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENT = 0, 4, 16
_ARCHS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of _NUMBERS, AUDIT_ARCH_*


def _numbers(column: int) -> Mapping[str, int]:
    rows = (entry.split() for entry in _NUMBERS.split(";"))
    return {row[0]: int(row[1 + column]) for row in rows if row[1 + column] != "-"}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _program(*, may_write: bool) -> bytes:
    machine = platform.machine()
    if machine not in _ARCHS:
        raise OSError(errno.ENOSYS, f"the filter of system calls is written for {sorted(_ARCHS)}, not for {machine}")
    column, arch = _ARCHS[machine]
    numbers = _numbers(column)
    denied = _step(_RETURN, _ERRNO | errno.EPERM)

    def refuse(names: Iterable[str], number: int) -> bytes:
        return b"".join(
            _step(_EQUAL, numbers[name], 0, 1) + _step(_RETURN, _ERRNO | number) for name in names if name in numbers
        )

    def refuse_where(name: str, argument: int, test: int, value: int, *, negate: bool = False) -> bytes:
        if name not in numbers:
            return b""
        jump = (1, 0) if negate else (0, 1)
        return (
            _step(_EQUAL, numbers[name], 0, 4)
            + _step(_LOAD, _AT_ARGUMENT + 8 * argument)
            + _step(test, value, *jump)
            + denied
            + _step(_LOAD, _AT_NUMBER)
        )

    steps = [
        _step(_LOAD, _AT_ARCH),
        _step(_EQUAL, arch, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _AT_NUMBER),
        # The x32 variants of all calls would pass below.
        *([_step(_AT_LEAST, 0x40000000, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)] if machine == "x86_64" else []),
        refuse(_ABSENT, errno.ENOSYS),
        refuse(_DENIED, errno.EPERM),
        refuse_where("clone", 0, _ANY_BIT, 0x00010000, negate=True),  # CLONE_THREAD: threads only
        refuse_where("prlimit64", 0, _EQUAL, 0, negate=True),  # its own limits only
        refuse_where("prctl", 0, _EQUAL, _PR_SET_PDEATHSIG),
        *(refuse_where("fcntl", 1, _EQUAL, command) for command in (8, 15)),  # F_SETOWN, F_SETOWN_EX: signals to others
        *(refuse_where("ioctl", 1, _EQUAL, command) for command in (0x8901, 0x8902)),  # FIOSETOWN, SIOCSPGRP: the same
    ]
    if not may_write:
        steps += [
            refuse(_WRITING, errno.EPERM),
            refuse_where("open", 1, _ANY_BIT, _WRITING_FLAGS),
            refuse_where("openat", 2, _ANY_BIT, _WRITING_FLAGS),
        ]
    return b"".join(steps) + _step(_RETURN, _ALLOW)


def _filter_system_calls(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _call("prctl", _PR_SET_SECCOMP, 2, header, 0, 0)  # 2: SECCOMP_MODE_FILTER
