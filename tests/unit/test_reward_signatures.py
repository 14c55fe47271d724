"""Reward functions as people bring them along: which form they have, what they are given, what they may return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit._reward import sample
from verl_like.config.user_code import from_file
from verl_like.reward.functions import BatchFailed, Scoring
from verl_like.reward.results import check_result, split_results
from verl_like.reward.scorer_messages import Outcome, Sample
from verl_like.reward.signatures import FORMS, bind
from verl_like.reward.specs import FunctionSpec

CHAT = [{"role": "user", "content": "6*7="}]
TWO = [sample("42", "42", columns={"level": 1}, split="train"), sample("43", "42", columns={"level": 2})]

# One file per project, as its users write it; each gives 1 for the right answer.
PROJECTS = {
    "verl": """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)
""",
    "verl, batch": """
def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
    return [float(s == t) for s, t in zip(solution_strs, ground_truths)]
""",
    "EasyR1, sequential": """
REWARD_NAME = "math"
REWARD_TYPE = "sequential"

def compute_score(reward_input: dict, format_weight: float = 0.1) -> dict:
    right = float(reward_input["response"] == reward_input["ground_truth"])
    return {"overall": right, "format": 1.0, "accuracy": right}
""",
    "EasyR1, batch": """
REWARD_NAME = "math"
REWARD_TYPE = "batch"

def compute_score(inputs: list) -> list:
    assert all(each["response_length"] == 2 for each in inputs)
    return [{"overall": float(each["response"] == each["ground_truth"])} for each in inputs]
""",
    "OpenRLHF": """
import torch

def compute_score(queries, prompts, labels, **kwargs):
    right = torch.tensor([q == p + l for q, p, l in zip(queries, prompts, labels)], dtype=torch.float)
    return {"rewards": right, "scores": right.clamp(0, 1), "extra_logs": {"length": torch.tensor([len(q) for q in queries])}}
""",  # noqa: E501
    "TRL": """
def compute_score(prompts, completions, ground_truth, level, **kwargs):
    assert level == [1, 2][: len(level)] or level == [2]
    return [float(c == t) for c, t in zip(completions, ground_truth)]
""",
}


def scores(function: Callable[..., Any], samples: list[Sample], **kwargs: Any) -> list[float]:
    bound = bind(function, kwargs, name="f")
    values = split_results(bound(samples), len(samples)) if bound.form.is_batch else [bound([each]) for each in samples]
    return [check_result(value)[0] for value in values]


@pytest.mark.parametrize("project", list(PROJECTS))
def test_a_file_written_for_another_project_runs_as_it_is(project: str, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(PROJECTS[project])
    function = from_file(tmp_path / "reward.py", "compute_score", option="reward.function")
    assert bind(function, {}, name="f").form is FORMS[project]
    assert scores(function, TWO) == [1.0, 0.0]


def test_every_known_form_has_an_example_here() -> None:
    assert set(PROJECTS) == set(FORMS)


def test_a_function_is_given_only_what_it_names() -> None:
    def brief(solution_str: str, response_length: int) -> float:
        return response_length + float(solution_str == "42")

    assert scores(brief, TWO) == [3.0, 2.0]


def test_a_function_of_any_keywords_is_given_all_of_one_sample() -> None:
    def anything(**sample: Any) -> float:
        return float(
            sorted(sample)
            == [
                "data_source",
                "extra_info",
                "ground_truth",
                "messages",
                "prompt_str",
                "response_length",
                "solution_str",
            ]
        )

    assert scores(anything, TWO[:1]) == [1.0]


def test_functions_of_verl_find_in_extra_info_what_its_managers_put_there() -> None:
    def one(data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]) -> float:
        assert extra_info == {"split": "train", "num_turns": 2, "rollout_reward_scores": {}}
        extra_info["seen"] = True  # in its own dict
        return 1.0

    def many(
        data_sources: list[str], solution_strs: list[str], ground_truths: list[Any], extra_infos: list[dict[str, Any]]
    ) -> list[float]:
        return [float(extra["num_turns"]) for extra in extra_infos]

    assert scores(one, TWO[:1]) == scores(one, TWO[:1]) == [1.0]
    assert scores(many, [sample("42"), sample("42", num_turns=5)]) == [2.0, 5.0]


def test_functions_of_verl_may_leave_to_kwargs_what_they_do_not_read() -> None:
    def one(ground_truth: str, strict: bool = False, **kwargs: Any) -> float:
        return float(kwargs["solution_str"] == ground_truth) + float(strict)

    def nothing_named(strict: bool = False, **kwargs: Any) -> float:
        return float(kwargs["solution_str"] == kwargs["ground_truth"])

    def many(ground_truths: list[str], **kwargs: Any) -> list[float]:
        return [float(s == t) for s, t in zip(kwargs["solution_strs"], ground_truths, strict=True)]

    assert scores(one, TWO, strict=True) == [2.0, 1.0]
    assert scores(nothing_named, TWO) == scores(many, TWO) == [1.0, 0.0]


def test_trl_functions_are_given_chat_lists_where_the_prompt_is_one() -> None:
    def function(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float]:
        assert prompts == [CHAT] and completions == [[{"role": "assistant", "content": "42"}]]
        assert columns["extra_info"] == [{"split": "train"}] and columns["data_source"] == ["s"]
        return [1.0]

    assert scores(function, [sample("42", messages=CHAT, split="train")]) == [1.0]


def test_trl_functions_may_ask_for_token_ids() -> None:
    def longer_is_better(completion_ids: list[list[int]], **kwargs: Any) -> list[float]:
        return [float(len(ids)) for ids in completion_ids]

    assert scores(longer_is_better, [sample("abc"), sample("")]) == [3.0, 0.0]


def test_kwargs_of_the_configuration_win_and_are_checked() -> None:
    def weighted(solution_str: str, weight: float = 1.0) -> float:
        return weight

    assert scores(weighted, TWO, weight=3.0) == [3.0, 3.0]
    with pytest.raises(ValueError, match=r"takes no wieght"):
        bind(weighted, {"wieght": 3.0}, name="f")


def test_an_unknown_form_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"\(answer\).*none of the known forms(.|\n)*EasyR1, batch: compute_score\(reward_inputs\)"
    ):
        bind(lambda answer: 1.0, {}, name="f")


def test_a_parameter_that_nothing_fills_is_refused() -> None:
    def wants_more(solution_str: str, rubric: str) -> float:
        return 1.0

    with pytest.raises(ValueError, match=r"nothing fills rubric; a function of this form may take data_source"):
        bind(wants_more, {}, name="f")
    assert scores(wants_more, TWO, rubric="strict") == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (torch.tensor(0.25), 0.25),
        (np.array(2.0), 2.0),
        ({"score": 1}, 1.0),
        ({"overall": 0.5, "format": 1}, 0.5),
    ],
)
def test_numbers_and_dicts_with_one_are_scores(value: Any, expected: float) -> None:
    assert check_result(value)[0] == expected


def test_other_entries_are_kept_as_numbers_or_text() -> None:
    _, details = check_result({"score": 1, "acc": True, "tensor": torch.tensor(3), "pred": [1, 2], "form/strict": 1})
    assert details == {"acc": 1.0, "tensor": 3.0, "pred": "[1, 2]", "form_strict": 1.0}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"returned None \(NoneType\)"),
        ("1", r"returned '1' \(str\)"),
        (float("nan"), "returned nan"),
        (float("inf"), "returned inf"),
        ({"acc": 1}, r"dict with \['acc'\]; expected the key 'score'"),
        ({"score": None}, r"its score must be a number"),
        ([1.0], r"returned \[1.0\] \(list\)"),
    ],
)
def test_anything_else_is_refused_with_what_was_found(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_result(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0], "list of length 1 for 2 samples"),
        ([1.0] * 3, "list of length 3 for 2 samples"),
        (1.0, r"returned 1.0 \(float\) for 2"),
        (None, r"returned None"),
        ("ok", "returned 'ok'"),
        ({"rewards": [1.0]}, "length 1 for 2 samples; its score must have one value"),
        ({"score": [1.0, 1.0]}, "must be a list"),
    ],
)
def test_a_batch_of_another_length_or_kind_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_results(value, 2)


def test_openrlhf_logs_become_details_of_each_sample() -> None:
    split = split_results({"rewards": torch.tensor([1.0, 0.0]), "extra_logs": {"length": [3, 4]}}, 2)
    assert [check_result(value) for value in split] == [(1.0, {"length": 3.0}), (0.0, {"length": 4.0})]


# --- several rewards

REWARDS = """
def right(solution_str, ground_truth):
    return {"score": float(solution_str == ground_truth), "acc": float(solution_str == ground_truth), "pred": solution_str}

def short(completions, **kwargs):
    return [-len(c) for c in completions]

def sometimes(completions, **kwargs):
    return [None if c == "42" else 1.0 for c in completions]

def never(completions, **kwargs):
    return [None] * len(completions)

async def later(solution_str):
    return {"score": 2.0, "note": "n"}

def wrong(solution_str):
    return "x"

def down(completions, **kwargs):
    raise RuntimeError("service down")

def sometimes_nan(completions, **kwargs):
    return [float("nan") if c == "42" else 1.0 for c in completions]
"""  # noqa: E501


def outcomes(tmp_path: Path, names: dict[str, float], samples: list[Sample] | None = None) -> list[Outcome]:
    file = tmp_path / "rewards.py"
    file.write_text(REWARDS)
    scoring = Scoring(
        [FunctionSpec(name, f"{file}:{name}", {}, weight) for name, weight in names.items()],
        max_concurrency=4,
        timeout_s=5,
    )
    return [outcome for _, outcome in sorted(scoring.outcomes(samples or TWO), key=lambda pair: pair[0])]


def test_several_rewards_add_up_by_weight_and_each_is_reported(tmp_path: Path) -> None:
    first, second = outcomes(tmp_path, {"right": 1.0, "short": 0.1})
    assert first.score == pytest.approx(1.0 - 0.2) and second.score == pytest.approx(-0.2)
    assert first.details == {"right": 1.0, "acc": 1.0, "pred": "42", "short": -2.0}


def test_sync_async_and_batch_functions_mix(tmp_path: Path) -> None:
    first, _ = outcomes(tmp_path, {"right": 1.0, "later": 1.0, "short": 0.5})
    assert first.score == pytest.approx(1 + 2 - 1) and first.details["later.note"] == "n"
    first, _ = outcomes(tmp_path, {"right": 1.0, "later": 1.0})
    assert first.score == 3.0


def test_a_function_of_several_may_not_apply(tmp_path: Path) -> None:
    first, second = outcomes(tmp_path, {"right": 1.0, "sometimes": 1.0})
    assert (first.score, second.score) == (1.0, 1.0) and "sometimes" not in first.details
    [neither] = outcomes(tmp_path, {"never": 1.0, "sometimes": 1.0}, TWO[:1])
    assert neither.status == "error" and "none of reward.functions (never, sometimes) gave a score" in neither.message


def test_one_failing_function_fails_the_sample_by_name(tmp_path: Path) -> None:
    [outcome] = outcomes(tmp_path, {"right": 1.0, "wrong": 1.0}, TWO[:1])
    assert (
        outcome.status == "error"
        and "reward.functions.wrong: the reward function returned 'x' (str)" in outcome.message
    )


def test_a_batch_that_raises_names_no_sample(tmp_path: Path) -> None:
    with pytest.raises(BatchFailed, match=r"RuntimeError: service down"):
        outcomes(tmp_path, {"short": 1.0, "down": 1.0})


def test_a_batch_with_one_bad_value_fails_that_sample_alone(tmp_path: Path) -> None:
    first, second = outcomes(tmp_path, {"short": 1.0, "sometimes_nan": 1.0})
    assert (
        first.status == "error" and "reward.functions.sometimes_nan: the reward function returned nan" in first.message
    )
    assert (second.status, second.score) == ("ok", -1.0)


def of_episode(**attributes: Any) -> Sample:
    return replace(sample("42"), episode={"prompt": CHAT, "completion": [], "environment": attributes})


def test_trl_functions_get_what_is_left_of_the_environments() -> None:
    def reached(environments: list[Any], **kwargs: Any) -> list[float]:
        return [float(each.reward) + each.board[1] for each in environments]

    found = of_episode(reward=1, board=[0, 2])
    assert scores(reached, [found]) == [3.0]


def test_an_attribute_that_no_environment_has_left_is_an_error_that_names_the_others() -> None:
    def moved(environments: list[Any], **kwargs: Any) -> list[float]:
        return [each.moves() for each in environments]

    found = of_episode(reward=1, board=[])
    with pytest.raises(AttributeError, match=r"no attribute 'moves' of the environment; .* \(board, reward\), and no"):
        scores(moved, [found])


def test_a_trl_function_of_a_run_without_environments_gets_none() -> None:
    def function(completions: list[Any], **kwargs: Any) -> list[float]:
        return [float("environments" in kwargs)]

    assert scores(function, TWO[:1]) == [0.0]
