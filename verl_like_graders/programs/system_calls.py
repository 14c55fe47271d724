"""The system call filter: allow only the calls needed for computing and for a program's own files.

Every call that is not listed here is refused, which covers calls that future kernels add. Sockets have no address: only
stream socket pairs are allowed, which event loops use to wake themselves. Folders and links cannot be created, because
they would make the working folder costly to remove. File attributes, file locks shared between programs and change
notifications are refused, because Landlock covers none of them. Signals are refused, even to the process itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Sequence
from functools import cache

from verl_like_graders.programs.kernel import LIBC, call

# Name, number on x86-64, number on aarch64 ("-" if it has none). Allowed with any arguments.
_ALLOWED = """
read 0 63; write 1 64; readv 19 65; writev 20 66; pread64 17 67; pwrite64 18 68; preadv 295 69; pwritev 296 70; preadv2
327 286; pwritev2 328 287; lseek 8 62; close 3 57; close_range 436 436; dup 32 23; dup2 33 -; dup3 292 24; pipe 22 -;
pipe2 293 59; stat 4 -; fstat 5 80; lstat 6 -; newfstatat 262 79; statx 332 291; statfs 137 43; fstatfs 138 44; access
21 -; faccessat 269 48; faccessat2 439 439; getdents 78 -; getdents64 217 61; readlink 89 -; readlinkat 267 78; getcwd
79 17; chdir 80 49; fchdir 81 50; umask 95 166; fsync 74 82; fdatasync 75 83; fadvise64 221 223; readahead 187 213;
ftruncate 77 46; fallocate 285 47; sendfile 40 71; copy_file_range 326 285; memfd_create 319 279; mmap 9 222; munmap 11
215; mremap 25 216; mprotect 10 226; madvise 28 233; msync 26 227; brk 12 214; membarrier 324 283; poll 7 -; ppoll 271
73; select 23 -; pselect6 270 72; epoll_create 213 -; epoll_create1 291 20; epoll_ctl 233 21; epoll_wait 232 -;
epoll_pwait 281 22; epoll_pwait2 441 441; eventfd 284 -; eventfd2 290 19; signalfd 282 -; signalfd4 289 74;
timerfd_create 283 85; timerfd_settime 286 86; timerfd_gettime 287 87; sendto 44 206; recvfrom 45 207; sendmsg 46 211;
recvmsg 47 212; sendmmsg 307 269; recvmmsg 299 243; shutdown 48 210; getsockopt 55 209; getsockname 51 204; getpeername
52 205; set_tid_address 218 96; set_robust_list 273 99; get_robust_list 274 100; futex 202 98; futex_waitv 449 449; rseq
334 293; arch_prctl 158 -; exit 60 93; exit_group 231 94; wait4 61 260; waitid 247 95; rt_sigaction 13 134;
rt_sigprocmask 14 135; rt_sigpending 127 136; rt_sigsuspend 130 133; rt_sigtimedwait 128 137; rt_sigreturn 15 139;
sigaltstack 131 132; restart_syscall 219 128; pause 34 -; alarm 37 -; getitimer 36 102; setitimer 38 103; timer_create
222 107; timer_settime 223 110; timer_gettime 224 108; timer_getoverrun 225 109; timer_delete 226 111; time 201 -;
gettimeofday 96 169; clock_gettime 228 113; clock_getres 229 114; clock_nanosleep 230 115; nanosleep 35 101; times 100
153; getrusage 98 165; getpid 39 172; gettid 186 178; getppid 110 173; getpgrp 111 -; getpgid 121 155; getsid 124 156;
getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 177; getresuid 118 148; getresgid 120 150; getgroups 115
158; capget 125 90; getrlimit 97 163; setrlimit 160 164; getpriority 140 141; sched_yield 24 124; sched_getaffinity 204
123; sched_getparam 143 121; sched_getscheduler 145 120; sched_getattr 315 275; sched_get_priority_max 146 125;
sched_get_priority_min 147 126; sched_rr_get_interval 148 127; getcpu 309 168; get_mempolicy 239 236; sysinfo 99 179;
uname 63 160; getrandom 318 278
"""
# Calls that depend on their arguments, or on other kernel features (Landlock, a listener).
_CONDITIONAL = """
clone 56 220; open 2 -; openat 257 56; creat 85 -; rename 82 -; renameat 264 38; renameat2 316 276; unlink 87 -;
unlinkat 263 35; truncate 76 45; socketpair 53 199; prlimit64 302 261; fcntl 72 25; ioctl 16 29; prctl 157 167
"""
# The C library uses an older call if one of these is missing, but not if it is forbidden.
_ABSENT = "clone3 435 435; openat2 437 437"
_FIRST_UNKNOWN = 452  # calls from here on are newer than this table; the filter reports them as missing

_CLONE_THREAD = 0x00010000
_AF_UNIX, _STREAM, _TYPE_FLAGS = 1, 1, 0o4000 | 0o2000000  # SOCK_STREAM; SOCK_NONBLOCK, SOCK_CLOEXEC
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_UNNAMED_FILE = 0o20000000  # __O_TMPFILE: such a file appears in no folder listing
# Copies and flags of descriptors, record locks (databases need them), pipe sizes. Excluded: querying locks, which would
# let two programs communicate; signal owners; leases; change notifications.
_FCNTLS = (0, 1, 2, 3, 4, 6, 7, 1030, 1031, 1032)
# For terminals: TCGETS, TCGETS2, TIOCGWINSZ, which fail on any other file. FIONREAD, FIONBIO, FIOCLEX, FIONCLEX.
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5451, 0x5450)
_PRCTLS = (15, 16, 23, 39, 0x53564D41)  # names of threads and memory; queries of capabilities and privileges

# The opcodes of the filter, from linux/bpf_common.h.
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO, _NOTIFY = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_DENY = _ERRNO | errno.EPERM
# linux/seccomp.h: offsets of the call's number, the architecture, and the low half of argument i.
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENT = 0, 4, 16
_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_SECCOMP = {"x86_64": 317, "aarch64": 277}  # the call itself
_ARCHS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, AUDIT_ARCH_*


def restrict(*, may_write: bool, may_truncate: bool) -> int | None:
    """Permanently give up every system call that the filter does not allow.

    Args:
        may_write: another mechanism guards files that are opened for writing.
        may_truncate: another mechanism guards files that are truncated.

    Returns:
        the listener that must approve threads and new files; None if the kernel does not support one, in which case
        both are refused.

    Raises:
        OSError: the kernel refuses, or the architecture has no table.
    """
    given = program(may_write=may_write, may_truncate=may_truncate, has_listener=True)
    buffer, header = _in_memory(given)
    listener = int(LIBC.syscall(_SECCOMP[platform.machine()], _SET_MODE_FILTER, _NEW_LISTENER, header))
    if listener >= 0:
        return listener
    # Linux before 5.0, or a process outside already has a listener.
    buffer, header = _in_memory(program(may_write=may_write, may_truncate=may_truncate, has_listener=False))
    call("syscall", _SECCOMP[platform.machine()], _SET_MODE_FILTER, 0, header)
    del buffer  # the header points at it until here
    return None


def prepare() -> None:
    """Build the filters before a process needs one."""
    for may_write, may_truncate in ((True, True), (True, False), (False, False)):
        program(may_write=may_write, may_truncate=may_truncate, has_listener=True)


def number(name: str) -> int:
    """Return a call's number on this machine."""
    return _numbers(_CONDITIONAL)[name]


@cache
def program(*, may_write: bool, may_truncate: bool, has_listener: bool) -> bytes:
    """Return the filter in the kernel's format."""
    machine = platform.machine()
    if machine not in _ARCHS:
        raise OSError(errno.ENOSYS, f"the filter of system calls is written for {sorted(_ARCHS)}, not for {machine}")
    by_listener = _NOTIFY if has_listener else _DENY
    may_create = by_listener if may_write else _DENY
    parts = [
        _step(_LOAD, _AT_ARCH) + _step(_EQUAL, _ARCHS[machine][1], 1, 0) + _step(_RETURN, _KILL),
        _step(_LOAD, _AT_NUMBER),
        *_opening(may_write=may_write, may_truncate=may_truncate, may_create=may_create),
        _of("creat", _step(_RETURN, may_create)),
        *(_of(name, _step(_RETURN, _ALLOW if may_write else _DENY)) for name in _CHANGING),
        _of("truncate", _step(_RETURN, _ALLOW if may_write and may_truncate else _DENY)),
        _of("clone", _if_bits(_CLONE_THREAD, by_listener, _DENY), argument=0),
        _of("socketpair", _pair_of_local_streams(), argument=0),
        _of("prlimit64", _if_among((0,)), argument=0),  # its own limits only
        _of("fcntl", _if_among(_FCNTLS), argument=1),
        _of("ioctl", _if_among(_IOCTLS), argument=1),
        _of("prctl", _if_among(_PRCTLS), argument=0),
        *(_allow_run(run) for run in _runs(sorted(_numbers(_ALLOWED).values()))),
        *(_step(_EQUAL, each, 0, 1) + _step(_RETURN, _ERRNO | errno.ENOSYS) for each in _numbers(_ABSENT).values()),
        # This includes the x32 variants of all calls.
        _step(_AT_LEAST, _FIRST_UNKNOWN, 0, 1) + _step(_RETURN, _ERRNO | errno.ENOSYS),
        _step(_RETURN, _DENY),
    ]
    return b"".join(parts)


_CHANGING = ("rename", "renameat", "renameat2", "unlink", "unlinkat")


def _opening(*, may_write: bool, may_truncate: bool, may_create: int) -> Iterable[bytes]:
    for name, argument in (("open", 1), ("openat", 2)):
        if not may_write:
            steps = _if_bits(_WRITING_FLAGS, _DENY, _ALLOW)
        else:
            steps = _step(_ANY_BIT, _UNNAMED_FILE, 0, 1) + _step(_RETURN, _ERRNO | errno.EOPNOTSUPP)
            if not may_truncate:
                steps += _truncating_without_writing(argument)
            steps += _if_bits(os.O_CREAT, may_create, _ALLOW)
        yield _of(name, steps, argument=argument)


def _pair_of_local_streams() -> bytes:
    is_local = _step(_EQUAL, _AF_UNIX, 1, 0) + _step(_RETURN, _DENY)
    return is_local + _step(_LOAD, _AT_ARGUMENT + 8) + _if_among((_STREAM,), ignored=_TYPE_FLAGS)


def _truncating_without_writing(argument: int) -> bytes:
    """Refuse to truncate a file that is not opened for writing, for which Landlock requires no write permission."""
    return b"".join(
        [
            _step(_ANY_BIT, os.O_TRUNC, 0, 5),
            _step(_AND, os.O_ACCMODE),
            _step(_EQUAL, os.O_WRONLY, 2, 0),
            _step(_EQUAL, os.O_RDWR, 1, 0),
            _step(_RETURN, _DENY),
            _step(_LOAD, _AT_ARGUMENT + 8 * argument),
        ]
    )


@cache
def _numbers(table: str) -> dict[str, int]:
    column = _ARCHS[platform.machine()][0]
    rows = (entry.split() for entry in table.split(";"))
    return {row[0]: int(row[1 + column]) for row in rows if row[1 + column] != "-"}


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _of(name: str, steps: bytes, *, argument: int | None = None) -> bytes:
    """Apply these steps, which return, to one call, with the low half of an argument loaded."""
    if name not in _numbers(_CONDITIONAL):
        return b""
    load = b"" if argument is None else _step(_LOAD, _AT_ARGUMENT + 8 * argument)
    return _step(_EQUAL, number(name), 0, len(load + steps) // 8) + load + steps


def _if_bits(bits: int, then: int, otherwise: int) -> bytes:
    return _step(_ANY_BIT, bits, 0, 1) + _step(_RETURN, then) + _step(_RETURN, otherwise)


def _if_among(values: Sequence[int], *, ignored: int = 0) -> bytes:
    """Allow the call if the argument is one of these values."""
    mask = _step(_AND, ~ignored & 0xFFFFFFFF) if ignored else b""
    return mask + b"".join(map(_allow, values)) + _step(_RETURN, _DENY)


def _allow(value: int) -> bytes:
    return _step(_EQUAL, value, 0, 1) + _step(_RETURN, _ALLOW)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Group consecutive numbers into runs; the kernel tries the filter on every possible number."""
    runs: list[list[int]] = []
    for each in numbers:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def _allow_run(run: Sequence[int]) -> bytes:
    return _step(_AT_LEAST, run[0], 0, 2) + _step(_AT_LEAST, run[-1] + 1, 1, 0) + _step(_RETURN, _ALLOW)


def _in_memory(given: bytes) -> tuple[ctypes.Array[ctypes.c_char], bytes]:
    buffer = ctypes.create_string_buffer(given, len(given))
    return buffer, struct.pack("HxxxxxxP", len(given) // 8, ctypes.addressof(buffer))
