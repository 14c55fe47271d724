"""The jobs that train on given rows: sft, dpo and rm. Each builds its workers and ends all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from verl_like.config.reads import as_read
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.worker_group import WorkerGroup
from verl_like.disk import writing
from verl_like.plan.job_choices import for_given_rows
from verl_like.report.at_end import report_at_end
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.runs.launch import LaunchedRun, Launcher
from verl_like.runs.lock import FolderLock
from verl_like.runs.restarts import with_restarts
from verl_like.runs.status import finished_step, nothing_to_do, shown, start_of
from verl_like.runs.upload import uploaded
from verl_like.telemetry.loggers import trackers
from verl_like.telemetry.process_log import RunLogs
from verl_like.telemetry.results import write_curves
from verl_like.telemetry.trackers import Trackers
from verl_like.training.build import build_workers
from verl_like.training.loop import TrainingLoop
from verl_like.training.objectives import AnswerObjective, PreferenceObjective, ScoreObjective
from verl_like.training.placement_table import HYBRID, table_of
from verl_like.training.reference import Reference, ReferenceCache
from verl_like.training.row_trainer import VAL_LOSS, Objective, RowTask, row_loop
from verl_like.training.scored_row_trainer import scored_loop
from verl_like.training.tasks import check_reward, preference_task_of, scored_task_of, sft_task_of
from verl_like.training.unpaired_objective import UnpairedObjective
from verl_like.workers.groups import ActorGroup, RefGroup, ScorerGroup

log = logging.getLogger(__name__)

MakeObjective = Callable[[Config, LaunchedRun, WorkerGroup, frozenset[str]], Objective]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowJob:
    """A job.

    Args:
        task_of: reads its rows.
        roles: of its workers.
        objective: what it learns.
        val_metric: returns the metric that selects the best checkpoint.
    """

    task_of: Callable[[Config], RowTask]
    roles: Callable[[Config], frozenset[str]]
    objective: MakeObjective
    val_metric: Callable[[Config], str]


def _answers(config: Config, hosts: LaunchedRun, workers: WorkerGroup, roles: frozenset[str]) -> Objective:
    del config, hosts, roles
    return AnswerObjective(ActorGroup(workers))


def _preferences(config: Config, hosts: LaunchedRun, workers: WorkerGroup, roles: frozenset[str]) -> Objective:
    actor, path = ActorGroup(workers), config.dpo.ref_path or config.model.path
    table, groups = table_of(roles, hosts.pools), {HYBRID: workers, **hosts.others}
    ref = table.find("ref", groups) if table.hosts("ref") else None
    cache = ReferenceCache(
        config.trainer.reference_cache, model=path, settings=reference_settings(config, hosts.where.kind)
    )
    log_probs = (
        RefGroup(ref).response_log_probs
        if ref is not None
        else partial(actor.response_log_probs, without_adapters=config.model.lora.rank > 0)
    )
    reference = Reference(log_probs, cache, ranks=(ref or workers).world_size)
    return _preference_objective(config)(actor, config.dpo, reference)


def _preference_objective(config: Config) -> type[PreferenceObjective]:
    return UnpairedObjective if config.dpo.is_unpaired else PreferenceObjective


def reference_settings(config: Config, device: str) -> str:
    """Return the settings, apart from the weights, that change the reference's log-probs."""
    fsdp = config.ref.fsdp if config.dpo.ref_path else config.actor.fsdp
    model = config.model
    return repr((device, fsdp.param_dtype, model.float32_logits, sorted(model.override_config.items())))


def _scores(config: Config, hosts: LaunchedRun, workers: WorkerGroup, roles: frozenset[str]) -> Objective:
    del hosts, roles
    return ScoreObjective(ScorerGroup(workers), config.rm)


def _roles_of_dpo(config: Config) -> frozenset[str]:
    """Return the actor, whose initial weights are the reference unless another model is named."""
    return frozenset({"actor", "ref"} if config.dpo.ref_path else {"actor"})


ROW_JOBS = {
    "sft": RowJob(
        task_of=sft_task_of,
        roles=lambda config: frozenset({"actor"}),
        objective=_answers,
        val_metric=lambda config: (config.sft.val_generate and config.trainer.best_metric) or VAL_LOSS,
    ),
    "rm": RowJob(
        task_of=scored_task_of,
        roles=lambda config: frozenset({"scorer"}),
        objective=_scores,
        val_metric=lambda config: ScoreObjective.val_metric,
    ),
    "dpo": RowJob(
        task_of=preference_task_of,
        roles=_roles_of_dpo,
        objective=_preferences,
        val_metric=lambda config: _preference_objective(config).val_metric,
    ),
}


@contextmanager
def built(
    kind: RowJob, config: Config, task: RowTask, folder: RunFolder, trackers: Trackers
) -> Iterator[tuple[TrainingLoop, Objective]]:
    """Start the workers of a job; yield its loop and its objective."""
    if task.val_prompts:
        with scored_loop(config, task, folder, trackers) as found:
            yield found
        return
    with current(RunLogs).kept(folder.logs), current(Launcher).launched(config, generates=False) as hosts:
        roles = kind.roles(config)
        config = replace(config, ref=replace(config.ref, path=config.dpo.ref_path))
        workers = build_workers(hosts, config, roles=roles, actor_updates=task.steps)
        for group in (workers, *hosts.others.values()):
            group.wait_built(timeout_s=config.cluster.start_timeout_s)
        objective = kind.objective(config, hosts, workers, roles)
        ranks = hosts.where.world_size
        yield row_loop(config, task, objective, workers, folder, ranks=ranks, trackers=trackers), objective


def train_on_rows(config: Config, config_yaml: str, *, job: str) -> int:
    """Train on given rows, write ``<run>/model`` and return the last step.

    An interrupted run leaves a checkpoint, and its model is not exported.

    Args:
        job: a key of ``ROW_JOBS``.
    """
    kind = ROW_JOBS[job]
    task = kind.task_of(config)
    steps, has_validation = task.steps, task.val_rows is not None
    folder, newest = start_of(config, config_yaml, job=job)
    if (step := finished_step(folder, newest, steps=steps, has_validation=has_validation)) is not None:
        log.info(nothing_to_do(config, folder, step))
        folder.repair(config_yaml, job=job)
        with uploaded(config, folder):
            return step
    if task.val_prompts:
        check_reward(config, task.val_prompts)
    config = as_read(job, config)  # what the command ignores, such as rollout.temperature, must not reach the workers
    trainer = replace(config.trainer, best_metric=kind.val_metric(config))
    config = for_given_rows(replace(config, trainer=trainer), job)
    with FolderLock(folder.path), uploaded(config, folder):
        folder.claim(config_yaml, job=job)
        Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).sweep()
        with trackers(config, folder.path, total_steps=steps) as tracker:

            def start(config: Config) -> int:
                with built(kind, config, task, folder, tracker) as (loop, objective):
                    step = loop.run().step
                    if step >= steps:
                        log.info("writing the model to %s", shown(folder.model))
                        with writing(folder.model, option="trainer.output_dir"):
                            objective.export(folder.model)
                return step

            step = with_restarts(config, start)
            write_curves(folder.path)
            report_at_end(folder.path, tracker)
    return step
