"""Past responses under another function: every one is scored, and the figures are those of the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from verl_like.cli import main
from verl_like.config.schema import RewardConfig
from verl_like.reward.rescore import agreement, report, rescore

pytestmark = pytest.mark.processes

REWARD = """
def starts_right(solution_str, ground_truth):
    if solution_str == "odd":
        raise RuntimeError("not this one")
    return {"score": float(solution_str.startswith(ground_truth)), "length": len(solution_str)}
"""


def line(uid: str, response: str, score: float | None) -> str:
    return json.dumps(
        {
            "prompt": "6*7=",
            "response": response,
            "ground_truth": "42",
            "score": score,
            "uid": uid,
            "data_source": "s",
            "extra_info": {},
            "messages": "6*7=",
            "columns": {},
            "response_ids": [1, 2],
        }
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two steps; scores then were 1 for the exact answer, 0 otherwise, and one had failed."""
    folder = tmp_path / "run"
    (folder / "samples").mkdir(parents=True)
    first = [line("a", "42", 1.0), line("a", "42!", 0.0), line("a", "7", 0.0), line("b", "odd", 0.0)]
    (folder / "samples/step_1.jsonl").write_text("\n".join(first) + "\n")
    (folder / "samples/step_2.jsonl").write_text(line("a", "42", None) + "\n" + line("c", "8", 0.0) + "\n")
    (folder / "samples/reward_failures.jsonl").write_text("{}\n")
    (folder / "config.yaml").write_text("reward:\n  function: exact_match\n  timeout_s: 5\n")
    (tmp_path / "reward.py").write_text(REWARD)
    return folder


def config(run: Path) -> RewardConfig:
    return RewardConfig(function=f"{run.parent}/reward.py:starts_right", timeout_s=5)


def test_every_response_is_rescored_in_the_same_sequence(run: Path) -> None:
    rows = rescore(run, config(run))
    assert [(row.file, row.then, row.outcome.score) for row in rows] == [
        ("step_1.jsonl", 1.0, 1.0),
        ("step_1.jsonl", 0.0, 1.0),
        ("step_1.jsonl", 0.0, 0.0),
        ("step_1.jsonl", 0.0, None),
        ("step_2.jsonl", None, 1.0),
        ("step_2.jsonl", 0.0, 0.0),
    ]


def test_the_figures_are_over_responses_with_both_scores(run: Path) -> None:
    found = agreement(rescore(run, config(run)))
    # Both scores: then 1 0 0 0, now 1 1 0 0. r = cov / (std std) = (1/4 - 1/8) / (sqrt(3/16) * 1/2) = 1/sqrt(3).
    assert found == {
        "responses": 6,
        "failed_then": 1,
        "failed_now": 1,
        "agree_frac": 0.75,
        "mean_then": 0.25,
        "mean_now": 0.5,
        "correlation": pytest.approx(3**-0.5),
        "same_order_frac": 0.5,
    }


def test_figures_without_spread_are_left_out(run: Path) -> None:
    found = agreement([row for row in rescore(run, config(run)) if row.file == "step_2.jsonl"])
    assert found == {
        "responses": 2,
        "failed_then": 1,
        "failed_now": 0,
        "agree_frac": 1.0,
        "mean_then": 0.0,
        "mean_now": 0.0,
    }


def test_the_report_shows_the_farthest_disagreement_and_the_failures(run: Path) -> None:
    text = report(rescore(run, config(run)))
    assert (
        "1 responses have a different score; the largest differences:\n"
        "  step_1.jsonl a: 0 -> 1  ground truth '42'  response ...'42!'" in text
    )
    assert "1 responses have no score now; the first:\n  step_1.jsonl b: error: RuntimeError: not this one" in text


def test_the_command_prints_the_agreement_and_writes_the_scores(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["rescore", str(run), "--function", f"{run.parent}/reward.py:starts_right", "reward.num_workers=2"]) == 0
    )
    printed = capsys.readouterr().out
    assert "agree_frac       0.75\n" in printed and printed.rstrip().endswith(str(run / "rescored.jsonl"))
    written: list[dict[str, Any]] = [json.loads(text) for text in (run / "rescored.jsonl").read_text().splitlines()]
    assert [each["rescored"] for each in written] == [1.0, 1.0, 0.0, None, 1.0, 0.0]
    assert (
        written[1]["score"] == 0.0
        and written[1]["rescored_components"] == {"length": 3.0}
        and written[1]["file"] == "step_1.jsonl"
    )
    assert "not this one" in written[3]["rescored_failure"]


def test_an_earlier_rescoring_and_other_files_are_not_replaced(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(["rescore", str(run), "--files", "step_1.jsonl"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(str(run / "rescored_2.jsonl"))
    (run / "mine.jsonl").write_text("mine")
    assert main(["rescore", str(run), "--out", str(run / "mine.jsonl")]) == 2
    assert "mine.jsonl exists and would be replaced. Name another file: --out." in capsys.readouterr().err
    assert (run / "mine.jsonl").read_text() == "mine"


def test_without_a_function_the_runs_own_is_applied_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rescore", str(run), "--files", "step_1.jsonl"]) == 0
    assert "agree_frac       1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "--files", "step_9.jsonl"], "found no step_9.jsonl in"),
        (["{run}/samples"], "is not a run folder"),
        (["{run}", "--function", "nowhere.py:f"], "there is no file nowhere.py"),
        (["{run}", "trainer.sede=1"], "did you mean trainer.seed"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescore", *[word.format(run=run) for word in words]]) == 2
    assert message in capsys.readouterr().err


def test_a_line_of_an_older_version_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "samples/step_3.jsonl").write_text('{"prompt": "p", "response": "r", "score": 1}\n')
    assert main(["rescore", str(run)]) == 2
    assert (
        "step_3.jsonl has no data_source, ground_truth, response_ids, uid: it was written by an older version"
        in capsys.readouterr().err
    )
