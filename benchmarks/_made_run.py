"""Write the folder of a run that never ran, with the records of any number of steps, for tests and for ``report``."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.compose import as_yaml
from verl_like.config.run_file import recorded_text
from verl_like.config.schema import Config

BEGUN = 1_700_000_000.0  # Unix time
TOKENS = 24  # of a response
STAGES = {"rollout": 1.0, "reward_wait": 0.1, "old_log_probs": 0.3, "update_actor": 1.4, "sync": 0.2}  # seconds
PROCESSES = ("the driver", "worker rank 0", "worker rank 1", "scorer host 0")
WORDS = [
    "the",
    "sum",
    "of",
    "two",
    "numbers",
    "is",
    "found",
    "by",
    "adding",
    "units",
    "then",
    "tens",
    "and",
    "carrying",
    "one",
    "where",
    "needed",
]


def write_run(folder: Path, *, steps: int, samples: int) -> None:
    """Write config.yaml, metrics.jsonl, ledger.jsonl, trace.json and samples of ``steps`` steps.

    Args:
        samples: responses of each samples file, in groups of eight.
    """
    draws = random.Random(steps)
    folder.mkdir(parents=True)
    config = Config()
    config.trainer.experiment_name, config.trainer.total_training_steps = folder.name, steps
    (folder / "config.yaml").write_text(recorded_text("train", as_yaml(config)))
    end = BEGUN
    with (folder / "metrics.jsonl").open("w") as metrics, (folder / "ledger.jsonl").open("w") as ledger:
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": who}} for pid, who in enumerate(PROCESSES)
        ]
        for step in range(1, steps + 1):
            seconds = {stage: typical * draws.uniform(0.8, 1.2) for stage, typical in STAGES.items()}
            begin, end = end, end + sum(seconds.values()) + 0.05
            metrics.write(json.dumps(_metrics(step, steps, seconds, end, draws)) + "\n")
            for pid, who in enumerate(PROCESSES):
                row = {"step": step, "process": who, "pid": pid, "wall_s": end - begin, "seconds": seconds}
                ledger.write(json.dumps(row) + "\n")
                events += _visits(pid, begin, seconds)
    (folder / "trace.json").write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    (folder / "samples").mkdir()
    generator = np.random.default_rng(steps)
    for step in range(1, steps + 1):
        lines = (json.dumps(sample) + "\n" for sample in _samples(step, samples, generator))
        (folder / "samples" / f"step_{step}.jsonl").write_text("".join(lines))


def _metrics(step: int, steps: int, seconds: dict[str, float], end: float, draws: random.Random) -> dict[str, Any]:
    learnt = 1 - math.exp(-3 * step / steps)
    found = {
        "step": step,
        "reward/score_mean": 0.2 + 0.7 * learnt + draws.gauss(0, 0.02),
        "reward/score_std": 0.4,
        "reward/num_failed": 0.0,
        "rollout/signal_frac": 0.9 - 0.4 * learnt,
        "rollout/entropy_mean": 1.2 - 0.8 * learnt,
        "rollout/response_tokens_mean": 40 + 10 * learnt,
        "rollout/response_tokens_max": 90.0,
        "rollout/length_finish_frac": 0.01,
        "rollout/log_prob_diff_mean": 1e-3,
        "rollout/log_prob_diff_max": 2e-2,
        "actor/grad_norm": abs(draws.gauss(0.5, 0.1)),
        "actor/clip_frac": 0.01,
        "actor/ppo_kl": 1e-3,
        "actor/lr": 1e-6,
        "memory/peak_gib": 1.0,
        "memory/planned_gib": 1.5,
        "store/used_bytes": 1e6,
        "time/step_s": sum(seconds.values()) + 0.05,
        "progress/unix_s": end,
        "perf/tokens_per_s": 900.0,
        **{f"time/{stage}_s": value for stage, value in seconds.items()},
        **{f"reward/part_{number}/mean": draws.random() for number in range(60)},  # a run logs about a hundred metrics
    }
    if step % 10 == 0:
        found["val/mean@4"] = 0.2 + 0.65 * learnt
    return found


def _visits(pid: int, begin: float, seconds: dict[str, float]) -> Iterator[dict[str, Any]]:
    for stage, value in seconds.items():
        yield {"ph": "X", "name": stage, "pid": pid, "tid": 0, "ts": round(begin * 1e6), "dur": round(value * 1e6)}
        begin += value


def _samples(step: int, count: int, generator: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield the lines of a samples file, as a scorer host writes them."""
    words = generator.integers(len(WORDS), size=(count, TOKENS - 1))
    scores = (generator.random(count) < 0.6).astype(float)
    log_probs = -abs(generator.normal(0.3, 0.3, (count, TOKENS)))
    columns = {
        "rollout_log_probs": log_probs,
        "old_log_probs": log_probs + generator.normal(0, 1e-3, (count, TOKENS)),
        "entropy": abs(generator.normal(0.5, 0.3, (count, TOKENS))),
    }
    rows = {name: values.round(5).tolist() for name, values in columns.items()}
    for number, (chosen, score) in enumerate(zip(words.tolist(), scores.tolist(), strict=True)):
        tokens = {name: values[number] for name, values in rows.items()}
        yield _sample(step, number, [WORDS[i] for i in chosen], score, tokens)


def _sample(step: int, number: int, words: list[str], score: float, tokens: dict[str, list[float]]) -> dict[str, Any]:
    a, b = 10 + (step * 7 + number // 8) % 89, 11 + (step * 3 + number // 8) % 88
    text = [f" {word}" for word in [*words, a + b if score else a - b]]
    return {
        "prompt": f"What is {a} + {b}?",
        "response": "".join(text),
        "ground_truth": str(a + b),
        "score": score,
        "components": {"format": 1.0},
        "seconds": 1e-4,
        "failure": None,
        "uid": f"train.parquet:{step * 100 + number // 8}",
        "sample": number % 8,
        "reward_status": "ok",
        "advantage": score - 0.6,
        "finish_reason": "stop",
        "response_tokens": TOKENS,
        "data_source": "sums",
        "extra_info": {},
        "messages": f"What is {a} + {b}?",
        "columns": {},
        "prompt_ids": [1, 2, 3],
        "response_ids": list(range(TOKENS)),
        "tokens": {"text": text, "response_mask": [1] * TOKENS, **tokens},
    }
