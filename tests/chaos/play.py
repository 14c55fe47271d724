"""Run one case: inject the fault and compare everything that follows with the expected outcome."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos import episodes
from tests.chaos.cases import ABORTED, ABSORBED, EARLY, ENDED, GONE, RESTARTED, SHARED_MEMORY, Case
from tests.chaos.scene import Run, send, started
from tests.e2e._uninterrupted import differences

REFERENCE_S = 200.0
END_S = 150.0  # from the fault to the end of a run that continues
VERDICT_S = 100.0
STOPPED_S = 12.0  # how long a driver is stopped before SIGCONT
EARLY_S = 0.1  # from the start of a process to its fault
SHM_MIB = 400  # more than the run itself needs
SLEEP_S = 3.0  # shorter than the shortest deadline
# Words in the command line of a process that gets a signal from outside.
COMMANDS = {
    "scorer host": "ScorerHost",
    "raylet": "raylet/raylet",
    "GCS": "gcs_server",
    "Ray's agent": "ray::RuntimeEnvAgent",
    "watchdog": "verl_like.watchdog",
    "worker": "workers/default_worker.py",
}
FAULTY_REWARD = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def digits(data_source, solution_str, ground_truth, extra_info):
    mark = HERE / "done"
    if Path({run!r}, "checkpoints/step_1").exists() and not mark.exists():
        mark.touch()
        {fault}
    return solution_str.count("7") / max(len(solution_str), 1)
"""
IN_REWARD = {
    "raise": "raise RuntimeError('a fault that was injected')",
    "hang": "time.sleep(1000)",
    "die": "os.kill(os.getpid(), 9)",
    "allocate": "held = [bytearray(2**28) for _ in range(1000)]",
}


@dataclass
class Outcome:
    """The outcome of a case.

    Args:
        problems: violated expectations; empty if the case passed.
        verdict_s: seconds from the fault to its report in the output; None if no report is expected.
    """

    case: Case
    problems: list[str] = field(default_factory=list)
    verdict_s: float | None = None
    num_left: int = 0
    num_leaked: int = 0
    is_equal: bool | None = None
    seconds: float = 0.0


def play(case: Case, *, data: Path, out: Path, reference: Path | None) -> Outcome:
    """Run the case in the folder ``out``.

    Args:
        data: folder that :func:`tests.chaos.scene.make_data` wrote.
        reference: folder of an undisturbed run of the same configuration; None if numbers are not compared.
    """
    outcome, began = Outcome(case), time.monotonic()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        _play(case, outcome, data, out, reference)
    except Exception as error:  # noqa: BLE001 (one case that cannot be judged must not end the others)
        outcome.problems.append(f"{type(error).__name__}: {error}")
    outcome.seconds = time.monotonic() - began
    return outcome


def undisturbed(folder: Path, data: Path, case: Case) -> Path:
    """Run what the case is compared with, unless an earlier call has; return the run's folder."""
    run_folder = folder / "run"
    if (run_folder / "model").exists():
        return run_folder
    folder.mkdir(exist_ok=True)
    changes = episode_options(folder, data, has_agent=case.has_agent) if case.has_episodes else {}
    with started(data, folder, "run", changes) as run:
        assert run.ended(REFERENCE_S) == 0, f"the undisturbed run failed:\n{run.output[-3000:]}"
    return run_folder


def _play(case: Case, outcome: Outcome, data: Path, out: Path, reference: Path | None) -> None:
    changes = {"cluster.start_timeout_s": "40" if case.stage == "build" else "120", **case.changes}
    fault = ""
    if case.process == "reward":
        (out / "reward.py").write_text(FAULTY_REWARD.format(run=str(out / "run"), fault=IN_REWARD[case.fault]))
        changes["reward.function"] = f"{out}/reward.py:digits"
        changes["reward.timeout_s"] = "2"
    elif case.has_episodes:
        changes = {**episode_options(out, data, case, has_agent=case.has_agent), **changes}
    elif case.stage and case.process != "disk" and case.stage not in EARLY:
        fault = f"{case.process.replace(' ', '_')} {case.stage} {case.visit} {case.fault}"
    elif case.stage not in EARLY:  # from outside, while the driver waits for it at the beginning of step 3
        # Blocks of later steps reuse the memory of earlier ones, and take no more of a full /dev/shm.
        fault = f"the_driver prompts {1 if case.stage == SHARED_MEMORY else 3} wait"
    shm_mib = SHM_MIB if case.stage == SHARED_MEMORY else 0
    with started(data, out, "run", changes, fault=fault, sleep_s=SLEEP_S, shm_mib=shm_mib) as run:
        at = _do(case, run, out)
        if case.expected == GONE:
            run.ended(END_S)
        else:
            _verdict(case, run, outcome, at)
            status = run.ended(END_S)
            _check_end(case, run, outcome, status)
        _check_left(run, outcome)
    if case.process == "disk" and case.expected == GONE:
        _damage(case.fault, run.folder / "checkpoints")
    _check_equal(case, run, outcome, data, out, reference)


def _do(case: Case, run: Run, out: Path) -> float:
    """Wait until the fault is injected, or inject it; return the time at which it was."""
    mark = out / "done"
    if case.stage in EARLY:
        first = "GCS" if case.process in ("group", "driver") else case.process
        run.wait_until("the first process", lambda: bool(_found(first, run)))
        time.sleep(EARLY_S)
    else:
        run.wait_until("the fault", mark.exists)
    is_inside = bool(case.stage) and case.stage not in EARLY and case.process != "disk"
    if case.has_episodes:
        is_inside = case.process in episodes.INSIDE
    if is_inside or case.process == "reward":
        return time.monotonic() - (time.time() - mark.stat().st_mtime)
    if case.process == "disk":
        _fill_shared_memory(run) if case.stage == SHARED_MEMORY else _hurt_disk(case.fault, run)
    elif case.process == "group":
        os.killpg(run.process.pid, signal.Signals[case.fault])
    elif case.process == "driver":
        run.process.send_signal(signal.Signals[case.fault])
        if case.fault == "SIGSTOP":
            time.sleep(STOPPED_S)
            run.process.send_signal(signal.SIGCONT)
    else:
        found = _found(case.process, run)
        assert found, f"no process of the run is a {case.process}"
        which = found[-1:] if case.process == "spare" else found[:1]
        send(which, signal.Signals[case.fault])
    threading.Timer(case.hold_s, (out / "go").touch).start()
    return time.monotonic()


def episode_options(out: Path, data: Path, case: Case | None = None, *, has_agent: bool) -> dict[str, str]:
    """Return the options of a run with episodes, in the folder ``out``; without a case, nothing happens in it."""
    return episodes.options(
        out,
        data,
        process=case.process if case is not None else "",
        fault=case.fault if case is not None else "",
        has_agent=has_agent,
        always=case is not None and case.repeats,
    )


def _found(process: str, run: Run) -> list[int]:
    if process.startswith("worker rank"):
        return [reading.pid for name, reading in run.readings().items() if name == process]
    if process in ("scorer", "spare"):
        return run.scorers()
    found = sorted(run.pids_of(COMMANDS[process]))
    return [pid for pid in found if process != "worker" or not _is_raylet(run.members[pid])]


def _is_raylet(process: psutil.Process) -> bool:
    """Return whether a process is the raylet, whose command line also names the program of workers."""
    try:
        return process.name() == "raylet"
    except psutil.NoSuchProcess:
        return False


def _fill_shared_memory(run: Run) -> None:
    os.system(f"nsenter -t {run.process.pid} -m sh -c 'cat /dev/zero > /dev/shm/full' 2>/dev/null")


def _hurt_disk(fault: str, run: Run) -> None:
    folder = run.folder / "checkpoints"
    if fault == "read-only":
        os.system(f"mount -t tmpfs -o ro none {folder}")
    elif fault == "full":
        os.system(f"mount -t tmpfs -o size=64k none {folder}")
    else:  # the newer of two checkpoints is damaged; the second one may not be written yet
        run.wait_until("the second checkpoint", (folder / "step_2").exists)
        run.process.kill()


def _damage(fault: str, checkpoints: Path) -> None:
    newest = max(checkpoints.glob("step_*"), key=lambda path: int(path.name.removeprefix("step_")))
    files = sorted((newest / "actor").glob("*.distcp"))
    content = files[0].read_bytes()
    if fault == "truncated":
        files[0].write_bytes(content[: len(content) // 2])
    elif fault == "flipped":
        middle = len(content) // 2
        files[0].write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        files[0].unlink()


def _verdict(case: Case, run: Run, outcome: Outcome, at: float) -> None:
    """Wait until all expected phrases are in the output."""
    if not case.names:
        return
    deadline = at + VERDICT_S
    while not all(name in run.output for name in case.names):
        run.record_processes()
        missing = [name for name in case.names if name not in run.output]
        is_over = time.monotonic() > deadline or run.process.poll() is not None
        if is_over and not all(name in run.output for name in case.names):
            outcome.problems.append(f"not in the output: {missing}: ...{run.output[-1500:]}")
            return
        time.sleep(0.1)
    outcome.verdict_s = time.monotonic() - at


def _check_end(case: Case, run: Run, outcome: Outcome, status: int | None) -> None:
    is_zero = case.expected in (ABSORBED, RESTARTED, ENDED)
    if status is None or (status == 0) != is_zero:
        outcome.problems.append(
            f"exit status {status}, expected a run that is {case.expected}: ...{run.output[-1500:]}"
        )
    has_restarted = "restart 1 of at most 1" in run.output
    if has_restarted != (case.expected == RESTARTED):
        outcome.problems.append(f"{'restarted' if has_restarted else 'not restarted'}, expected {case.expected}")
    if "Traceback" in run.output and case.fault not in ("raise", "allocate"):
        outcome.problems.append("a traceback was printed")


def _check_left(run: Run, outcome: Outcome) -> None:
    left, leaked = run.survivors(), run.leaked()
    outcome.num_left, outcome.num_leaked = len(left), len(leaked)
    if left:
        outcome.problems.append(f"processes left: {left}")
    if leaked:
        outcome.problems.append(f"shared memory left: {sorted(leaked)}")


def _check_equal(case: Case, run: Run, outcome: Outcome, data: Path, out: Path, reference: Path | None) -> None:
    """Continue the run if it is not finished, and compare it with an undisturbed one."""
    os.system(f"mountpoint -q {run.folder}/checkpoints && umount {run.folder}/checkpoints")
    if case.expected in (ABORTED, ENDED, GONE):
        (out / "healthy").touch()
        changes = episode_options(out, data, case, has_agent=case.has_agent) if case.has_episodes else {}
        with started(data, out, "run", changes) as again:
            status = again.ended(END_S)
            if status != 0:
                outcome.problems.append(f"continued with exit status {status}: ...{again.output[-1500:]}")
                return
            if case.expected == GONE and not all(name in again.output for name in case.names):
                outcome.problems.append(f"not in the output of the continued run: {case.names}")
            _check_left(again, outcome)
    if case.is_equal and reference is not None:
        different = differences(run.folder, reference)
        outcome.is_equal = not different
        outcome.problems += different
