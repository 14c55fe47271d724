"""Synthetic contents of a report: the same at each call, with everything that a run can have."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.report._synthetic_samples import samples_of_step
from verl_like.telemetry.metrics import METRICS

STAGES = ("rollout", "reward", "old_log_probs", "advantages", "update_actor", "sync", "report")
WAITS = ("wait/driver", "wait/peer", "wait/store")
Curves = dict[str, tuple[list[int], list[float | None]]]

# id, title, section, unit, scale, metrics
PANELS = (
    ("score", "Score", "Learning", "score", "linear", ["reward/score_mean", "val/mean@16"]),
    ("pass", "Validation, pass at n", "Learning", "fraction", "linear", ["val/pass@16", "val/maj@16"]),
    ("signal", "Groups with a signal", "Learning", "fraction", "linear", ["rollout/signal_frac"]),
    ("kl", "KL from the reference", "Policy", "nats", "linear", ["actor/kl_loss", "actor/ppo_kl"]),
    ("entropy", "Entropy", "Policy", "nats", "linear", ["rollout/entropy_mean"]),
    ("clip", "Clipped tokens", "Policy", "fraction", "linear", ["actor/clip_frac"]),
    (
        "gap",
        "Log-prob gap of engine and trainer",
        "Policy",
        "nats",
        "log",
        ["rollout/log_prob_diff_mean", "rollout/log_prob_diff_max"],
    ),
    ("grad", "Gradient norm", "Policy", "", "log", ["actor/grad_norm"]),
    ("lr", "Learning rate", "Policy", "", "linear", ["actor/lr"]),
    (
        "length",
        "Response length",
        "Lengths",
        "tokens",
        "linear",
        ["rollout/response_tokens_mean", "rollout/response_tokens_max"],
    ),
    ("cut", "Cut-off responses", "Lengths", "fraction", "linear", ["rollout/length_finish_frac"]),
    ("turns", "Turns and tool calls", "Environment", "", "linear", ["env/turns", "env/tool_calls"]),
    ("stale", "Staleness", "Asynchrony", "updates", "linear", ["rollout/staleness_mean", "rollout/staleness_max"]),
    ("speed", "Throughput", "Time", "tokens/s", "linear", ["perf/tokens_per_s", "perf/rollout_tokens_per_s"]),
    ("memory", "Host memory", "Memory and store", "GiB", "linear", ["memory/peak_gib", "memory/planned_gib"]),
    ("store", "Object store", "Memory and store", "bytes", "linear", ["store/put_bytes", "store/used_bytes"]),
    ("failed", "Samples without a score", "Other", "rows", "linear", ["reward/num_failed"]),
)


def packed(value: object) -> bytes:
    """Return a shard: gzip of JSON; halves of surrogate pairs arrive as escapes."""
    return gzip.compress(json.dumps(value, separators=(",", ":")).encode(), compresslevel=5, mtime=0)


def curves(seed: int, num_steps: int) -> Curves:
    """Return curves of a run that learns, with noise, a gap and a metric that is null once."""
    random = np.random.default_rng(seed)
    steps = np.arange(1, num_steps + 1)
    rise = 1 / (1 + np.exp(-(steps - num_steps * 0.35) / (num_steps * 0.12)))

    def noisy(values: np.ndarray, size: float) -> list[float | None]:
        return [float(f"{value:.5g}") for value in values + random.normal(0, size, len(values))]

    found: dict[str, list[float | None]] = {
        "reward/score_mean": noisy(0.08 + 0.86 * rise, 0.02),
        "rollout/signal_frac": noisy(0.35 + 0.5 * rise * (1.2 - rise), 0.03),
        "actor/kl_loss": noisy(0.002 + 0.06 * rise**2, 0.0008),
        "actor/ppo_kl": noisy(0.001 + 0.0004 * rise, 0.0001),
        "rollout/entropy_mean": noisy(1.3 - 0.9 * rise, 0.02),
        "actor/clip_frac": noisy(0.01 + 0.02 * rise, 0.003),
        "rollout/log_prob_diff_mean": [float(v) for v in 10 ** random.normal(-3.2, 0.1, num_steps)],
        "rollout/log_prob_diff_max": [float(v) for v in 10 ** random.normal(-1.1, 0.25, num_steps)],
        "actor/grad_norm": [float(v) for v in 10 ** random.normal(-0.4, 0.12, num_steps)],
        "actor/lr": [1e-6 * min(1.0, step / 10) for step in range(1, num_steps + 1)],
        "rollout/response_tokens_mean": noisy(40 + 45 * rise, 2),
        "rollout/response_tokens_max": noisy(128 + 0 * rise, 0.01),
        "rollout/length_finish_frac": noisy(0.12 - 0.1 * rise, 0.004),
        "perf/tokens_per_s": noisy(21000 + 0 * rise, 900),
        "perf/rollout_tokens_per_s": noisy(34000 + 0 * rise, 1500),
        "memory/peak_gib": noisy(1.05 + 0.08 * rise, 0.004),
        "memory/planned_gib": [1.2] * num_steps,
        "store/put_bytes": noisy(4.1e6 + 2e6 * rise, 1e5),
        "store/used_bytes": noisy(9e6 + 2e6 * rise, 2e5),
        "reward/num_failed": [float(step % 37 == 0) for step in range(num_steps)],
        "env/turns": noisy(2.4 - 0.6 * rise, 0.05),
        "env/tool_calls": noisy(1.9 - 0.7 * rise, 0.05),
        "rollout/staleness_mean": noisy(0.6 + 0 * rise, 0.05),
        "rollout/staleness_max": [2.0] * num_steps,
    }
    seconds = {
        "rollout": 1.9,
        "update_actor": 1.1,
        "reward": 0.42,
        "old_log_probs": 0.38,
        "sync": 0.16,
        "report": 0.03,
        "advantages": 0.01,
    }
    for stage, mean in seconds.items():
        found[f"time/{stage}_s"] = [
            float(f"{v:.4g}") for v in mean * (1 + 0.2 * rise) * np.exp(random.normal(0, 0.06, num_steps))
        ]
    found["time/step_s"] = [sum(found[f"time/{stage}_s"][at] for stage in seconds) * 1.02 for at in range(num_steps)]  # type: ignore[misc]
    if num_steps > 60:
        found["actor/grad_norm"][50] = None
    every = max(1, num_steps // 20)
    at_validation = list(range(every, num_steps + 1, every))
    result: Curves = {name: (steps.tolist(), values) for name, values in found.items()}
    for name, top in (("val/mean@16", 0.93), ("val/pass@16", 0.99), ("val/maj@16", 0.96)):
        values = [
            float(f"{0.06 + (top - 0.06) * rise[step - 1] + random.normal(0, 0.008):.4f}") for step in at_validation
        ]
        result[name] = (at_validation, values)
    return result


def curves_shard(series: Curves) -> bytes:
    """Return the shard of curves: the series, and the mean seconds of each stage and of a step."""
    seconds = {name: values for name, (_, values) in series.items() if name.startswith("time/")}
    means = {name: float(f"{np.mean(values):.6g}") for name, values in seconds.items()}
    return packed({"series": series, "means": means})


def stack_panel() -> dict[str, Any]:
    metrics = [f"time/{stage}_s" for stage in STAGES] + ["time/step_s"]
    return {
        "id": "stages",
        "title": "Stages of a step",
        "section": "Time",
        "unit": "seconds",
        "scale": "linear",
        "kind": "stack",
        "metrics": metrics,
    }


def panels() -> list[dict[str, Any]]:
    keys = ("id", "title", "section", "unit", "scale", "metrics")
    lines = [{**dict(zip(keys, row, strict=True)), "kind": "lines"} for row in PANELS]
    at = next(index for index, panel in enumerate(lines) if panel["section"] == "Time")
    return [*lines[:at], stack_panel(), *lines[at:]]


def metrics() -> dict[str, dict[str, str]]:
    """Return the meaning of all drawn metrics, from the table."""
    names = {name for panel in panels() for name in panel["metrics"]}
    rows = {name: next(row for row in METRICS if row.matches(name)) for name in sorted(names)}
    return {name: {"sentence": row.sentence} for name, row in rows.items()}


ADVISORIES = (
    {
        "level": "alarm",
        "title": "KL rises faster than the score",
        "text": "The KL from the reference is 0.062 nats per token at step 200, three times its value at step 80, "
        "while the score has gained 0.04.",
        "metric": "actor/kl_loss",
        "step": 80,
        "knob": "actor.kl_loss_coef=0.01",
    },
    {
        "level": "tuning",
        "title": "Groups without a signal",
        "text": "41 % of the groups have equal scores and carry no signal.",
        "metric": "rollout/signal_frac",
        "step": None,
        "knob": "data.sampler=curriculum",
    },
    {
        "level": "tuning",
        "title": "Rollout waits for rank 3",
        "text": "Rank 3 is 22 % slower than the mean of all ranks in the stage rollout.",
        "metric": None,
        "step": None,
        "knob": None,
    },
)


def options(seed: int) -> list[dict[str, Any]]:
    changed = {
        "actor.optim.lr": ("1e-06", "0.0015", ""),
        "algorithm.adv_estimator": ("gae", "grpo", ""),
        "data.train_batch_size": ("1024", "32", "prompts"),
        "rollout.n": ("1", "8", ""),
        "trainer.seed": ("1", str(seed), ""),
        "trainer.total_training_steps": ("null", "200", "steps"),
    }
    found = [
        {
            "name": name,
            "value": value,
            "default": default,
            "origin": "recipes/arithmetic/grpo.yaml" if at % 2 else "command line",
            "is_changed": value != default,
            "unit": unit,
            "help": f"Sets {name.rsplit('.', 1)[1].replace('_', ' ')}.",
        }
        for at, (name, (default, value, unit)) in enumerate(changed.items())
    ]
    found += [
        {
            "name": f"section_{at % 9}.option_{at}",
            "value": str(at),
            "default": str(at),
            "origin": "default",
            "is_changed": False,
            "unit": "seconds" if at % 5 == 0 else "",
            "help": "A value that nobody has changed.",
        }
        for at in range(180)
    ]
    return found


def lanes(step: int) -> dict[str, Any]:
    """Return the spans of two nodes' processes in a step."""
    random = np.random.default_rng(step)
    stages = [*STAGES, *WAITS, "idle"]
    rows = []
    for process, first in (
        ("driver", 7),
        *((f"worker rank {rank}", 0) for rank in range(4)),
        ("scorer 0", 1),
        ("scorer 1", 1),
        ("node watchdog", 10),
    ):
        spans, at = [], 0.0
        for turn, stage in enumerate([first, 7, 1, 2, 8, 4, 8, 4, 9, 5, 6] if first != 10 else [10]):
            length = float(random.uniform(60, 700)) if first != 10 else 4000.0
            spans.append([stage if turn else first, round(at, 2), round(min(4000.0, at + length), 2)])
            at += length
            if at >= 4000:
                break
        rows.append({"process": process, "spans": spans})
    return {"start": 1795815262.0, "end": 1795815266.0, "stages": stages, "lanes": rows}


def processes() -> dict[str, Any]:
    random = np.random.default_rng(5)
    names = ["driver", *(f"worker rank {rank}" for rank in range(4)), "scorer 0", "scorer 1"]
    stages = [*STAGES, *WAITS]
    return {
        "stages": stages,
        "processes": [
            {
                "process": name,
                "seconds": {stage: round(float(random.gamma(2, 40)), 2) for stage in stages if random.random() > 0.3},
            }
            for name in names
        ],
        "memory": {"planned_gib": 1.2, "largest_gib": 1.13},
    }


STALL = {
    "at": "20261127-213425",
    "verdict": "worker rank 1 waits for rank 0 in an all-gather",
    "stacks": 'Thread 0x7f (most recent call first):\n  File "comm.py", line 12 in wait\n' * 20,
}


def run(index: int, *, num_steps: int, steps: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return a run of the head; without ``steps`` it has no samples, lanes and stalls."""
    prefix = f"r{index}"
    return {
        "name": f"grpo-seed{index + 1}",
        "job": "train",
        "status": "finished",
        "step": num_steps,
        "total_steps": num_steps,
        "seed": index + 1,
        "key_numbers": [
            {"name": "final val/mean@16", "text": "0.943", "hint": f"step {num_steps}"},
            {"name": "best val/mean@16", "text": "0.947", "hint": "step 180"},
            {"name": "first val/mean@16", "text": "0.061", "hint": "step 0"},
            {"name": "time", "text": "14 min 12 s", "hint": "4.1 s a step"},
            {"name": "throughput", "text": "21,300", "hint": "tokens/s"},
            {"name": "trained prompts", "text": "6,392", "hint": "8 failed"},
        ],
        "starts": [
            {
                "at": "2026-11-27 21:34:25",
                "command": f"verl-like train recipes/arithmetic/grpo.yaml trainer.seed={index + 1}",
            }
        ],
        "versions": {"torch": "2.13.0+cpu", "ray": "2.60.0", "vllm": "0.32.0", "transformers": "5.19.0"},
        "environment": {"git_commit": "c583f21f", "model": "outputs/arithmetic/init", "host": "node-a", "gpus": "none"},
        "advisories": list(ADVISORIES) if index == 0 else [],
        "curves": f"{prefix}-curves",
        "settings": f"{prefix}-settings",
        "lanes": {"steps": [1, 100, 200], "shard": f"{prefix}-lanes-{{step}}"} if steps else {},
        "processes": f"{prefix}-processes" if steps else None,
        "stalls": f"{prefix}-stalls" if steps else None,
        "samples": {"index": f"{prefix}-samples", "steps": steps} if steps else None,
    }


def head_of(runs: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    return {
        "made_unix_s": 1795815262.0,
        "by": "verl_like 0.1.0",
        "title": runs[0]["name"] if len(runs) == 1 else f"{len(runs)} runs",
        "live": None,
        "metrics": metrics(),
        "panels": panels(),
        "runs": runs,
        "groups": [],
        "notes": [],
        **others,
    }


def index_of(found: list[tuple[int, int, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Return the columnar index of [(kind, step, samples)]."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "step",
            "kind",
            "row",
            "score",
            "length",
            "failure",
            "source",
            "group",
            "finish",
            "advantage",
            "text",
        )
    }
    sources: dict[str, int] = {}
    finishes: dict[str, int] = {}
    groups: dict[str, int] = {}
    for kind, step, samples in found:
        for row, sample in enumerate(samples):
            values = {
                "step": step,
                "kind": kind,
                "row": row,
                "score": sample["score"],
                "length": sample["length"],
                "failure": sample["failure"] or "",
                "source": sources.setdefault(sample["source"], len(sources)),
                "group": groups.setdefault(f"{step} {sample['uid']}", len(groups)),
                "finish": finishes.setdefault(sample["finish"], len(finishes)),
                "advantage": sample["advantage"],
                "text": sample["prompt"][:80],
            }
            for name, value in values.items():
                columns[name].append(value)
    return {**columns, "sources": list(sources), "finishes": list(finishes)}


def whole_run(num_steps: int = 200, rows: int = 256) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    """Return head and shards of one run with samples of each step, every fifth step validated."""
    shards: dict[str, bytes] = {"r0-curves": curves_shard(curves(0, num_steps))}
    found = [
        (0, step, samples_of_step(step, rows, rise=1 / (1 + math.exp(-(step - 70) / 24))))
        for step in range(1, num_steps + 1)
    ]
    found += [
        (1, step, samples_of_step(10_000 + step, 32, rise=step / num_steps)) for step in range(50, num_steps + 1, 50)
    ]
    names = ("train", "val")
    steps = []
    for kind, step, samples in found:
        name = f"r0-{names[kind]}-{step}"
        shards[name] = packed(samples)
        steps.append({"kind": names[kind], "step": step, "shard": name})
    shards["r0-samples"] = packed(index_of(found))
    shards["r0-settings"] = packed({"options": options(1)})
    shards |= {f"r0-lanes-{step}": packed(lanes(step)) for step in (1, 100, 200)}
    shards["r0-processes"] = packed(processes())
    shards["r0-stalls"] = packed([STALL])
    notes = ["Token columns of 208 of the 256 samples of each step are left out: together they are too large."]
    return head_of([run(0, num_steps=num_steps, steps=steps)], notes=notes), shards


def several_runs(num_steps: int = 200) -> tuple[dict[str, Any], Mapping[str, bytes]]:
    """Return head and shards of four runs without samples: three seeds, and another one without environments."""
    runs = [run(index, num_steps=num_steps, steps=None) for index in range(4)]
    runs[3]["name"], runs[3]["status"], runs[3]["step"] = "ppo-seed1", "interrupted", num_steps * 3 // 4
    shards = {}
    for index in range(4):
        found = curves(index, num_steps)
        if index == 3:
            found = {
                name: (steps[: num_steps * 3 // 4], values[: num_steps * 3 // 4])
                for name, (steps, values) in found.items()
                if not name.startswith("env/")
            }
        shards[f"r{index}-curves"] = curves_shard(found)
        shards[f"r{index}-settings"] = packed({"options": options(index + 1)})
    return head_of(runs, groups=[{"name": "grpo", "runs": [0, 1, 2]}]), shards
