"""The jobs a user starts: train, eval, sft, generate, export. Each builds what it needs and leaves nothing behind."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.algorithms.roles import needs
from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.requirements import check_machine
from verl_like.checks.rules import check
from verl_like.checks.validation import best_metric_problem
from verl_like.config.problems import refuse
from verl_like.config.schema import ActorConfig, Config, CriticConfig
from verl_like.controller.errors import INTERRUPT
from verl_like.data.loader import PromptLoader, rehearse, sft_identity
from verl_like.data.prompts import Prompt, PromptDataset, sft_rows
from verl_like.data.samplers import EpochSampler, epoch_sampler
from verl_like.data.selection import train_rows, val_rows
from verl_like.data.templates import load_tokenizer
from verl_like.disk import refuse_unwritable, unused, writing
from verl_like.plan.check import check_memory
from verl_like.protocol import DataProto
from verl_like.reward.scorer_messages import RowTruth, Sample
from verl_like.reward.trial import try_reward
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.launch import HOSTS
from verl_like.runs.lock import FolderLock
from verl_like.runs.restarts import with_restarts
from verl_like.runs.start import OUT, policy_checkpoint
from verl_like.runs.status import finished_step, nothing_to_do, shown, start_of
from verl_like.runs.upload import mirrored
from verl_like.telemetry.loggers import trackers
from verl_like.telemetry.process_log import RUN_LOGS
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.report import Summary, write_curves, write_summary
from verl_like.telemetry.startup import STARTUP
from verl_like.telemetry.trackers import JsonlTracker
from verl_like.telemetry.versions import git_commit, versions
from verl_like.training.build import build_workers, rollout_group, scorers, stack
from verl_like.training.generation import VALIDATION_STEP, generate, val_sampling
from verl_like.training.ppo import PPOTrainer
from verl_like.training.process_metrics import ProcessBooks
from verl_like.training.profiling import Profiles
from verl_like.training.progress import Progress
from verl_like.training.rewards import Rewards
from verl_like.training.sft import SftTrainer
from verl_like.training.validation import validate
from verl_like.workers.groups import ActorGroup, RolloutGroup

log = logging.getLogger(__name__)


def _tokenizer(config: Config) -> PreTrainedTokenizerBase:
    return load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)


def check_reward(config: Config, prompts: Sequence[Prompt], val_prompts: Sequence[Prompt] = ()) -> None:
    """Try the reward on the first prompt of each data source, and on every truth, before anything heavy starts."""
    INTERRUPT.stop_before("start")
    STARTUP.now("trying the reward functions")
    named = [(prompt.uid, prompt) for prompt in prompts]
    named += [(f"{prompt.uid} of data.val_files", prompt) for prompt in val_prompts]  # uids are of one list of files
    first: dict[str, tuple[str, Prompt]] = {}
    for name, prompt in named:
        first.setdefault(prompt.data_source, (name, prompt))
    samples = {
        name: Sample(
            response=str(p.ground_truth),
            prompt=p.text,
            messages=p.messages,
            data_source=p.data_source,
            ground_truth=p.ground_truth,
            extra_info=p.extra_info,
            columns=p.columns,
            response_ids=array("i", [0]),
        )
        for name, p in first.values()
    }
    truths = ((name, RowTruth(p.data_source, p.ground_truth)) for name, p in named)
    try_reward(config.reward, samples, truths, progress=_tell_of_truths)


def _tell_of_truths(num_read: int, num_truths: int) -> None:
    INTERRUPT.stop_before("start")
    if not num_read:
        STARTUP.now(f"reading {num_truths} truths")
    else:
        STARTUP.so_far(f"reading {num_truths} truths: {num_read} are read")


@dataclass(frozen=True, slots=True)
class TrainTask:
    """What a run trains on."""

    tokenizer: PreTrainedTokenizerBase
    prompts: PromptDataset
    val_prompts: PromptDataset | None
    steps: int

    @property
    def data_sources(self) -> list[str]:
        return sorted({*self.prompts.data_sources, *(self.val_prompts.data_sources if self.val_prompts else [])})


def task_of(config: Config) -> TrainTask:
    """Read it, once everything is refused that can be known without it.

    Raises:
        ValueError: a configuration or data set that cannot work.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    STARTUP.now("reading the data")
    tokenizer = _tokenizer(config)
    prompts = train_prompts(config, tokenizer)
    val_prompts = held_out_prompts(config, tokenizer) if config.validates else None
    if val_prompts is not None:
        refuse(filter(None, [best_metric_problem(config, val_prompts.data_sources)]))
    rehearse(prompts, config.data, seed=config.trainer.seed)
    steps = num_steps(config, prompt_loader(config, prompts))  # refuses fewer rows than a batch has
    return TrainTask(tokenizer, prompts, val_prompts, steps)


def train(config: Config, config_yaml: str) -> Progress:
    """Reinforcement learning (``verl-like train``).

    An interrupted run leaves a checkpoint, and its model is not exported.

    Raises:
        ValueError: a configuration, data set or folder that cannot work; nothing has been started then.
    """
    task = task_of(config)
    tokenizer, prompts, val_prompts, steps = task.tokenizer, task.prompts, task.val_prompts, task.steps
    folder, newest = start_of(config, config_yaml, job="train")
    if (step := finished_step(folder, newest, steps=steps, has_validation=bool(val_prompts))) is not None:
        log.info(nothing_to_do(config, folder, step))
        folder.mend(config_yaml, job="train")
        with mirrored(config, folder):  # an end that could not copy all
            return Progress(step=step)
    plan = check_memory(config)
    check_reward(config, task.prompts, task.val_prompts or ())
    with FolderLock(folder.path), mirrored(config, folder):
        folder.claim(config_yaml, job="train")
        Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).sweep()
        with trackers(config, folder.path, total_steps=steps) as tracker:

            def start(config: Config) -> Progress:
                with stack(
                    config, tokenizer, folder, roles=needs(config).roles, **learner_updates(config, steps)
                ) as parts:
                    loader = prompt_loader(config, prompts)
                    trainer = PPOTrainer(config, parts, folder, loader, list(val_prompts or []), tracker, steps, plan)
                    progress = trainer.fit()
                    if progress.step >= steps:
                        _export(parts.actor, folder.model)
                return progress

            progress = with_restarts(config, start)
        report(config, folder, progress, steps=steps)
    return progress


def train_prompts(config: Config, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    return PromptDataset(train_rows(config.data, seed=config.trainer.seed), config.data, tokenizer)


def held_out_prompts(config: Config, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    return PromptDataset(val_rows(config.data), config.data, tokenizer)


def prompt_loader(config: Config, prompts: PromptDataset) -> PromptLoader:
    return PromptLoader(prompts, config.data, seed=config.trainer.seed)


def num_steps(config: Config, loader: PromptLoader) -> int:
    """Steps that the run is to have."""
    return config.trainer.total_training_steps or config.trainer.total_epochs * loader.batches_per_epoch


def _export(actor: ActorGroup, out: Path, *, option: str = "trainer.output_dir", adapter: bool = False) -> None:
    log.info("writing the %s to %s", "adapter" if adapter else "model", shown(out))
    with writing(out, option=option):
        actor.export(str(out), adapter=adapter)


def learner_updates(config: Config, steps: int) -> dict[str, int]:
    """Optimiser updates of actor and critic in so many steps."""

    def per_step(learner: ActorConfig | CriticConfig) -> int:
        return config.data.train_batch_size // learner.mini_batch_size * learner.epochs

    return {
        "actor_updates": max(steps - config.critic.warmup_steps, 1) * per_step(config.actor),
        "critic_updates": steps * per_step(config.critic),
    }


def report(config: Config, folder: RunFolder, progress: Progress, *, steps: int) -> None:
    """summary.json and curves.png of a run of so many steps that has ended, or was stopped."""
    write_summary(
        folder.path,
        Summary(
            initial_val=progress.initial_val,
            initial_val_metric=config.val_metric,
            final_val=progress.last_val,
            steps=progress.step,
            seconds=progress.seconds,
            seconds_per_step=progress.seconds / max(progress.step, 1),
            tokens_per_s=progress.tokens / max(progress.seconds, 1e-9),
            seed=config.trainer.seed,
            prompts=asdict(progress.prompts),
            status="finished" if progress.step >= steps else "interrupted",
            best_step=progress.best_step if progress.best_step > 0 else None,
            best_val=progress.best if progress.best_step > 0 else None,
            model=config.model.path,
            versions=versions(),
            git_commit=git_commit(),
        ),
    )
    write_curves(folder.path)


def sft(config: Config, config_yaml: str) -> int:
    """Supervised training (``verl-like sft``) on prompts and answers; writes ``<run>/model`` and returns the last step.

    An interrupted run leaves a checkpoint, and its model is not exported.
    """
    task = sft_task_of(config)
    rows, sampler, steps, identity = task.rows, task.sampler, task.steps, task.identity
    folder, newest = start_of(config, config_yaml, job="sft")
    if (step := finished_step(folder, newest, steps=steps, has_validation=False)) is not None:
        log.info(nothing_to_do(config, folder, step))
        folder.mend(config_yaml, job="sft")
        with mirrored(config, folder):
            return step
    with FolderLock(folder.path), mirrored(config, folder):
        folder.claim(config_yaml, job="sft")
        checkpoints = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints)
        checkpoints.sweep()
        with trackers(config, folder.path, total_steps=steps) as tracker:

            def start(config: Config) -> int:
                with RUN_LOGS.kept(folder.logs), HOSTS.had(config, generates=False) as hosts:
                    workers = build_workers(hosts, config, roles=frozenset({"actor"}), actor_updates=steps)
                    workers.wait_built(timeout_s=config.cluster.start_timeout_s)
                    actor, ranks = ActorGroup(workers), hosts.where.world_size
                    STARTUP.now("taking the first step")
                    step = SftTrainer(
                        config,
                        actor,
                        rows,
                        sampler,
                        tracker,
                        checkpoints,
                        books=ProcessBooks(folder.path, [workers], limits=RecordLimits(config.trainer.max_records_gib)),
                        profiles=Profiles(folder.profile, [workers], config.trainer.profile_steps),
                        total_steps=steps,
                        ranks=ranks,
                        identity=identity,
                    ).fit()
                    if step >= steps:
                        _export(actor, folder.model)
                return step

            step = with_restarts(config, start)
        write_curves(folder.path)
    return step


@dataclass(frozen=True, slots=True)
class SftTask:
    """What a supervised run trains on."""

    rows: DataProto
    sampler: EpochSampler
    steps: int
    identity: dict[str, Any]


def sft_task_of(config: Config) -> SftTask:
    """Read it, once everything is refused that can be known without it; the rows as they were read are let go.

    Raises:
        ValueError: a configuration or data set that cannot work.
    """
    check(config)
    if config.data.sampler:
        raise ValueError(
            f"data.sampler is {config.data.sampler}, but supervised training takes its rows in epochs "
            f"(data.shuffle, data.train_weights). Leave data.sampler empty."
        )
    check_machine(config, generates=False)
    check_hub_models(config)
    STARTUP.now("reading the data")
    read = train_rows(config.data, seed=config.trainer.seed)
    rows, file_numbers = sft_rows(read, config.data, _tokenizer(config))
    sampler = epoch_sampler(file_numbers, config.data, seed=config.trainer.seed)
    steps = config.trainer.total_training_steps or config.trainer.total_epochs * sampler.batches_per_epoch
    identity = sft_identity(read, config.data, num_kept=len(rows), seed=config.trainer.seed)
    return SftTask(rows, sampler, steps, identity)


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy in its engines, ready to generate."""

    rollout: RolloutGroup
    rewards: Rewards
    step: int  # of the checkpoint, 0 for the model itself
    version: int


@contextmanager
def _policy(config: Config, tokenizer: PreTrainedTokenizerBase, folder: RunFolder) -> Iterator[_Policy]:
    """The policy of the checkpoint that ``trainer.resume`` names, or of ``model.path`` under ``never``."""
    checkpoint = policy_checkpoint(config)
    state = load_state(checkpoint) if checkpoint is not None else {"step": 0}
    log.info("the policy is that of %s", checkpoint or config.model.path)
    with (
        RUN_LOGS.kept(folder.eval / "logs"),
        HOSTS.had(config, generates=True) as hosts,
        scorers(hosts, config, tokenizer, folder.eval) as starting,
    ):
        workers = build_workers(hosts, config, roles=needs(config).roles & {"actor", "rollout", "reward_model"})
        rewards = starting.ready(workers)
        if checkpoint is not None:
            STARTUP.now(f"loading {shown(checkpoint)}")
            ActorGroup(workers).load(str(checkpoint / "actor"), state["weight_version"])
        STARTUP.now("copying the weights to the engine")
        rollout = rollout_group(hosts, config)
        yield _Policy(rollout, rewards, step=state["step"], version=rollout.sync().version)


def evaluate(config: Config) -> dict[str, float]:
    """Validation metrics (``verl-like eval``, or ``trainer.val_only``) of a checkpoint or a model.

    Appends them to ``<run>/eval/metrics.jsonl`` and writes responses beside it; the rest of the run folder stays as it
    is.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    STARTUP.now("reading the data")
    tokenizer = _tokenizer(config)
    prompts = held_out_prompts(config, tokenizer)
    check_reward(config, prompts)
    folder = RunFolder(config)
    with _policy(config, tokenizer, folder) as policy:
        STARTUP.now(f"validating on {len(prompts)} prompts")
        found = validate(
            config,
            list(prompts),
            rollout=policy.rollout,
            rewards=policy.rewards,
            version=policy.version,
            samples_path=unused(folder.eval / f"val_step_{policy.step}.jsonl"),
        )
    tracker = JsonlTracker(folder.eval / "metrics.jsonl")
    tracker.log(policy.step, found)
    tracker.close()
    return found


def generate_responses(config: Config) -> Path:
    """Responses to ``data.val_files`` (``verl-like generate``) of a checkpoint or a model, written as text below
    ``<run>/eval``.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    check_reward(config, [])  # nothing is scored, but the scorers that decode load their function
    tokenizer = _tokenizer(config)
    prompts = held_out_prompts(config, tokenizer)
    folder = RunFolder(config)
    with _policy(config, tokenizer, folder) as policy:
        path = unused(folder.eval / f"generated_step_{policy.step}.jsonl")
        STARTUP.now(f"generating responses to {len(prompts)} prompts")
        batch = generate(
            list(prompts),
            rollout=policy.rollout,
            begin=None,
            n=config.rollout.val.n,
            sampling=val_sampling(config),
            step=VALIDATION_STEP,
            version=policy.version,
        )
        policy.rewards.dump(batch, np.arange(len(batch)), path)
    return path


def export(config: Config, checkpoint: Path, out: Path, *, adapter: bool) -> None:
    """Write a checkpoint's policy as a Hugging Face folder (``verl-like export``), or its adapter as one of peft's."""
    refuse_unwritable(out, option=OUT)
    version = load_state(checkpoint)["weight_version"]
    with HOSTS.had(config, generates=False) as hosts:
        workers = build_workers(hosts, config, roles=frozenset({"actor"}))
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        actor = ActorGroup(workers)
        actor.load(str((checkpoint / "actor").absolute()), version)
        _export(actor, out.absolute(), option=OUT, adapter=adapter)
