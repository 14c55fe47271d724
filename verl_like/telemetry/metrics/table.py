"""Table of all metrics: name, unit, meaning and producer. ``docs/metrics.md`` is generated from it.

python -m verl_like.telemetry.metrics > docs/metrics.md
"""

from __future__ import annotations

from collections.abc import Iterable

from verl_like.config.suggestion import suggestion
from verl_like.telemetry.metrics.actor import ACTOR
from verl_like.telemetry.metrics.critic import CRITIC
from verl_like.telemetry.metrics.environment import ENVIRONMENT
from verl_like.telemetry.metrics.metric import Metric
from verl_like.telemetry.metrics.progress import PROGRESS
from verl_like.telemetry.metrics.prompts import PROMPTS
from verl_like.telemetry.metrics.resources import RESOURCES
from verl_like.telemetry.metrics.reward import REWARD
from verl_like.telemetry.metrics.rollout import ROLLOUT
from verl_like.telemetry.metrics.validation import VALIDATION

OUTSIDE_STEP = ("time/step_s", "time/validation_s")  # not stages of a step: the whole step, and the validation after it
# Metrics that depend on the machine: their values differ when a step is repeated.
OF_THE_MACHINE = (
    "time/",
    "wait/",
    "store/",
    "memory/",
    "perf/tokens_per_s",
    "perf/rollout_tokens_per_s",
    "perf/update_tokens_per_s",
    "perf/update_mfu",
    "rollout/running_max",
    "rollout/waiting_max",
    "rollout/preemptions",
    "rollout/admission_limit",
    "rollout/cached_prompt_tokens",
    "tokens/",  # excludes processes that did not answer in time
    "reward/seconds",
    "env/seconds",
    "env/wait_frac",
    "env/loop_delay_ms",
    "rollout/prefix_cache_hit",
    "sync/seconds",
    "sync/pause_s",
    "sync/gib_per_s",
    "progress/unix_s",
    "checkpoint/",
)

METRICS: tuple[Metric, ...] = (
    *REWARD,
    *ROLLOUT,
    *ENVIRONMENT,
    *ACTOR,
    *CRITIC,
    *PROMPTS,
    *RESOURCES,
    *PROGRESS,
    *VALIDATION,
)


def stages(names: Iterable[str]) -> dict[str, str]:
    """Return metric name -> stage name for the stages of a step among these metrics, in the given sequence."""
    return {
        name: name.removeprefix("time/").removesuffix("_s")
        for name in names
        if name.startswith("time/") and name not in OUTSIDE_STEP
    }


def repeats(name: str) -> bool:
    """Return whether a repeated step reports the same value."""
    return not name.startswith(OF_THE_MACHINE)


def check_name(name: str) -> Metric:
    """Return the table's row for a metric name.

    Raises:
        ValueError: the name is not in the table; the message suggests the nearest one.
    """
    for metric in METRICS:
        if metric.matches(name):
            return metric
    raise ValueError(
        f"metric {name!r} is not in the table; expected stage/what_unit. Add a row to METRICS in "
        f"verl_like.telemetry.metrics{suggestion(name, (metric.pattern for metric in METRICS)) or '.'}"
    )


def markdown() -> str:
    """Return the table as a Markdown page, one section per stage name."""
    lines = [
        "# Metrics",
        "",
        "Made by `python -m verl_like.telemetry.metrics > docs/metrics.md`; edit the table there, not this page.",
        "",
        "Names are `stage/what_unit`. Log-probs, entropy and KL are in nats per token. Means over tokens and "
        "sequences are over the",
        "whole mini-batch, whatever the number of ranks and micro-batches; over the updates of a step they are "
        "averaged.",
    ]
    section = ""
    for metric in METRICS:
        stage = metric.pattern.split("/")[0]
        if stage != section:
            section = stage
            lines += ["", f"## {section}", "", "| metric | unit | meaning | reported by |", "|---|---|---|---|"]
        lines.append(
            f"| `{metric.pattern}` | {metric.unit or '-'} | {metric.sentence.replace('|', chr(92) + '|')} | "
            f"{metric.producer} |"
        )
    return "\n".join(lines) + "\n"
