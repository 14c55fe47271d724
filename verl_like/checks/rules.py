"""Rules that span sections. Each is one small function; all run before a model loads.

A rule says what was found, what would work and how to get there. A single value's own rule is in the schema.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from verl_like.algorithms.advantages import Estimator, estimator
from verl_like.algorithms.policy_losses import policy_loss
from verl_like.checks.algorithm import ALGORITHM_RULES
from verl_like.checks.paths import refuse_missing_files, refuse_missing_folder
from verl_like.checks.reward import REWARD_RULES, own_gpus
from verl_like.config.knobs import check_values
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.disk import refuse_unwritable

log = logging.getLogger(__name__)

LOGGERS = ("console", "jsonl", "tensorboard", "wandb", "mlflow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What the rules know besides the configuration.

    Args:
        estimator: the advantage estimator that the configuration names.
        num_devices: GPUs in reach; None for those of a cluster that is yet to be joined.
    """

    estimator: Estimator
    num_devices: int | None

    def has_critic(self) -> bool:
        return "values" in self.estimator.needs


def check(config: Config, *, num_devices: int | None = None) -> None:
    """Refuse a configuration whose sections contradict each other or the machine.

    Args:
        config: the whole configuration.
        num_devices: GPUs in reach, 0 for none. By default those of this machine are counted, except where
            ``cluster.address`` joins a cluster: its devices are known later, to :func:`check_devices`.

    Raises:
        ValueError: the first rule that is broken: found, expected, remedy.
    """
    check_values(config)
    policy_loss(config.actor.policy_loss)
    if num_devices is None and not config.cluster.address:
        num_devices = torch.cuda.device_count()
    facts = Facts(estimator=estimator(config.algorithm.adv_estimator), num_devices=num_devices)
    for rule in RULES:
        rule(config, facts)
    for own_rule in (*ALGORITHM_RULES, *REWARD_RULES):
        own_rule(config)


def check_devices(config: Config, *, world_size: int) -> None:
    """Refuse a configuration that the ``world_size`` hybrid workers of a started cluster cannot run."""
    _refuse_tensor_parallel(config, ranks=world_size // config.cluster.num_nodes)


def runs_on_gpu(config: Config, facts: Facts) -> bool | None:
    """Whether workers get GPUs; None while that depends on a cluster yet to be joined."""
    if config.cluster.device != "auto":
        return config.cluster.device == "cuda"
    return None if facts.num_devices is None else facts.num_devices > 0


def ranks_per_node(config: Config, facts: Facts) -> int | None:
    """Hybrid workers on each node; None while that depends on a cluster yet to be joined."""
    cluster = config.cluster
    if cluster.workers_per_node:
        return cluster.workers_per_node
    on_gpu = runs_on_gpu(config, facts)
    if on_gpu is None or (on_gpu and facts.num_devices is None):
        return None
    if on_gpu and facts.num_devices is not None:
        return facts.num_devices // cluster.num_nodes
    # A cluster elsewhere has its own number of cores.
    return None if cluster.address else min(2, os.cpu_count() or 1)


# --- data


def train_files_exist(config: Config, facts: Facts) -> None:
    if not config.data.train_files and not config.trainer.val_only:
        raise ValueError(
            "data.train_files is empty, but training needs rows. Set data.train_files=[path/to/train.parquet], or "
            "trainer.val_only=true."
        )
    refuse_missing_files("data.train_files", config.data.train_files, prepare_command=config.trainer.prepare_command)


def val_files_exist(config: Config, facts: Facts) -> None:
    refuse_missing_files("data.val_files", config.data.val_files, prepare_command=config.trainer.prepare_command)
    if config.data.val_files:
        return
    for name, is_set in (
        ("trainer.val_only", config.trainer.val_only),
        ("trainer.test_freq", config.trainer.test_freq > 0),
        ("trainer.best_metric", bool(config.trainer.best_metric)),
    ):
        if is_set:
            raise ValueError(
                f"{name} is set, but data.val_files is empty, so there is nothing to validate on. "
                f"Set data.val_files=[path/to/val.parquet], or leave {name} at its default."
            )


def batch_divides_into_mini_batches(config: Config, facts: Facts) -> None:
    sizes = {"actor.mini_batch_size": config.actor.mini_batch_size}
    if facts.has_critic():
        sizes["critic.mini_batch_size"] = config.critic.mini_batch_size
    batch = config.data.train_batch_size
    for name, size in sizes.items():
        if batch % size:
            nearest = max(divisor for divisor in range(1, min(size, batch) + 1) if batch % divisor == 0)
            raise ValueError(
                f"data.train_batch_size is {batch} prompts, which {name}={size} does not divide. Set "
                f"{name}={nearest}, or "
                "change data.train_batch_size."
            )


# --- models


def model_paths_exist(config: Config, facts: Facts) -> None:
    if not config.model.path:
        raise ValueError(
            "model.path is empty, but there is no default model. Set model.path to a folder or a hub name, e.g. "
            "model.path=Qwen/Qwen3-0.6B."
        )
    for name, path in (
        ("model.path", config.model.path),
        ("critic.path", config.critic.path),
        ("ref.path", config.ref.path),
    ):
        if path:
            refuse_missing_folder(name, path, needs_file="config.json", prepare_command=config.trainer.prepare_command)
    if config.model.tokenizer_path:
        refuse_missing_folder(
            "model.tokenizer_path",
            config.model.tokenizer_path,
            needs_file="tokenizer_config.json",
            prepare_command=config.trainer.prepare_command,
        )


# --- rollout


def engine_holds_a_whole_row(config: Config, facts: Facts) -> None:
    longest = config.data.max_prompt_length + config.data.max_response_length
    if config.rollout.backend == "vllm" and config.rollout.max_num_batched_tokens < longest:
        raise ValueError(
            f"rollout.max_num_batched_tokens is {config.rollout.max_num_batched_tokens}, but data.max_prompt_length + "
            f"data.max_response_length is {longest}. Set rollout.max_num_batched_tokens={longest} or more, or shorten "
            f"the "
            "rows."
        )


def tensor_parallel_fits_ranks(config: Config, facts: Facts) -> None:
    size = config.rollout.tensor_parallel_size
    if size > 1 and config.rollout.backend == "hf":
        raise ValueError(
            f"rollout.tensor_parallel_size is {size}, but rollout.backend=hf generates on one rank at a time. "
            "Set rollout.tensor_parallel_size=1, or rollout.backend=vllm."
        )
    ranks = ranks_per_node(config, facts)
    if ranks:
        _refuse_tensor_parallel(config, ranks=ranks)


def _refuse_tensor_parallel(config: Config, *, ranks: int) -> None:
    """An engine's ranks share a node, so its size must divide the ``ranks`` of one."""
    size = config.rollout.tensor_parallel_size
    if ranks % size:
        problem = "is more than" if size > ranks else "does not divide"
        raise ValueError(
            f"rollout.tensor_parallel_size is {size}, which {problem} the {ranks} worker{'s' if ranks > 1 else ''} of "
            f"a node. "
            f"Set it to a divisor of {ranks}, or cluster.workers_per_node to a multiple of {size}."
        )


def greedy_validation_is_not_repeated(config: Config, facts: Facts) -> None:
    val = config.rollout.val
    if val.temperature == 0 and val.n > 1:
        raise ValueError(
            f"rollout.val.temperature is 0 (greedy) and rollout.val.n is {val.n}: all {val.n} responses would be the "
            f"same. "
            "Set rollout.val.n=1, or rollout.val.temperature=1."
        )


# --- cluster


def gpus_exist(config: Config, facts: Facts) -> None:
    cluster, found = config.cluster, facts.num_devices
    if found is None or not runs_on_gpu(config, facts):
        return
    if found == 0:
        raise ValueError(
            "cluster.device is cuda, but no GPU was found. Set cluster.device=cpu, or see what `verl-like doctor` "
            "says about "
            "the driver."
        )
    own = own_gpus(config)
    left = found - sum(own.values())
    wanted = cluster.num_nodes * max(cluster.workers_per_node, 1)
    models = "".join(f" + {name}={count}" for name, count in own.items())
    if wanted > left:
        raise ValueError(
            f"cluster asks for {wanted + sum(own.values())} GPUs (num_nodes={cluster.num_nodes} x "
            f"workers_per_node={max(cluster.workers_per_node, 1)}{models}), but "
            f"{found} exist{'s' if found == 1 else ''}. Set "
            f"cluster.workers_per_node={max(left // cluster.num_nodes, 1)}, "
            "or cluster.address to join a larger cluster."
        )
    if own and not cluster.workers_per_node:
        raise ValueError(
            f"cluster.workers_per_node is 0, which takes every GPU, but {' and '.join(own)} ask for GPUs of their "
            f"own. Set "
            f"cluster.workers_per_node={left // cluster.num_nodes}."
        )


def nodes_need_a_cluster(config: Config, facts: Facts) -> None:
    if config.cluster.num_nodes > 1 and not config.cluster.address:
        raise ValueError(
            f"cluster.num_nodes is {config.cluster.num_nodes}, but cluster.address is empty and a local Ray has 1 "
            f"node. "
            "Set cluster.address=auto (or HOST:PORT) to join a running cluster, or cluster.num_nodes=1."
        )


def gpu_only_knobs_have_a_gpu(config: Config, facts: Facts) -> None:
    if runs_on_gpu(config, facts) is not False:
        return
    offloads = {
        "actor.fsdp.offload_params": config.actor.fsdp.offload_params,
        "actor.optim.offload": config.actor.optim.offload,
        "critic.fsdp.offload_params": config.critic.fsdp.offload_params,
        "critic.optim.offload": config.critic.optim.offload,
        "ref.fsdp.offload_params": config.ref.fsdp.offload_params,
    }
    for name, is_set in offloads.items():
        if is_set:
            raise ValueError(
                f"{name} is true, but the workers run on CPU, where nothing can move to the host. Set {name}=false."
            )
    if config.model.attention in ("flash", "varlen"):
        raise ValueError(
            f"model.attention is {config.model.attention}, which needs a GPU, but the workers run on CPU. Set "
            "model.attention=auto."
        )


def attention_needs_packed_rows(config: Config, facts: Facts) -> None:
    if config.model.attention != "auto" and not config.model.remove_padding:
        raise ValueError(
            f"model.attention is {config.model.attention}, the kernel of packed rows, but model.remove_padding is "
            f"false. "
            "Set model.remove_padding=true, or model.attention=auto."
        )


def attention_is_installed(config: Config, facts: Facts) -> None:
    if config.model.attention == "flash" and importlib.util.find_spec("flash_attn") is None:
        raise ValueError(
            "model.attention is flash, but flash-attn is not installed. Run `pip install --no-build-isolation "
            "flash-attn`, "
            "or set "
            "model.attention=auto."
        )


# --- trainer


def loggers_exist(config: Config, facts: Facts) -> None:
    for name in config.trainer.loggers:
        if name not in LOGGERS:
            raise ValueError(
                f"trainer.loggers holds {name}, but must hold some of "
                f"{', '.join(LOGGERS)}{suggestion(name, LOGGERS) or '.'}"
            )
        if name in ("wandb", "mlflow") and importlib.util.find_spec(name) is None:
            raise ValueError(
                f"trainer.loggers holds {name}, which is not installed. Run `pip install {name}`, or take it "
                "out of trainer.loggers."
            )


def run_folder_can_be_written(config: Config, facts: Facts) -> None:
    name = config.trainer.experiment_name
    if not name or name in (".", "..") or os.sep in name:
        raise ValueError(
            f"trainer.experiment_name is {name!r}, but must be one folder name. Put folders into trainer.output_dir."
        )
    folder = Path(config.trainer.output_dir).expanduser() / name
    for place in ("eval",) if config.trainer.val_only else ("", "checkpoints", "samples"):
        refuse_unwritable(folder / place)


def resume_path_exists(config: Config, facts: Facts) -> None:
    resume = config.trainer.resume
    if resume not in ("auto", "never") and not Path(resume).expanduser().is_dir():
        raise ValueError(
            f"trainer.resume is {resume}, but must be auto, never or the folder of a checkpoint, and no such folder "
            f"exists{suggestion(resume, ('auto', 'never')) or '.'}"
        )


Rule = Callable[[Config, Facts], None]
RULES: tuple[Rule, ...] = (
    model_paths_exist,
    train_files_exist,
    val_files_exist,
    batch_divides_into_mini_batches,
    engine_holds_a_whole_row,
    gpus_exist,
    nodes_need_a_cluster,
    tensor_parallel_fits_ranks,
    greedy_validation_is_not_repeated,
    gpu_only_knobs_have_a_gpu,
    attention_needs_packed_rows,
    attention_is_installed,
    loggers_exist,
    run_folder_can_be_written,
    resume_path_exists,
)
