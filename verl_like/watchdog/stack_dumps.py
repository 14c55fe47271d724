"""Python stacks of other processes, read from outside by py-spy; the process need not cooperate or release its GIL."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DUMP_TIMEOUT_S = 5.0
NUM_TRIES = 3  # the process continues while it is read, and the result may be inconsistent
# A thread whose innermost frames are in these folders waits for other ranks. FSDP's hooks have returned by the time a
# layer computes, so that their frames appear only during a gather or reduce.
PEER_FOLDERS = ("torch/distributed/", "vllm/distributed/")
NUM_INNERMOST = 4


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Calls of one thread, the innermost first, as "function (file:line)"."""

    name: str
    holds_lock: bool
    calls: tuple[str, ...]
    waits_for_peers: bool


def dump(pid: int) -> list[ThreadStack] | str:
    """Return the stacks of a process's threads, or a sentence if they cannot be read."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        return "py-spy is not installed: pip install py-spy"
    problem = ""
    for _ in range(NUM_TRIES):
        try:
            answer = subprocess.run(
                [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)],
                capture_output=True,
                timeout=DUMP_TIMEOUT_S,
                check=False,
                text=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"py-spy: {error}"
        if answer.returncode == 0 and answer.stdout.strip():
            return [_thread(found) for found in json.loads(answer.stdout)]
        problem = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "no answer")
    return f"py-spy could not read process {pid}: {problem.strip()}"


def _thread(found: dict[str, Any]) -> ThreadStack:
    frames = found["frames"]
    return ThreadStack(
        name=found["thread_name"] or str(found["thread_id"]),
        holds_lock=bool(found["owns_gil"]),
        calls=tuple(f"{frame['name']} ({frame['short_filename']}:{frame['line']})" for frame in frames),
        waits_for_peers=any(folder in frame["filename"] for frame in frames[:NUM_INNERMOST] for folder in PEER_FOLDERS),
    )


def text(who: str, pid: int, stacks: list[ThreadStack] | str) -> str:
    """Format the stacks of a process for a reader."""
    lines = [f"== {who} (pid {pid})"]
    if isinstance(stacks, str):
        return "\n".join([*lines, stacks]) + "\n"
    for stack in stacks:
        lines.append(f"thread {stack.name}{', which holds the interpreter lock' if stack.holds_lock else ''}")
        lines += [f"    {call}" for call in stack.calls]
    return "\n".join(lines) + "\n"
