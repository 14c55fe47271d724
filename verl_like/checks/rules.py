"""All that can be known to be wrong before anything starts. Nothing here imports torch, transformers or Ray.

A rule is a small function that yields what is wrong: what was found, what would work and how to get there. All of them
run, so that a user sees everything at once. A single value's own rule is in the schema.
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
    engine_holds_a_whole_row,
    gpu_only_options_have_a_gpu,
    sequence_parallel_problem,
    shard_size_problem,
    tensor_parallel_problem,
    threads_are_for_workers_on_cpu,
    threads_problem,
)
from verl_like.checks.data import (
    a_curriculum_is_one,
    custom_code_is_named_by_its_file,
    custom_code_is_there,
    data_files_are_there,
    every_file_has_a_weight,
    first_rows_have_their_columns,
    one_chooses_the_rows,
)
from verl_like.checks.gpus import Gpus, gpus_here
from verl_like.checks.kernels import KERNEL_RULES, kernels_have_a_gpu
from verl_like.checks.lora import LORA_RULES
from verl_like.checks.models import MODEL_RULES, heads_fit_the_engine, models_are_there
from verl_like.checks.reward import REWARD_RULES, reward_files_are_there
from verl_like.checks.validation import best_metric_is_measured, there_is_something_to_validate_on
from verl_like.config.options import wrong_values
from verl_like.config.problems import refuse
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.disk import refuse_unwritable
from verl_like.remote import unreadable_kind

log = logging.getLogger(__name__)

SERVICES = ("wandb", "mlflow", "swanlab", "trackio")  # each by its package
LOGGERS = ("console", "jsonl", "tensorboard", *SERVICES)

LONGEST_NAME = 200  # of a folder; file systems take 255, and writing adds to it


def check(config: Config, *, num_devices: int | None = None) -> None:
    """Refuse a configuration that contradicts itself, the files it names or the machine; warn of what is odd.

    Args:
        config: the whole configuration.
        num_devices: as for :func:`problems`.

    Raises:
        Refused: all that is wrong.
    """
    refuse(wrong_values(config).values() or problems(config, num_devices=num_devices))
    for warning in algorithm_warnings(config):
        log.warning(warning)


def problems(config: Config, *, num_devices: int | None = None) -> list[str]:
    """All that is wrong between the options of a configuration, each of which can be right by itself.

    Args:
        config: the whole configuration.
        num_devices: as for :func:`contradictions`.
    """
    return [*contradictions(config, num_devices=num_devices), *missing(config), *first_rows_have_their_columns(config)]


def missing(config: Config) -> list[str]:
    """Files and folders that the configuration names and that are not there, or not what they should be."""
    return [problem for rule in FILE_RULES for problem in rule(config)]


def contradictions(config: Config, *, num_devices: int | None = None) -> list[str]:
    """What cannot work whatever files there will be.

    Args:
        config: the whole configuration.
        num_devices: GPUs in reach, 0 for none. By default those of this machine are counted, except where
            ``cluster.address`` joins a cluster: its devices are known later, to :func:`check_devices`.
    """
    is_here = num_devices is None and not config.cluster.address
    gpus = gpus_here() if is_here else Gpus(num_devices)
    unknown = list(algorithms_exist(config))
    own_rules = REWARD_RULES if unknown else (*ALGORITHM_RULES, *REWARD_RULES)
    return [
        *unknown,
        *(problem for rule in RULES for problem in rule(config, gpus)),
        *(problem for own_rule in own_rules for problem in own_rule(config)),
    ]


def check_devices(config: Config, *, world_size: int, device: str, cores: int) -> None:
    """Refuse a configuration that the hybrid workers of a started cluster cannot run.

    Args:
        config: the whole configuration.
        world_size: hybrid workers on all nodes.
        device: what they run on, "cpu" or "cuda".
        cores: that the workers of a node share on CPU.
    """
    per_node = world_size // config.cluster.num_nodes
    found = [
        *tensor_parallel_problem(config, ranks=per_node),
        *shard_size_problem(config, ranks=world_size),
        *sequence_parallel_problem(config, ranks=world_size),
    ]
    if device == "cpu":  # which a joined cluster reports only now
        for rule in (engine_holds_a_whole_row, gpu_only_options_have_a_gpu, kernels_have_a_gpu, heads_fit_the_engine):
            found += rule(config, Gpus(0))
        found += threads_problem(config, workers=per_node, cores=cores)
    else:
        found += threads_are_for_workers_on_cpu(config, Gpus(per_node))
    refuse(found)


def there_is_something_to_train_on(config: Config, gpus: Gpus) -> Iterator[str]:
    if not config.data.train_files and not config.trainer.val_only:
        yield (
            "data.train_files is empty, but training needs rows. Set data.train_files=[path/to/train.parquet], or "
            "trainer.val_only=true."
        )


def loggers_exist(config: Config, gpus: Gpus) -> Iterator[str]:
    for name in config.trainer.loggers:
        if name not in LOGGERS:
            yield (
                f"trainer.loggers holds {name}, but must hold some of "
                f"{', '.join(LOGGERS)}{suggestion(name, LOGGERS) or '.'}"
            )
        if name in SERVICES and importlib.util.find_spec(name) is None:
            yield (
                f"trainer.loggers holds {name}, which is not installed. Run `pip install {name}`, or take it "
                "out of trainer.loggers."
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
        for place in ("eval",) if config.trainer.val_only else ("", "checkpoints", "samples"):
            refuse_unwritable(folder / place)
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
    if "::" in name:  # fsspec drops what follows, so that several runs would share one folder
        yield (
            f"trainer.experiment_name is {name!r}, but must be without :: where trainer.remote_dir is set, because "
            f"URLs are chained there. Set trainer.experiment_name={name.replace('::', '-')}."
        )


def _remote_folder_problems(config: Config) -> Iterator[str]:
    """What is wrong with a ``trainer.remote_dir`` on a disk of this machine."""
    url = config.trainer.remote_dir
    path = Path(os.path.expanduser(url.partition("://")[2]))  # as fsspec does it
    found, remedy = f"trainer.remote_dir is {url}, but", "Give a folder like file:///mnt/runs."
    if not path.is_absolute():
        yield f"{found} must be file:// and an absolute folder, with three slashes in all. {remedy}"
        return
    if path.resolve() == Path("/"):
        yield f"{found} must name a folder on the disk. {remedy}"
        return
    own = Path(config.trainer.output_dir).expanduser() / config.trainer.experiment_name
    copy = path / config.trainer.experiment_name
    own_place, copy_place = own.resolve(), copy.resolve()
    if own_place.is_relative_to(copy_place) or copy_place.is_relative_to(own_place):
        yield (
            f"{found} must lie apart from the run's own folder: {copy_place} would be the copy of {own_place}. Name a "
            "folder on another disk, or have no copy: trainer.remote_dir=''."
        )


def resume_path_is_a_checkpoint(config: Config) -> Iterator[str]:
    problem = resume_problem(config.trainer.resume)
    if problem:
        yield problem


RULES: tuple[Callable[[Config, Gpus], Iterator[str]], ...] = (
    *MODEL_RULES,
    there_is_something_to_train_on,
    every_file_has_a_weight,
    custom_code_is_named_by_its_file,
    one_chooses_the_rows,
    a_curriculum_is_one,
    there_is_something_to_validate_on,
    best_metric_is_measured,
    *CLUSTER_RULES,
    *KERNEL_RULES,
    *LORA_RULES,
    loggers_exist,
    run_folder_can_be_written,
    remote_dir_can_be_opened,
)
FILE_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    models_are_there,
    data_files_are_there,
    custom_code_is_there,
    reward_files_are_there,
    resume_path_is_a_checkpoint,
)
