"""The jobs that use a policy without training it: eval, generate and export."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from verl_like.algorithms.roles import needs
from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.requirements import check_machine
from verl_like.checks.rules import check
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.disk import refuse_unwritable, unused, writing
from verl_like.plan.job_choices import for_generation
from verl_like.runs.checkpoint import load_state
from verl_like.runs.folder import RunFolder
from verl_like.runs.launch import Launcher
from verl_like.runs.start import OUT, policy_checkpoint
from verl_like.runs.status import shown
from verl_like.telemetry.process_log import RunLogs
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import JsonlTracker
from verl_like.training.build import build_workers, generator, scorers
from verl_like.training.generation import generate, put_prompts, val_sampling
from verl_like.training.rewards import Rewards, first_rows
from verl_like.training.tasks import check_reward, held_out_prompts, tokenizer_of
from verl_like.training.validation import validate
from verl_like.workers.groups import ActorGroup, Generator
from verl_like.workers.samples import VALIDATION_STEP

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy in its engines, ready to generate."""

    rollout: Generator
    rewards: Rewards
    step: int  # step of the checkpoint, 0 for the model itself
    version: int


@contextmanager
def loaded_policy(config: Config, tokenizer: PreTrainedTokenizerBase, folder: RunFolder) -> Iterator[LoadedPolicy]:
    """Load the policy of the checkpoint that ``trainer.resume`` names, or of ``model.path`` under ``never``."""
    checkpoint, config = policy_checkpoint(config), for_generation(config)
    state = load_state(checkpoint) if checkpoint is not None else {"step": 0}
    log.info("the policy is that of %s", checkpoint or config.model.path)
    with (
        current(RunLogs).kept(folder.eval / "logs"),
        current(Launcher).launched(config, generates=True) as hosts,
        scorers(hosts, config, tokenizer, folder.eval) as starting,
    ):
        workers = build_workers(hosts, config, roles=needs(config).roles & {"actor", "rollout", "reward_model"})
        rewards = starting.ready(workers)
        if checkpoint is not None:
            current(Startup).now(f"loading {shown(checkpoint)}")
            ActorGroup(workers).load(str(checkpoint / "actor"), state["weight_version"])
        current(Startup).now("copying the weights to the engine")
        with generator(hosts, config) as rollout:
            yield LoadedPolicy(rollout, rewards, step=state["step"], version=rollout.sync().version)


def evaluate(config: Config) -> dict[str, float]:
    """Return validation metrics (``verl-like eval``, or ``trainer.val_only``) of a checkpoint or a model.

    They are appended to ``<run>/eval/metrics.jsonl``, and responses are written next to it. The rest of the run folder
    does not change.
    """
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    current(Startup).now("reading the data")
    tokenizer = tokenizer_of(config)
    prompts = held_out_prompts(config, tokenizer)
    check_reward(config, prompts)
    folder = RunFolder(config)
    with loaded_policy(config, tokenizer, folder) as policy:
        current(Startup).now(f"validating on {len(prompts)} prompts")
        found = validate(
            config,
            prompts,
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
    """Write the responses of a checkpoint or a model (``verl-like generate``) as text below ``<run>/eval``."""
    check(config)
    check_machine(config, generates=True)
    check_hub_models(config)
    check_reward(config, None)  # nothing is scored, but the scorers that decode load their function
    tokenizer = tokenizer_of(config)
    prompts = held_out_prompts(config, tokenizer)
    folder = RunFolder(config)
    with loaded_policy(config, tokenizer, folder) as policy:
        path = unused(folder.eval / f"generated_step_{policy.step}.jsonl")
        current(Startup).now(f"generating responses to {len(prompts)} prompts")
        batch = generate(
            put_prompts(list(prompts)),
            rollout=policy.rollout,
            begin=None,
            n=config.rollout.val.n,
            sampling=val_sampling(config),
            step=VALIDATION_STEP,
            version=policy.version,
        )
        policy.rewards.dump(batch, first_rows(batch, -1), path)
    return path


def export(config: Config, checkpoint: Path, out: Path, *, adapter: bool) -> None:
    """Write a checkpoint's policy as a Hugging Face folder (``verl-like export``), or its adapter as one of peft's."""
    refuse_unwritable(out, option=OUT)
    version = load_state(checkpoint)["weight_version"]
    with current(Launcher).launched(config, generates=False) as hosts:
        workers = build_workers(hosts, config, roles=frozenset({"actor"}))
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        actor = ActorGroup(workers)
        actor.load(str((checkpoint / "actor").absolute()), version)
        write_model(actor, out.absolute(), option=OUT, adapter=adapter)


def write_model(actor: ActorGroup, out: Path, *, option: str = "trainer.output_dir", adapter: bool = False) -> None:
    """Write the policy as a Hugging Face folder, or only its LoRA adapter."""
    log.info("writing the %s to %s", "adapter" if adapter else "model", shown(out))
    with writing(out, option=option):
        actor.export(str(out), adapter=adapter)
