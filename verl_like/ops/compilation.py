"""Compiling the log-prob function ahead of training, with a deadline that holds.

A compilation cannot be interrupted, and one left behind in a thread disturbs the operators of the thread that goes on.
So a process of its own compiles first, and is killed at the deadline; what it leaves in the compiler's disk cache makes
the compilation in this process short.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from verl_like.ops.log_probs import ChunkFunction, chunk_stats

log = logging.getLogger(__name__)

KILL_DEADLINE_S = 10.0  # a killed process that hangs in the kernel is left to init
_REMEDY = "it runs uncompiled. Set actor.use_torch_compile=false to skip the attempt."


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkSpec:
    """What a compiled graph depends on: the output layer's shape and dtype, and the statistics asked for."""

    vocab_size: int
    hidden_size: int
    has_bias: bool
    softcap: float
    dtype: str
    device: str
    with_entropy: bool


def compile_chunk_stats(spec: ChunkSpec, deadline_s: float) -> ChunkFunction | None:
    """``chunk_stats`` compiled for any number of rows above one, without and with gradients; None where that fails.

    Args:
        deadline_s: longest time the trial process may take.
    """
    started = time.monotonic()
    trial = subprocess.Popen(
        [sys.executable, "-m", "verl_like.ops.compilation", json.dumps(asdict(spec))],
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
        log.warning("compiling the log-prob function took longer than %g s; %s", deadline_s, _REMEDY)
        return None
    if trial.returncode != 0:
        log.warning("compiling the log-prob function failed; %s The trial said:\n%s", _REMEDY, output[-4000:])
        return None
    compiled = torch.compile(chunk_stats, dynamic=True)
    try:
        run_both_modes(compiled, spec)
    except Exception:
        log.warning("compiling the log-prob function failed; %s", _REMEDY, exc_info=True)
        return None
    log.info("compiled the log-prob function in %.1f s", time.monotonic() - started)
    return compiled


def run_both_modes(function: ChunkFunction, spec: ChunkSpec) -> None:
    """Call it as training does: two sizes each without and with gradients.

    The first size compiles (the backward pass too), the second shows that no size is special.
    """
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[spec.dtype]
    device = torch.device(spec.device)
    weight = nn.Parameter(torch.zeros(spec.vocab_size, spec.hidden_size, dtype=dtype, device=device))
    bias = nn.Parameter(torch.zeros(spec.vocab_size, dtype=dtype, device=device)) if spec.has_bias else None
    for needs_grad in (False, True):
        for rows in (6, 11):
            hidden = torch.zeros(rows, spec.hidden_size, dtype=dtype, device=device, requires_grad=needs_grad)
            targets = torch.zeros(rows, dtype=torch.int64, device=device)
            args: tuple[Any, ...] = (
                hidden,
                weight,
                bias,
                targets,
                torch.ones((), device=device),
                spec.softcap,
                spec.with_entropy,
                False,
            )
            with torch.set_grad_enabled(needs_grad):
                if not needs_grad:
                    function(*args)
                    continue
                log_probs, entropy, _ = checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)
                loss = log_probs.sum() if entropy is None else (log_probs + entropy).sum()
                torch.autograd.grad(loss, [hidden, weight])


if __name__ == "__main__":
    run_both_modes(torch.compile(chunk_stats, dynamic=True), ChunkSpec(**json.loads(sys.argv[1])))
