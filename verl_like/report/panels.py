"""Which metrics a report draws, together in which chart; metrics that no chart names get charts of their kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from verl_like.reward.scorer_messages import FAILURES
from verl_like.telemetry.metrics import METRICS, Metric, stages

LINES, STACK = "lines", "stack"
LEARNING, POLICY, LENGTHS, ENVIRONMENT = "Learning", "Policy", "Lengths", "Environment"
ASYNCHRONY, TIME, MEMORY, OTHER = "Asynchrony", "Time", "Memory and store", "Other"
SECTIONS = (LEARNING, POLICY, LENGTHS, ENVIRONMENT, ASYNCHRONY, TIME, MEMORY, OTHER)
# Constant, or of no meaning as a curve.
NOT_DRAWN = ("progress/unix_s", "sync/checksum", "*/is_compiled", "*/has_compiled_layers")
MAX_OTHER_LINES = 8  # in a chart that is made of a kind of metrics


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart: its title, unit and section, and patterns of the metrics that it draws."""

    title: str
    section: str
    unit: str
    patterns: tuple[str, ...]
    scale: str = "linear"
    kind: str = LINES


PANELS = (
    Panel("Score", LEARNING, "score", ("reward/score_mean", "val/mean@*", "val/maj@*")),
    Panel("Validation", LEARNING, "score", ("val/*@*",)),
    Panel("Loss", LEARNING, "nats", ("sft/loss", "dpo/loss", "rm/loss", "val/loss")),
    Panel("Accuracy", LEARNING, "fraction", ("dpo/accuracy", "rm/accuracy", "val/accuracy")),
    Panel("Chosen and rejected", LEARNING, "nats", ("dpo/reward_*", "rm/score_*", "val/reward_*", "val/score_margin")),
    Panel("Spread of the scores", LEARNING, "score", ("reward/score_std", "reward/score_min", "reward/score_max")),
    Panel("Signal of the groups", LEARNING, "fraction", ("rollout/signal_frac",)),
    Panel("Components of the score", LEARNING, "", ("reward/*/mean",)),
    Panel(
        "Failed scores",
        LEARNING,
        "rows",
        (*(f"reward/num_{kind}" for kind in ("failed", *FAILURES)), "reward/unreadable", "val/num_failed"),
    ),
    Panel("Entropy", POLICY, "nats per token", ("rollout/entropy_mean", "actor/entropy")),
    Panel(
        "KL divergence", POLICY, "nats", ("actor/ppo_kl", "actor/kl_loss", "reward/kl_penalty_mean", "*/kl", "*kl_k3")
    ),
    Panel("Clipped tokens", POLICY, "fraction", ("actor/clip_frac*", "critic/value_clip_frac", "actor/cov_frac")),
    Panel("Log-probs, engine against trainer", POLICY, "nats", ("rollout/log_prob_diff_*",), scale="log"),
    Panel("Gradient norm", POLICY, "", ("*/grad_norm",)),
    Panel("Losses of the update", POLICY, "", ("*/loss", "actor/*_loss", "actor/distill_loss/*", "critic/value_loss")),
    Panel("Learning rate", POLICY, "", ("*/lr",)),
    Panel("Advantages", POLICY, "", ("advantages/*",)),
    Panel("Importance weights", POLICY, "", ("actor/correction_*_mean", "actor/correction_*_frac", "actor/ratio_mean")),
    Panel("Response length", LENGTHS, "tokens", ("rollout/response_tokens_*", "rollout/prompt_tokens_mean")),
    Panel("Responses cut off", LENGTHS, "fraction", ("rollout/length_finish_frac",)),
    Panel("Turns and tool calls", ENVIRONMENT, "per episode", ("env/turns", "env/tool_calls")),
    Panel("Failed tool calls", ENVIRONMENT, "calls", ("env/tool_errors", "env/malformed_calls")),
    Panel("Failures of environments", ENVIRONMENT, "episodes", ("env/failures",)),
    Panel("Staleness", ASYNCHRONY, "updates", ("rollout/staleness_*",)),
    Panel("Responses of several versions", ASYNCHRONY, "fraction", ("rollout/mixed_versions_frac",)),
    Panel("Seconds of a step", TIME, "seconds", ("time/*",), kind=STACK),
    Panel("Waits of a worker", TIME, "seconds", ("wait/*",)),
    Panel("Throughput", TIME, "tokens/s", ("perf/*_per_s",)),
    Panel("Memory of a worker", MEMORY, "GiB", ("memory/*",)),
    Panel("Object store", MEMORY, "bytes", ("store/*_bytes",)),
    Panel("References and blocks", MEMORY, "", ("store/live_references", "store/blocks")),
)


def panels(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the charts that have at least one of these metrics, in the sequence of the page."""
    left = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in NOT_DRAWN)]
    found = []
    for panel in PANELS:
        drawn = [name for pattern in panel.patterns for name in left if fnmatchcase(name, pattern)]
        drawn = list(dict.fromkeys(drawn))
        if panel.kind == STACK:
            drawn = [*stages(drawn), *(["time/step_s"] if "time/step_s" in drawn else [])]
        if drawn:
            found.append(_entry(panel, drawn))
            left = [name for name in left if name not in drawn]
    found += [_entry(panel, drawn) for panel, drawn in _of_kinds(left)]
    return sorted(found, key=lambda entry: SECTIONS.index(entry["section"]))


def _of_kinds(names: Iterable[str]) -> Iterable[tuple[Panel, list[str]]]:
    """Yield charts of the remaining metrics, by their first word and unit."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name in names:
        kinds.setdefault((name.partition("/")[0], unit_of(name)), []).append(name)
    for (word, unit), drawn in kinds.items():
        for start in range(0, len(drawn), MAX_OTHER_LINES):
            some = drawn[start : start + MAX_OTHER_LINES]
            title = some[0] if len(some) == 1 else f"{word}{f', {unit}' if unit else ''}"
            yield Panel(title, OTHER, unit, ()), some


def _entry(panel: Panel, metrics: list[str]) -> dict[str, Any]:
    return {
        "id": re.sub(r"[^a-z0-9]+", "-", f"{panel.section} {panel.title} {metrics[0]}".lower()).strip("-"),
        "title": panel.title,
        "section": panel.section,
        "unit": panel.unit,
        "scale": panel.scale,
        "kind": panel.kind,
        "metrics": metrics,
    }


def row_of(name: str) -> Metric | None:
    """Return the row of a metric in the table of metrics; None for one that another version logged."""
    return next((metric for metric in METRICS if metric.matches(name)), None)


def unit_of(name: str) -> str:
    """Return the unit of a metric; empty if it has none or is unknown."""
    row = row_of(name)
    return row.unit if row else ""


def described(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the meaning of each metric that is known."""
    rows = {name: row_of(name) for name in names}
    return {name: {"sentence": row.sentence} for name, row in rows.items() if row}
