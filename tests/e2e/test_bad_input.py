"""Bad input ends before anything starts, with what was found, what was expected and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import base_overrides
from verl_like.cli import main

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``verl-like train`` with these overrides; returns exit status and what was said on stderr."""

    def run(*overrides: str, name: str = "train") -> tuple[int, str]:
        chosen = {item.split("=", 1)[0]: item for item in [*base_overrides(arithmetic, tmp_path / "out"), *overrides]}
        capsys.readouterr()
        status = main([name, *chosen.values()])
        return status, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model.path=./nowhere"], ["model.path", "./nowhere"]),
        (["data.train_files=[nothing.parquet]"], ["data.train_files", "nothing.parquet"]),
        (["data.prompt_key=question"], ["question", "prompt", "data.prompt_key"]),
        (["data.apply_chat_template=true"], ["data.apply_chat_template", "chat template", "=false"]),
        (["data.max_prompt_length=3"], ["train.parquet", "data.max_prompt_length", "data.overlong_prompts"]),
        (["data.train_batch_size=10"], ["data.train_batch_size", "10", "actor.mini_batch_size", "8"]),
        (["rollout.n=1"], ["rollout.n is 1", "grpo", "at least 2", "gae"]),
        (["cluster.workers_per_node=2", "rollout.tensor_parallel_size=4"], ["rollout.tensor_parallel_size", "4", "2"]),
        (["cluster.device=cuda", "cluster.workers_per_node=99"], ["GPU", "cluster.device=cpu"]),
        (["rollout.temprature=1"], ["rollout.temprature", "did you mean rollout.temperature"]),
        (["rollout.n=many"], ["rollout.n", "many"]),
        (["rollout.top_p=3"], ["rollout.top_p", "3"]),
        (["algorithm.adv_estimator=grop"], ["algorithm.adv_estimator", "grop", "grpo"]),
        (["trainer.resume=./no-checkpoint"], ["trainer.resume", "./no-checkpoint"]),
        (["reward.function=''"], ["arithmetic", "gsm8k"]),
    ],
    ids=lambda value: value[0].split("=")[0] if isinstance(value, list) and "=" in value[0] else "",
)
def test_what_cannot_work_is_refused_before_anything_starts(
    command: Command, tmp_path: Path, overrides: list[str], expected: list[str]
) -> None:
    if overrides == ["reward.function=''"]:
        overrides = [*overrides, *_with_unknown_source(tmp_path)]
    status, said = command(*overrides)
    assert status == 2
    assert said.startswith("error: ") and "Traceback" not in said
    assert not [word for word in expected if word not in said], said
    assert not (tmp_path / "out/default").exists(), "nothing may be left behind"


def _with_unknown_source(folder: Path) -> list[str]:
    (folder / "rows.jsonl").write_text('{"prompt": "1+1=", "answer": "2", "data_source": "riddles"}\n' * 8)
    return [f"data.train_files=[{folder}/rows.jsonl]", "data.val_files=[]"]


def test_an_empty_dataset_is_named(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    status, said = command(f"data.train_files=[{tmp_path}/empty.jsonl]")
    assert status == 2 and "empty.jsonl" in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import nothing_like_this\n\ndef f(*a): ...\n", "nothing_like_this"), ("x = 1\n", "'f'"), ("f = 3\n", "int"),
        ("def f(:\n", "SyntaxError"),
    ],
    ids=["import", "name", "not-callable", "syntax"],
)
def test_a_reward_file_that_cannot_be_used_ends_the_run_before_a_model_loads(
    command: Command, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    status, said = command(f"reward.function={tmp_path}/mine.py:f")
    assert status == 2 and expected in said and "mine.py" in said
    assert not (tmp_path / "out/default").exists()


def test_a_folder_of_another_run_is_left_alone(command: Command, tmp_path: Path, arithmetic: Path) -> None:
    (tmp_path / "mine.py").write_text("import nothing_like_this\n")
    folder = tmp_path / "out/default"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("rollout: {n: 3}\n")
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    status, said = command()
    assert status == 2 and "trainer.experiment_name" in said and "default" in said
    status, said = command("trainer.resume=never")
    assert status == 2 and "trainer.resume=never" in said
    assert (folder / "config.yaml").read_text() == "rollout: {n: 3}\n" and (folder / "metrics.jsonl").read_text() == '{"step": 1}\n'


def test_a_model_without_weights_is_named(command: Command, tmp_path: Path, arithmetic: Path) -> None:
    shutil.copytree(arithmetic / "model", tmp_path / "model")
    (tmp_path / "model/config.json").unlink()
    status, said = command(f"model.path={tmp_path}/model")
    assert status == 2 and str(tmp_path / "model") in said and "config.json" in said
