"""Rules on rewards. Each is one small function, as in :mod:`verl_like.checks.rules`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from verl_like.algorithms.advantages import estimator
from verl_like.checks.paths import refuse_missing_folder
from verl_like.config.schema import Config
from verl_like.graders.judging import check_judging
from verl_like.reward.specs import function_specs


def own_gpus(config: Config) -> dict[str, int]:
    """GPUs that models with workers of their own take, by the knob that asks for them."""
    model, judge = config.reward.model, config.reward.judge
    own = model.path and model.placement == "own"
    return {
        **({"reward.model.num_workers": model.num_workers} if own else {}),
        **({"reward.judge.num_workers": judge.num_workers} if judge.path else {}),
    }


def reward_functions_are_named(config: Config) -> None:
    function_specs(config.reward)


def reward_files_exist(config: Config) -> None:
    for spec in function_specs(config.reward):
        file, colon, _ = spec.function.rpartition(":")
        if colon and file.endswith(".py") and not Path(file).expanduser().is_file():
            raise ValueError(
                f"{spec.knob} is {spec.function}, but there is no file {file} (looked from {Path.cwd()}). Correct the "
                f"path."
            )


def scoring_models_exist(config: Config) -> None:
    for name, path in (
        ("reward.model.path", config.reward.model.path),
        ("reward.judge.path", config.reward.judge.path),
    ):
        if path:
            refuse_missing_folder(name, path, needs_file="config.json", prepare_command=config.trainer.prepare_command)


def judge_engines_are_whole(config: Config) -> None:
    judge = config.reward.judge
    if judge.num_workers % judge.tensor_parallel_size:
        raise ValueError(
            f"reward.judge.num_workers is {judge.num_workers}, which is no multiple of "
            f"reward.judge.tensor_parallel_size="
            f"{judge.tensor_parallel_size}. Set it to {judge.tensor_parallel_size} or a multiple."
        )
    if judge.backend == "hf" and judge.tensor_parallel_size > 1:
        raise ValueError(
            f"reward.judge.tensor_parallel_size is {judge.tensor_parallel_size}, but reward.judge.backend=hf "
            f"generates on one "
            "rank at a time. Set it to 1, or reward.judge.backend=vllm."
        )
    if judge.max_tokens >= judge.max_model_len:
        raise ValueError(
            f"reward.judge.max_tokens is {judge.max_tokens}, which leaves no room for a question in "
            f"reward.judge.max_model_len={judge.max_model_len}. Raise the latter."
        )


def a_judge_can_be_asked(config: Config) -> None:
    judge = config.reward.judge
    if judge.path:
        try:
            check_judging(judge.template, pattern=judge.score_pattern, max_score=judge.max_score)
        except ValueError as error:
            raise ValueError(f"reward.judge: {error}") from error


def baselines_are_scored_by_all(config: Config) -> None:
    model = config.reward.model
    if (
        model.path
        and model.placement == "colocated"
        and "baseline_rewards" in estimator(config.algorithm.adv_estimator).needs
    ):
        raise ValueError(
            f"algorithm.adv_estimator={config.algorithm.adv_estimator} needs the score of a greedy response, which a "
            "colocated reward model does not see. Set reward.model.placement=own."
        )


REWARD_RULES: tuple[Callable[[Config], None], ...] = (
    reward_functions_are_named,
    reward_files_exist,
    scoring_models_exist,
    judge_engines_are_whole,
    a_judge_can_be_asked,
    baselines_are_scored_by_all,
)
