"""The run's choice of libraries: one for all ranks, and the same in every continuation and repetition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.config.schema import Config, TrainerConfig
from verl_like.context import current, replaced
from verl_like.ops.matmul_libraries import MatmulLibraries, kept, recorded
from verl_like.workers import matmul_record
from verl_like.workers.matmul_record import NAME, agree_on_libraries
from verl_like.workers.setup import WorkerSetup

RECORDED, MEASURED = "forward pass 384x384x384", "forward pass 128x128x128"


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(matmul_record, "machine_libraries", lambda: MatmulLibraries([MEASURED]))
    monkeypatch.setattr(matmul_record, "has_onednn", lambda: True)
    with replaced(MatmulLibraries, MatmulLibraries()):
        yield


def setup_of(outputs: Path, *, updates: int = 1, rank: int = 0, device: str = "cpu", **trainer: str) -> WorkerSetup:
    config = Config(trainer=TrainerConfig(output_dir=str(outputs), experiment_name="run", **trainer))  # type: ignore[arg-type]
    return WorkerSetup(
        config=config,
        rank=rank,
        world_size=1,
        device=device,
        run_id="",
        roles=frozenset({"actor"}),
        actor_updates=updates,
    )


def used() -> set[str]:
    return set(current(MatmulLibraries).onednn)


def test_a_new_run_records_the_machines_choice(tmp_path: Path) -> None:
    agree_on_libraries(setup_of(tmp_path))
    assert used() == recorded(tmp_path / "run" / NAME).onednn == {MEASURED}


@pytest.mark.parametrize("names", [[], [RECORDED]])
def test_a_continued_run_keeps_its_choice_on_another_machine(tmp_path: Path, names: list[str]) -> None:
    kept(MatmulLibraries(names), tmp_path / "run" / NAME)
    agree_on_libraries(setup_of(tmp_path))
    assert used() == set(names)


def test_a_branch_keeps_the_choice_of_the_run_that_it_continues(tmp_path: Path) -> None:
    kept(MatmulLibraries([RECORDED]), tmp_path / "other" / NAME)
    checkpoint = tmp_path / "other/checkpoints/step_3"
    checkpoint.mkdir(parents=True)
    (checkpoint.parent / "best").symlink_to("step_3")
    agree_on_libraries(setup_of(tmp_path, resume=str(checkpoint.parent / "best")))
    assert used() == recorded(tmp_path / "run" / NAME).onednn == {RECORDED}


def test_a_repeated_schedule_keeps_the_choice_of_its_run(tmp_path: Path) -> None:
    kept(MatmulLibraries([RECORDED]), tmp_path / "other" / NAME)
    agree_on_libraries(setup_of(tmp_path, replay_schedule=str(tmp_path / "other/schedule.jsonl")))
    assert used() == {RECORDED}


def test_an_evaluation_uses_the_record_and_writes_none(tmp_path: Path) -> None:
    agree_on_libraries(setup_of(tmp_path, updates=0))
    assert used() == {MEASURED} and not list(tmp_path.iterdir())
    kept(MatmulLibraries([RECORDED]), tmp_path / "run" / NAME)
    agree_on_libraries(setup_of(tmp_path, updates=0))
    assert used() == {RECORDED}


def test_a_run_on_gpus_needs_no_choice(tmp_path: Path) -> None:
    agree_on_libraries(setup_of(tmp_path, device="cuda"))
    assert used() == set() and not list(tmp_path.iterdir())


def test_a_record_with_onednn_is_refused_where_pytorch_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(MatmulLibraries([RECORDED]), tmp_path / "run" / NAME)
    monkeypatch.setattr(matmul_record, "has_onednn", lambda: False)
    with pytest.raises(ValueError, match=r"computed by oneDNN, which PyTorch lacks here; expected.*remove the file"):
        agree_on_libraries(setup_of(tmp_path))


def agreed(outputs: Path) -> set[str]:
    """Agree on a rank whose own machine prefers something else than those of the other ranks."""
    rank = dist.get_rank()
    matmul_record.machine_libraries = lambda: MatmulLibraries([f"forward pass {(32, 128)[rank]}x32x32"])  # type: ignore[assignment]
    agree_on_libraries(setup_of(outputs, rank=rank))
    return used()


@pytest.mark.processes
def test_all_ranks_use_the_choice_of_the_first(tmp_path: Path) -> None:
    assert on_ranks(agreed, tmp_path, world_size=2) == [{"forward pass 32x32x32"}] * 2
