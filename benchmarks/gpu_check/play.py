"""One check in a process of its own: started, waited for, and ended with all that it has started."""

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
LOOK_EVERY_S = 0.05
SHOWN_LINES = 40
IS_WORKER = "GPU_CHECK_IS_WORKER"  # in the environment of a process that joins the group of its ranks


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of a check, and what it says."""

    process: subprocess.Popen[bytes]
    log: Path
    outcome: Path

    @property
    def error(self) -> str:
        """Why it has failed, where it could still say so."""
        said = json.loads(self.outcome.read_text())["error"] if self.outcome.exists() else ""
        return said or next(iter(self.last_lines[-1:]), "") or f"ended with status {self.process.returncode}"

    @property
    def last_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()[-SHOWN_LINES:]


def play(check: Check, scene: Scene, *, limit_s: float, stop: threading.Event | None = None) -> Outcome:
    """Run a check to its end, for ``limit_s`` seconds, or until ``stop`` is set.

    Where it fails, what it said last goes to stderr.
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


def _outcome(check: Check, told: Mapping[str, Any], seconds: float) -> Outcome:
    """The verdict on what the first rank has found."""
    problems = "; ".join(told["problems"])
    return Outcome(
        name=check.name,
        verdict=SKIPPED if told["skipped"] else SHORT if problems else HELD,
        seconds=seconds,
        why=told["skipped"] or problems,
        figures=told["figures"],
        notes=told["notes"],
    )


@contextmanager
def _started(check: Check, scene: Scene, rank: int, port: int) -> Iterator[Rank]:
    log = scene.of(check.name) / f"rank{rank}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_check.child", check.folder, check.name, str(rank), scene.in_words()],
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
    """The file in which a rank says what it has found."""
    return folder / f"rank{rank}.json"


def _wait(ranks: Sequence[Rank], limit_s: float, stop: threading.Event) -> str:
    """Until all have ended, one has failed, the time is up or nobody wants to know; returns what went wrong."""
    deadline = time.monotonic() + limit_s
    while True:
        codes = [rank.process.poll() for rank in ranks]
        for rank, code in zip(ranks, codes, strict=True):
            if code:
                return rank.error
        if None not in codes:
            return ""
        if time.monotonic() > deadline:
            return f"was not over after {limit_s:.0f} s and was ended"
        if stop.wait(LOOK_EVERY_S):
            return "was stopped"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group: asked first, killed where that is of no use."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + GRACE_S
        while (process.poll() is None or _runs(process.pid)) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)


def _runs(group: int) -> bool:
    """Whether a process of this group still runs; one that is dead, and that nobody has asked for, does not."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _environment(check: Check, scene: Scene, rank: int, port: int) -> dict[str, str]:
    """What the process must have before it imports anything."""
    shared = {
        "TMPDIR": str(scene.folder),
        "RAY_TMPDIR": os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(),  # paths of its sockets must be short
        "TORCHINDUCTOR_CACHE_DIR": str(scene.folder / "compiled"),  # nothing compiled before is found
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
        "LOCAL_RANK": "0",  # each sees its own GPU alone
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
