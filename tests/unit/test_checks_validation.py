"""The metric that decides the best checkpoint is one that validation will give."""

from __future__ import annotations

import pytest

from verl_like.checks.gpus import Gpus
from verl_like.checks.validation import best_metric_problem, generation_has_a_validation
from verl_like.config.schema import Config
from verl_like.training.validation_metrics import ValidationSample, validation_metrics

SOURCES = ["gsm8k", "openai/gsm8k"]


def problem(metric: str, sources: list[str] | None) -> str | None:
    config = Config()
    config.rollout.val.n, config.trainer.best_metric = 4, metric
    return best_metric_problem(config, sources)


def test_every_name_that_validation_gives_passes() -> None:
    samples = [
        ValidationSample(uid="a", data_source=source, response="1", score=1.0, details={"length": 3.0})
        for source in SOURCES
    ]
    names = validation_metrics(samples, n=4)
    assert "val/openai/gsm8k/length/mean@4" in names and "val/num_failed" in names
    for name in names:
        assert problem(name, SOURCES) is None and problem(name, None) is None, name


@pytest.mark.parametrize(
    "metric", ["val/accuracy", "val/mean@1", "mean@4", "reward/score_mean", "val/gsm8k/mean@8", "val//mean@4"]
)
def test_a_name_of_another_form_is_refused_before_any_row_is_read(metric: str) -> None:
    text = problem(metric, None)
    assert text is not None
    assert text.startswith(f"trainer.best_metric is {metric!r}, but validation gives val/mean@4, val/pass@4, val/maj@4")


def test_a_source_that_has_no_rows_is_refused_with_the_nearest_name() -> None:
    assert problem("val/gsm8/pass@4", None) is None
    text = problem("val/gsm8/pass@4", SOURCES)
    assert text is not None and text.endswith("; did you mean val/gsm8k/pass@4?")
    assert problem("val/maths/length/mean@4", SOURCES) is not None


def test_the_only_source_has_its_own_details_and_the_rest_without_its_name() -> None:
    assert problem("val/gsm8k/length/mean@4", ["gsm8k"]) is None
    text = problem("val/gsm8k/mean@4", ["gsm8k"])
    assert text is not None and "; did you mean val/mean@4?" in text


def test_empty_means_the_mean_over_all_rows() -> None:
    assert problem("", SOURCES) is None


@pytest.mark.parametrize(
    ("has_rows", "before", "every", "validates"),
    [(True, True, 0, True), (True, False, 5, True), (True, False, 0, False), (False, True, 5, False)],
)
def test_training_validates_unless_both_ways_to_ask_for_it_are_off(
    has_rows: bool, before: bool, every: int, validates: bool
) -> None:
    config = Config()
    config.data.val_files = ["val.parquet"] if has_rows else []
    config.trainer.val_before_train, config.trainer.test_freq = before, every
    assert config.validates == validates


@pytest.mark.parametrize(
    ("files", "every", "found", "remedy"),
    [
        ([], 5, "data.val_files is empty", "Set data.val_files=[path/to/val.parquet]"),
        (
            ["val.parquet"],
            0,
            "trainer.test_freq and trainer.val_before_train turn validation off",
            "Set trainer.test_freq=50",
        ),
    ],
)
def test_generating_in_a_validation_that_never_runs_is_refused(
    files: list[str], every: int, found: str, remedy: str
) -> None:
    config = Config()
    config.data.val_files, config.trainer.val_before_train, config.trainer.test_freq = files, False, every
    assert not list(generation_has_a_validation(config, Gpus(0)))
    config.sft.val_generate = True
    [text] = generation_has_a_validation(config, Gpus(0))
    assert text.startswith(f"sft.val_generate is true, but {found}. {remedy}, or sft.val_generate=false.")
    config.trainer.val_only = True  # of eval, which validates anyway
    assert not list(generation_has_a_validation(config, Gpus(0)))


def test_the_loss_is_a_metric_of_supervised_training_that_generates() -> None:
    config = Config()
    config.trainer.best_metric = "val/loss"
    assert best_metric_problem(config) is not None
    config.sft.val_generate = True
    assert best_metric_problem(config) is None
