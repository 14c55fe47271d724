"""``--dry-run``, and that a folder which is taken hides no other mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipes.arithmetic.model import write_model
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.runs.folder import RunFolder


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    write_model(tmp_path / "model", 1)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "data_source": "sums"} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [
        f"model.path={tmp_path}/model",
        f"data.train_files=[{tmp_path}/rows.jsonl]",
        "data.train_batch_size=4",
        "data.max_prompt_length=8",
        "data.max_response_length=4",
        "data.apply_chat_template=false",
        "actor.mini_batch_size=4",
        "reward.function=math",
        "cluster.device=cpu",
        f"trainer.output_dir={tmp_path}/out",
        "trainer.experiment_name=run",
    ]


@pytest.fixture
def is_taken(words: list[str]) -> None:
    """Fill the folder with a run that has another rollout.n."""
    composed = compose(None, [*words, "rollout.n=3"])
    folder = RunFolder(composed.config)
    folder.claim(composed.yaml(), job="train")
    folder.metrics.write_text(json.dumps({"step": 1}) + "\n")


@pytest.mark.processes
def test_supervised_training_has_one_that_leaves_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", "--dry-run", *words]) == 0
    shown = capsys.readouterr().out
    assert "rows        8 to train on; the longest prompt has 4 tokens, the longest answer 2\n" in shown
    assert "steps       2 of 4 rows each\nNo problem was found that shows before workers start;" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_supervised_training_that_generates_tries_its_reward(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words += ["sft.val_generate=true", f"data.val_files=[{tmp_path}/rows.jsonl]", "trainer.best_metric=val/mean@1"]
    assert main(["sft", "--dry-run", *words]) == 0
    shown = capsys.readouterr().out
    assert "8 to validate on;" in shown and "reward      tried on a response to each data source;" in shown
    (tmp_path / "reward.py").write_text(
        "def fails(data_source, solution_str, ground_truth, extra_info):\n    return 1 / 0\n"
    )
    assert main(["sft", "--dry-run", *words, f"reward.function={tmp_path}/reward.py:fails"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize(
    ("row", "found"),
    [
        (
            {"prompt": "1+1=", "completion": "2"},
            "has neither reward_model.ground_truth nor the column data.answer_key=",
        ),
        (
            {"messages": [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]},
            "data.prompt_key is 'prompt', but row 0 of",
        ),
    ],
)
def test_validation_rows_that_cannot_be_generated_from_or_scored_are_refused(
    row: dict[str, object], found: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "val.jsonl").write_text(json.dumps(row) + "\n")
    template = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<eos>{% endif %}{% endfor %}"
    (tmp_path / "model/chat_template.jinja").write_text(template)
    words += [f"data.val_files=[{tmp_path}/val.jsonl]", "data.apply_chat_template=true"]
    assert main(["sft", "--dry-run", *words]) == 0
    capsys.readouterr()
    assert main(["sft", "--dry-run", *words, "sft.val_generate=true"]) == 2
    message = capsys.readouterr().err
    assert "sft.val_generate=true generates from the rows of data.val_files, but " in message and found in message
    assert "Or set sft.val_generate=false to validate by the loss alone." in message


@pytest.mark.processes
def test_pools_that_supervised_training_has_no_model_for_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pools = ["cluster.placement={trainer: 1, critic: 1}", "cluster.workers_per_node=2", "algorithm=ppo"]
    words += [*pools, "critic.mini_batch_size=4", "sft.val_generate=true", f"data.val_files=[{tmp_path}/rows.jsonl]"]
    assert main(["sft", "--dry-run", *words]) == 2
    message = capsys.readouterr().err
    assert "cluster.placement has the pool critic, but the run has no critic. Leave out the pool." in message


@pytest.mark.processes
def test_supervised_rows_that_cannot_be_used_are_refused_by_it(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", "--dry-run", *words, "data.max_response_length=1"]) == 2
    assert "has an answer of 2 tokens, end token included" in capsys.readouterr().err


@pytest.mark.processes
def test_rows_without_a_role_are_refused_by_it(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = [*words, "algorithm=rae", "algorithm.rae_role_key=player"]
    assert main(["train", "--dry-run", *options]) == 2
    assert "rows.jsonl:0 has no column 'player'; expected text or a whole number" in capsys.readouterr().err


@pytest.mark.usefixtures("is_taken")
def test_a_taken_folder_is_one_mistake_among_others(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words, "model.path=/nowhere", "actor.policy_loss=pppo", "rollout.temprature=1"]) == 2
    message = capsys.readouterr().err
    assert "4 problems:" in message
    for part in (
        "unknown key rollout.temprature",
        "actor.policy_loss=pppo",
        "model.path is /nowhere",
        "the folder of another run",
    ):
        assert part in message


@pytest.mark.processes
@pytest.mark.usefixtures("is_taken")
def test_a_taken_folder_does_not_stop_a_dry_run(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", *words]) == 2
    message = capsys.readouterr()
    assert "prompts     8 to train on" in message.out and "memory      the plan" in message.out
    assert "No problem was found" not in message.out
    assert "is the folder of another run; it differs in rollout.n (3 there, 8 here)" in message.err


@pytest.mark.processes
@pytest.mark.usefixtures("is_taken")
def test_what_a_dry_run_finds_in_the_rows_is_reported_with_the_folder(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--dry-run", *words, "data.max_prompt_length=2"]) == 2
    message = capsys.readouterr().err
    assert "2 problems:" in message and "has a prompt of 4 tokens" in message and "the folder of another run" in message


@pytest.mark.usefixtures("is_taken")
def test_a_value_that_could_not_be_read_is_no_difference_from_another_run(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "rollout.n=0"]) == 2
    message = capsys.readouterr().err
    assert "rollout.n is 0" in message and "another run" not in message
