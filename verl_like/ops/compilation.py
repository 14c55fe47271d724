"""Compile ahead of training with a hard deadline, in particular the log-prob function.

A compilation cannot be interrupted, and an abandoned one in a thread disturbs the operators of the thread that
continues. So a trial process compiles first, and is killed at the deadline. The compiler's disk cache that it fills
makes the compilation in this process short.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch

from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.ops.tiles import OutputLayer, TileFunctions

log = logging.getLogger(__name__)

KILL_DEADLINE_S = 10.0  # a killed process that hangs in the kernel is left to init
_LOG_PROBS = "the log-prob function"
_REMEDY = "it runs uncompiled. Set actor.use_torch_compile=false to skip the attempt."
_HIDDEN_SIZE = 8
_CPU_ROWS, _CPU_VOCABULARY = (6, 11), 40  # any sizes work, because compiled functions are dynamic


@dataclass(frozen=True, kw_only=True, slots=True)
class TileSpec:
    """Everything that compiled functions depend on.

    Args:
        rows: two numbers of tokens. The compiler chooses its blocks by the first; both are those of passes on GPUs.
        vocabulary, budget_mib: as in the run, which gives tiles of the same width.
    """

    device: str
    with_entropy: bool
    rows: tuple[int, int] = _CPU_ROWS
    vocabulary: int = _CPU_VOCABULARY
    budget_mib: int = 1


def tile_functions_compile(spec: TileSpec, deadline_s: float) -> bool:
    """Return whether a trial process compiles the functions within ``deadline_s`` seconds."""
    module = "verl_like.ops.compilation"
    return compiles_in_trial(module, asdict(spec), deadline_s, what=_LOG_PROBS, remedy=_REMEDY)


def compiled_tile_functions(spec: TileSpec) -> TileFunctions | None:
    """Return functions compiled for any tile of more than one row and column, after a trial; None on failure."""
    started = time.monotonic()
    functions = TileFunctions().compiled()
    try:
        warm_up(functions, spec)
    except Exception:
        log.warning("compiling %s failed; %s", _LOG_PROBS, _REMEDY, exc_info=True)
        return None
    log.info("compiled %s in %.1f s", _LOG_PROBS, time.monotonic() - started)
    return functions.as_they_are()


def compiles_in_trial(module: str, spec: Mapping[str, Any], deadline_s: float, *, what: str, remedy: str) -> bool:
    """Return whether ``python -m module SPEC``, which compiles functions, succeeds in time; a failure is logged.

    Args:
        module: its main block reads ``spec`` as JSON.
        what: what it compiles, for log messages.
    """
    trial = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(spec)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = trial.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        os.killpg(trial.pid, signal.SIGKILL)  # the compiler's own children too
        with suppress(subprocess.TimeoutExpired):
            trial.wait(KILL_DEADLINE_S)
        log.warning("compiling %s took longer than %g s; %s", what, deadline_s, remedy)
        return False
    if trial.returncode != 0:
        log.warning("compiling %s failed; %s Output of the trial process:\n%s", what, remedy, output[-4000:])
        return False
    return True


def warm_up(functions: TileFunctions, spec: TileSpec) -> None:
    """Call the functions as training does, forward and backward.

    Two sizes are used: the first compiles, the second makes the compiled code independent of the size.
    """
    device = torch.device(spec.device)
    stats_of = TokenStatsFunction(budget_mib=spec.budget_mib)
    stats_of.tile_functions = functions
    weight = torch.zeros(spec.vocabulary, _HIDDEN_SIZE, device=device)
    for rows in spec.rows:
        hidden = torch.zeros(rows, _HIDDEN_SIZE, device=device, requires_grad=True)
        targets = torch.zeros(rows, dtype=torch.int64, device=device)
        found = stats_of(hidden, OutputLayer(weight=weight), targets, temperature=1.0, entropy=spec.with_entropy)
        loss = found.log_probs.sum() if found.entropy is None else (found.log_probs + found.entropy).sum()
        torch.autograd.grad(loss, hidden)


if __name__ == "__main__":
    warm_up(TileFunctions().compiled(), TileSpec(**json.loads(sys.argv[1])))
