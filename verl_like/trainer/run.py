"""The jobs a user starts: train, eval, sft, generate, export. Each builds what it needs and leaves nothing behind."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from verl_like.config.checks import check
from verl_like.config.schema import ActorConfig, Config, CriticConfig
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import Prompt, PromptDataset, sft_rows
from verl_like.data.templates import load_tokenizer
from verl_like.telemetry.report import Summary, write_curves, write_summary
from verl_like.telemetry.trackers import trackers
from verl_like.trainer.build import cluster, hybrid_workers, reward_pool, stack
from verl_like.trainer.checkpoint import load_state
from verl_like.trainer.generation import VALIDATION_STEP, generate, val_sampling
from verl_like.trainer.ppo_trainer import PPOTrainer, Progress
from verl_like.trainer.roles import needs
from verl_like.trainer.run_folder import RunFolder
from verl_like.trainer.sft_trainer import SftTrainer
from verl_like.workers.groups import ActorGroup, RolloutGroup

log = logging.getLogger(__name__)


def _prompts(config: Config, files: list[str]) -> PromptDataset:
    tokenizer = load_tokenizer(config.model.tokenizer_path or config.model.path, config.model.trust_remote_code)
    return PromptDataset(files, config.data, tokenizer)


def _val_prompts(config: Config) -> list[Prompt]:
    return list(_prompts(config, config.data.val_files)) if config.data.val_files else []


def train(config: Config, config_yaml: str) -> Progress:
    """Reinforcement learning (``verl-like train``), or validation alone under ``trainer.val_only``.

    Raises:
        ValueError: a configuration, data set or folder that cannot work; nothing has been started then.
    """
    check(config)
    trainer_config = config.trainer
    loader = PromptLoader(_prompts(config, config.data.val_files if trainer_config.val_only else config.data.train_files),
                          batch_size=config.data.train_batch_size, shuffle=config.data.shuffle, seed=trainer_config.seed)
    val_prompts = _val_prompts(config)
    steps = trainer_config.total_training_steps or trainer_config.total_epochs * loader.batches_per_epoch
    folder = RunFolder(config)
    folder.claim(config_yaml, resume=trainer_config.resume)
    with (
        trackers(config, folder.path, total_steps=steps) as tracker,
        stack(config, folder, roles=needs(config).roles,
              actor_updates=max(steps - config.critic.warmup_steps, 1) * updates_per_step(config, config.actor),
              critic_updates=steps * updates_per_step(config, config.critic)) as parts,
    ):
        progress = PPOTrainer(config, parts, folder, loader, val_prompts, tracker, steps).fit()
        if not trainer_config.val_only:
            parts.actor.export(str(folder.model.absolute()))
    report(config, folder, progress)
    return progress


def updates_per_step(config: Config, learner: ActorConfig | CriticConfig) -> int:
    """Optimiser updates that one batch makes."""
    return config.data.train_batch_size // learner.mini_batch_size * learner.epochs


def report(config: Config, folder: RunFolder, progress: Progress) -> None:
    """summary.json and curves.png of a finished run."""
    write_summary(folder.path, Summary(
        initial_val=progress.initial_val, initial_val_metric=config.trainer.best_metric or f"val/mean@{config.rollout.val.n}",
        final_val=progress.last_val, steps=progress.step, seconds=progress.seconds,
        seconds_per_step=progress.seconds / max(progress.step, 1), tokens_per_s=progress.tokens / max(progress.seconds, 1e-9),
        seed=config.trainer.seed,
    ))
    write_curves(folder.path)


def sft(config: Config, config_yaml: str) -> float:
    """Supervised training (``verl-like sft``) on prompts and answers; writes ``<run>/model`` and returns the last loss."""
    check(config)
    tokenizer = load_tokenizer(config.model.tokenizer_path or config.model.path, config.model.trust_remote_code)
    rows = sft_rows(config.data.train_files, config.data, tokenizer)
    steps = config.trainer.total_training_steps or config.trainer.total_epochs * (len(rows) // config.data.train_batch_size)
    folder = RunFolder(config)
    folder.claim(config_yaml, resume=config.trainer.resume)
    with (
        trackers(config, folder.path, total_steps=steps) as tracker,
        cluster(config) as (where, run_id),
        hybrid_workers(config, where=where, run_id=run_id, roles=frozenset({"actor"}), actor_updates=steps) as workers,
    ):
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        actor = ActorGroup(workers)
        loss = SftTrainer(config, actor, rows, tracker, total_steps=steps, ranks=where.world_size).fit()
        actor.export(str(folder.model.absolute()))
    write_curves(folder.path)
    return loss


def generate_responses(config: Config) -> Path:
    """Responses to ``data.val_files`` (``verl-like generate``), written as text to ``<run>/samples/generated.jsonl``."""
    check(config)
    prompts = _val_prompts(config)
    folder = RunFolder(config)
    folder.samples.mkdir(parents=True, exist_ok=True)
    path = folder.samples / "generated.jsonl"
    with (
        cluster(config) as (where, run_id),
        reward_pool(config, folder) as rewards,
        hybrid_workers(config, where=where, run_id=run_id, roles=frozenset({"actor", "rollout"}), actor_updates=1) as workers,
    ):
        rewards.wait_ready()
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        rollout = RolloutGroup(workers, tensor_parallel_size=config.rollout.tensor_parallel_size)
        batch = generate(prompts, rollout=rollout, rewards=None, n=config.rollout.val.n, sampling=val_sampling(config),
                         step=VALIDATION_STEP, version=rollout.sync())
        rewards.dump(batch, np.arange(len(batch)), path)
    return path


def export(config: Config, checkpoint: Path, out: Path) -> None:
    """Write a checkpoint's policy as a Hugging Face folder (``verl-like export``).

    Raises:
        ValueError: ``checkpoint`` is not one.
    """
    if not (checkpoint / "trainer.json").exists():
        raise ValueError(f"{checkpoint} is not a checkpoint: it has no trainer.json. Give a .../checkpoints/step_N folder.")
    version = load_state(checkpoint)["weight_version"]
    with (
        cluster(config) as (where, run_id),
        hybrid_workers(config, where=where, run_id=run_id, roles=frozenset({"actor"}), actor_updates=1) as workers,
    ):
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        actor = ActorGroup(workers)
        actor.load(str((checkpoint / "actor").absolute()), version)
        actor.export(str(out.absolute()))
