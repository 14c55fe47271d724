"""``verl-like compare``: options and numbers side by side, and what is said of the difference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verl_like.cli import main
from verl_like.compare.command import as_json, as_text, comparison
from verl_like.compare.final_difference import ROWS_ONLY, ComparedRun, final_values
from verl_like.config.compose import as_yaml, compose
from verl_like.config.run_file import recorded_text
from verl_like.report.page import MARK
from verl_like.report.run_files import RunFiles


def write(folder: Path, *overrides: str, seed: int = 1, final: float | None = 0.5, steps: int = 20) -> Path:
    """Write a run of which the last of two validations is ``final``, or one without validations."""
    folder.mkdir(parents=True)
    words = [f"trainer.experiment_name={folder.name}", f"trainer.seed={seed}", *overrides]
    (folder / "config.yaml").write_text(recorded_text("train", as_yaml(compose(None, words).config)))
    with (folder / "metrics.jsonl").open("w") as rows:
        for step in range(1, steps + 1):
            row = {"step": step, "reward/score_mean": step / 10}
            if final is not None and step in (steps // 2, steps):
                row["val/mean@4"] = 0.9 if step < steps else final
            rows.write(json.dumps(row) + "\n")
    return folder


def write_scores(folder: Path, step: int, scores: Sequence[float | None], source: str = "sums") -> None:
    """Write the scores of a validation: two responses to each prompt."""
    (folder / "samples").mkdir(exist_ok=True)
    uids = [f"row:{number // 2}" for number in range(len(scores))]
    table = pa.table({"uid": uids, "data_source": [source] * len(uids), "score": pa.array(scores, pa.float64())})
    pq.write_table(table, folder / f"samples/val_step_{step}.scores.parquet")


# ---- side by side


def test_the_options_that_differ_are_listed_and_names_are_not(tmp_path: Path) -> None:
    runs = [write(tmp_path / "low"), write(tmp_path / "high", "actor.optim.lr=0.1", "trainer.output_dir=x", seed=2)]
    found = comparison(runs)
    assert found.options == {"actor.optim.lr": ["1.0e-06", "0.1"], "trainer.seed": ["1", "2"]}
    assert "Options that differ  low      high\n" in as_text(found)


def test_options_of_a_run_that_this_version_cannot_compose_are_compared_as_recorded(tmp_path: Path) -> None:
    runs = [write(tmp_path / "new"), write(tmp_path / "old")]
    text = (runs[1] / "config.yaml").read_text()
    (runs[1] / "config.yaml").write_text(f"{text}retired: {{option: 3}}\n")
    found = comparison(runs)
    assert found.options == {"retired.option": ["(no such option)", "3"]}
    assert found.notes[0].startswith("This version cannot compose the configuration of old")


def test_secrets_are_masked(tmp_path: Path) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    runs = [write(tmp_path / "a"), write(tmp_path / "b", f"reward.function_kwargs={{api_key: {secret}}}")]
    found = comparison(runs)
    assert "reward.function_kwargs" in found.options
    assert secret not in as_text(found) + as_json(found)


def test_versions_and_machines_are_compared(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b")]
    for run, torch, host in zip(runs, ("2.12", "2.13"), ("one", "two"), strict=True):
        (run / "summary.json").write_text(json.dumps({"versions": {"torch": torch, "ray": "2.60"}, "model": "m"}))
        for start in (9, 10):
            (run / f"logs/{start}").mkdir(parents=True)
            line = f"2026-11-27 22:12:00,506 INFO x: worker rank 0 is process 7 on {host}{start}\n"
            (run / f"logs/{start}/worker-rank-0.log").write_text(line)
    found = comparison(runs)
    assert found.versions == {"torch": ["2.12", "2.13"], "hosts": ["one10", "two10"]}
    assert found.same == {"ray": "2.60", "model": "m"}


def test_final_best_and_last_values_by_hand(tmp_path: Path) -> None:
    found = comparison([write(tmp_path / "a", final=0.5), write(tmp_path / "b", final=None)])
    of_validation, none = found.numbers["val/mean@4"]
    assert none is None and of_validation is not None
    assert (of_validation.final, of_validation.final_step) == (0.5, 20)
    assert (of_validation.best, of_validation.best_step) == (0.9, 10)
    of_training = found.numbers["reward/score_mean"][0]
    # The last tenth of 20 steps are steps 19 and 20, with scores of 1.9 and 2.0.
    assert of_training is not None and of_training.last_tenth == pytest.approx(1.95)


def test_the_best_value_of_a_loss_is_its_lowest(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in "ab"]
    for run in runs:
        run.mkdir()
        losses = ({"step": step, "val/loss": value} for step, value in ((1, 3.0), (2, 1.0), (3, 2.0), (4, None)))
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in losses))
    found = comparison(runs).numbers["val/loss"][0]
    assert found is not None and (found.best, found.best_step, found.final, found.final_step) == (1.0, 2, 2.0, 3)


# ---- the difference


def test_two_seeds_of_each_configuration_are_tested_over_seeds(tmp_path: Path) -> None:
    low = [write(tmp_path / f"low{seed}", seed=seed, final=value) for seed, value in enumerate((1.0, 2.0, 3.0))]
    high = [
        write(tmp_path / f"high{seed}", "actor.optim.lr=0.1", seed=seed, final=value)
        for seed, value in enumerate((2.0, 4.0, 6.0))
    ]
    found = comparison([*low, *high])
    [difference] = found.differences
    # Six of the 20 divisions have means at least 2 apart: 1+2+2 and twice 1+2+3, against the rest, and their mirrors.
    assert difference.text == (
        "final val/mean@4: high0 is 2 higher than low0 (4 over 3 seeds against 2 over 3); 95 % confidence interval "
        "-2.16 to 6.16, p = 0.22 by Welch's t-test. An exact permutation test gives p = 0.3."
    )
    assert [group.label for group in found.groups] == ["low0", "high0"]


def test_a_permutation_test_that_cannot_give_less_says_so(tmp_path: Path) -> None:
    low = [write(tmp_path / f"low{seed}", seed=seed, final=value) for seed, value in enumerate((0.10, 0.11))]
    high = [
        write(tmp_path / f"high{seed}", "actor.optim.lr=0.1", seed=seed, final=value)
        for seed, value in enumerate((0.90, 0.91))
    ]
    [difference] = comparison([*low, *high]).differences
    assert difference.text.endswith("p = 0.33, the smallest that 2 against 2 seeds can give.")
    assert "high0 is 0.8 higher than low0 (0.905 over 2 seeds against 0.105 over 2)" in difference.text


def test_values_without_variance_get_no_interval(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"low{seed}", seed=seed, final=0.5) for seed in (1, 2)]
    runs += [write(tmp_path / f"high{seed}", "actor.optim.lr=0.1", seed=seed, final=0.75) for seed in (1, 2)]
    [difference] = comparison(runs).differences
    assert "within each group all values are equal, so there is no confidence interval" in difference.text


def test_one_seed_of_each_is_compared_over_the_prompts_of_the_last_validation(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "actor.optim.lr=0.1")]
    for run, scores in zip(runs, ([0, 1, 1, 1, 0, None], [1, 1, 1, 1, 1, 0]), strict=True):
        write_scores(run, 9, [0.0] * 6)
        write_scores(run, 10, scores)
    [difference] = comparison(runs).differences
    # Means of the three prompts: 0.5, 1, 0 (one response has no score) against 1, 1, 0.5.
    assert difference.difference is not None
    assert difference.difference.value == pytest.approx(1 / 3)
    assert difference.text.startswith(
        "score of the last validation: b is 0.333 higher than a on 3 prompts (0.8333 against 0.5); 95 % interval "
    )
    assert difference.text.endswith(f"by a paired bootstrap over the prompts. {ROWS_ONLY}")


def test_a_single_seed_against_several_uses_the_mean_of_each_prompt(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a1", seed=1), write(tmp_path / "a2", seed=2), write(tmp_path / "b", "actor.optim.lr=1")]
    for run, scores in zip(runs, ([0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]), strict=True):
        write_scores(run, 10, scores)
    [difference] = comparison(runs).differences
    assert difference.difference is not None and difference.difference.value == pytest.approx(0.5)
    assert ROWS_ONLY in difference.text


@pytest.mark.parametrize("damage", ["missing", "unreadable", "other prompts"])
def test_a_difference_that_cannot_be_tested_says_why(tmp_path: Path, damage: str) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "actor.optim.lr=0.1")]
    write_scores(runs[0], 10, [1.0, 0.0, 1.0, 0.0])
    path = runs[1] / "samples/val_step_10.scores.parquet"
    if damage == "unreadable":
        path.parent.mkdir()
        path.write_bytes(b"PAR1 nonsense")
    if damage == "other prompts":
        write_scores(runs[1], 10, [1.0, 0.0], source="products")
    [difference] = comparison(runs).differences
    expected = {
        "missing": "and b has no samples/val_step_N.scores.parquet.",
        "unreadable": f"and {path} cannot be read (ArrowInvalid).",
        "other prompts": "and the last validations share 0 prompts.",
    }[damage]
    assert difference.difference is None and difference.text.endswith(expected)


def test_without_a_validation_the_training_score_is_compared(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"low{seed}", seed=seed, final=None) for seed in (1, 2)]
    runs += [write(tmp_path / f"high{seed}", "actor.optim.lr=0.1", seed=seed, final=None) for seed in (1, 2)]
    [difference] = comparison(runs).differences
    assert difference.metric == "reward/score_mean over the last tenth of the steps"


def test_runs_that_differ_only_in_their_seeds_get_their_spread(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"run{seed}", seed=seed, final=value) for seed, value in enumerate((0.5, 0.7))]
    # The standard deviation of two numbers is their difference over the square root of 2.
    assert as_text(comparison(runs)).endswith(
        "The runs differ only in seed and name: final val/mean@4 is 0.6 on average over 2 seeds, from 0.5 to 0.7, with "
        "a standard deviation of 0.141."
    )


def test_a_repeated_seed_counts_once_and_unequal_steps_are_noted(tmp_path: Path) -> None:
    runs = [write(tmp_path / "first"), write(tmp_path / "again", steps=10)]
    found = comparison(runs)
    assert found.notes == [
        "again has the seed and the options of first, so it is left out.",
        "The runs have reached different steps: first at 20, again at 10.",
        "The last validations are of different steps: first at 20, again at 10.",
    ]
    assert as_text(found).splitlines()[-4] == (
        "first: there is nothing to compare; give runs with other options or seeds."
    )


def test_last_validations_of_different_steps_are_noted(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b"), write(tmp_path / "without", final=None)]
    with (runs[1] / "metrics.jsonl").open("a") as rows:
        rows.write(json.dumps({"step": 20, "val/mean@4": None}) + "\n")
    assert comparison([runs[0], runs[2]]).notes[1:] == []
    assert "The last validations are of different steps: a at 20, b at 10." in comparison(runs).notes
    (runs[2] / "metrics.jsonl").write_text(json.dumps({"step": 0, "val/mean@4": 0.1}) + "\n")
    assert comparison(runs).notes[-1] == "The last validations are of different steps: a at 20, b at 10, without at 0."


def test_the_training_loss_is_compared_and_not_the_loss_of_a_validation(tmp_path: Path) -> None:
    runs = [write(tmp_path / f"{name}{seed}", seed=seed, final=None) for name in "ab" for seed in (1, 2)]
    for run in runs:
        rows = ({"step": step, "val/loss": 9.0, "sft/loss": 2.0} for step in (1, 2))
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (runs[0] / "metrics.jsonl").write_text(json.dumps({"step": 1, "sft/loss": 3.0}) + "\n")
    assert final_values([ComparedRun(run.name, RunFiles(run)) for run in runs]) == (
        "sft/loss over the last tenth of the steps",
        [3.0, 2.0, 2.0, 2.0],
    )


def test_several_tests_are_marked_as_not_corrected(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / f"{lr}-{seed}", f"actor.optim.lr={lr}", seed=seed, final=0.5 + seed / 10)
        for lr in (0.1, 0.2, 0.3)
        for seed in (1, 2)
    ]
    found = comparison(runs)
    assert len(found.differences) == 2
    assert found.notes == ["The probabilities are those of single tests; with 2 of them, some are small by chance."]


# ---- the command


def test_json_has_everything_that_the_text_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b", "actor.optim.lr=0.1")]
    assert main(["compare", *map(str, runs), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in found["runs"]] == ["a", "b"]
    assert found["options"] == {"actor.optim.lr": ["1.0e-06", "0.1"]}
    assert found["metrics"]["val/mean@4"][0]["final"] == 0.5
    assert found["differences"][0]["kind"] == "none" and found["sentences"]


def test_the_report_of_all_runs_is_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write(tmp_path / "a"), write(tmp_path / "b", seed=2)]
    assert main(["compare", *map(str, runs), "--out", str(tmp_path / "both.html")]) == 0
    assert capsys.readouterr().out.endswith(f"\n\n{tmp_path / 'both.html'}\n")
    assert MARK in (tmp_path / "both.html").read_text()
    assert main(["compare", *map(str, runs), "--json", "--out", str(tmp_path / "both.html")]) == 0
    assert json.loads(capsys.readouterr().out)["runs"], "nothing but JSON"


def test_no_name_or_value_can_control_the_terminal(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a\x1b[31m"), write(tmp_path / "b", "model.path='x\\n\x1b[2J'")]
    for run in runs:
        (run / "summary.json").write_text(json.dumps({"model": "\x1b[2J", "status": "\x1b]0;t\x07", "steps": 20}))
    shown = as_text(comparison(runs))
    assert r"a\x1b[31m" in shown and not [sign for sign in shown if not sign.isprintable() and sign != "\n"]


def test_long_values_are_cut_and_columns_stay_aligned(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", f"model.path={'x' * 300}"), write(tmp_path / "b", "model.path=数学")]
    lines = as_text(comparison(runs)).splitlines()
    assert max(map(len, lines[:12])) < 120 and any("xxx..." in line for line in lines)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a"], "found 1 run to compare, expected two or more. Give e.g. verl-like compare "),
        (["a", "a"], "/a is given twice. Name each run once."),
        (["a", "nothing"], "/nothing is not a run folder: it has neither config.yaml nor metrics.jsonl. Give e.g. "),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, names: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a")
    assert main(["compare", *(str(tmp_path / name) for name in names)]) == 2
    assert expected in capsys.readouterr().err


def test_runs_of_one_name_are_labelled_by_their_folders(tmp_path: Path) -> None:
    runs = [write(tmp_path / "one/run"), write(tmp_path / "two/run", seed=2)]
    assert [run.label for run in comparison(runs).runs] == ["one/run", "two/run"]
