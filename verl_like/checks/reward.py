"""Rules on rewards. Each yields problems: found, expected, remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.config.user_code import given_again
from verl_like.reward.specs import function_specs
from verl_like_graders import GRADERS
from verl_like_graders.judging import check_judging


def own_gpus(config: Config) -> dict[str, int]:
    """Return {option: number of GPUs} of models with separate workers."""
    model, judge = config.reward.model, config.reward.judge
    own = model.path and model.placement == "own"
    return {
        **({"reward.model.num_workers": model.num_workers} if own else {}),
        **({"reward.judge.num_workers": judge.num_workers} if judge.path else {}),
    }


def reward_functions_are_known(config: Config) -> Iterator[str]:
    try:
        specs = function_specs(config.scoring)
    except ValueError as error:
        yield str(error)
        return
    for spec in specs:
        if spec.function and ":" not in spec.function and spec.function not in GRADERS:
            yield (
                f"{spec.option} is {spec.function!r}; expected path/to/file.py:name, or one of {', '.join(GRADERS)}"
                f"{suggestion(spec.function, GRADERS) or '.'}"
            )


def reward_files_exist(config: Config) -> Iterator[str]:
    try:
        specs = function_specs(config.scoring)
    except ValueError:  # reward_functions_are_known reports it
        return
    for spec in specs:
        file, _, _ = spec.function.rpartition(":")
        if file.endswith(".py") and not Path(file).expanduser().is_file():
            yield (
                f"{spec.option} is {spec.function}, but there is no file {file} (looked from {Path.cwd()}). "
                f"{given_again(Path(file), spec.option) or 'Correct the path.'}"
            )


def judge_engines_have_all_ranks(config: Config) -> Iterator[str]:
    judge = config.reward.judge
    if judge.num_workers % judge.tensor_parallel_size:
        yield (
            f"reward.judge.num_workers is {judge.num_workers}, which is not a multiple of "
            f"reward.judge.tensor_parallel_size="
            f"{judge.tensor_parallel_size}. Set it to {judge.tensor_parallel_size} or a multiple."
        )
    if judge.backend == "hf" and judge.tensor_parallel_size > 1:
        yield (
            f"reward.judge.tensor_parallel_size is {judge.tensor_parallel_size}, but reward.judge.backend=hf generates "
            "on one rank at a time. Set it to 1, or reward.judge.backend=vllm."
        )
    if judge.max_tokens >= judge.max_model_len:
        yield (
            f"reward.judge.max_tokens is {judge.max_tokens}, which leaves no tokens for the prompt in "
            f"reward.judge.max_model_len={judge.max_model_len}. Raise the latter."
        )


def judge_template_is_valid(config: Config) -> Iterator[str]:
    judge = config.reward.judge
    if judge.path:
        try:
            check_judging(judge.template, pattern=judge.score_pattern, max_score=judge.max_score)
        except ValueError as error:
            yield f"reward.judge: {error}"


REWARD_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    reward_functions_are_known,
    judge_engines_have_all_ranks,
    judge_template_is_valid,
)
