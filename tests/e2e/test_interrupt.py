"""Ctrl-C and kill -9 at any moment: nothing is lost or left running, and the rest is as if nothing had happened."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests._left_behind import leaked_shared_memory
from tests.e2e._kept_workers import KeptWorkers
from tests.e2e._started_command import StartedCommand, wait_for
from tests.e2e._uninterrupted import differences
from tests.e2e.conftest import Run, base_overrides, train
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.telemetry.ledger import Ledger
from verl_like.telemetry.trackers import read_metrics

# While a file called `hold` is next to it, the scorer of a step writes `holding` and never returns: the step is in its
# middle.
HOLDING_REWARD = """
import time
from pathlib import Path

HERE = Path(__file__).parent

def digits(data_source, solution_str, ground_truth, extra_info):
    while (HERE / "hold").exists():
        (HERE / "holding").touch()
        time.sleep(0.05)
    return solution_str.count("7") / max(len(solution_str), 1)
"""
STEPS = 7


@dataclass(frozen=True, slots=True)
class Scene:
    """A run folder, the switch that holds its steps, and how to start it."""

    data: Path
    out: Path
    overrides: list[str]

    @property
    def run(self) -> Path:
        return self.out / "held"

    def hold(self) -> None:
        (self.data / "holding").unlink(missing_ok=True)
        (self.data / "hold").touch()

    def is_held(self) -> bool:
        return (self.data / "holding").exists()

    def release(self) -> None:
        (self.data / "hold").unlink(missing_ok=True)

    def steps_logged(self) -> list[int]:
        return sorted(read_metrics(self.run / "metrics.jsonl").get("time/step_s", {}))

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.run / "checkpoints").glob("step_*"))

    def start(self, log: str, moment: str = "") -> StartedCommand:
        chosen: dict[str, str] = {}
        for item in [*base_overrides(self.data, self.out), "data.val_files=[]", *self.overrides]:
            chosen[item.split("=", 1)[0]] = item
        return StartedCommand(["train", *chosen.values()], self.out / log, moment)


@pytest.fixture(scope="module")
def scene(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    rewards = tmp_path_factory.mktemp("rewards")
    (rewards / "reward.py").write_text(HOLDING_REWARD)
    for name in ("model", "train.parquet", "val.parquet"):
        (rewards / name).symlink_to(arithmetic / name)
    overrides = [
        f"trainer.total_training_steps={STEPS}",
        "trainer.experiment_name=held",
        "reward.timeout_s=600",
        "trainer.max_checkpoints=9",
        f"trainer.remote_dir=file://{tmp_path_factory.mktemp('store')}",
    ]
    return Scene(rewards, tmp_path_factory.mktemp("out"), overrides)


@pytest.fixture(scope="module")
def interrupted(scene: Scene) -> Iterator[dict[str, object]]:
    """Return the state after Ctrl-C in the middle of the step that follows step 2."""
    shared_memory = set(os.listdir("/dev/shm"))
    run = scene.start("interrupted.log")
    try:
        run.wait_for("step 2", lambda: 2 in scene.steps_logged())
        scene.hold()
        run.wait_for("a step that is held", scene.is_held)
        second = scene.start("second.log")
        second_status = second.ended(timeout_s=20)
        started = time.monotonic()
        status = run.interrupt()
        found = {
            "second": (second_status, second.output),
            "status": status,
            "seconds": time.monotonic() - started,
            "survivors": run.survivors(),
            "output": run.output,
            "steps": scene.steps_logged(),
            "checkpoints": scene.checkpoints(),
            "leaked": leaked_shared_memory(shared_memory),
        }
        scene.release()
        yield found
    finally:
        run.end()
        scene.release()


@pytest.fixture(scope="module")
def killed(scene: Scene, interrupted: dict[str, object]) -> Iterator[StartedCommand]:
    """Continue the run on a machine without its files; kill it in its next update, and then after its next checkpoint
    is written and before it is published.
    """
    scene.overrides.append("trainer.save_freq=1")
    before = scene.checkpoints()
    scene.run.rename(scene.out / "lost")
    moments = ("SIGKILL@update_actor+0.02", "SIGKILL@verl_like.runs.checkpoint:publish")
    for moment in moments:
        run = scene.start("killed.log", moment)
        try:
            assert run.killed(timeout_s=150) == -signal.SIGKILL, run.output
            assert (f"copying {before[-1]} from file://" in run.output) == (moment == moments[0])
            assert scene.checkpoints() == before, "the newest is of the last step that was saved"
            if moment == moments[-1]:
                yield run
        finally:
            run.end()


def test_ctrl_c_in_mid_step_saves_the_last_finished_step_and_leaves_nothing(interrupted: dict[str, object]) -> None:
    assert interrupted["status"] == 0, interrupted["output"]
    assert isinstance(interrupted["seconds"], float) and interrupted["seconds"] < 30
    output = str(interrupted["output"])
    # The first block is held by its scorer; on a slow machine the others are still being generated by then.
    assert "interrupted in reward" in output or "interrupted in generate" in output, output
    assert "the same command continues" in output
    steps = interrupted["steps"]
    assert isinstance(steps, list) and interrupted["checkpoints"] == [f"step_{steps[-1]}"], (
        "the step in progress must not count"
    )
    assert interrupted["survivors"] == []
    assert interrupted["leaked"] == set()


def test_the_same_command_during_a_run_is_refused_at_once_and_disturbs_nothing(interrupted: dict[str, object]) -> None:
    second = interrupted["second"]
    assert isinstance(second, tuple) and second[0] == 2
    assert "is in use by another run (process " in second[1] and "Traceback" not in second[1]


@pytest.mark.slow
def test_killing_the_driver_ends_its_workers_and_scorers_and_all_of_its_ray(killed: StartedCommand) -> None:
    wait_for("the end of every process", lambda: not killed.survivors(), 20)
    # In the stage of the next step that ran while the checkpoint was written.
    ended = r"has ended without a message, in stage '\w+'; its remaining processes are ended now"
    assert re.search(ended, killed.output)


@pytest.mark.slow
def test_an_interrupted_and_killed_run_continues_to_the_numbers_of_an_undisturbed_one(
    scene: Scene, killed: StartedCommand, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    ray_cluster.end()
    continued = train(scene.data, scene.out, *scene.overrides)
    ray_cluster.end()
    undisturbed = train(scene.data, tmp_path, *scene.overrides)
    assert sorted(continued.metrics) == sorted(undisturbed.metrics) == list(range(1, STEPS + 1))
    assert differences(continued.folder, undisturbed.folder) == []
    assert undisturbed.metrics[STEPS]["prompts/trained"] == undisturbed.metrics[STEPS]["prompts/drawn"] == 8 * STEPS
    assert (continued.folder / "model/model.safetensors").read_bytes() == (
        undisturbed.folder / "model/model.safetensors"
    ).read_bytes()


@pytest.mark.nightly
def test_another_number_of_workers_continues_with_the_same_numbers(
    arithmetic: Path, tmp_path: Path, ray_cluster: None
) -> None:
    def run(name: str, workers: int, steps: int, start: Path | None = None) -> Run:
        return train(
            arithmetic,
            tmp_path,
            "rollout=hf",
            "actor.mini_batch_size=4",
            "trainer.save_freq=1",
            "trainer.max_checkpoints=9",
            f"trainer.experiment_name={name}",
            f"trainer.total_training_steps={steps}",
            f"cluster.workers_per_node={workers}",
            f"trainer.resume={start or 'auto'}",
        )

    two = run("two", 2, 3)
    one = run("one", 1, 2, two.folder / "checkpoints/step_1")
    again = run("again", 2, 3, one.folder / "checkpoints/step_2")
    for continued, step in ((one, 2), (again, 3)):
        for name in ("actor/loss", "actor/grad_norm", "actor/ppo_kl", "reward/score_mean"):
            assert abs(continued.metrics[step][name] - two.metrics[step][name]) <= 1e-5, (step, name)


@pytest.mark.slow
def test_ctrl_c_ends_a_rollout_that_would_take_minutes(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> None:
    """With an engine of two ranks, which must stop at the same step or hang."""
    pressed: list[float] = []

    def press_in_mid_rollout() -> None:
        wait_for("a rollout", lambda: current(Ledger).stage == "rollout", 120)
        time.sleep(2)
        pressed.append(time.monotonic())
        current(Interrupt).set()

    presser = threading.Thread(target=press_in_mid_rollout)
    presser.start()
    try:
        run = train(
            arithmetic,
            tmp_path,
            "data.max_response_length=20000",
            "model.override_config={max_position_embeddings: 32768}",
            "rollout.ignore_eos=true",
            "rollout.max_num_batched_tokens=32768",
            "rollout.kv_cache_memory_gib=0.5",
            "rollout.tensor_parallel_size=2",
        )
    finally:
        presser.join()
        current(Interrupt).clear()
    assert time.monotonic() - pressed[0] < 30
    assert run.progress.step == 0 and not run.metrics
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["step_0"]
    assert not (run.folder / "model").exists(), "a run that did not finish has no model to hand over"


def test_starting_ray_leaves_the_handler_of_sigterm_alone(ray_cluster: None) -> None:
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "Ray's own handler would end a run without a checkpoint"
