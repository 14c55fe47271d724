"""Checks of a configuration before anything starts. This module does not import torch, transformers or Ray.

A rule is a small function that yields problems: what was found, what is expected and the remedy. All rules run, so
that the user sees all problems at once. Rules on a single value are in the schema.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from verl_like.checks.algorithm import ALGORITHM_RULES, algorithm_warnings, algorithms_exist
from verl_like.checks.checkpoints import resume_problem
from verl_like.checks.cluster import (
    CLUSTER_RULES,
    engine_fits_the_longest_row,
    gpu_only_options_have_a_gpu,
    ranks_problem,
    threads_are_for_workers_on_cpu,
    threads_problem,
)
from verl_like.checks.data import (
    curriculum_is_valid,
    custom_code_exists,
    custom_code_is_named_by_its_file,
    data_files_exist,
    every_file_has_a_weight,
    first_rows_have_their_columns,
    one_option_selects_the_rows,
)
from verl_like.checks.distillation import DISTILLATION_RULES
from verl_like.checks.environment import ENVIRONMENT_RULES, environment_files_exist
from verl_like.checks.expert_parallel import EXPERT_PARALLEL_RULES, experts_problem
from verl_like.checks.experts import EXPERT_RULES
from verl_like.checks.gpus import Gpus, gpus_here
from verl_like.checks.kernels import KERNEL_RULES, kernels_have_a_gpu
from verl_like.checks.lora import LORA_RULES
from verl_like.checks.loss import LOSS_RULES
from verl_like.checks.models import MODEL_RULES, heads_fit_the_engine, models_exist
from verl_like.checks.pictures import PICTURE_RULES
from verl_like.checks.pools import pools_have_a_role, pools_problem
from verl_like.checks.reward import REWARD_RULES, reward_files_exist
from verl_like.checks.sampling_mask import SAMPLING_MASK_RULES, every_request_can_report_its_mask
from verl_like.checks.schedule import SCHEDULE_RULES, schedule_warnings
from verl_like.checks.self_distillation import SELF_DISTILLATION_RULES
from verl_like.checks.validation import best_metric_is_measured, generation_has_a_validation, val_files_are_set
from verl_like.config.options import wrong_values
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.disk import refuse_unwritable
from verl_like.remote import unreadable_kind

log = logging.getLogger(__name__)

SERVICES = ("wandb", "mlflow", "swanlab", "trackio")  # named like their packages
LOGGERS = ("console", "jsonl", "tensorboard", *SERVICES)

LONGEST_NAME = 200  # bytes of a folder's name; file systems allow 255, and temporary names are longer


def check(config: Config, *, num_devices: int | None = None, reads_prompts: bool = True) -> None:
    """Refuse a configuration that contradicts itself, its files or the machine; warn of unusual settings.

    Args:
        config: the whole configuration.
        num_devices, reads_prompts: as for :func:`problems`.

    Raises:
        Refused: all problems.
    """
    found = wrong_values(config).values()
    refuse(found or problems(config, num_devices=num_devices, reads_prompts=reads_prompts))
    for warning in (*algorithm_warnings(config), *schedule_warnings(config)):
        log.warning(warning)


def problems(config: Config, *, num_devices: int | None = None, reads_prompts: bool = True) -> list[str]:
    """Return all problems of a configuration whose values are valid by themselves.

    Args:
        config: the whole configuration.
        num_devices: as for :func:`contradictions`.
        reads_prompts: whether rows are prompts; given rows of other forms are checked when they are read.
    """
    of_rows = first_rows_have_their_columns(config) if reads_prompts else ()
    return [*contradictions(config, num_devices=num_devices), *missing(config), *of_rows]


def missing(config: Config) -> list[str]:
    """Return the problems of files and folders that the configuration names."""
    return [problem for rule in FILE_RULES for problem in rule(config)]


def contradictions(config: Config, *, num_devices: int | None = None) -> list[str]:
    """Return the problems that do not depend on files.

    Args:
        config: the whole configuration.
        num_devices: number of GPUs, 0 for none. The default counts those of this machine, except if
            ``cluster.address`` joins a cluster; :func:`check_devices` checks its devices later.
    """
    is_here = num_devices is None and not config.cluster.address
    gpus = gpus_here() if is_here else Gpus(num_devices)
    unknown = list(algorithms_exist(config))
    of_losses = (*ALGORITHM_RULES, *LOSS_RULES, *DISTILLATION_RULES, *SELF_DISTILLATION_RULES)
    of_algorithms = () if unknown else (*of_losses, *SCHEDULE_RULES, pools_have_a_role)
    own_rules = (*of_algorithms, *REWARD_RULES, *ENVIRONMENT_RULES)
    return [
        *unknown,
        *(problem for rule in RULES for problem in rule(config, gpus)),
        *(problem for own_rule in own_rules for problem in own_rule(config)),
    ]


def check_devices(config: Config, *, world_size: int, device: str, cores: int) -> None:
    """Refuse a configuration that the hybrid workers of a started cluster cannot run.

    Args:
        config: the whole configuration.
        world_size: workers of models on all nodes.
        device: device of the workers, "cpu" or "cuda".
        cores: number of cores that the workers of a node share on CPU.
    """
    per_node = world_size // config.cluster.num_nodes
    found = [
        *pools_problem(config, num_workers=world_size, per_node=per_node),
        *ranks_problem(config, per_node=per_node),
        *experts_problem(config, per_node=per_node),
    ]
    if device == "cpu":  # known only now for a joined cluster
        for rule in (
            engine_fits_the_longest_row,
            gpu_only_options_have_a_gpu,
            kernels_have_a_gpu,
            heads_fit_the_engine,
        ):
            found += rule(config, Gpus(0))
        found += threads_problem(config, workers=per_node, cores=cores)
    else:
        for rule in (threads_are_for_workers_on_cpu, every_request_can_report_its_mask):
            found += rule(config, Gpus(per_node))
    refuse(found)


def train_files_are_set(config: Config, gpus: Gpus) -> Iterator[str]:
    if not config.data.train_files and not config.trainer.val_only:
        yield (
            "data.train_files is empty, but training needs rows. Set data.train_files=[path/to/train.parquet], or "
            "trainer.val_only=true."
        )


def loggers_exist(config: Config, gpus: Gpus) -> Iterator[str]:
    for name in config.trainer.loggers:
        if name not in LOGGERS:
            yield (
                f"trainer.loggers holds {name}, expected some of {', '.join(LOGGERS)}{suggestion(name, LOGGERS) or '.'}"
            )
        if name in SERVICES and importlib.util.find_spec(name) is None:
            yield (
                f"trainer.loggers holds {name}, which is not installed. Run `pip install {name}`, or remove it "
                "from trainer.loggers."
            )


def run_folder_can_be_written(config: Config, gpus: Gpus) -> Iterator[str]:
    name = config.trainer.experiment_name
    if not name.isprintable() or len(name.encode()) > LONGEST_NAME:
        yield (
            f"trainer.experiment_name is {name[:40]!r}..., but must be printable text, at most {LONGEST_NAME} "
            "bytes. Shorten it."
        )
        return
    if not name or name in (".", "..") or os.sep in name:
        yield (
            f"trainer.experiment_name is {name!r}, but must be one folder name. Put folders into trainer.output_dir."
        )
        return
    folder = Path(config.trainer.output_dir).expanduser() / name
    try:
        for name in ("eval",) if config.trainer.val_only else ("", "checkpoints", "samples"):
            refuse_unwritable(folder / name)
    except ValueError as error:
        yield str(error)


def remote_dir_can_be_opened(config: Config, gpus: Gpus) -> Iterator[str]:
    url, name = config.trainer.remote_dir, config.trainer.experiment_name
    if not url:
        return
    if problem := unreadable_kind("trainer.remote_dir", url):
        yield problem
    elif url.startswith(("file://", "local://")):
        yield from _remote_folder_problems(config)
    if "::" in name:  # fsspec drops the rest, so several runs would share a folder
        yield (
            f"trainer.experiment_name is {name!r}, but must be without :: where trainer.remote_dir is set, because "
            f"URLs are chained there. Set trainer.experiment_name={name.replace('::', '-')}."
        )


def _remote_folder_problems(config: Config) -> Iterator[str]:
    """Yield the problems of a ``trainer.remote_dir`` on a disk of this machine."""
    url = config.trainer.remote_dir
    path = Path(os.path.expanduser(url.partition("://")[2]))  # like fsspec
    found, remedy = f"trainer.remote_dir is {url}, but", "Give a folder like file:///mnt/runs."
    if not path.is_absolute():
        yield f"{found} must be file:// and an absolute folder, with three slashes in all. {remedy}"
        return
    if path.resolve() == Path("/"):
        yield f"{found} must name a folder on the disk. {remedy}"
        return
    own = Path(config.trainer.output_dir).expanduser() / config.trainer.experiment_name
    copy = path / config.trainer.experiment_name
    original, copied = own.resolve(), copy.resolve()
    if original.is_relative_to(copied) or copied.is_relative_to(original):
        yield (
            f"{found} must not overlap the run's folder: {copied} would be the copy of {original}. Name a "
            "folder on another disk, or disable the copy with trainer.remote_dir=''."
        )


def resume_path_is_a_checkpoint(config: Config) -> Iterator[str]:
    problem = resume_problem(config.trainer.resume)
    if problem:
        yield problem


RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    *MODEL_RULES,
    train_files_are_set,
    every_file_has_a_weight,
    custom_code_is_named_by_its_file,
    one_option_selects_the_rows,
    curriculum_is_valid,
    val_files_are_set,
    generation_has_a_validation,
    best_metric_is_measured,
    *CLUSTER_RULES,
    *KERNEL_RULES,
    *LORA_RULES,
    *SAMPLING_MASK_RULES,
    *EXPERT_RULES,
    *EXPERT_PARALLEL_RULES,
    *PICTURE_RULES,
    loggers_exist,
    run_folder_can_be_written,
    remote_dir_can_be_opened,
)
FILE_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    models_exist,
    data_files_exist,
    custom_code_exists,
    reward_files_exist,
    environment_files_exist,
    resume_path_is_a_checkpoint,
)
