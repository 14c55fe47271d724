"""Run steps of GRPO by ``verl-like train``, on the arithmetic recipe with random weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all

NUM_STEPS = 2
RECIPE = "recipes/arithmetic/grpo.yaml"


def check(scene: Scene) -> Findings:
    found = Findings()
    folder = scene.of("train")
    write_all(folder / "data", seed=0)
    write_model(folder / "init", seed=0)
    log = folder / "train.log"
    with log.open("wb") as stream:
        command = [sys.executable, "-m", "verl_like", "train", RECIPE, *overrides(scene, folder)]
        status = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        output = log.read_text(errors="replace").strip() or "no output"
        print(output[-4000:])
        raise RuntimeError(f"verl-like train ended with {status}: {output.splitlines()[-1]}")
    steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    found.must(len(steps) == NUM_STEPS, f"{len(steps)} steps, expected {NUM_STEPS}")
    skipped = sum(step["actor/skipped_updates"] for step in steps)
    found.must(not skipped, f"{skipped:.0f} updates were skipped, expected none")
    gap = max(step["rollout/log_prob_diff_mean"] for step in steps)
    found.add("gap_mean_nats", gap, at_most=scene.max_engine_gap)
    found.add("step_s", steps[-1]["time/step_s"])
    return found


def overrides(scene: Scene, folder: Path) -> list[str]:
    """Return the overrides for a short run on one device; all other options are the recipe's."""
    small = ["data.train_batch_size=16", "actor.mini_batch_size=16", "rollout.n=4"] if scene.is_small else []
    return [
        f"data.train_files=[{folder}/data/train.parquet]",
        "data.val_files=[]",
        f"model.path={folder}/init",
        f"cluster.device={scene.device}",
        "cluster.workers_per_node=1",
        "rollout.enforce_eager=true",
        f"trainer.output_dir={folder}",
        "trainer.experiment_name=run",
        f"trainer.total_training_steps={NUM_STEPS}",
        "trainer.val_before_train=false",
        "trainer.test_freq=0",
        "trainer.save_freq=0",
        "trainer.loggers=[jsonl]",
        *small,
    ]
