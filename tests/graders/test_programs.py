"""The sandbox for programs: isolation, limits, and cleanup."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.graders._programs import ADD, ASSERTS, RIGHT_ADD, RIGHT_SUM, SUMS, passes, result
from verl_like_graders.programs import landlock
from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.launcher import Ending, ForkServer, fork_server

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
needs_landlock = pytest.mark.skipif(
    landlock.version() == 0, reason="this kernel has no Landlock: everything can be read, nothing written"
)


def confined(program: str, *, grace_s: float = 5.0, **limits: int) -> Ending:
    """Return how a program ends in the sandbox."""
    given = {"memory_mib": 512, "cpu_s": 5, "file_bytes": 2**20} | limits
    return fork_server().start("program", limits=Limits(**given), code=textwrap.dedent(program)).end(grace_s=grace_s)


def printed(program: str) -> str:
    ending = confined(program)
    assert ending.code == 0, ending
    return ending.output.decode().strip()


def refused(statement: str, setup: str = "") -> str:
    """Return the exception that a statement raises in the sandbox, or "" if it raises none."""
    return printed(
        f"import os, sys\n{setup}\ntry:\n    {statement}\nexcept BaseException as error:\n    "
        f"print(type(error).__name__)\n"
    )


def eventually(claim: Callable[[], bool], within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """Return a fork server of this thread whose folders are below ``tmp_path``."""
    fork_server().close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield fork_server()
    fork_server().close()


# --- isolation ---


def test_nothing_can_be_connected_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        tcp.settimeout(0.1)
        local.settimeout(0.1)
        host, port = tcp.getsockname()
        socket.create_connection((host, port)).close()  # it can from here
        tcp.accept()[0].close()
        assert refused(f"socket.create_connection(({host!r}, {port}), timeout=2)", "import socket") == "PermissionError"
        assert (
            refused(f"socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'socket')!r})", "import socket")
            == "PermissionError"
        )
        assert refused("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)", "import socket") == "PermissionError"
        for listening in (tcp, local):
            with pytest.raises(TimeoutError):
                listening.accept()


def test_an_event_loop_runs_without_network() -> None:
    assert (
        printed("import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    print('slept')\nasyncio.run(f())")
        == "slept"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "os.fork()",
        "subprocess.run(['true'], check=False)",
        "os.execv(sys.executable, ['python'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "multiprocessing.Process(target=print).start()",
        "os.kill(os.getppid(), signal.SIGTERM)",
        "os.kill(-1, signal.SIGKILL)",
        "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "os.mkdir('folder')",
        "os.symlink('a', 'b')",
        "os.chmod('/tmp', 0)",
        "os.pidfd_open(os.getppid())",
    ],
)
def test_processes_and_what_outlives_them_cannot_be_made_or_touched(statement: str) -> None:
    assert refused(statement, "import fcntl, multiprocessing, resource, signal, subprocess") == "PermissionError"


@pytest.mark.parametrize("limit", ["AS", "CPU", "FSIZE", "NOFILE", "CORE"])
def test_no_limit_can_be_raised(limit: str) -> None:
    statement = f"resource.setrlimit(resource.RLIMIT_{limit}, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))"
    assert refused(statement, "import resource") == "ValueError"


def test_root_is_root_no_more() -> None:
    program = """
    import ctypes, struct
    capabilities = ctypes.create_string_buffer(b"x" * 24, 24)
    ctypes.CDLL(None).capget(struct.pack("Ii", 0x20080522, 0), capabilities)
    print(any(capabilities.raw))
    """
    assert printed(program) == "False"


def test_the_last_wish_of_dying_with_the_parent_cannot_be_taken_back() -> None:
    assert printed("import ctypes\nprint(ctypes.CDLL(None).prctl(1, 0, 0, 0, 0))") == "-1"


@needs_landlock
@pytest.mark.parametrize(
    "statement",
    [
        "open({file!r}).read()",
        "open({file!r}, 'w')",
        "os.remove({file!r})",
        "os.listdir({folder!r})",
        "os.truncate({file!r}, 0)",
        "os.rename({file!r}, 'mine')",
        "open({folder!r} + '/new', 'w')",
        "open('/etc/passwd')",
        "open(f'/proc/{{os.getppid()}}/mem')",
    ],
)
def test_files_of_others_can_neither_be_read_nor_changed(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "tests.json"
    file.write_text("secret")
    assert refused(statement.format(file=str(file), folder=str(tmp_path))) == "PermissionError"
    assert file.read_text() == "secret"


def test_without_landlock_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("kept")
    program = f"""
    import os
    from verl_like_graders.programs.confinement import Limits, confine
    os.chdir({str(tmp_path)!r})
    confine(Limits(memory_mib=512, cpu_s=5, file_bytes=2**20), ".", landlock_version=0)
    for change in (lambda: open("new", "w"), lambda: open("old", "a"), lambda: os.remove("old"), lambda: os.truncate("old", 0),
                   lambda: os.rename("old", "new"), lambda: os.open("old", os.O_RDONLY | os.O_TRUNC), lambda: os.fork()):
        try:
            change()
            raise SystemExit("not refused")
        except PermissionError:
            pass
    print(open("old").read(), sum(range(10)))
    """  # noqa: E501
    command = [sys.executable, "-c", textwrap.dedent(program)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)
    assert run.stdout == "kept 45\n", run.stderr
    assert os.listdir(tmp_path) == ["old"]


# --- limits ---


def test_each_run_on_an_input_starts_afresh() -> None:
    assert printed("import os\nopen('mark', 'w')\nprint(os.listdir())") == "['mark']"
    assert printed("import os\nprint(os.listdir())") == "[]"


def test_memory_is_limited() -> None:
    assert "MemoryError" in confined("x = bytearray(150 << 20)", memory_mib=128).errors
    assert confined("x = bytearray(150 << 20)", memory_mib=256).code == 0


def test_cpu_time_is_limited_without_supervision() -> None:
    started = time.monotonic()
    ending = confined("while True: pass", cpu_s=1, grace_s=10.0)
    assert ending.code in (-signal.SIGKILL, -signal.SIGXCPU) and time.monotonic() - started < 8.0


def test_the_size_of_a_file_and_the_number_of_open_ones_are_limited() -> None:
    assert "File too large" in confined("open('big', 'wb').write(bytes(2 << 20))").errors
    assert "Too many open files" in confined("files = [open('f', 'w') for _ in range(100)]").errors


def test_output_is_limited_even_for_a_program_that_ignores_it() -> None:
    ending = confined(
        "while True:\n    try:\n        print('x' * 100_000, flush=True)\n    except OSError:\n        pass",
        grace_s=0.5,
    )
    assert ending.code is None and len(ending.output) == 2**20


def test_a_limit_of_output_grows_with_what_is_expected() -> None:
    lines = "\n".join(["x" * 100] * 15_000)
    assert passes("for _ in range(15_000): print('x' * 100)", {"inputs": [""], "outputs": [lines]})
    assert passes(
        "def f(n): return list(range(n))", {"fn_name": "f", "inputs": [[300_000]], "outputs": [list(range(300_000))]}
    )


def test_the_environment_is_empty_of_the_runs_secrets(monkeypatch: pytest.MonkeyPatch, server: ForkServer) -> None:
    server.close()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert "secret" not in printed("import os\nprint(os.environ)")


# --- cleanup ---

HOSTILE = [
    "while True: pass",
    "import time\ntime.sleep(1000)",
    "import os\nos.fork()",
    "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(1000,)).start()",
    "import signal\nfor s in (1, 2, 3, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
    "import os\nfor i in range(300):\n    open(str(i), 'w').write('x')\nos.chmod('.', 0)",
    "import os\nwhile True:\n    os.mkdir('d')\n    os.chdir('d')",
    "import os\nos.close(0), os.close(1), os.close(2)\nos.setpgid(0, 0)",
    "x = []\nwhile True: x.append(bytearray(10 << 20))",
]


def test_a_hundred_hostile_programs_leave_no_process_no_folder_and_no_descriptor(
    server: ForkServer, tmp_path: Path
) -> None:
    result("pass", SUMS)
    num_fds = len(os.listdir("/proc/self/fd"))
    for truth in (SUMS, ADD, ASSERTS, SUMS, ADD):
        for program in HOSTILE:
            for each in (program, f"def add(a, b):\n{textwrap.indent(program, '    ')}"):
                assert result(each, truth, timeout_s=0.05)["score"] == 0.0
    assert fork_server() is server, "nothing may end the fork server"
    assert psutil.Process(server.pid).children(recursive=True) == []
    assert [list(path.iterdir()) for path in tmp_path.iterdir()] == [[]]
    assert len(os.listdir("/proc/self/fd")) == num_fds
    server.close()
    assert list(tmp_path.iterdir()) == [] and not psutil.pid_exists(server.pid)


def test_when_the_caller_is_killed_nothing_of_it_survives(tmp_path: Path) -> None:
    script = f"""
    import tempfile
    tempfile.tempdir = {str(tmp_path)!r}
    from verl_like_graders.code import compute_score
    program = "import signal\\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\\nopen('mark', 'w')\\nwhile True: pass"
    compute_score("", "```python\\n" + program + "\\n```", {{"inputs": [""], "outputs": [""]}}, {{}}, timeout_s=60, total_timeout_s=60)
    """  # noqa: E501
    caller = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT)
    try:
        assert eventually(lambda: any(tmp_path.glob("*/*/mark")))
        below = psutil.Process(caller.pid).children(recursive=True)
        assert len(below) == 2, "the fork server and the program"
    finally:
        caller.kill()
        caller.wait()
    assert eventually(lambda: all(map(has_ended, below)))
    assert eventually(lambda: list(tmp_path.iterdir()) == [])


def test_when_the_fork_server_is_killed_its_programs_die_and_the_next_call_starts_another(server: ForkServer) -> None:
    running = server.start(
        "program", limits=Limits(memory_mib=512, cpu_s=60, file_bytes=2**20), code="while True: pass"
    )
    [program] = psutil.Process(server.pid).children()
    os.kill(server.pid, signal.SIGKILL)
    assert eventually(lambda: has_ended(program))
    assert running.end().code is None
    assert passes(RIGHT_SUM, SUMS)


def test_a_fork_server_ends_with_its_thread() -> None:
    pids: list[int] = []

    def score() -> None:
        assert passes(RIGHT_ADD, ADD)
        pids.append(fork_server().pid)

    thread = threading.Thread(target=score)
    thread.start()
    thread.join()
    assert len(pids) == 1 and pids[0] != fork_server().pid
    assert eventually(
        lambda: not psutil.pid_exists(pids[0]) or psutil.Process(pids[0]).status() == psutil.STATUS_ZOMBIE
    )


def test_a_fork_of_the_caller_gets_its_own_fork_server() -> None:
    assert passes(RIGHT_SUM, SUMS)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if passes(RIGHT_SUM, SUMS) and not passes("print(3)", SUMS) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert passes(RIGHT_SUM, SUMS)


def test_a_process_that_cannot_be_confined_runs_nothing(server: ForkServer) -> None:
    with pytest.raises(
        ValueError, match=r"the sandbox for programs cannot be used here: .*It needs Linux .* with seccomp"
    ):
        server.start("program", limits=Limits(memory_mib=512, cpu_s=5, file_bytes=2**80), code="print(1)")
    assert passes(RIGHT_SUM, SUMS)
