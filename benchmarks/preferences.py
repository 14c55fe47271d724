"""Compare training on given rows with TRL's: ``PYTHONPATH=.peers python -m benchmarks.preferences`` (``make peers``).

Both take steps of DPO and of supervised training on the same model of 2.4 million parameters, rows, batch and cores, in
float32, with prompts three times as long as answers. Ours is the real stack with its defaults, of which two workers
are those of two cores. TRL runs in one process of two threads or two of one, with micro-batches of two sizes; the best
of them counts. In DPO the reference's log-probs are computed before the first step in both. All alternate. Prints one
JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._peer_trl import PLAIN, free_port, trl_steps
from benchmarks._teams import Job, teams
from benchmarks.e2e import SYMBOLS, WORKLOADS, write_model
from verl_like.backends.allocator import allocator_environment

ROUNDS = 7
ROWS, BATCH, LR = 1024, 32, 1e-6
PROMPTS, ANSWERS = (64, 192), (16, 64)  # tokens, from and to below
MICRO_BATCHES = {"dpo": (4, 16), "sft": (8, 32)}  # items
UNITS = {"dpo": "pairs", "sft": "tokens"}


def write_rows(folder: Path) -> None:
    rng = np.random.default_rng(0)

    def text(bounds: tuple[int, int]) -> str:
        return "".join(rng.choice(list(SYMBOLS), rng.integers(*bounds)))

    rows = [{"prompt": text(PROMPTS), "chosen": text(ANSWERS), "rejected": text(ANSWERS)} for _ in range(ROWS)]
    (folder / "dpo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answered = [{"prompt": row["prompt"], "answer": row["chosen"]} for row in rows]
    (folder / "sft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answered))


@contextmanager
def own(rank: int, folder: Path, job: str) -> Iterator[Job]:
    """Yield a job that takes a step of ours; returns the number of units."""
    from verl_like.config.compose import compose
    from verl_like.plan.job_choices import for_given_rows
    from verl_like.runs.folder import RunFolder
    from verl_like.telemetry.loggers import trackers
    from verl_like.training.row_jobs import ROW_JOBS, built

    config = compose(
        None,
        [
            f"model.path={folder}/model",
            f"data.train_files=[{folder}/{job}.jsonl]",
            "data.answer_key=answer",
            "data.apply_chat_template=false",
            f"data.train_batch_size={BATCH}",
            f"data.max_prompt_length={PROMPTS[1]}",
            f"data.max_response_length={ANSWERS[1]}",
            f"actor.mini_batch_size={BATCH}",
            f"actor.optim.lr={LR}",
            f"trainer.output_dir={folder}",
            f"trainer.experiment_name={job}",
            "trainer.loggers=[jsonl]",
            "trainer.reference_cache=",
            "trainer.total_training_steps=10000",
            "trainer.stall_after_s=3600",  # this contender waits while others run
            "cluster.workers_per_node=2",  # the default on two cores; the others have no more
            "cluster.threads_per_worker=1",
        ],
    ).config
    kind = ROW_JOBS[job]
    task, config, run_folder = kind.task_of(config), for_given_rows(config, job), RunFolder(config)
    run_folder.path.mkdir(parents=True)
    with (
        trackers(config, run_folder.path, total_steps=task.steps) as tracker,
        built(kind, config, task, run_folder, tracker) as (loop, _),
    ):
        loop.trainer.start()
        numbers = iter(range(1, task.steps))

        def step(_: Any) -> float:
            tokens = loop.trainer.step(next(numbers))["perf/tokens"]
            return BATCH if job == "dpo" else float(tokens)

        yield step


@contextmanager
def trl(rank: int, folder: Path, job: str, ranks: int, port: int, micro_batch: int) -> Iterator[Job]:
    """Yield a job that takes a step of TRL's trainer; returns this rank's number of units."""

    def trainer(callbacks: list[Any]) -> Any:
        from datasets import Dataset
        from transformers import AutoTokenizer
        from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

        rows = [json.loads(line) for line in (folder / f"{job}.jsonl").read_text().splitlines()]
        common = {
            "output_dir": str(folder / f"trl-{port}"),
            "per_device_train_batch_size": micro_batch,
            "gradient_accumulation_steps": BATCH // ranks // micro_batch,
            "learning_rate": LR,
            "max_length": PROMPTS[1] + ANSWERS[1],
            **PLAIN,
        }
        more = {
            "model": str(folder / "model"),
            "processing_class": AutoTokenizer.from_pretrained(folder / "model"),
            "callbacks": callbacks,
        }
        if job == "dpo":
            args = DPOConfig(**common, precompute_ref_log_probs=True)
            return DPOTrainer(args=args, train_dataset=Dataset.from_list(rows), **more)
        answered = [{"prompt": row["prompt"], "completion": row["answer"]} for row in rows]
        return SFTTrainer(args=SFTConfig(**common), train_dataset=Dataset.from_list(answered), **more)

    with trl_steps(rank, ranks, port, trainer) as step:
        yield lambda _: step()


def measure(folder: Path, job: str) -> dict[str, Any]:
    contenders: dict[str, Any] = {"own": (1, own, (folder, job))}
    for ranks in (1, 2):
        for rows in MICRO_BATCHES[job]:
            if ranks * rows <= BATCH:
                name = f"{ranks} of {2 // ranks} threads, {rows} rows"
                contenders[name] = (ranks, trl, (folder, job, ranks, free_port(), rows))
    peers = [name for name in contenders if name != "own"]
    with teams(contenders) as found:
        for team in found.values():
            team.done()
        tried = {name: min(found[name].seconds() for _ in range(3)) for name in peers}
        best = min(tried, key=lambda name: tried[name])
        found["own"].done()
        rounds = []
        for _ in range(ROUNDS):
            seconds, [units] = found["own"].done()
            rounds.append((units, seconds, found[best].seconds()))
    # Both have the same rows, so TRL's number of units per step is ours on average.
    units = median(units for units, _, _ in rounds)
    return {
        "own_per_s": round(median(units / own for units, own, _ in rounds), 1),
        "trl_per_s": round(median(units / theirs for _, _, theirs in rounds), 1),
        "ratio": round(median(theirs / own for _, own, theirs in rounds), 2),
        "per_step": round(units),
        "unit": UNITS[job],
        "trl": best,
        "trl_tried_s": {name: round(seconds, 3) for name, seconds in tried.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=UNITS, default=list(UNITS))
    jobs = parser.parse_args().jobs
    os.environ |= allocator_environment()  # as in our workers
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = write_model(folder / "model", WORKLOADS["fixed"])
        write_rows(folder)
        for job in jobs:
            found[job] = measure(folder, job)
            print(json.dumps({job: found[job]}), flush=True)
    ratios = {f"ratio_vs_trl_{job}": each["ratio"] for job, each in found.items()}
    print(json.dumps({**ratios, "parameters": parameters, "by_job": found}))


if __name__ == "__main__":
    main()
