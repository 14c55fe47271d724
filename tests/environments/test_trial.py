"""The trial of an environment before a run starts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.small_chat import chat_tokenizer
from verl_like.config.schema import Config
from verl_like.data.prompts import Prompt
from verl_like.training.environment_trial import try_environment

pytestmark = pytest.mark.processes

ANSWER = [{"role": "assistant", "content": "go"}]
FILE = """
class Game:
    def reset(self, prompt, secret):
        if secret < 0:
            raise ValueError("the secret is negative")
        self.secret = secret
        return "guess" * secret

    def step(self, text):
        return "", 1.0, True

    def close(self):
        if self.secret == 0:
            raise RuntimeError("nothing is open")

async def agent(base_url, prompt):
    return 1.0
"""


def tried(tmp_path: Path, name: str, *, secret: int = 1, **data: Any) -> dict[str, Any]:
    (file := tmp_path / "game.py").write_text(FILE)
    config = Config()
    config.environment.path = f"{file}:{name}"
    for option, value in data.items():
        setattr(config.data, option, value)
    prompt = Prompt(
        prompt_ids=np.array([1], np.int32),
        uid="train.parquet:7",
        text="",
        data_source="",
        ground_truth="go",
        extra_info={},
        messages="go",
        columns={"secret": secret},
    )
    [episode] = try_environment(config, chat_tokenizer([*"guesgo"]), [prompt])
    return episode


def test_what_the_template_does_with_turns_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tried(tmp_path, "Game")
    assert "is a class with step" in caplog.text
    assert "after messages of the user: the template keeps earlier turns: one row per episode" in caplog.text


def test_a_reset_that_fails_is_reported_with_its_prompt_and_traceback(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the prompt train[.]parquet:7, and failed") as caught:
        tried(tmp_path, "Game", secret=-1)
    assert "(error): ValueError: the secret is negative" in str(caught.value)
    assert "game.py" in str(caught.value) and "line 5" in str(caught.value)


def test_an_episode_without_a_turn_is_what_reward_functions_are_tried_on(tmp_path: Path) -> None:
    expected = {"prompt": [{"role": "user", "content": "guess"}], "completion": ANSWER, "environment": {"secret": 1}}
    assert tried(tmp_path, "Game") == expected
    assert tried(tmp_path, "agent") == {
        "prompt": [{"role": "user", "content": "go"}],
        "completion": ANSWER,
        "environment": {},
    }


def test_an_end_that_fails_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"was ended without a turn after a reset with the prompt train.*nothing is"):
        tried(tmp_path, "Game", secret=0)


def test_a_first_prompt_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"first prompt of train[.]parquet:7 has 23 tokens with the tools"):
        tried(tmp_path, "Game", secret=4, max_prompt_length=20)


def test_a_file_without_the_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no 'Chess'; it has Game, agent"):
        tried(tmp_path, "Chess")


def test_an_agent_program_is_loaded_and_nothing_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tried(tmp_path, "agent")
    assert "is an agent program" in caplog.text
