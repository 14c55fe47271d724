"""Where a run stands in its data outlasts a sampler that fails, and holds for the rows that it has seen alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import Config, DataConfig
from verl_like.data.custom_sampler import SamplerError
from verl_like.data.files import read_rows
from verl_like.data.loader import PromptLoader, refuse_other_rows, rows_identity
from verl_like.data.prompts import PromptDataset
from verl_like.reward.scorer_messages import Sample
from verl_like.runs.folder import RunFolder
from verl_like.runs.saving import Savable
from verl_like.telemetry.trackers import Trackers
from verl_like.training import stages, tasks
from verl_like.training.loop import Trainer, TrainingLoop
from verl_like.training.ppo import PPOTrainer
from verl_like.training.row_trainer import RowTrainer

SAMPLERS = """
def one_epoch(prompts, seed, epoch):
    if epoch:
        raise KeyError("one epoch is enough")
    return range(len(prompts))

class Base:
    def __init__(self, prompts, batch_size, seed): self.given = 0
    def next_batch(self):
        self.given += 1
        return [0, 1]
    def state_dict(self): return {"given": self.given}
    def load_state_dict(self, state): self.given = state["given"]

class NoMore(Base):
    def next_batch(self):
        return super().next_batch() if self.given < 2 else []

class Deaf(Base):
    def feedback(self, scores):
        if self.given > 2:
            raise KeyError("scores")

class Mute(Base):
    def state_dict(self):
        return super().state_dict() if self.given < 3 else None
"""


def write_rows(path: Path, source: str = "digits", *, num_rows: int = 4) -> str:
    rows = ({"prompt": f"{i}{source}", "answer": "7", "data_source": source} for i in range(num_rows))
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def dataset(path: str) -> PromptDataset:
    return PromptDataset(read_rows([path]), DataConfig(apply_chat_template=False), character_tokenizer())


class _Drawing(Trainer):
    """Steps that draw, report scores and take the sampler's state, and learn nothing."""

    job = "train"
    learners: Mapping[str, Savable] = {}

    def __init__(self, loader: PromptLoader) -> None:
        super().__init__()
        self._loader = loader

    def step(self, step: int) -> dict[str, float]:
        uids = [prompt.uid for prompt in self._loader.next_batch()]
        self._loader.feedback(uids, [0.5] * len(uids))
        self._loader.state_dict()
        return {"time/step_s": 1.0, "perf/tokens": 1.0}

    def state(self) -> dict[str, Any]:
        return {"step": self.progress.step, "weight_version": self.progress.step}

    def load(self, state: dict[str, Any], path: Path) -> None:
        raise AssertionError("nothing is resumed here")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_epoch", "KeyError: 'one epoch is enough'"),
        ("NoMore", "returned 0 rows for a batch; expected data.train_batch_size=2"),
        ("Deaf", "KeyError: 'scores'"),
        ("Mute", "returned a NoneType as its state"),
    ],
)
def test_the_last_finished_step_is_saved_where_a_sampler_fails_in_mid_run(
    tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "mine.py").write_text(SAMPLERS)
    data = DataConfig(sampler=f"{tmp_path}/mine.py:{name}", train_batch_size=2)
    config = Config()
    config.trainer.output_dir = str(tmp_path / "runs")
    trainer = _Drawing(PromptLoader(dataset(write_rows(tmp_path / "x.jsonl")), data, seed=1))
    loop = TrainingLoop(
        config, trainer, RunFolder(config), Trackers([]), process_metrics=Mock(), processes=[], total_steps=9
    )
    with pytest.raises(SamplerError, match=message):
        loop.run()
    assert loop.checkpoints.steps() == [2]


def test_a_samplers_state_is_taken_before_the_policy_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the update a state that cannot be used would leave no step that could be saved."""
    (tmp_path / "mine.py").write_text(SAMPLERS)
    data = DataConfig(sampler=f"{tmp_path}/mine.py:Mute", train_batch_size=2)
    loader = PromptLoader(dataset(write_rows(tmp_path / "x.jsonl")), data, seed=1)
    trainer = PPOTrainer(Mock(loader=loader, config=Config()))
    taken: list[str] = []

    def recorded(stage: Callable[..., Any]) -> Callable[..., Any]:
        return stage if stage is stages.keep_position else lambda *_: taken.append(stage.__name__)

    for stage in (stages.rollout, stages.sleep):
        monkeypatch.setattr(stages, stage.__name__, recorded(stage))
    monkeypatch.setattr(stages, "LEARNING", [recorded(stage) for stage in stages.LEARNING])
    for _ in range(3):
        loader.next_batch()
    with pytest.raises(SamplerError, match="returned a NoneType as its state"):
        trainer.step(1)
    assert taken == ["rollout", "sleep", "add_log_probs", "score"]


def test_a_reward_is_tried_on_sources_of_files_with_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both lists have a prompt "x.jsonl:0", as uids are unique in one list of files alone."""
    tried: list[dict[str, Sample]] = []
    monkeypatch.setattr(tasks, "try_reward", lambda config, samples, ground_truths, progress: tried.append(samples))
    prompts, val_prompts = (
        dataset(write_rows(tmp_path / name / "x.jsonl", source)) for name, source in (("train", "a"), ("val", "b"))
    )
    tasks.check_reward(Config(), prompts, val_prompts)
    assert {name: sample.data_source for name, sample in tried[0].items()} == {
        "x.jsonl:0": "a",
        "x.jsonl:0 of data.val_files": "b",
    }


def identity(path: str, data: DataConfig) -> dict[str, Any]:
    return rows_identity(read_rows([path]), data, columns=("prompt", "answer"), num_kept=4, seed=1)


def test_supervised_training_knows_the_rows_that_it_has_seen(tmp_path: Path) -> None:
    data = DataConfig(train_batch_size=2)
    seen = json.loads(json.dumps(identity(write_rows(tmp_path / "x.jsonl"), data)))
    refuse_other_rows(identity(write_rows(tmp_path / "moved/x.jsonl"), data), checkpoint=seen)
    with pytest.raises(ValueError, match=r"does not fit this run: \(checkpoint, now\) is \{'rows': "):
        refuse_other_rows(identity(write_rows(tmp_path / "x.jsonl", "other"), data), checkpoint=seen)
    with pytest.raises(ValueError, match=r"is \{'batch_size': \(2, 4\)\}"):
        refuse_other_rows(
            identity(write_rows(tmp_path / "x.jsonl"), replace(data, train_batch_size=4)), checkpoint=seen
        )


class _RowTrainer(RowTrainer):
    """What a continuation looks at before it loads anything."""

    def __init__(self, now: dict[str, Any]) -> None:
        self._identity = now


def test_supervised_training_is_not_continued_on_other_rows(tmp_path: Path) -> None:
    state = {"step": 3, "weight_version": 3, "dataset": {"rows": "seen"}}
    with pytest.raises(
        ValueError, match=r"\{'rows': \('seen', 'others'\)\}.*start a new run with trainer\.resume=never"
    ):
        _RowTrainer({"rows": "others"}).load(state, tmp_path)
