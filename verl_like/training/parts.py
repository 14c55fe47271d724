"""The parts of a run that the stages of its steps use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_like.algorithms.roles import Needs, needs
from verl_like.checks.pools import CRITIC
from verl_like.config.schema import Config
from verl_like.controller.placement import Devices
from verl_like.data.loader import PromptLoader
from verl_like.data.row_names import RowNames, teachers_of
from verl_like.plan.run_plan import RunPlan
from verl_like.runs.folder import RunFolder
from verl_like.runs.schedule_record import ScheduleRecord
from verl_like.runs.step_snapshots import StepSnapshots
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.trackers import Trackers
from verl_like.training.balance import Balance
from verl_like.training.build import Stack
from verl_like.training.process_metrics import ProcessMetrics, Reporting
from verl_like.training.rewards import Rewards
from verl_like.training.role_rewards import roles_of
from verl_like.training.samples import Samples
from verl_like.training.store_meter import StoreMeter
from verl_like.workers.groups import ActorGroup, AdvantageGroup, CriticGroup, Generator, RefGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class StepParts:
    """The parts of a run that outlive a step; state that changes between stages is in a StepState.

    Args:
        needs: the columns that the configuration requires of a step.
        balance: assigns rows to the workers that train.
        separate_balances: assigns rows to the workers of each model that has separate ones.
        critic, ref, advantages: None if the configuration does not need them.
        teachers: position of each prompt's teacher in ``ref.teachers``; None without them.
        roles: the role of each prompt; None if the estimator reads no baselines of roles.
        run_plan: the plan of memory and work, if there is one.
    """

    config: Config
    needs: Needs
    devices: Devices
    actor: ActorGroup
    rollout: Generator
    critic: CriticGroup | None
    ref: RefGroup | None
    advantages: AdvantageGroup | None
    rewards: Rewards
    loader: PromptLoader
    teachers: RowNames | None
    roles: RowNames | None
    balance: Balance
    separate_balances: Mapping[str, Balance]
    store: StoreMeter
    samples: Samples
    snapshots: StepSnapshots
    schedule: ScheduleRecord
    process_metrics: ProcessMetrics
    processes: tuple[Reporting, ...]
    run_plan: RunPlan | None

    def balance_of(self, role: str) -> Balance:
        """Return what assigns rows to the workers of this role."""
        return self.separate_balances.get(role, self.balance)


def parts_of(
    config: Config,
    stack: Stack,
    folder: RunFolder,
    *,
    loader: PromptLoader,
    trackers: Trackers,
    run_plan: RunPlan | None = None,
) -> StepParts:
    """Combine the parts that the stages use with the workers of ``stack``."""
    limits = RecordLimits(config.trainer.max_records_gib)
    wanted = needs(config)
    return StepParts(
        config=config,
        needs=wanted,
        devices=stack.devices,
        actor=stack.actor,
        rollout=stack.rollout,
        critic=stack.critic,
        ref=stack.ref,
        advantages=stack.advantages,
        rewards=stack.rewards,
        loader=loader,
        teachers=teachers_of(loader.prompts, config),
        roles=roles_of(loader.prompts, config),
        balance=_balance(config, stack.devices, has_critic=wanted.critic and CRITIC not in stack.separate),
        separate_balances={role: _separate_balance(config, role, ranks) for role, ranks in stack.separate.items()},
        store=StoreMeter(),
        samples=Samples(folder.samples, config.trainer.num_samples_to_save, stack.rewards, trackers, limits),
        snapshots=StepSnapshots(folder.snapshots, config.trainer.num_capsules, stack.rewards, limits),
        schedule=ScheduleRecord(folder.path / "schedule.jsonl"),
        process_metrics=ProcessMetrics(folder.path, stack.processes, run_plan.peak_bytes if run_plan else 0.0, limits),
        processes=stack.processes,
        run_plan=run_plan,
    )


def _balance(config: Config, devices: Devices, *, has_critic: bool) -> Balance:
    sizes = [config.actor.mini_batch_size, *[config.critic.mini_batch_size] * has_critic]
    return Balance(math.gcd(*sizes), devices.world_size, nodes=devices.num_nodes, **_costs(config))


def _separate_balance(config: Config, role: str, ranks: int) -> Balance:
    """Return what assigns rows to separate workers; every row comes from others."""
    prompts = config.critic.mini_batch_size if role == CRITIC else config.data.train_batch_size
    return Balance(prompts, ranks, fact=f"{role}_rank", **_costs(config))


def _costs(config: Config) -> dict[str, Any]:
    shares_prompts = config.model.share_prompts and config.model.remove_padding
    return {"by": config.trainer.balance_by, "shares_prompts": shares_prompts}
