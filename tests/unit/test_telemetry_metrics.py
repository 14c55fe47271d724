"""The table of metric names: what it matches, that names in the code are in it, and that the page made from it is
current.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from verl_like.algorithms.actor_loss import ActorLoss, SftLoss
from verl_like.algorithms.critic_loss import CriticLoss
from verl_like.algorithms.types import BatchTotals
from verl_like.config.schema import ActorConfig, CriticConfig
from verl_like.telemetry.metrics import METRICS, check_name, markdown

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("reward/score_mean", "reward/score_mean"),
        ("time/step_s", "time/step_s"),
        ("time/old_log_probs_s", "time/<stage>_s"),
        ("val/mean@16", "val/mean@<n>"),
        ("val/openai/gsm8k/pass@4", "val/<source>/pass@<n>"),
        ("actor/distill_loss/openai/gsm8k", "actor/distill_loss/<teacher>"),
    ],
)
def test_names_and_patterns_match(name: str, pattern: str) -> None:
    assert check_name(name).pattern == pattern


@pytest.mark.parametrize("name", ["val/mean@k", "time/_s", "reward/score_mean_", "xreward/score_mean", "val//mean@1"])
def test_near_misses_do_not_match(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        check_name(name)


def test_an_unknown_name_gets_a_suggestion_and_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"Add a row to METRICS.*did you mean actor/grad_norm"):
        check_name("actor/gradnorm")


def test_every_row_is_complete_and_named_once() -> None:
    patterns = [metric.pattern for metric in METRICS]
    assert len(patterns) == len(set(patterns))
    for metric in METRICS:
        assert re.fullmatch(r"[a-z]+(/[a-z0-9_@<>]+)+", metric.pattern), metric.pattern
        assert metric.sentence.endswith(".") and metric.producer


def test_losses_report_names_of_the_table_only() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    zeros = torch.zeros(1, 2)
    columns = {
        "response_mask": mask,
        **dict.fromkeys(("old_log_probs", "ref_log_probs", "advantages", "values", "returns"), zeros),
    }
    outputs = {"log_probs": zeros, "entropy": zeros, "values": zeros}
    totals = BatchTotals(num_tokens=2, num_sequences=1, max_response_tokens=2)
    losses = (
        ActorLoss(ActorConfig(entropy_coef=1, kl_loss_coef=1, clip_ratio_dual=3)),
        CriticLoss(CriticConfig()),
        SftLoss(),
    )
    names = {name for loss in losses for name in loss(outputs, columns, totals).metrics}
    assert len(names) == 12
    for name in names:
        check_name(name)


def test_the_page_is_current() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == markdown(), (
        "run `python -m verl_like.telemetry.metrics > docs/metrics.md`"
    )
