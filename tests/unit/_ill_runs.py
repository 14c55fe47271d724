"""Synthetic runs for tests of the advisories: healthy ones, and changes that make them ill in one way each."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from verl_like.config.schema import Config
from verl_like.report.advice import RunView

Shape = float | Callable[[int], float] | None  # a constant, a function of the step, or not reported
Shapes = Mapping[str, Shape]

ROWS = 256  # data.train_batch_size=32, rollout.n=8
NOT_NOISY = (
    "num_",
    "skipped",
    "imbalance",
    "score_min",
    "score_max",
    "spilled",
    "references",
    "preemptions",
    "staleness",
    "val/",
    "failures",
    "unreadable",
)
# A metric changes that much from step to step, as a fraction of its value.
NOISE = 0.05


def rising(step: int, *, low: float = 0.2, high: float = 0.8, over: int = 80) -> float:
    return low + (high - low) * (1 - math.exp(-step / over))


TRAIN: Shapes = {
    "reward/score_mean": rising,
    "reward/score_min": 0.0,
    "reward/score_max": 1.0,
    "reward/num_failed": 0.0,
    "reward/num_timeout": 0.0,
    "reward/num_error": 0.0,
    "reward/unreadable": 0.0,
    "reward/seconds_max": 0.2,
    "rollout/response_tokens_mean": lambda step: 200 + 0.1 * step,
    "rollout/response_tokens_max": lambda step: 500.0,
    "rollout/length_finish_frac": 0.02,
    "rollout/signal_frac": lambda step: rising(step, low=0.9, high=0.7),
    "rollout/entropy_mean": lambda step: rising(step, low=0.6, high=0.3),
    "rollout/log_prob_diff_mean": 0.01,
    "rollout/preemptions": 0.0,
    "perf/response_tokens": lambda step: ROWS * (200 + 0.1 * step),
    "actor/loss": lambda step: 0.01 * math.sin(step),
    "actor/clip_frac": 0.01,
    "actor/ppo_kl": 0.001,
    "actor/kl_loss": lambda step: rising(step, low=0.001, high=0.08),
    "actor/grad_norm": lambda step: 0.5 + 0.3 * math.sin(step),
    "actor/skipped_updates": 0.0,
    "balance/imbalance": 1.02,
    "store/live_references": 5.0,
    "store/spilled_bytes": 0.0,
    "memory/rss_gib": lambda step: rising(step, low=2.0, high=2.4, over=20),
    "memory/all_rss_gib": lambda step: rising(step, low=8.0, high=9.0, over=20),
    "time/rollout_s": 4.0,
    "time/reward_wait_s": 0.3,
    "time/update_actor_s": 5.0,
    "time/sync_s": 0.2,
    "time/step_s": lambda step: 30.0 if step == 1 else 10.0,
}
ASYNC: Shapes = {
    **TRAIN,
    "rollout/staleness_mean": 1.1,
    "rollout/staleness_max": 2.0,
    "rollout/mixed_versions_frac": 0.3,
    "rollout/log_prob_diff_mean": 0.05,
    "actor/correction_ess_frac": 0.95,
    "actor/correction_kept_frac": 0.99,
    "time/rollout_s": 1.0,
}
EPISODES: Shapes = {
    **TRAIN,
    "env/turns": 4.0,
    "env/tool_calls": 3.0,
    "env/tool_errors": 5.0,
    "env/malformed_calls": 10.0,
    "env/failures": 1.0,
    "env/wait_frac": 0.3,
}
CRITIC: Shapes = {
    **TRAIN,
    "rollout/signal_frac": 0.0,  # one response per prompt
    "critic/value_loss": 0.1,
    "critic/explained_variance": lambda step: math.nan if step == 1 else rising(step, low=-0.5, high=0.7, over=10),
    "critic/grad_norm": 2.0,
    "critic/skipped_updates": 0.0,
}
SFT: Shapes = {
    "sft/loss": lambda step: rising(step, low=2.5, high=1.2),
    "actor/grad_norm": lambda step: 3.0 if step < 10 else 0.7,
    "actor/lr": 1e-5,
    "actor/skipped_updates": 0.0,
    "perf/tokens": 2000.0,
    "memory/rss_gib": 2.0,
    "time/update_actor_s": 5.0,
    "time/step_s": 5.5,
}
DPO: Shapes = {
    **{name: shape for name, shape in SFT.items() if name != "sft/loss"},
    "dpo/loss": lambda step: rising(step, low=0.69, high=0.5),
    "dpo/accuracy": lambda step: rising(step, low=0.5, high=0.75),
    "dpo/log_prob_chosen": lambda step: -100 - 0.1 * step,
}


def series_of(shapes: Shapes, *, steps: int, noise: float = NOISE, start: int = 1) -> dict[str, dict[int, float]]:
    """Return metrics with noise from step to step; a row per step from ``start``."""
    generator = random.Random(steps)
    found: dict[str, dict[int, float]] = {}
    for metric, shape in shapes.items():
        if shape is None:
            continue
        spread = 0.0 if any(word in metric for word in NOT_NOISY) else noise
        found[metric] = {
            step: (shape if isinstance(shape, float) else shape(step)) * (1 + spread * generator.uniform(-1, 1))
            for step in range(start, steps + 1)
        }
    return found


def validations(values: list[float], *, every: int = 40, metric: str = "val/mean@1") -> dict[str, dict[int, float]]:
    return {metric: {every * number: value for number, value in enumerate(values)}}


def config_of(**options: object) -> Config:
    """Return the defaults with changes; underscores in names are written twice for dots."""
    config = Config()
    for name, value in options.items():
        *sections, leaf = name.split("__")
        section: object = config
        for part in sections:
            section = getattr(section, part)
        setattr(section, leaf, value)
    return config


def view_of(
    ill: Shapes | None = None,
    *,
    shapes: Shapes = TRAIN,
    steps: int = 200,
    noise: float = NOISE,
    start: int = 1,
    config: Config | None = None,
    more: Mapping[str, Mapping[int, float]] | None = None,
    **fields: object,
) -> RunView:
    """Return the view of a healthy run with some metrics replaced by ``ill`` and some added from ``more``."""
    series = series_of({**shapes, **(ill or {})}, steps=steps, noise=noise, start=start)
    return RunView(series={**series, **(more or {})}, config=config or Config(), **fields)  # type: ignore[arg-type]
