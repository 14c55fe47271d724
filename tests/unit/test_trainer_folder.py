"""Checkpoints and run folders: nothing is overwritten that another run, or a crash, might still need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit._savers import save
from verl_like.checks.checkpoints import checkpoint_of, resume_problem
from verl_like.config.compose import compose
from verl_like.runs.checkpoint import Checkpoints, load_state, publish
from verl_like.runs.folder import RunFolder
from verl_like.runs.start import export_folder


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", max_checkpoints=2)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


# --- checkpoints


def test_a_checkpoint_holds_actor_critic_and_state(checkpoints: Checkpoints) -> None:
    path = save(checkpoints, 3, critic="critic")
    assert path == checkpoints.folder / "step_3"
    assert [(path / role / "weights").read_text() for role in ("actor", "critic")] == ["actor", "critic"]
    assert load_state(path) == {"job": "train", "step": 3}


def test_the_newest_are_kept_and_the_best_in_addition(checkpoints: Checkpoints) -> None:
    for step in (1, 2, 3, 10):
        save(checkpoints, step, is_best=step == 1)
    assert names(checkpoints) == ["best", "step_1", "step_10", "step_3"]
    assert checkpoints.steps() == [1, 3, 10], "by number, not by letter"
    assert checkpoints.best() == (checkpoints.folder / "step_1").resolve()
    save(checkpoints, 11, is_best=True)
    assert checkpoints.steps() == [10, 11], "the former best has lost its privilege"


def test_a_failed_save_publishes_nothing_and_keeps_the_old_one(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    with pytest.raises(RuntimeError, match="disk full"):
        save(checkpoints, 2, is_broken=True)
    with pytest.raises(RuntimeError, match="disk full"):
        save(checkpoints, 1, actor="newer", is_broken=True)
    assert checkpoints.steps() == [1]
    assert (checkpoints.path(1) / "actor/weights").read_text() == "actor"
    save(checkpoints, 2)
    assert names(checkpoints) == ["step_1", "step_2"], "a partial checkpoint takes no space"


def test_a_skipped_damaged_checkpoint_displaces_no_complete_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", max_checkpoints=1)
    save(checkpoints, 4)
    (checkpoints.path(4) / "trainer.json").unlink()
    save(checkpoints, 2)
    save(checkpoints, 3)
    assert checkpoints.find("auto") == checkpoints.path(3)
    save(checkpoints, 4, actor="anew")
    assert checkpoints.find("auto") == checkpoints.path(4) and checkpoints.steps() == [4]


def test_the_best_is_what_the_progress_says_and_not_where_a_killed_run_left_the_link(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, is_best=True)
    save(checkpoints, 2)  # the best so far, but the run was killed before it could say so
    checkpoints.mark_best(2)
    assert checkpoints.best() == checkpoints.path(2).resolve()
    checkpoints.mark_best(-1)
    assert checkpoints.best() == checkpoints.path(2).resolve(), "nothing is the best of a run that validates nothing"


def test_a_checkpoint_of_another_run_is_not_held(checkpoints: Checkpoints, tmp_path: Path) -> None:
    assert checkpoints.holds(save(checkpoints, 1, is_best=True)) and checkpoints.holds(checkpoints.folder / "best")
    assert not checkpoints.holds(save(Checkpoints(tmp_path / "other", max_checkpoints=1), 1))


def test_saving_a_step_again_replaces_it_whole(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, critic="critic")
    save(checkpoints, 1, actor="newer")
    assert (checkpoints.path(1) / "actor/weights").read_text() == "newer"
    assert not (checkpoints.path(1) / "critic").exists()
    assert names(checkpoints) == ["step_1"]


def test_publishing_moves_a_folder_in_one_piece(tmp_path: Path) -> None:
    (tmp_path / "new/deep").mkdir(parents=True)
    (tmp_path / "new/deep/file").write_text("x")
    publish(tmp_path / "new", tmp_path / "final")
    assert (tmp_path / "final/deep/file").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_auto_finds_the_newest_never_finds_none_and_a_path_itself(checkpoints: Checkpoints) -> None:
    assert checkpoints.find("auto") is None
    for step in (2, 10):
        save(checkpoints, step)
    assert checkpoints.find("auto") == checkpoints.path(10)
    assert checkpoints.find("never") is None
    assert checkpoints.find(str(checkpoints.path(2))) == checkpoints.path(2)


def test_a_relative_path_to_a_checkpoint_becomes_absolute(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, 2)
    monkeypatch.chdir(checkpoints.folder)
    assert checkpoints.find("step_2") == checkpoints.path(2), "workers read it from their own directories"


def test_a_path_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert resume_problem(str(tmp_path)) == (
        f"trainer.resume is {tmp_path}, but must be auto, never or the folder of a checkpoint, and that folder has no "
        f"trainer.json (looked from {Path.cwd()}). Give a .../checkpoints/step_N folder of a run."
    )


@pytest.mark.parametrize("named", ["checkpoints/step_80", "checkpoints", "."])
def test_a_missing_checkpoint_is_refused_with_those_there_are(
    named: str, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (120, 200):
        save(checkpoints, step, is_best=step == 120)
    monkeypatch.chdir(checkpoints.folder.parent)
    problem = resume_problem(f"./{named}")
    assert problem is not None and problem.endswith("checkpoints holds step_120, step_200, best: name one of these.")
    assert ("no such folder exists" in problem) == named.endswith("80")


def test_the_checkpoint_of_a_run_is_its_newest(checkpoints: Checkpoints) -> None:
    for step in (9, 10):
        save(checkpoints, step)
    run = checkpoints.folder.parent
    for path in (run, checkpoints.folder, checkpoints.path(10)):
        assert checkpoint_of(path) == checkpoints.path(10)
    assert checkpoint_of(checkpoints.path(9)) == checkpoints.path(9)
    with pytest.raises(ValueError, match=r"found no checkpoint at .*step_3: no such folder.*holds step_9, step_10: "):
        checkpoint_of(checkpoints.path(3))


def test_branching_off_inside_a_folder_is_refused(checkpoints: Checkpoints) -> None:
    for step in (2, 4):
        save(checkpoints, step)
    checkpoints.check_start(checkpoints.path(4), job="train")
    with pytest.raises(
        ValueError, match=r"step 2, but .* holds step_4 of another continuation.*trainer.experiment_name"
    ):
        checkpoints.check_start(checkpoints.path(2), job="train")


def test_a_checkpoint_of_another_command_is_refused(checkpoints: Checkpoints) -> None:
    save(checkpoints, 2)
    with pytest.raises(
        ValueError,
        match=r"is a checkpoint of `verl-like train`, which `verl-like sft` cannot continue.*verl-like export",
    ):
        checkpoints.check_start(checkpoints.path(2), job="sft")


# --- run folders


def claim(out: Path, *overrides: str, job: str = "train", resume: str = "auto") -> RunFolder:
    composed = compose(None, [f"trainer.output_dir={out}", "trainer.experiment_name=run", *overrides])
    folder = RunFolder(composed.config)
    folder.refuse_other(composed.yaml(), job=job, resume=resume)
    folder.claim(composed.yaml(), job=job)
    return folder


def used(folder: RunFolder) -> RunFolder:
    folder.metrics.write_text(json.dumps({"step": 1}) + "\n")
    return folder


def test_a_fresh_folder_records_command_and_configuration(tmp_path: Path) -> None:
    folder = claim(tmp_path, "rollout.n=4")
    assert folder.path == tmp_path / "run"
    assert folder.config.read_text().startswith("# verl-like train\n")
    assert compose(str(folder.config), []).config.rollout.n == 4, "a recorded configuration is a recipe"


def test_the_same_run_may_continue_with_other_trainer_and_cluster_settings(tmp_path: Path) -> None:
    used(claim(tmp_path))
    folder = claim(tmp_path, "trainer.total_training_steps=7", "cluster.workers_per_node=1")
    assert compose(str(folder.config), []).config.trainer.total_training_steps == 7


@pytest.mark.parametrize(
    ("overrides", "job", "difference"),
    [
        (["rollout.n=4"], "train", r"rollout.n \(8 there, 4 here\)"),
        (["actor.optim.lr=0.5"], "train", r"actor.optim.lr \(1e-06 there, 0.5 here\)"),
        ([], "sft", r"the command \(verl-like train there, verl-like sft here\)"),
    ],
)
def test_the_folder_of_another_run_is_refused_and_left_alone(
    tmp_path: Path, overrides: list[str], job: str, difference: str
) -> None:
    folder = used(claim(tmp_path))
    before = folder.config.read_text()
    with pytest.raises(
        ValueError, match=rf"is the folder of another run; it differs in {difference}.*trainer.experiment_name"
    ):
        claim(tmp_path, *overrides, job=job)
    assert folder.config.read_text() == before


def test_a_used_folder_is_refused_under_resume_never(tmp_path: Path) -> None:
    used(claim(tmp_path))
    with pytest.raises(ValueError, match=r"already holds a run, and trainer\.resume=never"):
        claim(tmp_path, resume="never")


@pytest.mark.parametrize("content", [None, "", "- a list\n", "data: [", "\0\0\udcff"])
def test_a_folder_of_unknown_origin_is_refused(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "run/checkpoints/step_3").mkdir(parents=True)
    if content is not None:
        (tmp_path / "run/config.yaml").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(
        ValueError, match=r"config\.yaml is (missing|damaged .*), so the run of this folder is unknown"
    ) as found:
        claim(tmp_path)
    assert "Put a copy of the file there" in str(found.value) and "delete" not in str(found.value)


def test_a_run_that_never_got_anywhere_does_not_hold_its_folder(tmp_path: Path) -> None:
    claim(tmp_path, "rollout.n=4")
    assert compose(str(claim(tmp_path, "rollout.n=5").config), []).config.rollout.n == 5
    claim(tmp_path, "rollout.n=6", resume="never")


def test_a_configuration_file_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("server: {port: 80}\n")
    with pytest.raises(ValueError, match=r"run/config.yaml was not written by a run, and would be replaced. Choose an"):
        claim(tmp_path)
    assert (tmp_path / "run/config.yaml").read_text() == "server: {port: 80}\n"


def test_an_export_replaces_nothing_but_a_model_and_that_only_where_it_is_asked_to(tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "run/checkpoints/step_3", tmp_path / "out"

    def place(folder: Path | None = out, *, adapter: bool = False, replaces: bool = False) -> Path:
        return export_folder(checkpoint, folder, adapter=adapter, replaces=replaces)

    assert place(None) == tmp_path / "run/export/step_3"
    assert place(None, adapter=True) == tmp_path / "run/export/step_3-adapter"
    assert place() == out, "a new folder"
    out.mkdir()
    assert place() == out, "an empty one"
    (out / "config.json").touch()
    with pytest.raises(ValueError, match=r"out contains config.json, which would be replaced. .* add --replace."):
        place()
    assert place(replaces=True) == out
    (out / "config.json").rename(out / "thesis.tex")
    for replaces in (False, True):
        with pytest.raises(
            ValueError, match=r"out contains thesis.tex, which would be replaced. Name a new folder: the"
        ):
            place(replaces=replaces)


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert claim(Path("here")).path == tmp_path / "here/run", "workers that write there have other working directories"
