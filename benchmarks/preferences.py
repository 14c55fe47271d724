"""Compare training on given rows with TRL's: ``PYTHONPATH=.peers python -m benchmarks.preferences`` (``make peers``).

Both take steps of DPO and of supervised training on the same model of 2.4 million parameters, rows, batch and cores, in
float32. Prompts are three times as long as answers, and lengths vary as much as those of GSM8K. Ours is the real stack
with its defaults for two cores. TRL runs in one process of two threads or two of one, with micro-batches of several
sizes; the best of them counts. Neither computes the reference's log-probs in the measured steps. All alternate. Prints
one JSON object as its last line.
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

from benchmarks._machine import print_result
from benchmarks._peer_trl import PLAIN, free_port, trl_steps
from benchmarks._teams import Job, teams
from benchmarks.e2e import SYMBOLS, WORKLOADS, write_model
from verl_like.backends.allocator import allocator_environment

ROUNDS = 7
ROWS, BATCH, LR = 1024, 32, 1e-6
MEAN, VARIATION, LONGEST = 160, 0.4, 512  # tokens of a prompt with an answer; standard deviation over mean
PROMPT_SHARE = 0.75
MICRO_BATCHES = {"dpo": (2, 4, 8), "sft": (2, 4, 8)}  # items
UNITS = {"dpo": "pairs", "sft": "tokens"}


def write_rows(folder: Path) -> None:
    """Write rows of log-normal lengths; the answers of a prompt are about equally long."""
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.log1p(VARIATION**2))
    lengths = np.minimum(MEAN * rng.lognormal(-(spread**2) / 2, spread, ROWS), LONGEST)

    def text(tokens: float) -> str:
        return "".join(rng.choice(list(SYMBOLS), max(round(tokens), 1)))

    def row(length: float) -> dict[str, str]:
        answers = (1 - PROMPT_SHARE) * length * rng.uniform(0.8, 1.2, 2)
        return {"prompt": text(PROMPT_SHARE * length), "chosen": text(answers[0]), "rejected": text(answers[1])}

    rows = [row(length) for length in lengths]
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
            f"data.max_prompt_length={LONGEST}",
            f"data.max_response_length={LONGEST}",
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
        from datasets import load_dataset
        from transformers import AutoTokenizer
        from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

        cache = str(folder / "cache")  # of all ranks: one computes the reference's log-probs, and the others read them
        rows = load_dataset("json", data_files=str(folder / f"{job}.jsonl"), cache_dir=cache, split="train")
        common = {
            "output_dir": str(folder / f"trl-{port}"),
            "per_device_train_batch_size": micro_batch,
            "gradient_accumulation_steps": BATCH // ranks // micro_batch,
            "learning_rate": LR,
            "max_length": 2 * LONGEST,
            **PLAIN,
        }
        more = {
            "model": str(folder / "model"),
            "processing_class": AutoTokenizer.from_pretrained(folder / "model"),
            "callbacks": callbacks,
        }
        if job == "dpo":
            args = DPOConfig(**common, precompute_ref_log_probs=True)
            return DPOTrainer(args=args, train_dataset=rows, **more)
        rows = rows.rename_column("answer", "completion")
        return SFTTrainer(args=SFTConfig(**common), train_dataset=rows, **more)

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
    print_result({**ratios, "parameters": parameters, "by_job": found})


if __name__ == "__main__":
    main()
