"""Rules on environments: the message says what was found, what is expected and the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from verl_like.checks.data import first_rows_have_their_columns
from verl_like.checks.environment import ENVIRONMENT_RULES, environment_files_exist
from verl_like.config.schema import Config


def problems(config: Config, **environment: Any) -> list[str]:
    for name, value in environment.items():
        setattr(config.environment, name, value)
    return [problem for rule in (*ENVIRONMENT_RULES, environment_files_exist) for problem in rule(config)]


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "game.py").touch()
    return str(tmp_path / "game.py")


def test_a_run_without_environment_and_one_with_tools_pass(file: str) -> None:
    assert problems(Config()) == []
    assert problems(Config(), tools=file, max_turns=3, python=sys.executable) == []


def test_options_that_nothing_reads_are_refused_by_name() -> None:
    [problem] = problems(Config(), max_turns=3, python=sys.executable)
    assert problem.startswith("environment.python, environment.max_turns are set, but environment.path and")


@pytest.mark.parametrize(
    ("path", "says"), [("{}", "expected path/to/file.py:name"), ("game", "expected path/to/file.py:name")]
)
def test_a_path_names_a_file_and_an_object(file: str, path: str, says: str) -> None:
    [problem] = problems(Config(), path=path.format(file))
    assert says in problem


def test_an_environment_and_tools_at_once_are_refused(file: str) -> None:
    [problem] = problems(Config(), path=f"{file}:Game", tools=file)
    assert "expected one of the two" in problem


def test_missing_files_and_interpreters_are_named(file: str) -> None:
    [problem] = problems(Config(), tools="nowhere/tools.py")
    assert "environment.tools names the file nowhere/tools.py, which does not exist" in problem
    [problem] = problems(Config(), tools=file, python="nowhere/bin/python")
    assert "environment.python is nowhere/bin/python, which is no program" in problem


def test_turns_need_a_chat_template_and_whole_prompts(file: str) -> None:
    config = Config()
    config.data.apply_chat_template, config.data.overlong_prompts = False, "truncate"
    first, second = problems(config, tools=file)
    assert "Set data.apply_chat_template=true" in first and "Set data.overlong_prompts=drop or error" in second


def test_an_episode_fits_the_response_of_its_row_and_a_turn_its_episode(file: str) -> None:
    [problem] = problems(Config(), tools=file, max_episode_tokens=513)
    assert "max_episode_tokens is 513, but data.max_response_length is 512" in problem
    [problem] = problems(Config(), tools=file, max_turn_tokens=600)
    assert "max_turn_tokens is 600, more than the 512 tokens of an episode" in problem


def test_rows_need_an_answer_unless_an_environment_alone_scores(file: str, tmp_path: Path) -> None:
    (rows := tmp_path / "train.jsonl").write_text('{"prompt": "1+1="}\n')
    config = Config()
    config.data.train_files = [str(rows)]
    [problem] = first_rows_have_their_columns(config)
    assert "data.answer_key='answer'" in problem
    config.environment.path = f"{file}:Game"
    assert not config.needs_ground_truth and list(first_rows_have_their_columns(config)) == []
    config.reward.function = "exact_match"
    assert config.needs_ground_truth and len(list(first_rows_have_their_columns(config))) == 1
    config.reward.function, config.reward.judge.path = "", "judge"
    assert config.needs_ground_truth
