"""``verl-like scale``: what a run in progress is asked for, and what cannot work."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.runs.scaling import request, wanted_workers

PLACED = "cluster.placement={trainer: 1, rollout: 4}"


def run_with(folder: Path, *words: str) -> Path:
    composed = compose(None, [f"trainer.output_dir={folder}", *words])
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text("# verl-like train\n" + composed.yaml())
    return folder


def test_a_run_reads_what_it_was_asked_for_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(tmp_path / "run", PLACED, "rollout.tensor_parallel_size=2")
    assert wanted_workers(run) is None
    assert main(["scale", str(run), "rollout=4"]) == 0
    assert "asked for 2 engines" in capsys.readouterr().out
    request(run, ["rollout=6"])
    assert wanted_workers(run) == 6


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "scale got no number, but expects rollout=WORKERS. Give e.g. rollout=4"),
        (["trainer=2"], "scale got trainer=2, but expects rollout=WORKERS"),
        (["rollout=many"], "scale got rollout=many"),
        (["rollout=0"], "rollout=0 is not a positive multiple of rollout.tensor_parallel_size=2"),
        (["rollout=3"], "rollout=3 is not a positive multiple"),
        (["rollout=2", "trainer=1"], "scale got rollout=2 trainer=1"),
    ],
)
def test_a_number_that_cannot_work_is_refused(words: list[str], found: str, tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", PLACED, "rollout.tensor_parallel_size=2")
    with pytest.raises(ValueError, match=found):
        request(run, words)
    assert wanted_workers(run) is None


def test_a_run_whose_engines_share_workers_cannot_be_scaled(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"without a pool rollout in cluster.placement.* Start it with e\.g\. cluster\.placement="
    ):
        request(run_with(tmp_path / "run"), ["rollout=2"])


@pytest.mark.parametrize("text", ["{", "[]", '{"rollout": null}', json.dumps({"trainer": 1})])
def test_a_damaged_request_changes_nothing(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "scale.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert wanted_workers(tmp_path) is None
    assert "so the number of engines stays" in caplog.text
