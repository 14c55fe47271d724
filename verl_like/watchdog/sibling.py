"""The watchdog process: check, decide, write down, report, and end a driver that does not react.

It reports in lines of JSON on its standard output. It detects the end of the driver on its standard input: ``bye``
before the end of file is a clean end; without it, the driver was killed or has crashed.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from verl_like.machine.oom import OomKills
from verl_like.machine.shared_memory import SharedMemory
from verl_like.telemetry.heartbeat import SUFFIX, read
from verl_like.watchdog.deadlines import Deadlines
from verl_like.watchdog.processes import children, cores_used, process_state
from verl_like.watchdog.raylets import Raylets
from verl_like.watchdog.stack_dumps import ThreadStack, dump, text
from verl_like.watchdog.starting import marked_by
from verl_like.watchdog.verdict import Verdict, excerpt, sentence, verdict_on
from verl_like.watchdog.watch import STARTING, Watch, Watched

EVERY_S = 1.0
NUM_QUICK_CHECKS = 20  # checks for processes that Ray has just started, between two rounds
ALIVE_EVERY_S = 5.0
GRACE_S = 6.0  # for the culprit to pass its deadline too, if all processes past theirs only wait for it
BUSY_S = 0.5  # period over which CPU use is measured
KILL_AFTER_S = 45.0  # before a driver that was asked to end is killed: longer than its own teardown takes
ORPHANS_S = 3.0  # before the remaining processes of a vanished driver are ended
REPLACED_S = 4.0  # for Ray to replace a process that it has ended
BYE = b"bye"
SERVERS = ("raylet", "gcs_server")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Settings that the process gets on its command line.

    Args:
        folder: heartbeat folder.
        driver: process id of the driver.
        stalls: folder below which verdicts and stacks are written.
        floor_s: as in :class:`Deadlines`.
        ends: whether to kill a driver that does not end after a verdict.
    """

    folder: str
    driver: int
    stalls: str
    floor_s: float
    ends: bool

    def json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return cls(**json.loads(text))


class Sibling:
    """The watchdog's main loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._deadlines = Deadlines(settings.floor_s)
        self._watch = Watch(Path(settings.folder), driver=settings.driver, deadlines=self._deadlines)
        # Processes in verdicts so far -> their move count then, and whether they were named or only waited.
        self._reported: dict[int, tuple[int, bool]] = {}
        self._suspected_at: float | None = None
        self._reported_alive_at = 0.0
        self._kill_at: float | None = None
        self._oom_kills, self._shared_memory = OomKills(), SharedMemory()
        self._raylets = Raylets()
        self._unreplaced: dict[str, float] = {}  # processes that died before their first heartbeat -> time of that
        self._server_processes: dict[
            int, float
        ] = {}  # Ray's servers started by the driver, and descendants: id -> start

    def run(self) -> None:
        """Check once a second until the driver ends."""
        os.set_blocking(sys.stdout.fileno(), False)  # a driver that does not read must not block its watchdog
        while not self._has_ended_meanwhile():
            self._round()
        if not os.read(sys.stdin.fileno(), 64).startswith(BYE):
            self._report_driver_end()
            self._end_orphans()
        shutil.rmtree(self._settings.folder, ignore_errors=True)

    def _has_ended_meanwhile(self) -> bool:
        """Wait for the next round; return whether the driver has ended, or wants this process to end."""
        for _ in range(NUM_QUICK_CHECKS):
            if select.select([sys.stdin], [], [], EVERY_S / NUM_QUICK_CHECKS)[0]:
                return True
            if self._watch.is_starting:
                self._watch.remember_starting()
        return False

    def _round(self) -> None:
        now = time.monotonic()
        limits, dead = self._watch.check()
        if warning := self._shared_memory.check():
            self._send("note", text=warning)
        for watched in dead:
            self._send("dead", who=watched.who, text=self._death_report(watched))
            if watched.stage == STARTING:
                self._unreplaced[watched.who] = now
        self._report_unreplaced(now)
        self._check_raylets(now)
        if now - self._reported_alive_at >= ALIVE_EVERY_S:
            self._reported_alive_at = now
            self._send("alive")
            self._record_server_processes()
        self._forget_moved()
        if any(pid not in self._reported for pid in limits):
            self._suspect(limits, now)
        else:
            self._suspected_at = None
        if self._kill_at is not None and now >= self._kill_at:
            self._end_driver()

    def _report_unreplaced(self, now: float) -> None:
        """Report processes that died before they registered with Ray, which replaces them only after a minute (2.60).

        Ray replaces a process at once if it has ended the process itself because its start took too long.
        """
        alive = {watched.who for watched in self._watch.processes.values()}
        for who, died_at in list(self._unreplaced.items()):
            if who in alive:
                del self._unreplaced[who]
            elif now - died_at >= REPLACED_S:
                del self._unreplaced[who]
                self._send("died_at_start", who=who)

    def _check_raylets(self, now: float) -> None:
        driver = process_state(self._settings.driver)
        if driver is not None and driver.is_stopped:
            self._raylets.forget()
        elif found := self._raylets.trouble(self._watch.processes, now):
            self._send("stall", text=found, calls="", folder=self._written(found, {}), is_certain=True)

    def _forget_moved(self) -> None:
        """Report processes that were named as hung and now continue."""
        for pid, (num_moves, was_named) in list(self._reported.items()):
            watched = self._watch.processes.get(pid)
            if watched is not None and (watched.stopped_since is not None or watched.reading.num_moves == num_moves):
                continue
            del self._reported[pid]
            if watched is not None and was_named:
                self._send("note", text=f"{watched.who} continues, in stage {watched.stage!r}")

    def _suspect(self, limits: dict[int, float], now: float) -> None:
        processes = self._watch.processes
        stacks = {pid: dump(pid) for pid in processes}
        verdict = verdict_on(limits, processes, stacks)
        self._suspected_at = self._suspected_at or now
        is_sure = bool(verdict.silent) and all(watched.pid in limits for watched in verdict.silent)
        if not is_sure and now - self._suspected_at < GRACE_S:
            return
        if not self._reported or any(watched.pid not in self._reported for watched in verdict.silent):
            self._report(verdict, limits, stacks, now)
        # Processes that wait for a reported one are past their deadlines too by now; they are not reported again.
        named = {watched.pid for watched in verdict.silent}
        for pid in named | limits.keys():
            was_named = pid in named or (pid in self._reported and self._reported[pid][1])
            self._reported[pid] = processes[pid].reading.num_moves, was_named

    def _report(
        self, verdict: Verdict, limits: dict[int, float], stacks: dict[int, list[ThreadStack] | str], now: float
    ) -> None:
        cores = {watched.pid: cores_used(watched.pid, BUSY_S) for watched in verdict.silent}
        found = sentence(verdict, limits, cores, now)
        folder = self._written(found, stacks)
        first = verdict.silent[0] if verdict.silent else None
        calls = excerpt(stacks.get(first.pid, "")) if first is not None and first.stopped_since is None else ""
        judged = verdict.silent or [self._watch.processes[pid] for pid in limits]
        acts = all(w.stopped_since is not None or self._deadlines.is_learnt(w.stage) for w in judged)
        self._send("stall", text=found, calls=calls, folder=folder, is_certain=acts)
        if acts and self._settings.ends:
            self._kill_at = now + KILL_AFTER_S
        if any(watched.pid == self._settings.driver for watched in verdict.silent):  # it may not read the report
            sys.stderr.write(f"watchdog: {found}\n")
            sys.stderr.flush()

    def _written(self, found: str, stacks: dict[int, list[ThreadStack] | str]) -> str:
        """Write the verdict and the stacks of all processes; return the folder, or why there is none."""
        folder = Path(self._settings.stalls) / time.strftime("%Y%m%d-%H%M%S")
        who = {pid: watched.who for pid, watched in self._watch.processes.items()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "verdict.txt").write_text(found + "\n")
            with (folder / "stacks.txt").open("w") as out:
                for pid, found_stacks in stacks.items():
                    out.write(text(who[pid], pid, found_stacks) + "\n")
                for below in children(self._settings.driver, recursive=True):
                    state = process_state(below.pid)
                    if state is not None and state.pid not in stacks and state.name.startswith("python"):
                        out.write(text(state.name, state.pid, dump(state.pid)) + "\n")
        except OSError as error:
            return f"nothing could be written: {error}"
        return str(folder)

    def _death_report(self, watched: Watched) -> str:
        """Return what was known of a process that is gone."""
        now = time.monotonic()
        mib = [num_bytes / 2**20 for _, num_bytes in watched.memory]
        memory = f"its memory went from {mib[0]:.0f} to {mib[-1]:.0f} MiB, at most {max(mib):.0f}" if mib else ""
        span = f" in {now - watched.memory[0][0]:.0f} s" if mib else ""
        seconds = now - watched.reading.since
        why = self._oom_kills.clause() + self._shared_memory.clause()
        return f"last seen in stage {watched.stage!r}, {seconds:.0f} s after it began; {memory}{span}{why}"

    def _end_driver(self) -> None:
        """Kill the driver, which was asked to end 45 s ago and has not."""
        self._kill_at = None
        state = process_state(self._settings.driver)
        if state is None or state.is_stopped:  # a user has stopped it, and may resume it
            return
        sys.stderr.write(f"watchdog: the driver (pid {state.pid}) does not end after the verdict; it is killed now.\n")
        sys.stderr.flush()
        os.kill(state.pid, signal.SIGKILL)

    def _report_driver_end(self) -> None:
        """Report that the driver ended without a message: it was killed, it crashed, or Ray's library ended it.

        Ray's library does so when it notices during a call that its raylet is gone.
        """
        # Read the heartbeat, not the process: it may have been seen dead before, or may still be ending.
        reading = read(Path(self._settings.folder) / f"{self._settings.driver}{SUFFIX}")
        where = f", in stage {reading.stage!r}" if reading is not None else ""
        sys.stderr.write(
            f"watchdog: the driver (pid {self._settings.driver}) has ended without a message{where}"
            f"{self._oom_kills.clause()}{self._shared_memory.clause()}; its remaining processes are ended now. "
            "The same command continues from the last checkpoint.\n"
        )
        sys.stderr.flush()

    def _end_orphans(self) -> None:
        """Kill the remaining processes of a driver that is gone.

        These are workers that outlive it, such as stopped ones, and processes of its Ray, such as agents, which notice
        only a minute later that the driver is gone.
        """
        time.sleep(ORPHANS_S)
        known = self._server_processes | {pid: each.created for pid, each in self._watch.processes.items()}
        marked = {pid: None for pid in marked_by(Path(self._settings.folder)) if pid not in known}
        for pid, created in (known | marked).items():
            state = process_state(pid)
            if state is not None and created in (None, state.created):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _record_server_processes(self) -> None:
        """Record the descendants of Ray's servers while they can be found: an orphan no longer has its parent."""
        for server in children(self._settings.driver):
            state = process_state(server.pid)
            if state is not None and state.name in SERVERS:
                states = map(
                    process_state, (server.pid, *(below.pid for below in children(server.pid, recursive=True)))
                )
                self._server_processes |= {state.pid: state.created for state in states if state is not None}

    def _send(self, kind: str, **what: object) -> None:
        with suppress(BlockingIOError, BrokenPipeError):
            os.write(sys.stdout.fileno(), (json.dumps({"kind": kind, **what}) + "\n").encode())
