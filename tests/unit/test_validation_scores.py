"""The file of scores: every row of a validation, and every metric out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.unit._validation_scores import assert_scores_give
from verl_like.config.schema import Config, DataConfig, RolloutConfig, TrainerConfig, ValSamplingConfig
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.prompts import Prompt
from verl_like.protocol import Array
from verl_like.reward.failure_limit import Failure
from verl_like.reward.scores import Scores, objects
from verl_like.training import validation
from verl_like.training.validation import validate
from verl_like.training.validation_metrics import ValidationSample, validation_metrics
from verl_like.training.validation_scores import write_scores

N = 4
DETAILS = ({"acc": 1.0, "pred": "7", "steps": 3.0}, {"acc": 0.0, "pred": ""}, {"acc": 0.0, "pred": ""}, {"why": "late"})


def samples() -> list[ValidationSample]:
    """Three prompts of two data sources: graded, graded without details, and one of which two responses failed."""
    graded = [
        ValidationSample(uid="0", data_source="s", response="7", score=score, details=details, sample=i)
        for i, (score, details) in enumerate(zip((1.0, 0.1, 0.1, 1.0), DETAILS, strict=True))
    ]
    plain = [
        ValidationSample(uid="1", data_source="s", response=text, score=float(text == "b"), sample=i)
        for i, text in enumerate("abba")
    ]
    failed = [
        ValidationSample(
            uid="0",
            data_source="t",
            response="x",
            score=None if i < 2 else 0.25,
            sample=i,
            reward_status="timeout" if i < 2 else "ok",
            failure="past 10 s" if i < 2 else None,
            finish_reason="length",
            response_tokens=8 + i,
        )
        for i in range(N)
    ]
    return [*graded, *plain, *failed]


def test_every_metric_can_be_computed_again_from_the_file(tmp_path: Path) -> None:
    metrics = validation_metrics(samples(), N)
    assert {metrics["val/s/maj@4"], metrics["val/s/pass@4"], metrics["val/num_failed"]} == {0.5, 1.0, 2.0}
    assert metrics["val/s/steps/mean@4"] == 3.0
    write_scores(samples(), tmp_path / "scores.parquet")
    assert_scores_give(metrics, tmp_path / "scores.parquet", n=N)


def test_a_row_has_verdict_failure_and_length(tmp_path: Path) -> None:
    write_scores(samples(), tmp_path / "scores.parquet")
    rows = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    assert len(rows) == 12 and [row["sample"] for row in rows[:N]] == [0, 1, 2, 3]
    assert {name: rows[0][name] for name in ("score", "is_correct", "acc", "pred", "answer")} == {
        "score": 1.0,
        "is_correct": True,
        "acc": 1.0,
        "pred": "7",
        "answer": "7",
    }
    assert (rows[1]["pred"], rows[3]["pred"], rows[3]["acc"], rows[3]["is_correct"]) == ("", None, None, True)
    assert rows[8] == {
        "uid": "0",
        "sample": 0,
        "data_source": "t",
        "score": None,
        "is_correct": False,
        "acc": None,
        "pred": None,
        "answer": "x",
        "numbers": [],
        "reward_status": "timeout",
        "failure": "past 10 s",
        "finish_reason": "length",
        "response_tokens": 8,
    }


def test_text_that_utf_8_cannot_hold_is_escaped_as_in_the_samples_file(tmp_path: Path) -> None:
    odd = ValidationSample(uid="0", data_source="s", response="r", score=0.0, details={"pred": "a\ud800"})
    write_scores([odd], tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet")["pred"].to_pylist() == ["a\\ud800"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "scores.parquet"
    write_scores(samples(), path)

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(RuntimeError, match="killed"):
        write_scores(samples()[:1], path)
    assert pq.read_table(path).num_rows == 12


class SaidRewards:
    """Scores response i of prompt p as (p + i) % 2, and fails the last one; keeps what was to be dumped."""

    def __init__(self) -> None:
        self.dumped: list[int] = []

    def open(self) -> SaidRewards:
        return self

    def begin(self) -> None:
        pass

    def scores(self, batch: RemoteBatch) -> Scores:
        score = np.array([(int(uid) + i) % 2 for uid, i in _rows(batch)], np.float32)
        failed = np.array([uid == "4" and i == 1 for uid, i in _rows(batch)])
        return Scores(
            score=np.where(failed, np.float32(np.nan), score),
            failure=objects([Failure("crash", "died", "p", "r") if each else None for each in failed]),
            details=objects([{"pred": str(s)} for s in score]),
            answer=np.array([str(s) for s in score]),
            seconds=np.zeros(len(score), np.float32),
            was_alone=np.zeros(len(score), bool),
        )

    def dump(self, batch: RemoteBatch, rows: Array, path: Path, *, appends: bool) -> None:
        assert path.name == "val_step_7.jsonl" and not appends
        self.dumped += rows.tolist()


def _rows(batch: RemoteBatch) -> list[tuple[str, int]]:
    return list(zip(batch.facts["uid"].tolist(), batch.facts["sample"].tolist(), strict=True))


def test_a_validation_keeps_the_scores_of_all_rows_and_the_texts_of_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generated(chunk: RemoteBatch, *, n: int, **_: object) -> RemoteBatch:
        facts = {
            "group_id": np.repeat(chunk.facts["group_id"], n),
            "sample": np.tile(np.arange(n), len(chunk)),
            "uid": np.repeat(chunk.facts["uid"], n),
            "finish_reason": np.full(n * len(chunk), "stop"),
            "response_tokens": np.arange(n * len(chunk)),
        }
        return RemoteBatch(facts)

    monkeypatch.setattr(validation, "generate", generated)
    prompts = [
        Prompt(
            prompt_ids=np.array([i], np.int32),
            uid=str(i),
            text="",
            data_source="st"[i % 2],
            ground_truth="",
            extra_info={},
            messages="",
            columns={},
        )
        for i in range(5)
    ]
    config = Config(
        data=DataConfig(val_batch_size=2),
        rollout=RolloutConfig(val=ValSamplingConfig(n=2)),
        trainer=TrainerConfig(num_samples_to_save=3),
    )
    rewards: Any = SaidRewards()
    rollout: Any = None
    path = tmp_path / "val_step_7.jsonl"
    metrics = validate(config, prompts, rollout=rollout, rewards=rewards, version=0, samples_path=path)
    assert metrics["val/num_failed"] == 1 and metrics["val/t/mean@2"] == 0.5
    assert rewards.dumped == [0, 1, 2]
    scores = tmp_path / "val_step_7.scores.parquet"
    rows = pq.read_table(scores).to_pylist()
    assert [(row["uid"], row["sample"]) for row in rows] == [(str(i), n) for i in range(5) for n in range(2)]
    assert (rows[9]["score"], rows[9]["reward_status"], rows[9]["failure"]) == (None, "crash", "died")
    assert (rows[3]["response_tokens"], rows[3]["finish_reason"], rows[3]["data_source"]) == (3, "stop", "t")
    assert_scores_give(metrics, scores, n=2)
