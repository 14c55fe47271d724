"""The cases of the fault matrix: the fault, its process and stage, and the expected outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.chaos.episodes import EPISODE

# Expected outcomes.
ABSORBED = "absorbed"  # the run continues undisturbed and exits with status 0
RESTARTED = "restarted"  # the run reports process and fault, starts its processes again, and exits with status 0
ABORTED = "aborted"  # the run reports process and fault, and exits with another status than 0
ENDED = "ended cleanly"  # the run saves a checkpoint and exits with status 0
GONE = "gone"  # the driver itself is killed: no process is left, and the same command continues the run

# Stages in which a fault is injected from outside as soon as its process exists, not in the middle of the run.
RAY_STARTS, IMPORTS = "start of Ray", "imports"
EARLY = (RAY_STARTS, IMPORTS)
SHARED_MEMORY = "shared memory"  # used as a stage: a private /dev/shm of the run is full

RESTARTS = {"trainer.max_restarts": "1", "trainer.on_stall": "restart"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run with one fault.

    Args:
        process: the process that gets the fault, as messages name it.
        stage: one of the process's stages, one of :data:`EARLY`, or :data:`EPISODE`, the middle of an episode in a run
            with an environment.
        fault: one of ``injected/sitecustomize.py``, or a signal from outside ("SIGSTOP", "SIGKILL", "SIGTERM").
        visit: the entry into that stage at which the fault is injected, counted from 1.
        expected: the expected outcome.
        names: phrases that must all be in the run's output.
        changes: options of the run that differ.
        is_equal: the run must end with the numbers of an undisturbed one. A run that ended early is continued first.
        hold_s: how long the driver waits after a fault from outside, in the middle of the run.
        has_agent: the episodes are those of an agent program, which talks to the gateway.
        repeats: every episode has the fault, until the run is continued.
        schedule: ``trainer.schedule`` of a run with one trainer and one separate engine; empty for two hybrid workers.
    """

    process: str
    stage: str
    fault: str
    expected: str
    visit: int = 2
    names: tuple[str, ...] = ()
    changes: dict[str, str] = field(default_factory=dict)
    is_equal: bool = True
    hold_s: float = 0.0
    has_agent: bool = False
    repeats: bool = False
    schedule: str = ""

    @property
    def name(self) -> str:
        """The case's unique name."""
        more = ("agent " if self.has_agent else "") + ("repeated " if self.repeats else "")
        more += f"{self.schedule} " if self.schedule else ""
        return "-".join(f"{self.process} {self.stage} {more}{self.fault} {self.expected}".lower().split())

    @property
    def has_episodes(self) -> bool:
        """Whether the run has an environment."""
        return self.stage == EPISODE


WORKER = "worker rank 1"
WORKER_STAGES = (
    "rollout",
    "old_log_probs",
    "ref_log_probs",
    "values",
    "update_critic",
    "update_actor",
    "sync",
    "checkpoint",
    "validation",
)


def _worker(stage: str, fault: str, process: str = WORKER) -> Case:
    names = {
        "raise": (f"stage {stage!r} failed", "a fault that was injected"),
        "allocate": (f"stage {stage!r} failed", "MemoryError"),
        "die": (f"stage {stage!r} failed", f"{process} died", f"last seen in stage {stage!r}", "its memory went from"),
        "exit": (f"{process} died",),
        "hang": (f"{process} (pid", f"hangs in stage {stage!r}", "Stacks"),
        "hold": (f"{process} (pid", f"hangs in stage {stage!r}", "Stacks"),
        "spin": (f"{process} (pid", f"hangs in stage {stage!r}", "Stacks"),
        "SIGSTOP": (f"{process} (pid", "is stopped by a signal (SIGSTOP)"),
    }[fault]
    return Case(process=process, stage=stage, fault=fault, expected=RESTARTED, names=names, changes=RESTARTS)


ENGINE, TRAINER = "engine 0 rank 0", "worker rank 0"
SCHEDULES = ("sync", "one_step_off", "async")
STOPPED = "is stopped by a signal (SIGSTOP)"


def _scheduled(schedule: str, process: str, stage: str, fault: str, expected: str, *names: str) -> Case:
    """Return a case with one trainer and one engine; a lost engine changes the batches of another, and so last bits."""
    changes = {
        "cluster.placement": "{trainer: 1, rollout: 1}",
        "cluster.workers_per_node": "0",
        "trainer.schedule": schedule,
        **(RESTARTS if expected == RESTARTED else {}),
    }
    return Case(
        process=process,
        stage=stage,
        fault=fault,
        expected=expected,
        names=names,
        changes=changes,
        is_equal=False,
        schedule=schedule,
    )


def _of_schedule(schedule: str) -> tuple[Case, ...]:
    """Return the cases of the processes of a schedule: a dead engine is replaced, all else restarts the run."""
    return (
        _scheduled(schedule, ENGINE, "rollout", "die", ABSORBED, f"{ENGINE} died", "engine 0 is replaced"),
        _scheduled(schedule, ENGINE, "sync", "die", ABSORBED, f"{ENGINE} died", "engine 0 is replaced"),
        _scheduled(schedule, ENGINE, "rollout", "SIGSTOP", RESTARTED, f"{ENGINE} (pid", STOPPED),
        _scheduled(schedule, TRAINER, "update_actor", "die", RESTARTED, f"{TRAINER} died"),
        _scheduled(schedule, TRAINER, "update_actor", "SIGSTOP", RESTARTED, f"{TRAINER} (pid", STOPPED),
    )


def _of_pool(pool: str, stage: str) -> tuple[Case, ...]:
    """Return the cases of a model in separate workers: whatever happens to it, the run starts again."""
    changes = {"cluster.placement": f"{{trainer: 1, {pool}: 1}}", "cluster.workers_per_node": "0", **RESTARTS}
    process = f"{pool} rank 0"
    return tuple(
        Case(
            process=process, stage=stage, fault=fault, expected=RESTARTED, names=names, changes=changes, is_equal=False
        )
        for fault, names in {"die": (f"{process} died",), "SIGSTOP": (f"{process} (pid", STOPPED)}.items()
    )


CASES: tuple[Case, ...] = (
    *_of_pool("ref", "ref_log_probs"),
    *_of_pool("critic", "update_critic"),
    *(case for schedule in SCHEDULES for case in _of_schedule(schedule)),
    *(_worker(stage, fault) for stage in WORKER_STAGES for fault in ("raise", "hang", "die", "SIGSTOP")),
    *(_worker(stage, "allocate") for stage in ("rollout", "update_actor", "checkpoint")),
    *(_worker(stage, "hold") for stage in ("rollout", "update_actor")),
    *(_worker(stage, "spin") for stage in ("old_log_probs", "sync")),
    *(_worker("advantages", fault, "advantages rank 0") for fault in ("raise", "hang", "die", "SIGSTOP")),
    *(
        Case(process=WORKER, stage="build", fault=fault, visit=1, expected=RESTARTED, names=names, changes=RESTARTS)
        for fault, names in {
            "raise": ("a fault that was injected",),
            "die": (f"{WORKER} died",),
            "hang": ("stage 'build' took longer than 40 s; still waiting for worker rank",),
        }.items()
    ),
    # If restarts are not allowed, the same faults end the run with the same report.
    Case(process=WORKER, stage="update_actor", fault="die", expected=ABORTED, names=(f"{WORKER} died",)),
    Case(process=WORKER, stage="rollout", fault="hang", expected=ABORTED, names=("hangs in stage 'rollout'",)),
    # At the end, after all files are written and while processes are being ended.
    *(
        Case(process="the driver", stage="teardown", fault=fault, visit=1, expected=expected)
        for fault, expected in {
            "stop_raylet": ABSORBED,
            "kill_raylet": ABSORBED,
            "stop_workers": ABSORBED,
            "die": GONE,
        }.items()
    ),
    # A slow stage within its deadline does not count as hung.
    Case(process=WORKER, stage="update_actor", fault="sleep", expected=ABSORBED),
    # From outside, in the middle of the run.
    Case(
        process="scorer host",
        stage="",
        fault="SIGKILL",
        expected=ABSORBED,
        names=("scorer host 0 died", "last seen in stage", "Another one is started"),
    ),
    *(
        Case(process=process, stage="", fault="SIGKILL", expected=ABSORBED)
        for process in ("scorer", "spare", "watchdog")
    ),
    *(Case(process=process, stage="", fault="SIGSTOP", expected=ABSORBED) for process in ("spare", "watchdog")),
    Case(process="scorer", stage="", fault="SIGSTOP", expected=ABSORBED, is_equal=False),
    Case(
        process="scorer host",
        stage="",
        fault="SIGSTOP",
        expected=RESTARTED,
        names=("scorer host 0 (pid", "is stopped by a signal (SIGSTOP)"),
        changes=RESTARTS,
    ),
    *(
        Case(process=process, stage="", fault=fault, expected=RESTARTED, names=names, changes=RESTARTS)
        for process, fault, names in (
            ("raylet", "SIGSTOP", ("Ray's raylet (process", "has been stopped")),
            ("raylet", "SIGKILL", ("Ray's raylet (process", "was ended by SIGKILL")),
            ("GCS", "SIGKILL", ("Ray's GCS (process", "was ended by SIGKILL")),
        )
    ),
    Case(  # A run seldom needs the GCS and would end before it is missed, so the driver waits; that is not a hang.
        process="GCS",
        stage="",
        fault="SIGSTOP",
        expected=RESTARTED,
        names=("Ray's GCS (process", "has been stopped"),
        changes={**RESTARTS, "trainer.stall_after_s": "60"},
        hold_s=15.0,
    ),
    Case(process="driver", stage="", fault="SIGSTOP", expected=ABSORBED),
    Case(process="driver", stage="", fault="SIGKILL", expected=GONE),
    # The raylet then exits, and Ray's library ends the driver, unless the driver notices first and restarts.
    Case(process="Ray's agent", stage="", fault="SIGKILL", expected=GONE, changes=RESTARTS),
    *(
        Case(process="group", stage="", fault=fault, expected=ENDED, names=("stopping cleanly",))
        for fault in ("SIGTERM", "SIGINT", "SIGHUP")
    ),
    # While Ray starts, and while workers import libraries.
    *(
        Case(process=process, stage=RAY_STARTS, fault=fault, expected=RESTARTED, names=names, changes=RESTARTS)
        for process in ("raylet", "GCS")
        for fault, names in {
            "SIGKILL": (f"Ray's {process} (process", "was ended by SIGKILL while Ray started"),
            "SIGSTOP": (f"Ray's {process} (process", "has been stopped for 10 s while Ray started"),
        }.items()
    ),
    *(
        Case(process="worker", stage=IMPORTS, fault=fault, expected=RESTARTED, names=names, changes=RESTARTS)
        for fault, names in {
            "SIGKILL": ("worker rank", "died", "last seen in stage 'start'"),
            "SIGSTOP": ("worker rank", "is stopped by a signal (SIGSTOP)", "in stage 'start'"),
        }.items()
    ),
    *(
        Case(process="group", stage=RAY_STARTS, fault=fault, expected=ENDED, names=("stopping cleanly",))
        for fault in ("SIGTERM", "SIGINT", "SIGHUP")
    ),
    Case(process="driver", stage=RAY_STARTS, fault="SIGKILL", expected=GONE),
    # kill -USR1 prints stacks and ends no process.
    Case(process="driver", stage=RAY_STARTS, fault="SIGUSR1", expected=ABSORBED),
    Case(process="worker", stage=IMPORTS, fault="SIGUSR1", expected=ABSORBED),
    *(
        Case(process=process, stage="", fault="SIGUSR1", expected=ABSORBED)
        for process in ("driver", "scorer host", "scorer", "watchdog")
    ),
    # Rewards: a failed sample is masked; nothing else changes.
    *(
        Case(process="reward", stage="reward", fault=fault, expected=ABSORBED, is_equal=False)
        for fault in ("raise", "hang", "die", "allocate")
    ),
    # Episodes: one that fails is masked.
    *(
        Case(process="environment", stage=EPISODE, fault=fault, expected=ABSORBED, is_equal=False)
        for fault in ("raise", "hang", "die", "SIGSTOP")
    ),
    *(
        Case(process="agent program", stage=EPISODE, fault=fault, expected=ABSORBED, is_equal=False, has_agent=True)
        for fault in ("raise", "hang", "die", "SIGSTOP")
    ),
    Case(
        process="nursery",
        stage=EPISODE,
        fault="SIGKILL",
        expected=ABSORBED,
        is_equal=False,
        names=("environments are started again (restart 1 of at most 3)", "episodes in progress fail"),
        changes={"trainer.stall_after_s": "60"},
    ),
    Case(
        process="nursery",
        stage=EPISODE,
        fault="SIGKILL",
        expected=ABORTED,
        repeats=True,
        changes={"trainer.stall_after_s": "60"},
        names=("the process that has loaded", "ended with code -9", "started again 3 times"),
    ),
    *(
        Case(
            process=WORKER,
            stage=EPISODE,
            fault="SIGKILL",
            expected=RESTARTED,
            has_agent=has_agent,
            names=(f"failed: {WORKER} died",),  # in the rollout, or in the validation of step 1
            changes=RESTARTS,
        )
        for has_agent in (False, True)
    ),
    *(
        Case(process="driver", stage=EPISODE, fault="SIGKILL", expected=GONE, has_agent=has_agent)
        for has_agent in (False, True)
    ),
    *(
        Case(
            process="group", stage=EPISODE, fault="SIGINT", expected=ENDED, names=("stopping cleanly",), has_agent=agent
        )
        for agent in (False, True)
    ),
    Case(process="disk", stage=EPISODE, fault="full", expected=ABORTED, names=("trainer.output_dir",)),
    # The disk.
    *(
        Case(process="disk", stage="checkpoint", fault=fault, expected=GONE, names=("passed over step_",))
        for fault in ("truncated", "flipped", "missing")
    ),
    Case(process="disk", stage="checkpoint", fault="read-only", expected=ABORTED, names=("trainer.output_dir",)),
    Case(process="disk", stage="checkpoint", fault="full", expected=ABORTED, names=("trainer.output_dir",)),
    Case(
        process="disk",
        stage=SHARED_MEMORY,
        fault="full",
        expected=ABORTED,
        names=("/dev/shm was full", "docker run --shm-size"),
    ),
)
