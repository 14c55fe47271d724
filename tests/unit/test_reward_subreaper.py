"""What a reward function starts and prints: nothing of it outlives its process, fills a disk or holds others up."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.unit._reward import sample, scorer_process, statuses, task
from tests.unit.test_reward_scorer_process import child_pids, eventually, is_running
from verl_like.reward import output
from verl_like.reward.output import MAX_PRINTED
from verl_like.reward.team import ScorerTeam
from verl_like_environments.subreaper import children_in, own_children

pytestmark = [pytest.mark.alone, pytest.mark.processes]
ROOT = Path(__file__).parents[2]
SCORER = '''
import os, signal, subprocess, sys, time

def daemon(pid_file, *, ignores=False):
    """Start a process that belongs to nobody: in a session of its own, its parents gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if ignores:
                for number in range(1, 32):
                    if number not in (9, 19, 17):
                        signal.signal(number, signal.SIG_IGN)
            with open(pid_file + "~", "w") as file:
                file.write(str(os.getpid()))
            os.rename(pid_file + "~", pid_file)
            time.sleep(1000)
        os._exit(0)
    os.wait()
    while not os.path.exists(pid_file):
        time.sleep(0.01)

def score(solution_str, extra_info):
    what, _, rest = solution_str.partition(" ")
    if what == "daemon":
        daemon(extra_info["pid_file"], ignores=rest.startswith("deaf"))
        what = rest.split()[-1]
    if what == "exit":
        print("the last line before the end", flush=True)
        os._exit(3)
    if what == "abort":
        os.write(2, b"native library: assertion failed\\n")
        os.abort()
    if what == "signal":
        os.kill(os.getpid(), int(rest))
    if what == "sleep":
        time.sleep(1000)
    if what == "pids":
        return {"score": 1.0, "pid": os.getpid(), "subreaper": os.getppid()}
    if what == "print":
        for _ in range(int(rest)):
            print("x" * 1023)
    if what == "flood":
        subprocess.Popen(["yes"])
    if what == "tell":
        sys.stderr.write("told\\n")
    return 1.0
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("reward") / "scorer.py"
    path.write_text(SCORER)
    return str(path)


@pytest.fixture
def scorer(file: str) -> Iterator[ScorerTeam]:
    with scorer_process(task(f"{file}:score", timeout_s=2.0)) as scorer:
        yield scorer


@pytest.mark.parametrize("ending", ["exit", "sleep", "1", "deaf exit"])
def test_a_daemon_in_its_own_session_ends_with_the_scorer_process(file: str, tmp_path: Path, ending: str) -> None:
    pid_file = tmp_path / "pid"
    with scorer_process(task(f"{file}:score", timeout_s=1.0)) as scorer:
        outcomes = scorer.score([sample(f"daemon {ending}", pid_file=str(pid_file)), sample("1")])
        pid = int(pid_file.read_text())
        assert outcomes[1].status == "ok"
        if ending == "1":
            assert is_running(pid), "until the process ends, what it has started is the function's own business"
    assert not is_running(pid), "it is gone when the team is closed, not some time later"


def test_a_daemon_dies_with_a_host_that_is_killed(file: str, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"""
import psutil, time
from tests.unit._reward import sample, scorer_process, task
with scorer_process(task({file + ":score"!r}, timeout_s=1000)) as scorer:
    scorer.score([sample("daemon 1", pid_file={str(pid_file)!r})])
    print(*[each.pid for each in psutil.Process().children(recursive=True)], flush=True)
    time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as host:
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        host.kill()
    assert int(pid_file.read_text()) in pids and len(pids) >= 4, "subreapers, scorers and the daemon"
    assert eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_subreaper_that_is_killed_or_stopped_takes_no_sample_along_and_leaves_nothing(scorer: ScorerTeam) -> None:
    # A stopped process does not report that the scorer process has exited; its deadline ends it.
    for number, status in ((signal.SIGKILL, "crash"), (signal.SIGSTOP, "timeout"), (signal.SIGTERM, "crash")):
        [outcome] = scorer.score([sample("pids")])
        pid, subreaper = int(outcome.details["pid"]), int(outcome.details["subreaper"])
        os.kill(subreaper, number)
        assert statuses(scorer.score([sample("1"), sample("exit"), sample("2")])) == ["ok", status, "ok"]
        assert not is_running(pid) and not is_running(subreaper)


def test_a_scorer_that_is_stopped_is_a_timeout_and_is_gone(scorer: ScorerTeam) -> None:
    [outcome] = scorer.score([sample("pids")])
    os.kill(int(outcome.details["pid"]), signal.SIGSTOP)
    assert statuses(scorer.score([sample("1"), sample("2")])) == ["timeout", "ok"]
    assert not is_running(int(outcome.details["pid"]))


def test_children_are_found_with_and_without_the_kernels_list() -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        assert child.pid in own_children() and sorted(children_in(Path("/proc"))) == sorted(own_children())
        child.kill()


def test_the_last_output_of_a_process_is_reported_with_its_end(scorer: ScorerTeam) -> None:
    exited, aborted, real_time = scorer.score([sample("exit"), sample("abort"), sample("signal 40")])
    assert exited.message == "the scorer process exited with code 3. It printed last:\nthe last line before the end"
    assert "SIGABRT" in aborted.message and aborted.message.endswith("native library: assertion failed")
    assert real_time.message == "the scorer process was killed by signal 40"


def test_prints_come_through_up_to_a_limit_and_the_rest_is_counted(
    file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kib = 20 * 1024
    with scorer_process(task(f"{file}:score")) as scorer:
        assert statuses(scorer.score([sample("tell"), sample(f"print {kib}"), sample("1")])) == ["ok"] * 3
    printed = capfd.readouterr().err
    assert printed.startswith("told\nxxxx") and len(printed) < MAX_PRINTED + 500
    assert printed.count("the rest is dropped") == 1
    total = kib * 1024 + len("told\n")
    assert f"printed {total} bytes, {total - MAX_PRINTED} dropped]" in printed


def test_all_processes_of_a_team_share_a_limit(
    file: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_PRINTED_IN_ALL", 100_000)
    with caplog.at_level(logging.WARNING), scorer_process(task(f"{file}:score")) as scorer:
        for _ in range(6):
            scorer.score([sample("print 200"), sample("exit")])
    assert len(capfd.readouterr().err) < 3 * 100_000 + 1000, (
        "of six processes three may have started before it was used up"
    )
    assert [record.getMessage()[:31] for record in caplog.records] == ["the scorer processes have print"]


def test_a_flood_blocks_no_process_even_if_no_process_reads_the_log(file: str) -> None:
    """Use a full pipe as the log: a subreaper that waited for it would block its scorer."""
    program = f"""
import time
from tests.unit._reward import sample, scorer_process, statuses, task
with scorer_process(task({file + ":score"!r}, timeout_s=5)) as scorer:
    scorer.score([sample("flood")])
    started = time.monotonic()
    found = scorer.score([sample("print 4000"), *[sample("1")] * 50])
    print([o.status for o in found].count("ok"), time.monotonic() - started, flush=True)
    started = time.monotonic()
print(time.monotonic() - started)
"""
    read, write = os.pipe()
    host = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=write, text=True, cwd=ROOT)
    out, _ = host.communicate(timeout=60)
    os.close(read)
    os.close(write)
    num_ok, seconds, closing = out.split()
    assert int(num_ok) == 51 and float(seconds) < 5 and float(closing) < 5


def test_a_spare_that_cannot_start_says_why(tmp_path: Path) -> None:
    source = tmp_path / "scorer.py"
    source.write_text(SCORER)
    with scorer_process(task(f"{source}:score")) as scorer:
        assert eventually(lambda: all(spare.was_ready() for spare in scorer._spares._warm))
        source.write_text("import os\nos.write(2, b'x' * 100_000 + b'no licence for the solver')\nos._exit(7)\n")
        with pytest.raises(RuntimeError) as stopped:
            scorer.score([sample("exit"), sample("exit"), sample("1")])
    reported = str(stopped.value)
    assert reported.startswith(
        "a scorer process was lost and could not be replaced: a scorer process exited with code 7"
    )
    assert reported.endswith("no licence for the solver") and len(reported) < 2000


def test_an_interpreter_that_does_not_start_says_why(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is a subreaper, what the process says is read by its parent."""
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 5\n")
    broken.chmod(0o755)
    descriptors = psutil.Process().num_fds()
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(RuntimeError, match=r"lost its subreaper \(code 5\) .*It printed last:\nno such library"):
        with scorer_process(task(f"{file}:score")):
            pass
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(RuntimeError, match=r"a scorer process cannot be started: .*No such file"):
        with scorer_process(task(f"{file}:score")):
            pass
    assert psutil.Process().num_fds() == descriptors


def test_a_process_killed_while_it_loads_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text("import time\ntime.sleep(1)\ndef score(solution_str):\n    return 1.0\n")
    with scorer_process(task(f"{tmp_path}/scorer.py:score")) as scorer:
        for pid in child_pids():
            os.kill(pid, signal.SIGKILL)
        assert statuses(scorer.score([sample("1")])) == ["ok"]


def test_processes_that_are_killed_together_are_no_samples_fault(scorer: ScorerTeam) -> None:
    """Kill five times, with the spare ready: for a moment after the signal each process still looks alive."""
    for _ in range(5):
        assert eventually(lambda: len(child_pids()) == 4)  # subreaper and scorer, twice
        scorer.score([sample("1")])
        for pid in child_pids():
            os.kill(pid, signal.SIGKILL)
        assert statuses(scorer.score([sample("1")])) == ["ok"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A file that standard error goes into, which may be read while it is written."""
    before = os.dup(2)
    with open(tmp_path / "log", "ab") as file:
        os.dup2(file.fileno(), 2)
        yield tmp_path / "log"
        os.dup2(before, 2)
    os.close(before)


def test_usr1_to_any_of_the_processes_ends_none_and_shows_the_scorers_stacks(log: Path, scorer: ScorerTeam) -> None:
    scorer.score([sample("print 2000")])  # past its limit: what is asked for comes all the same
    [outcome] = scorer.score([sample("pids")])
    for name in ("subreaper", "pid"):
        os.kill(int(outcome.details[name]), signal.SIGUSR1)
    assert eventually(lambda: f"stacks of process {outcome.details['pid']:.0f} at" in log.read_text())
    assert scorer.score([sample("pids")])[0].details == outcome.details


def test_closing_is_quick_with_many_processes(file: str) -> None:
    with ScorerTeam(task(f"{file}:score"), 4) as team:
        team.score([sample("1")] * 8)
        started = time.monotonic()
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("ending", [signal.SIGKILL, None])
def test_what_asks_for_time_to_clean_up_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals | None
) -> None:
    """Check that the program grader's server removes its folder when its scorer process has ended."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ground_truth = {"inputs": ["1\n"], "outputs": ["1\n"]}
    with scorer_process(task("code")) as scorer:
        [outcome] = scorer.score([sample("```python\nprint(input())\n```", ground_truth)])
        assert outcome.score == 1.0 and list(tmp_path.iterdir())
        if ending is not None:
            processes = [each for each in psutil.process_iter(["cmdline"]) if is_scorer_with_server(each)]
            assert len(processes) == 2, "the scorer process and its spare"
            for process in processes:
                process.send_signal(ending)
            assert eventually(lambda: not any(process.is_running() for process in processes))
    assert not list(tmp_path.iterdir())


def is_scorer_with_server(process: psutil.Process) -> bool:
    ours = process.pid in child_pids()
    return ours and any("fork_server" in " ".join(each.cmdline()) for each in process.children())
