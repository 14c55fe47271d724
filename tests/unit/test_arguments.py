"""What the help of each command says: its examples can be typed, and knobs are told as the schema tells them."""

from __future__ import annotations

import shlex

import pytest

from verl_like.arguments import COMMANDS, EXAMPLES, EXIT_STATUS, FIRST_KNOBS, parsed
from verl_like.config.knobs import knobs


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parsed([command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_can_be_typed_and_the_exit_status(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(command, capsys)
    assert EXIT_STATUS in text
    for example in EXAMPLES[command]:
        assert f"  verl-like {command} {example}\n" in text
        words = shlex.split(example.removesuffix(" ...").partition(" > ")[0])
        assert parsed([command, *words]).command == command


def test_the_help_of_train_tells_knobs_as_the_schema_does(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("train", capsys)
    for name in FIRST_KNOBS:
        assert f"  {name}=" in text and knobs()[name].doc in text
    assert "  rollout    " in text and "verl-like help SECTION" in text
