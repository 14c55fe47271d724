"""Measure how many functions a step passes: ``PYTHONPATH=. python tests/tools/trace_step.py``.

Runs one step of PPO with a critic on two CPU workers with rollout.backend=hf. ``traced/sitecustomize.py`` records, in
the driver and in every Ray process, the project's functions on the stack at each call of an actor's method and at
each end. A path joins the stacks of several processes by the ids of Ray's tasks, so no function in between is listed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.scene import make_data, started

ROOT = Path(__file__).parents[2]
TRACED = Path(__file__).parent / "traced"
PACKAGES = ("verl_like", "verl_like_environments", "verl_like_graders", "verl_like_migrate")
TIMEOUT_S = 240.0

# The first and the last function of each measured path. An end that no step reaches is an error.
STEP = "PPOTrainer.step"
FACADES = "verl_like/workers/groups.py"
DEFERRED = ("verl_like/controller/wait.py", "Meanwhile.begin")
ENDS = {  # name -> (module or package, function)
    "loss": ("verl_like.algorithms.policy_losses", "ppo"),
    "submit": ("verl_like.backends.hf.engine", "HfEngine.submit"),
    "scorer": ("verl_like.reward", "ScorerProcess.score"),
    "estimator": ("verl_like.algorithms.advantages", "gae"),
}
REMOTE = "remote"  # a call of an actor's method, always recorded
SETTINGS = {
    "rollout.backend": "hf",
    "trainer.total_training_steps": "1",
    "trainer.test_freq": "-1",
    "trainer.save_freq": "-1",
    "trainer.stage_timeout_s": "150",
}

Function = tuple[str, str]  # file below the root of the checkout, qualified name


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """The project's functions on the stack at an end.

    Args:
        end: a key of ``ENDS``, or ``REMOTE``.
        task: the Ray task that the process runs; None in the driver.
        made: the Ray tasks that this call creates.
    """

    end: str
    stack: tuple[Function, ...]
    task: str | None = None
    made: frozenset[str] = frozenset()


class TraceError(Exception):
    """A trace lacks an end, or its connection to the step."""


def read_events(folder: Path) -> list[Event]:
    """Read what the processes of a run have recorded."""
    lines = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    return [
        Event(
            end=line["end"],
            stack=tuple((file, name) for file, name in line["stack"]),
            task=line["task"],
            made=frozenset(line["made"]),
        )
        for line in lines
    ]


def whole_path(event: Event, events: Iterable[Event]) -> tuple[Function, ...]:
    """Return the functions from the driver's outermost one to the event, through every process between them."""
    callers = {task: other for other in events for task in other.made}
    path = event.stack
    while event.task is not None:
        if event.task not in callers:
            raise TraceError(f"no call of an actor's method created the task that runs {_shown(event.stack)}")
        event = callers[event.task]
        path = event.stack + path
    return path


def from_step(end: str, events: Sequence[Event]) -> tuple[Function, ...]:
    """Return the longest path from the step to an end, both included.

    Raises:
        TraceError: no step reaches the end.
    """
    paths = [whole_path(event, events) for event in events if event.end == end]
    below = [path[_last(path, STEP) :] for path in paths if STEP in [name for _, name in path]]
    if not below:
        others = f"{len(paths)} calls come from elsewhere, first {_shown(paths[0])}" if paths else "it is never called"
        raise TraceError(
            f"no {STEP} reaches {'.'.join(ENDS.get(end, (end,)))}; {others}. If a function has moved, correct STEP and "
            "ENDS of tests/tools/trace_step.py. If a thread gets its work by other means than a queue or its start, "
            "extend tests/tools/traced/sitecustomize.py to follow it."
        )
    return max(below, key=len)


def from_facades(events: Iterable[Event]) -> dict[str, tuple[Function, ...]]:
    """Return the longest path from each function of ``FACADES`` to a call of an actor's method, the facade included.

    A call that was deferred to a wait, whoever waits, has its path from the function that makes deferred calls.

    Raises:
        TraceError: there is no such call.
    """
    found: dict[str, tuple[Function, ...]] = {}
    for event in events:
        files = [file for file, _ in event.stack]
        if event.end == REMOTE and FACADES in files:
            is_deferred = DEFERRED in event.stack
            path = event.stack[event.stack.index(DEFERRED) if is_deferred else files.index(FACADES) :]
            found[path[0][1]] = max(found.get(path[0][1], ()), path, key=len)
    if not found:
        raise TraceError(f"no call of an actor's method comes from {FACADES}; correct FACADES in {__file__}")
    return found


def _last(path: Sequence[Function], name: str) -> int:
    return max(index for index, (_, each) in enumerate(path) if each == name)


def _shown(path: Iterable[Function]) -> list[str]:
    return [f"{file}:{name}" for file, name in path]


def measured(events: Sequence[Event]) -> dict[str, object]:
    """Return the number of functions, the number of files and the path of everything that is measured."""
    paths = {f"step_to_{end}": from_step(end, events) for end in ENDS}
    facades = from_facades(events)
    # The facade is not counted: if it calls an actor's method itself, the count is 0.
    paths["facade_to_remote"] = max(facades.values(), key=len)[1:]
    figures: dict[str, object] = {f"functions_{name}": len(path) for name, path in paths.items()}
    figures |= {f"files_{name}": len({file for file, _ in path}) for name, path in paths.items()}
    figures["facades"] = {name: len(path) - 1 for name, path in sorted(facades.items())}
    return figures | {f"path_{name}": _shown(path) for name, path in paths.items()}


def traced_step(folder: Path) -> list[Event]:
    """Run one step below an empty folder and return what its processes have recorded.

    Raises:
        TraceError: the run failed or took too long.
    """
    records = folder / "trace"
    records.mkdir(parents=True)
    trace = {"folder": str(records), "root": f"{ROOT}/", "packages": PACKAGES, "ends": ENDS}
    environment = {"PYTHONPATH": os.pathsep.join([str(TRACED), str(ROOT)]), "VERL_LIKE_TRACE": json.dumps(trace)}
    with started(make_data(folder / "data"), folder, "run", SETTINGS, environment=environment) as run:
        status = run.ended(TIMEOUT_S)
    if status != 0:
        raise TraceError(f"the traced run ended with {status}:\n{run.output[-6000:]}")
    return read_events(records)


def step_figures() -> dict[str, object]:
    """Trace one step in a temporary folder and measure it."""
    with tempfile.TemporaryDirectory(prefix="verl_like-trace-") as folder:
        return measured(traced_step(Path(folder)))


if __name__ == "__main__":
    print(json.dumps(step_figures(), indent=2))
