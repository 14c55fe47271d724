"""The faults of the matrix, as a table: what is done to which process in which stage, and what must follow."""

from __future__ import annotations

from dataclasses import dataclass, field

# What a case must end in.
ABSORBED = "absorbed"  # the run goes on as if nothing had been, with exit 0
RESTARTED = "restarted"  # it says who and what, builds its processes anew, and ends with exit 0
ABORTED = "aborted"  # it says who and what, and ends with another status than 0
ENDED = "ended in order"  # it saves and ends with exit 0
GONE = "gone"  # the driver itself is killed: nothing is left, and the same command continues

# Stages in which a fault comes from outside, as soon as its process is there, and not in the middle of the run.
RAY_STARTS, IMPORTS = "start of Ray", "imports"
EARLY = (RAY_STARTS, IMPORTS)
SHARED_MEMORY = "shared memory"  # in place of a stage: what is full is a /dev/shm that the run has for itself

RESTARTS = {"trainer.max_restarts": "1", "trainer.on_stall": "restart"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run with one fault.

    Args:
        process: whom it befalls, as messages name it.
        stage: in which of the process's stages, or one of :data:`EARLY`.
        fault: one of ``injected/sitecustomize.py``, or a signal from outside ("SIGSTOP", "SIGKILL", "SIGTERM").
        visit: to that stage, from 1.
        expected: how the run must end.
        names: what its verdict must say, all of it.
        changes: of the configuration.
        is_equal: whether the run, continued where it does not continue by itself, must end with the numbers of an
            undisturbed one.
        hold_s: how long the run is held in its middle after a fault from outside.
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

    @property
    def name(self) -> str:
        """Unlike any other case's."""
        return "-".join(f"{self.process} {self.stage} {self.fault} {self.expected}".lower().split())


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
        "hang": (f"{process} (pid", f"stands still in stage {stage!r}", "Stacks"),
        "hold": (f"{process} (pid", f"stands still in stage {stage!r}", "Stacks"),
        "spin": (f"{process} (pid", f"stands still in stage {stage!r}", "Stacks"),
        "SIGSTOP": (f"{process} (pid", "is stopped by a signal (SIGSTOP)"),
    }[fault]
    return Case(process=process, stage=stage, fault=fault, expected=RESTARTED, names=names, changes=RESTARTS)


CASES: tuple[Case, ...] = (
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
    # Without leave to restart, the same faults end the run; what is told is the same.
    Case(process=WORKER, stage="update_actor", fault="die", expected=ABORTED, names=(f"{WORKER} died",)),
    Case(process=WORKER, stage="rollout", fault="hang", expected=ABORTED, names=("stands still in stage 'rollout'",)),
    # At the end, when all is written and processes are being ended.
    *(
        Case(process="the driver", stage="teardown", fault=fault, visit=1, expected=expected)
        for fault, expected in {
            "stop_raylet": ABSORBED,
            "kill_raylet": ABSORBED,
            "stop_workers": ABSORBED,
            "die": GONE,
        }.items()
    ),
    # A slow stage is no stalled one, as long as it is within its deadline.
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
    Case(  # a run needs it seldom, and would be over before it is missed; the driver that is held is no stall
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
    # The raylet ends itself then, and Ray's library the driver with it, unless that has noticed before: it restarts.
    Case(process="Ray's agent", stage="", fault="SIGKILL", expected=GONE, changes=RESTARTS),
    *(
        Case(process="group", stage="", fault=fault, expected=ENDED, names=("stopping in order",))
        for fault in ("SIGTERM", "SIGINT", "SIGHUP")
    ),
    # While Ray starts, and while workers load Python, Ray and libraries.
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
        Case(process="group", stage=RAY_STARTS, fault=fault, expected=ENDED, names=("stopping in order",))
        for fault in ("SIGTERM", "SIGINT", "SIGHUP")
    ),
    Case(process="driver", stage=RAY_STARTS, fault="SIGKILL", expected=GONE),
    # kill -USR1 prints stacks and ends nobody.
    Case(process="driver", stage=RAY_STARTS, fault="SIGUSR1", expected=ABSORBED),
    Case(process="worker", stage=IMPORTS, fault="SIGUSR1", expected=ABSORBED),
    *(
        Case(process=process, stage="", fault="SIGUSR1", expected=ABSORBED)
        for process in ("driver", "scorer host", "scorer", "watchdog")
    ),
    # Rewards: a failed sample is masked, and nothing else is touched.
    *(
        Case(process="reward", stage="reward", fault=fault, expected=ABSORBED, is_equal=False)
        for fault in ("raise", "hang", "die", "allocate")
    ),
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
