"""Runs with environments on the real stack: vLLM on CPU, two ranks, environments in separate processes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from recipes.guess_number import prepare
from tests.e2e.conftest import ROOT, Run, arguments, train
from verl_like.cli import main
from verl_like.telemetry.metrics import OF_THE_MACHINE

pytestmark = pytest.mark.usefixtures("ray_cluster")

ONE_TURN = """
class Once:
    def reset(self, **row):
        return None

    def step(self, text):
        return "", 0.0, True
"""


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data and the random model of the recipe guess_number."""
    folder = tmp_path_factory.mktemp("game")
    prepare.write_data(folder / "data", seed=0)
    prepare.write_model(folder / "model", seed=0)
    return folder


def of_the_game(game: Path) -> list[str]:
    return [
        f"data.train_files=[{game}/data/train.parquet]",
        f"data.val_files=[{game}/data/val.parquet]",
        "data.answer_key=''",
        "data.apply_chat_template=true",
        "data.max_response_length=24",
        "reward.function=''",
        f"environment.path={ROOT}/recipes/guess_number/game.py:GuessNumber",
        "environment.max_turns=3",
        "environment.max_turn_tokens=4",
    ]


@pytest.fixture(scope="module")
def games(game: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    out = tmp_path_factory.mktemp("games")
    return train(game, out, *of_the_game(game), "data.val_files=[]", "trainer.num_samples_to_save=-1")


def test_a_policy_trains_on_a_game_of_several_turns(games: Run) -> None:
    assert sorted(games.metrics) == [1, 2]
    for metrics in games.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4, "inserted tokens are read by engine and trainer alike"
        assert metrics["reward/num_failed"] == 0


def test_samples_hold_the_turns_that_the_game_has_answered(games: Run) -> None:
    lines = (games.folder / "samples/step_1.jsonl").read_text().splitlines()
    samples = [json.loads(line) for line in lines if line]
    assert len(samples) == 8 * 4
    for sample in samples:
        won = sample["response"].endswith(str(sample["columns"]["secret"]))
        assert sample["score"] == float(won and sample["finish_reason"] == "stop")


def test_play_shows_an_episode_of_the_newest_checkpoint(
    games: Run, game: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(game, games.folder.parent, *of_the_game(game), "cluster.workers_per_node=1")
    assert main(["play", *words]) == 0
    shown = capsys.readouterr().out
    prompt, _, rest = shown.partition("[assistant]")
    assert prompt.split() == ["[user]", *prepare.prompt(prepare.split_games(0)[1][0][0]).split()] and rest
    facts = dict(re.findall(r"^([a-z ]+?)  +(.*)$", rest, re.MULTILINE))
    assert facts["status"] == "ok" and facts["score"] == facts["reward"] in ("0", "1"), shown
    assert facts["training rows"] == "1" and 1 <= int(facts["turns"].split(",")[0]) <= 3


@pytest.mark.slow
def test_an_environment_of_one_turn_gives_the_rows_of_a_plain_rollout(arithmetic: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(arithmetic, data)
    (data / "model/chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    (data / "once.py").write_text(ONE_TURN)
    common = "data.apply_chat_template=true", "trainer.num_samples_to_save=-1"
    plain = train(data, tmp_path / "plain", *common)
    once = train(data, tmp_path / "once", *common, f"environment.path={data}/once.py:Once", "environment.max_turns=1")
    for step in (1, 2):
        texts = [
            [json.loads(line) for line in (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines() if line]
            for run in (plain, once)
        ]
        rows = [[(each["response_ids"], each["score"], each["advantage"]) for each in samples] for samples in texts]
        assert rows[0] == rows[1]
        timeless = {k: v for k, v in plain.metrics[step].items() if not k.startswith(OF_THE_MACHINE)}
        assert {k: once.metrics[step][k] for k in timeless} == timeless
    weights = [load_file(run.folder / "model/model.safetensors") for run in (plain, once)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])
