"""A tiny model and its data, and one Ray cluster, with worker processes, that all runs of these tests share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.scene import make_data
from tests.e2e._kept_workers import KeptWorkers, kept_workers
from verl_like.config.compose import compose
from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster as started
from verl_like.machine.cores import usable_cores
from verl_like.training import jobs as run
from verl_like.training.progress import Progress

ROOT = Path(__file__).parents[2]
SHARED_DATA = ROOT.parent / "shared/data"


@pytest.fixture(scope="package")  # other tests are of processes as they are in use
def ray_cluster() -> Iterator[KeptWorkers]:
    with started(ClusterConfig(object_store_memory_gib=0.25), "tests"), kept_workers() as workers:
        yield workers


@pytest.fixture(scope="session")
def arithmetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.parquet, val.parquet, sft.parquet and model/: two layers, random weights."""
    folder = make_data(tmp_path_factory.mktemp("arithmetic"))
    (folder / "reward.py").write_text(REWARD)
    return folder


@pytest.fixture(scope="session")
def teacher(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same shape and tokenizer with other weights."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("teacher")
    model = AutoModelForCausalLM.from_pretrained(arithmetic / "model")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(arithmetic / "model").save_pretrained(folder)
    return folder


REWARD = '''
def digits(data_source, solution_str, ground_truth, extra_info):
    """A reward that a random policy meets sometimes: the share of characters that are 7."""
    return {"score": solution_str.count("7") / max(len(solution_str), 1), "length": len(solution_str)}


def broken_for_some(data_source, solution_str, ground_truth, extra_info):
    if int(ground_truth) % 2:
        raise RuntimeError("this scorer knows even sums only")
    return 1.0 if solution_str.startswith("7") else 0.5
'''


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run."""

    folder: Path
    progress: Progress

    @property
    def metrics(self) -> dict[int, dict[str, Any]]:
        """Metrics by step."""
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line for line in lines}


def base_overrides(data: Path, out: Path) -> list[str]:
    return [
        f"data.train_files=[{data}/train.parquet]",
        f"data.val_files=[{data}/val.parquet]",
        "data.train_batch_size=8",
        "data.apply_chat_template=false",
        "data.max_prompt_length=8",
        "data.max_response_length=6",
        f"model.path={data}/model",
        "actor.mini_batch_size=8",
        "actor.optim.lr=1e-3",
        "critic.mini_batch_size=8",
        "rollout.n=4",
        "rollout.kv_cache_memory_gib=0.05",
        "rollout.max_num_seqs=64",
        "rollout.block_kib=0",
        "trainer.val_before_train=false",
        "trainer.total_training_steps=2",
        f"trainer.output_dir={out}",
        "trainer.loggers=[jsonl]",
        "trainer.stage_timeout_s=120",
        f"reward.function={data}/reward.py:digits",
        "cluster.device=cpu",
        f"cluster.workers_per_node={min(2, usable_cores())}",
        "trainer.num_samples_to_save=4",
    ]


def arguments(data: Path, out: Path, *overrides: str) -> list[str]:
    """Return a command line with small settings; later overrides win."""
    chosen: dict[str, str] = {}
    for item in [*base_overrides(data, out), *overrides]:
        chosen[item.split("=", 1)[0]] = item
    return list(chosen.values())


def train(data: Path, out: Path, *overrides: str) -> Run:
    """Train in this process with small settings; later overrides win."""
    composed = compose(None, arguments(data, out, "data.val_files=[]", *overrides))
    progress = run.train(composed.config, composed.yaml())
    return Run(out / composed.config.trainer.experiment_name, progress)
