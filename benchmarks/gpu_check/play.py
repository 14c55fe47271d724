"""Run one check in separate processes: start them, wait for them, and end them and their children."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checks import Check
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import FAILED, HELD, SHORT, SKIPPED, Outcome
from verl_like.backends.rollout import rollout_environment

ROOT = Path(__file__).parents[2]
GRACE_S = 15.0  # for a run of `verl-like train` to end its Ray
POLL_EVERY_S = 0.05
SHOWN_LINES = 40
IS_WORKER = "GPU_CHECK_IS_WORKER"  # in the environment of a process that joins the group of its ranks


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of a check, with its log and the file of its outcome."""

    process: subprocess.Popen[bytes]
    log: Path
    outcome: Path

    @property
    def error(self) -> str:
        """Why the process failed: its own report, else its last line of output, else its exit status."""
        reported = json.loads(self.outcome.read_text())["error"] if self.outcome.exists() else ""
        return reported or next(iter(self.last_lines[-1:]), "") or f"ended with status {self.process.returncode}"

    @property
    def last_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]


def play(check: Check, scene: Scene, *, limit_s: float, stop: threading.Event | None = None) -> Outcome:
    """Run a check until it ends, ``limit_s`` seconds have passed, or ``stop`` is set.

    If it fails, the end of its output is printed on stderr.
    """
    if why := check.why_not(scene):
        return Outcome(name=check.name, verdict=SKIPPED, seconds=0.0, why=why)
    started = time.monotonic()
    scene.of(check.name).mkdir()
    port = _free_port()
    with ExitStack() as ended:
        ranks = [ended.enter_context(_started(check, scene, rank, port)) for rank in range(check.num_ranks)]
        problem = _wait(ranks, limit_s, stop or threading.Event())
    seconds = time.monotonic() - started
    if problem:
        for rank in ranks:
            print(*rank.last_lines, sep="\n", file=sys.stderr, flush=True)
        return Outcome(name=check.name, verdict=FAILED, seconds=seconds, why=problem)
    return _outcome(check, json.loads(ranks[0].outcome.read_text()), seconds)


def _outcome(check: Check, report: Mapping[str, Any], seconds: float) -> Outcome:
    """Return the outcome for the first rank's report."""
    problems = "; ".join(report["problems"])
    return Outcome(
        name=check.name,
        verdict=SKIPPED if report["skipped"] else SHORT if problems else HELD,
        seconds=seconds,
        why=report["skipped"] or problems,
        figures=report["figures"],
        notes=report["notes"],
    )


@contextmanager
def _started(check: Check, scene: Scene, rank: int, port: int) -> Iterator[Rank]:
    log = scene.of(check.name) / f"rank{rank}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_check.child", check.folder, check.name, str(rank), scene.to_json()],
            cwd=ROOT,
            env=os.environ | _environment(check, scene, rank, port),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Rank(process, log, outcome_of(scene.of(check.name), rank))
    finally:
        end(process)


def outcome_of(folder: Path, rank: int) -> Path:
    """Return the file to which a rank writes its report."""
    return folder / f"rank{rank}.json"


def _wait(ranks: Sequence[Rank], limit_s: float, stop: threading.Event) -> str:
    """Wait until all ranks have ended, one has failed, time is up, or ``stop`` is set; return the problem, or ""."""
    deadline = time.monotonic() + limit_s
    while True:
        codes = [rank.process.poll() for rank in ranks]
        for rank, code in zip(ranks, codes, strict=True):
            if code:
                return rank.error
        if None not in codes:
            return ""
        if time.monotonic() > deadline:
            return f"timed out after {limit_s:.0f} s and was ended"
        if stop.wait(POLL_EVERY_S):
            return "was stopped"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: with SIGTERM first, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACE_S
        while (process.poll() is None or _runs(process.pid)) and time.monotonic() < deadline:
            time.sleep(POLL_EVERY_S)


def _runs(group: int) -> bool:
    """Return whether a process of this group still runs; zombies do not count."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _environment(check: Check, scene: Scene, rank: int, port: int) -> dict[str, str]:
    """Return the environment variables that must be set before the process imports anything."""
    shared = {
        "TMPDIR": str(scene.folder),
        "RAY_TMPDIR": os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(),  # Ray's socket paths must be short
        "TORCHINDUCTOR_CACHE_DIR": str(scene.folder / "compiled"),  # empty, so that compilation is measured
    }
    if not check.is_worker:
        return shared
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(scene.num_gpus)))
    return {
        **shared,
        IS_WORKER: "1",
        **rollout_environment("vllm" if "vllm" in check.packages else "hf", device=scene.device),
        "CUDA_VISIBLE_DEVICES": visible.split(",")[rank].strip() if scene.device == "cuda" else "",
        "RANK": str(rank),
        "WORLD_SIZE": str(check.num_ranks),
        "LOCAL_RANK": "0",  # each process sees only its own GPU
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
