"""Hostile programs against the sandbox, on every version of Landlock that this kernel can emulate. Honest ones pass."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.graders._programs import ADD, passes, result, why
from verl_like_graders.programs import landlock, system_calls
from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.launcher import Ending, check_files_are_safe, fork_server

pytestmark = pytest.mark.processes

# A ruleset that names only the rights of an older version is treated as that version treats it.
VERSIONS = range(landlock.version() + 1)
NEEDS_LANDLOCK = pytest.mark.skipif(len(VERSIONS) == 1, reason="this kernel has no Landlock to play versions of")
CALL = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    args = [ctypes.c_long(each) if isinstance(each, int) else each for each in args]
    return "let through" if libc.syscall(*args) != -1 else errno.errorcode[ctypes.get_errno()]
"""


def confined(program: str, *, grace_s: float = 8.0, **limits: int) -> Ending:
    given = {"memory_mib": 1024, "cpu_s": 8, "file_bytes": 2**20} | limits
    return fork_server().start("program", limits=Limits(**given), code=textwrap.dedent(program)).end(grace_s=grace_s)


def printed(program: str, **limits: int) -> str:
    ending = confined(program, **limits)
    assert ending.code == 0, ending
    return ending.output.decode().strip()


def raised(statement: str) -> str:
    """Return the exception that a statement raises, or "" if it raises none."""
    lines = [
        "import fcntl, mmap, os, socket, stat, struct, sys",
        "try:",
        f"    {statement}",
        "except BaseException as error:",
        "    print(type(error).__name__)",
    ]
    return printed("\n".join(lines))


@pytest.fixture
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Limit the fork server of this thread to a version of Landlock (0 is none), with its folders in ``tmp_path``."""
    fork_server().close()
    (tmp_path / "sandbox").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "sandbox"))
    monkeypatch.setattr(landlock, "version", lambda: request.param)
    yield request.param
    fork_server().close()


# --- files ---

EMPTYING = [
    "os.truncate({file!r}, 0)",
    "os.open({file!r}, os.O_RDONLY | os.O_TRUNC)",
    "os.open({file!r}, os.O_ACCMODE | os.O_TRUNC)",
    "os.open({file!r}, os.O_RDWR | os.O_TRUNC)",
    "open({file!r}, 'w')",
    "open({file!r}, 'r+').truncate(0)",
    "os.open('/proc/self/fd/%d' % os.open({file!r}, os.O_PATH), os.O_RDWR | os.O_TRUNC)",
    "os.truncate('/proc/self/fd/%d' % os.open({file!r}, os.O_PATH), 0)",
    "os.chdir(os.path.dirname({file!r})) or os.truncate(os.path.basename({file!r}), 0)",
]
CHANGING = [
    "os.remove({file!r})",
    "os.rename({file!r}, 'mine')",
    "os.replace('mine', {file!r})",
    "os.link({file!r}, 'mine')",
    "os.symlink({file!r}, 'mine')",
    "os.chmod({file!r}, 0)",
    "os.utime({file!r})",
    "os.setxattr({file!r}, 'user.a', b'1')",
    "open(os.path.dirname({file!r}) + '/new', 'w')",
    "os.mkdir(os.path.dirname({file!r}) + '/new')",
    "os.mkfifo(os.path.dirname({file!r}) + '/new')",
]
READING = [
    "open({file!r}).read()",
    "os.open({file!r}, os.O_RDONLY)",
    "open('/proc/self/fd/%d' % os.open({file!r}, os.O_PATH)).read()",
    "os.listdir(os.path.dirname({file!r}))",
    "os.listdir('/usr/src')",
    "open(f'/proc/{{os.getppid()}}/environ').read()",
    "open(f'/proc/{{os.getppid()}}/mem').read()",
]


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_no_version_lets_a_file_of_others_be_emptied_or_changed(version: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    for statement in [*EMPTYING, *CHANGING, *(READING if version else [])]:
        file.write_text("kept")
        error = raised(statement.format(file=str(file)))
        assert error in ("PermissionError", "FileNotFoundError"), statement
        assert file.read_text() == "kept" and sorted(each.name for each in tmp_path.iterdir()) == ["file", "sandbox"]


@pytest.mark.parametrize("version", VERSIONS, indirect=True)
def test_what_can_be_read_cannot_be_emptied_either(version: int) -> None:
    """The interpreter's files can be read, even if the user may write them."""
    library = Path(textwrap.__file__)
    content = library.read_text()
    for statement in EMPTYING:
        if "fd" in statement:
            continue
        assert raised(statement.format(file=str(library))) == "PermissionError", statement
        assert library.read_text() == content


@NEEDS_LANDLOCK
@pytest.mark.parametrize("version", VERSIONS[1:], indirect=True)
def test_every_version_lets_a_program_write_and_empty_its_own_files(version: int) -> None:
    program = """
    import os, tempfile
    for text in ("long", "s"):
        with open("notes", "w") as file:
            file.write(text)
    with open("notes", "r+") as file:
        file.truncate(1)
    with open("notes", "a") as file:
        file.write("!")
    os.rename("notes", "kept")
    with tempfile.TemporaryFile("w+") as file, tempfile.NamedTemporaryFile() as named:
        file.write("t"), named.write(b"n")
    print(open("kept").read(), os.listdir())
    """
    assert printed(program) == "s! ['kept']"


@pytest.mark.parametrize("version", [0], indirect=True)
def test_without_landlock_no_program_runs_unless_that_is_allowed(version: int) -> None:
    with pytest.raises(ValueError, match=r"no Landlock, so that .* could read all your files.*allow_without_landlock"):
        result("def add(a, b): return a + b", ADD)
    with pytest.raises(ValueError, match="no Landlock"):
        check_files_are_safe(allow_without_landlock=False)
    assert passes("def add(a, b): return a + b", ADD, allow_without_landlock=True)


# --- system calls ---


@pytest.mark.parametrize(
    "statement",
    [
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)",
        "socket.socketpair(30, socket.SOCK_STREAM)",  # TIPC, whose module the kernel would load
        "socket.socketpair()[0].bind('\\0name')",
        "socket.socketpair()[0].connect('\\0name')",
        "socket.socketpair()[0].listen()",
        "fcntl.flock(open(os.__file__), fcntl.LOCK_EX)",
        "fcntl.fcntl(open(os.__file__), fcntl.F_GETLK, struct.pack('hhqqi', 1, 0, 0, 0, 0))",
        "fcntl.fcntl(open(os.__file__), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
        "fcntl.fcntl(os.open('.', 0), fcntl.F_NOTIFY, fcntl.DN_ACCESS)",
        "fcntl.ioctl(open(os.__file__), 0x40086602, struct.pack('l', 0))",  # FS_IOC_SETFLAGS
        "os.mknod('socket', stat.S_IFSOCK | 0o600)",
        "os.setuid(1)",
    ],
)
def test_what_two_programs_could_talk_by_or_change_others_files_with_is_refused(statement: str) -> None:
    assert raised(statement) == "PermissionError"


def test_a_stream_reaches_only_its_other_end() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0verl_like_test")
        listening.settimeout(0.1)
        assert raised("socket.socketpair()[0].sendto(b'answer', '\\0verl_like_test')") == "OSError"
        with pytest.raises(TimeoutError):
            listening.recv(1)
    assert printed("import socket\na, b = socket.socketpair()\na.send(b'mine')\nprint(b.recv(9))") == "b'mine'"


OLD = {  # by name, as in the kernel's header
    "inotify_init1": 294,
    "fanotify_init": 300,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "bpf": 321,
    "perf_event_open": 298,
    "memfd_secret": 447,
    "process_madvise": 440,
    "pidfd_getfd": 438,
    "landlock_create_ruleset": 444,
    "seccomp": 317,
    "shmget": 29,
    "mq_open": 240,
    "setsockopt": 54,
    "splice": 275,
    "personality": 135,
    "mlockall": 151,
    "sync": 162,
}


@pytest.mark.skipif(system_calls.platform.machine() != "x86_64", reason="the numbers are of x86-64")
def test_system_calls_that_are_not_listed_are_refused_and_future_ones_too() -> None:
    found = printed(f"{CALL}\nprint(*(call(number, 0, 0, 0, 0, 0, 0) for number in {list(OLD.values())}))")
    assert dict(zip(OLD, found.split(), strict=True)) == dict.fromkeys(OLD, "EPERM")
    # setxattrat is 463, removexattrat 466, file_setattr 469; x32 has separate numbers.
    numbers = [*range(452, 520), 1000, 0x40000000, 0x40000000 + 41]
    assert set(printed(f"{CALL}\nprint(*(call(number, 0, 0) for number in {numbers}))").split()) == {"ENOSYS"}
    # prctl(PR_SET_DUMPABLE), prctl(PR_SET_PDEATHSIG), and clone and fork that start a process.
    others = "(call(157, 4, 1), call(157, 1, 0), call(56, 17, 0, 0, 0, 0), call(57))"
    assert set(printed(f"{CALL}\nprint(*{others})").split()) == {"EPERM"}
    assert printed(f"{CALL}\nprint(call(435, 0, 0))") == "ENOSYS"


@pytest.mark.parametrize("column", [0, 1])
def test_the_numbers_of_calls_are_the_kernels(column: int) -> None:
    header = Path(("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")[column])
    if not header.is_file():
        pytest.skip("the kernel's headers are not installed")
    kernels = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    kernels.setdefault("newfstatat", kernels.get("fstatat", 0))
    for table in (system_calls._ALLOWED, system_calls._CONDITIONAL, system_calls._ABSENT):
        for name, *numbers in (entry.split() for entry in table.split(";")):
            assert numbers[column] == "-" or int(numbers[column]) == kernels[name], name


# --- limits ---


def test_threads_are_bounded_and_ended_ones_give_way_to_others() -> None:
    flood = """
    import _thread, threading, time
    threading.stack_size(32768)
    count = 0
    try:
        while count < 3000:
            _thread.start_new_thread(time.sleep, (9,))
            count += 1
    except RuntimeError:
        print(count)
        import os
        os.write(1, f"{count}\\n".encode())
        os._exit(0)
    """
    assert int(printed(flood).split()[0]) == 127
    honest = """
    import threading
    done = []
    for _ in range(20):
        threads = [threading.Thread(target=done.append, args=(i,)) for i in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(len(done))
    """
    assert printed(honest) == "800"


@NEEDS_LANDLOCK
def test_files_are_bounded_and_removed_ones_give_way_to_others() -> None:
    flood = """
    count = 0
    try:
        while True:
            open(str(count), "wb").write(bytes(2**20))
            count += 1
    except OSError as error:
        print(count, error.strerror)
    """
    started = time.monotonic()
    assert printed(flood) == "64 Disk quota exceeded"
    assert time.monotonic() - started < 5.0
    honest = "import os\nfor i in range(500):\n    open('a', 'w').write(str(i))\n    os.remove('a')\nprint(i)"
    assert printed(honest) == "499"


def test_cleaning_up_after_one_program_holds_up_no_other() -> None:
    """The files that a program leaves are removed quickly."""
    flood = "import threading, time\nfor i in range(60): open(str(i), 'wb').write(bytes(2**20))\n"
    flood += "for _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()\nwhile True: pass"
    server = fork_server()
    limits = Limits(memory_mib=2048, cpu_s=8, file_bytes=2**20)
    running = server.start("program", limits=limits, code=flood)
    time.sleep(0.5)
    started = time.monotonic()
    assert running.end().code is None
    assert time.monotonic() - started < 1.0
    assert printed("print(1)") == "1" and fork_server() is server


NEVER_CONFINED = """
import json, os, socket, sys, tempfile
from dataclasses import asdict
from verl_like_graders.programs import fork_server
from verl_like_graders.programs import landlock
from verl_like_graders.programs.confinement import Limits

fork_server._CONFINED_WITHIN_S = 0.3
mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if os.fork() == 0:
    mine.close()
    fork_server._Server(theirs, tempfile.gettempdir(), landlock.version(), ()).serve()
    os._exit(0)
theirs.close()
job, held_open = os.pipe()  # the child reads its job to the end, which is never written
limits = Limits(memory_mib=256, cpu_s=1, file_bytes=1000)
socket.send_fds(mine, [json.dumps({"limits": asdict(limits)}).encode()], [job])
mine.settimeout(10)
print(mine.recv(4096).decode())
"""


def test_a_process_that_stops_before_it_is_confined_is_given_up_within_a_deadline() -> None:
    command = [sys.executable, "-c", NEVER_CONFINED]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert json.loads(ended.stdout) == {"error": "a process was not confined within 0.3 s"}, ended.stderr


def test_a_kernel_without_a_listener_makes_no_threads_and_no_files() -> None:
    """Its filter refuses the calls that would be counted; the other steps are equal."""
    counted, uncounted = (
        system_calls.program(may_write=True, may_truncate=True, has_listener=has_listener)
        for has_listener in (True, False)
    )
    notify, deny = (
        system_calls._step(system_calls._RETURN, each) for each in (system_calls._NOTIFY, system_calls._DENY)
    )
    assert counted.count(notify) >= 2 and notify not in uncounted
    assert uncounted == counted.replace(notify, deny)


# --- a wrong program is wrong, and no failure of the reward ---

ENDLESS = {
    "set of one hash": "def add(a, b): return {k * (2**61 - 1) for k in range(1500)}",
    "dict of one hash": "def add(a, b): return {k * (2**61 - 1): 1 for k in range(1500)}",
    "list to be read long": "def add(a, b): return [[]] * 300_000",
    "digits": "def add(a, b): return 10**200_000",
    "deep": "x = []\nfor _ in range(900): x = [x]\ndef add(a, b): return x",
    "signal without a name": """
import ctypes, time
def add(a, b):
    libc = ctypes.CDLL(None)
    event = (ctypes.c_char * 64)()
    ctypes.memmove(event, (0).to_bytes(8, "little") + (40).to_bytes(4, "little") + bytes(4), 16)
    timer = ctypes.c_int()
    libc.timer_create(0, event, ctypes.byref(timer))
    libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1_000_000), None)
    time.sleep(5)
if __name__ == "__main__":
    add(1, 2)
""",
}
FORGED = {
    "one hash": b'{"value":{"set":[' + b",".join(b"%d" % (k * (2**61 - 1)) for k in range(8)) + b"]}}",
    "sets of forged numbers": None,
    "reason that is nested": b'{"error":[["A"],' + b"[" * 900 + b"]" * 900 + b"]}",
    "error of another form": b'{"error":{"a":1}}',
    "fraction by zero": b'{"value":{"fraction":["1","0"]},"changed":{}}',
    "no fraction": b'{"value":{"fraction":[1]},"changed":{}}',
    "no decimal": b'{"value":{"decimal":"x"},"changed":{}}',
    "object without type": b'{"value":{"object":"a"},"changed":{}}',
    "changed argument that is none": b'{"value":1,"changed":{"7":1}}',
}


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("truth", [ADD, ["assert add(1, 2) == 3"], {"inputs": [""], "outputs": ["3"]}])
def test_no_answer_takes_longer_than_its_program_may(truth: object, name: str) -> None:
    started = time.monotonic()
    assert result(ENDLESS[name], truth, timeout_s=2.0, total_timeout_s=3.0)["score"] == 0.0
    assert time.monotonic() - started < 5.0


@pytest.mark.parametrize("truth", [ADD, ["assert add(1, 2) == 3"]])
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_answer_is_wrong_whatever_it_holds(truth: object, name: str) -> None:
    if FORGED[name] is None:
        body = "b'{\"value\":{\"dict\":[' + b','.join(b'[%d,1]' % (k * (2**61 - 1)) for k in range(40_000)) + b']}}'"
    else:
        body = repr(FORGED[name])
    program = f"""
import os, struct, time
def add(a, b):
    body = {body}
    os.write(3, struct.pack("!I", len(body)) + body)
    time.sleep(60)
"""
    started = time.monotonic()
    assert result(program, truth, timeout_s=1.0, total_timeout_s=2.0)["score"] == 0.0
    assert time.monotonic() - started < 4.0


def test_code_that_forges_why_it_cannot_be_loaded_is_wrong() -> None:
    program = """
import os, struct
body = b'{"failed":' + b"[" * 900 + b"]" * 900 + b"}"
os.write(3, struct.pack("!I", len(body)) + body)
"""
    assert why(program, ADD)


# --- objects in asserts ---

YES = """
class Yes:
    def __init__(self, *args): pass
    def yes(self, *args): return True
    def zero(self, *args): return 0.0
    def itself(self, *args): return self
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 9
    def __iter__(self): return iter([self])
    __contains__ = __bool__ = __lt__ = __gt__ = __le__ = __ge__ = startswith = endswith = isdigit = issubset = yes
    __sub__ = __mod__ = __xor__ = __floordiv__ = __mul__ = __and__ = __rsub__ = __rmod__ = {value}
    __abs__ = __float__ = __round__ = __neg__ = __pos__ = __invert__ = __trunc__ = zero
    def __index__(self): return 9
    __int__ = __index__
    def __getattr__(self, name): return self.yes
def f(*args): return Yes()
def g(*args): return [Yes()]
"""
ASSERTS = [
    "assert abs(f(3) - 9.0) < 1e-6",
    "assert abs(9.0 - f(3)) < 1e-6",
    "assert f(3) % 9 == 0",
    "assert not f(3) % 9",
    "assert f(3) ^ 9 == 0",
    "assert not f(3) ^ 9",
    "assert f(3) // 10 == 0",
    "assert f(3) * 0 == 0",
    "assert f(3) & 1 == 0",
    "assert f(3) == 9",
    "assert not f(3) != 9",
    "assert f(3) <= 9 <= f(3)",
    "assert 9 in f(3)",
    "assert 'nine' in f(3)",
    "assert all(each in f(3) for each in [1, 2])",
    "assert f(3) in [9]",
    "assert f('a').startswith('a')",
    "assert f('1').isdigit()",
    "assert f(3).issubset({9})",
    "assert sum(g(3)) == 9",
    "assert max(g(3)) == 9",
    "assert sorted(g(3)) == [9]",
    "assert sum(abs(a - b) for a, b in zip(g(3), [9])) < 1e-6",
    "assert all(abs(a - b) < 1e-6 for a, b in zip(g(3), [9.0]))",
    "assert round(f(3), 2) == 9.0",
    "assert int(f(3)) == 9",
    "assert float(f(3)) == 9.0",
    "assert abs(f(3)) == 9",
    "import math\nassert math.isclose(f(3), 9.0)",
    "assert f'{f(3):.2f}' == '9.00'",
    "assert '%.2f' % f(3) == '9.00'",
    "assert range(10)[f(3)] == 9",
    "assert pow(f(3), 2) == 81 and divmod(f(3), 2) == (4, 1)",
    "import fractions\nassert f(3) - fractions.Fraction(9) == 0",
    "assert f('abc')[1:] == 'bc'",
]


@pytest.mark.parametrize("value", ["zero", "itself", "yes"])
def test_objects_that_say_yes_to_everything_pass_no_assert_and_mask_none(value: str) -> None:
    program = YES.replace("{value}", value)
    for test in ASSERTS:
        assert not passes(program, test), test


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (
            "class Vec:\n    def __init__(self, x): self.x = x\n    def __mul__(self, k): return Vec(self.x * k)\n"
            "    def __eq__(self, o): return self.x == o.x\n    def __contains__(self, x): return x == self.x",
            "assert Vec(2) * 3 == Vec(6)\nassert (Vec(2) * 3).x == 6\nassert 2 in Vec(2)\nassert 3 not in Vec(2)",
        ),
        (
            "from fractions import Fraction\ndef f(a, b): return Fraction(a, b)",
            "from fractions import Fraction as F\nassert f(1, 3) + F(1, 6) == F(1, 2)\nassert f(1, 2) - 0.5 < 1e-9",
        ),
        ("from decimal import Decimal\ndef f(x): return Decimal(x)", "assert f('1.5') * 2 == 3"),
        ("def f(n): return {i: i for i in range(n)}.keys()", "assert 2 in f(3) and 3 not in f(3)"),
        (
            "def f(x): return x",
            "assert f('abc').startswith('a') and f({1}).issubset({1, 2}) and (0.5).is_integer() is False",
        ),
    ],
)
def test_honest_objects_pass(program: str, tests: str) -> None:
    assert result(program, tests)["why"] == ""


def test_an_import_error_of_the_solution_is_no_fault_of_the_tests() -> None:
    tests = ["found = f(1)", "assert found == 1"]
    assert "ImportError" in why("def f(x): raise ImportError('no')", tests)
    assert passes("def f(x): return x", tests)
