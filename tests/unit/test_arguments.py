"""The help of each command: its examples can be typed, and it describes options as the schema does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from verl_like.arguments import COMMANDS, EXAMPLES, EXIT_STATUS, FIRST_OPTIONS, parsed
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.config.options import options, sections
from verl_like.config.reads import READ, as_read, in_vain, misplaced, reads, without_effect
from verl_like.config.schema import Config


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


def test_the_help_of_train_describes_options_as_the_schema_does(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("train", capsys)
    for name in FIRST_OPTIONS:
        assert f"  {name}=" in text and options()[name].doc in text
    assert "  rollout    " in text and "verl-like help SECTION" in text


@pytest.mark.parametrize(
    ("command", "there", "absent"),
    [
        (
            "sft",
            ["data.answer_key=", "actor.optim.lr=", "  trainer "],
            ["rollout", "algorithm.", "  reward ", "  critic "],
        ),
        ("eval", ["rollout.val.n=", "  reward "], ["rollout.n=", "actor.optim.lr=", "  algorithm ", "  critic "]),
    ],
)
def test_the_help_of_a_command_lists_what_it_reads(
    command: str, there: list[str], absent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(command, capsys).partition("examples:")[2].partition("With sft.val_generate=true also:")[0]
    assert all(part in text for part in there)
    assert not [part for part in absent if part in text]


def test_the_help_lists_what_a_command_reads_to_generate(capsys: pytest.CaptureFixture[str]) -> None:
    more = help_of("sft", capsys).partition("With sft.val_generate=true also:")[2]
    assert "  rollout " in more and "  reward " in more and "  algorithm " not in more
    assert "val_generate=true also" not in help_of("dpo", capsys)


def test_what_a_command_reads_are_options_and_sections() -> None:
    for command, names in READ.items():
        assert command in COMMANDS
        assert not [name for name in names if name not in sections() and name not in options()]


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        (
            "sft",
            ["rollout.n=4", "algorithm=ppo", "actor.optim.lr=1", "data={shuffle: false}"],
            ["rollout.n", "algorithm"],
        ),
        ("eval", ["rollout.temperature=0"], ["rollout.temperature (it reads rollout.val.temperature)"]),
        ("eval", ["rollout.val.n=4", "model.path=x", "reward.function=math", "trainer.resume=never"], []),
        ("generate", ["+actor.optim.lr=1", "recipe.yaml"], ["actor.optim.lr"]),
        ("train", ["rollout.n=4", "critic.path=x"], []),
    ],
)
def test_words_that_a_command_does_not_read_are_named(command: str, words: list[str], expected: list[str]) -> None:
    assert list(without_effect(command, words)) == expected


def test_a_command_that_reads_another_option_instead_refuses_the_first() -> None:
    config = Config()
    config.ref.path = "x"
    expected = "ref.path is x, but dpo reads dpo.ref_path. Set dpo.ref_path=x, and leave out ref.path."
    assert list(misplaced("dpo", config)) == [expected]
    assert list(misplaced("sft", config)) == list(misplaced("dpo", Config())) == []


@pytest.mark.parametrize("command", ["sft", "dpo", "rm"])
def test_what_a_command_does_not_read_has_its_default_in_the_rules(command: str) -> None:
    config = Config()
    config.rollout.n, config.actor.optim.lr, config.data.train_batch_size = 7, 0.5, 50
    config.reward.judge.path, config.dpo.ref_path = "judge", "reference"
    found = as_read(command, config)
    assert (found.rollout.n, found.reward.judge.path) == (Config().rollout.n, "")
    assert (found.actor.optim.lr, found.actor.mini_batch_size, found.critic.mini_batch_size) == (0.5, 50, 50)
    assert found.dpo.ref_path == ("reference" if command == "dpo" else "")
    assert config.rollout.n == 7 and as_read("train", config) is config


def test_what_a_users_file_sets_in_vain_is_named_with_the_file(tmp_path: Path) -> None:
    recipe = tmp_path / "own.yaml"
    recipe.write_text("defaults: [/config, _self_]\nrollout: {n: 9}\ndpo: {beta: 0.5}\nactor: {epochs: 1}\n")
    composed = compose(str(recipe), ["rollout.top_p=0.5"])
    found = list(in_vain("dpo", composed.config, composed.origins))
    assert found == [f"rollout.n ({recipe})"], "neither defaults, nor conf/, nor words that are named as unread"
    assert list(in_vain("train", composed.config, composed.origins)) == []


def test_a_mini_batch_that_is_not_the_batch_is_named_by_commands_on_rows() -> None:
    words = ["data.train_batch_size=50", "actor.mini_batch_size=5"]
    composed = compose(None, words)
    assert list(in_vain("sft", composed.config, composed.origins)) == ["actor.mini_batch_size (command line)"]
    composed = compose(None, [words[0], "actor.mini_batch_size=50"])
    assert list(in_vain("sft", composed.config, composed.origins)) == []


def test_words_that_sft_reads_to_generate_have_an_effect_only_then() -> None:
    words = ["rollout.val.n=4", "reward.function=math", "rollout.n=4", "trainer.best_metric=val/loss", "critic.path=x"]
    names = [word.partition("=")[0] for word in words]
    assert list(without_effect("sft", words)) == names
    assert list(without_effect("sft", words, generates=True)) == ["rollout.n (it reads rollout.val.n)", "critic.path"]


def test_the_recipe_of_supervised_training_sets_nothing_that_is_not_read() -> None:
    origins = compose("recipes/arithmetic/sft.yaml", []).origins
    assert not [name for name, origin in origins.items() if origin.endswith("sft.yaml") and not reads("sft", name)]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parsed(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["train", "r.yaml", "--dryrun"], "did you mean --dry-run?"),
        (["trian"], "unknown command trian; did you mean train?"),
        (["r.yaml"], "did you mean verl-like train r.yaml?"),
        (["rollout.n=3"], "did you mean verl-like train rollout.n=3?"),
        (["train", "r.yaml", "--actor_learning_rate", "1e-6"], "it is openrlhf's name: write actor.optim.lr=1e-6."),
    ],
)
def test_an_unknown_word_gets_a_suggestion(words: list[str], reported: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported in refused(words, capsys)


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["config", "r.yaml", "--docs", "data"], ["r.yaml", "data"]),
        (["train", "rollout.n=3", "--dry-run", "r.yaml"], ["rollout.n=3", "r.yaml"]),
        (["train", "--from=openrlhf", "--pretrain", "x"], ["--pretrain", "x"]),
        (["train", "--from", "verl", "a=1", "--config-name=x"], ["a=1", "--config-name=x"]),
    ],
)
def test_arguments_may_follow_options(words: list[str], rest: list[str]) -> None:
    assert parsed(words).words == rest


def test_help_of_another_projects_command_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(["train", "--from", "verl", "data.seed=1", "--help"])
    assert ended.value.code == 0 and "usage: verl-like train" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["run.sh", "--out", "q.yaml", "x"], ["--out", "q.yaml", "run.sh", "x"]])
def test_options_of_migrate_may_be_before_or_after_the_script(words: list[str]) -> None:
    found = parsed(["migrate", *words, "--from", "verl"])
    assert (str(found.out), str(found.file), found.words, found.peer) == ("q.yaml", "run.sh", ["x"], "verl")


def test_a_file_that_the_system_refuses_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{'x' * 300}.yaml"
    assert main(["config", name]) == 1
    assert capsys.readouterr().err == f"error: {name}: File name too long\n"
