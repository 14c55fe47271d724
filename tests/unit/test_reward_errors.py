"""What the author of a reward function sees of its error: the sentence and their own frames, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit._reward import sample, task
from verl_like.config.schema import RewardConfig
from verl_like.config.user_code import PACKAGE, error_text
from verl_like.reward.functions import BatchFailed, Scoring
from verl_like.reward.scorer_messages import Outcome
from verl_like.reward.trial import try_reward
from verl_like_graders import choice
from verl_like_graders.programs.code_tests import read_tests

SOURCE = """
def of(text):
    return text.no_such

def raises(solution_str):
    return of(solution_str)

def chained(solution_str):
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("the service said no") from error

async def awaited(solution_str):
    raise RuntimeError("no answer")

def batch(prompts, completions, **columns):
    raise RuntimeError("not one of them")

def columns(prompts, completions, rubric):
    return [1.0]

def nothing(solution_str):
    return None

def short(prompts, completions, **columns):
    return []

def not_a_number(solution_str):
    raise ValueError("the answer is no number")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def outcome(function: str) -> Outcome:
    scoring = Scoring(task(function).functions, max_concurrency=1, timeout_s=5.0)
    try:
        [(_, found)] = scoring.outcomes([sample("1")])
    except BatchFailed as error:
        return error.outcome
    return found


@pytest.mark.parametrize(
    ("name", "lines", "sentence"),
    [
        ("raises", [6, 3], "AttributeError: 'str' object has no attribute 'no_such'"),
        ("chained", [10, 12], "RuntimeError: the service said no"),
        ("awaited", [15], "RuntimeError: no answer"),
        ("batch", [18], "RuntimeError: not one of them"),
        ("columns", [], "TypeError: columns() missing 1 required positional argument: 'rubric'"),
        ("not_a_number", [30], "ValueError: the answer is no number"),
    ],
)
def test_an_error_of_a_function_shows_the_authors_frames_and_none_of_ours(
    file: Path, name: str, lines: list[int], sentence: str
) -> None:
    message = outcome(f"{file}:{name}").message
    assert [int(line.split("line ")[1].split(",")[0]) for line in message.splitlines() if str(file) in line] == lines
    assert message.splitlines()[-1] == sentence and message.count(sentence) == 1
    assert PACKAGE not in message and "importlib" not in message


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "the reward function returned None (NoneType) where it must be a number; expected a number, or"),
        ("short", "the reward function returned a list of length 0 for 1 samples; it must have one value per sample"),
    ],
)
def test_a_result_that_is_none_is_one_sentence(file: Path, name: str, sentence: str) -> None:
    message = outcome(f"{file}:{name}").message
    assert message.startswith(sentence) and "\n" not in message


def test_an_internal_error_keeps_its_location(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verl_like.reward.functions.Scoring._value", None)  # as if a call had been misspelt
    message = outcome("gsm8k").message
    assert "in _one" in message and message.endswith("TypeError: 'NoneType' object is not callable")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("source", "last"),
    [
        ("import json\nimport no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\ndef score(:\n", "SyntaxError: invalid syntax"),
    ],
)
def test_an_import_that_fails_shows_the_line_of_the_file(tmp_path: Path, source: str, last: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(source)
    with pytest.raises(ValueError) as refused:
        try_reward(RewardConfig(function=f"{path}:score"), {})
    first, *shown, remedy = str(refused.value).splitlines()
    assert first == f"reward.function={path}:score: importing {path} failed:" and remedy == "Correct the file."
    assert shown[0] == f'  File "{path}", line 2' + (", in <module>" if "import" in source else "")
    assert shown[-1] == last and not any("importlib" in line or PACKAGE in line for line in shown)


@pytest.mark.processes
def test_the_trial_prints_the_sentence_once(file: Path) -> None:
    with pytest.raises(ValueError) as refused:
        try_reward(RewardConfig(function=f"{file}:nothing"), {"row 3": sample("1")})
    head, sentence, remedy = str(refused.value).splitlines()
    assert "was tried on prompt row 3" in head and sentence.startswith("the reward function returned None")
    assert remedy.startswith("Correct the function, or the row")


def raising(*args: Any) -> str:
    raise KeyError("a mistake of the grader")


def test_a_mistake_in_reading_a_response_is_scored_0_by_a_scorer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "chosen_letter", raising)
    scoring = Scoring(task("choice").functions, max_concurrency=1, timeout_s=5.0)
    [(_, outcome)] = scoring.outcomes([sample("Answer: B", "B")])
    assert (outcome.status, outcome.score) == ("ok", 0.0)
    assert outcome.details == {"acc": 0.0, "pred": "", "unreadable": 1.0}


def test_a_value_error_of_a_grader_is_a_sentence_without_frames() -> None:
    with pytest.raises(ValueError, match="expected tests") as caught:
        read_tests("no tests")
    error = caught.value.with_traceback(caught.tb.tb_next)  # without the frame of this test
    assert error.__traceback__ is not None and error_text(error) == str(error)
