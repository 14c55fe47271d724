"""The stages of a step as functions of (parts, state, batch); a trainer is a short list of them.

A stage reads and adds columns and facts of the batch, records metrics and prompts in the state, knows no other step,
and returns the batch for the next stage.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from verl_like.algorithms.roles import step_columns, update_columns
from verl_like.checks.pools import CRITIC, REF
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.protocol import TEACHER, last_rows, sampled_tokens
from verl_like.telemetry.ledger import stage
from verl_like.training.balance import by_reader
from verl_like.training.generation import generate, greedy_sampling, put_prompts, train_sampling
from verl_like.training.parts import StepParts
from verl_like.training.prompt_counts import num_prompts
from verl_like.training.rewards import StepRewards
from verl_like.training.role_rewards import with_role_baselines
from verl_like.training.score_advantages import score_advantages
from verl_like.training.shaping import groups_with_signal, is_usable, learnt_from, row_rewards
from verl_like.training.step_metrics import num_tokens
from verl_like.training.step_state import StepState
from verl_like.workers.messages import UpdateTerms


def rollout(parts: StepParts, state: StepState) -> RemoteBatch:
    """Generate the step's responses; if groups are filtered, draw and score batches until there are enough."""
    config = parts.config
    if config.algorithm.filter_groups:
        batch, found = groups_with_signal(
            lambda number: _scored(parts, state, draw(parts, state, number)),
            num_groups=config.data.train_batch_size,
            max_batches=config.algorithm.max_num_gen_batches,
        )
        state.metrics.add(found)
        state.prompts.keep_in_flight(config.data.train_batch_size, "filtered")
    else:
        batch = draw(parts, state)
    state.metrics.add_rollout(batch)
    parts.store.check(batch, step_columns(config))
    return batch


def draw(parts: StepParts, state: StepState, number: int = 0) -> RemoteBatch:
    """Take the next prompts and generate their responses while scoring runs.

    Args:
        number: earlier draws of this step.
    """
    config, scores = parts.config, state.scores
    assert isinstance(scores, StepRewards), "a step that draws its prompts itself scores them itself, too"
    with stage("prompts"):
        prompts = parts.loader.next_batch()
        state.prompts.draw(len(prompts))
        state.num_drawn = parts.loader.num_drawn
    with stage("rollout"):
        asked = put_prompts(prompts)
        batch = generate(
            asked,
            rollout=parts.rollout,
            begin=scores.begin,
            n=config.rollout.n,
            sampling=train_sampling(config),
            step=state.step,
            version=state.version,
            first_sample=number * config.rollout.n,
        )
        if parts.needs.baseline:
            generate(
                asked,
                rollout=parts.rollout,
                begin=partial(scores.begin, is_baseline=True),
                n=1,
                sampling=greedy_sampling(config),
                step=state.step,
                version=state.version,
            )
    return batch


def _scored(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Return the batch with its scores, to select groups; :func:`score` fetches those of the selected rows."""
    with stage("reward_wait"):
        batch = batch.with_facts(state.scores.scores(batch).facts)
    _feed_back(parts, batch)
    state.prompts.record(num_prompts(batch) - num_prompts(batch, is_usable(batch)), "failed")
    return batch


def _feed_back(parts: StepParts, batch: RemoteBatch) -> None:
    """Report the score of each sample to the data loader."""
    rows = last_rows(batch.facts)
    parts.loader.feedback(batch.facts["uid"][rows], batch.facts["score"][rows])


def sleep(parts: StepParts) -> None:
    """Have the engines free their memory when the next call begins; the next sync wakes them."""
    with stage("engine_sleep"):
        parts.rollout.sleep()


def add_log_probs(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Add the models' outputs for the responses: old and reference log-probs and values, if needed."""
    with stage("balance"):
        for balance in (parts.balance, *parts.separate_balances.values()):
            balance.assign(batch)
    if parts.teachers is not None:
        batch.add_facts({TEACHER: parts.teachers.of(batch.facts["uid"])})
    if parts.needs.old_log_probs:
        with stage("old_log_probs"):
            rows = parts.balance.rows(batch)
            needs = parts.needs
            reports = parts.actor.add_log_probs(batch, rows, sum_pi_squared=needs.sum_pi_squared, entropy=needs.entropy)
            state.metrics.add_log_prob_gap(reports)
    if parts.ref is not None and parts.needs.ref_log_probs:
        with stage("ref_log_probs"):
            parts.ref.add_log_probs(batch, parts.balance_of(REF).rows(batch))
    if parts.critic is not None:
        with stage("values"):
            parts.critic.add_values(batch, parts.balance_of(CRITIC).rows(batch))
    return batch


def score(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Return the rows with their scores, once all have arrived."""
    with stage("reward_wait"):
        batch = batch.with_facts(state.scores.scores(batch).facts)
        state.metrics.add_rewards(batch)
        if not parts.config.algorithm.filter_groups:  # which has reported the scores of all drawn rows
            _feed_back(parts, batch)
    return batch


def keep_position(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Record the data loader's position after this step, before the policy learns and another step draws.

    Raises:
        SamplerError: a custom sampler returned no state. The policy is still that of the last closed step.
    """
    state.loader_state = parts.loader.state_dict()
    return batch


def add_advantages(parts: StepParts, state: StepState, scored: RemoteBatch) -> RemoteBatch:
    """Return the rows to learn from with their advantages; start writing samples and the step's snapshot."""
    config, usable = parts.config, is_usable(scored)
    batch = scored.select(usable)
    state.prompts.keep_in_flight(num_prompts(batch), "failed")
    with stage("advantages"):
        needs = parts.needs
        earned = row_rewards(
            batch,
            config,
            mini_batch_prompts=config.actor.mini_batch_size if needs.compares_mini_batches else None,
            ranks_covariance=needs.covariance_rank,
        )
        if parts.roles is not None:
            earned = with_role_baselines(earned, batch, state, parts.roles, decay=config.algorithm.rae_decay)
        if parts.advantages is None:
            facts, found = score_advantages(earned, sampled_tokens(batch.facts), config.algorithm)
        else:
            facts, found = parts.advantages.add(
                batch,
                by_reader(batch, parts.devices.nodes, parts.needs.advantage_columns),
                earned,
                adds=parts.needs.advantage_columns,
                kl_coef=state.steering.kl_coef,
            )
        batch.add_facts(facts)
        rows = batch if usable.all() else scored  # the same rows, where the batch has advantages of tokens too
        parts.samples.write(state.step, rows, usable, facts)
        state.metrics.add({"reward/shaped_mean": float(earned.rewards[last_rows(batch.facts)].mean()), **found})
        if config.algorithm.kl_target > 0:
            state.metrics.add({"reward/kl_coef": state.steering.kl_coef})
        batch = batch.select(learnt_from(batch, config, np.random.default_rng((config.trainer.seed, state.step))))
    state.prompts.keep_in_flight(num_prompts(batch), "filtered")
    parts.snapshots.fill(state.step, batch)
    return batch


def balance_update(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Assign the remaining rows to ranks, for the updates."""
    with stage("balance"):
        imbalance = parts.balance.assign(batch, skips_zeros=parts.config.actor.skip_zero_advantages)
        state.metrics.add({"balance/imbalance": imbalance})
        if CRITIC in parts.separate_balances:
            parts.separate_balances[CRITIC].assign(batch)
    return batch


def update_critic(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Update the critic, if there is one."""
    if parts.critic is None:
        return batch
    with stage("update_critic"):
        shares = parts.balance_of(CRITIC).shares(batch, mini_batch_prompts=parts.config.critic.mini_batch_size)
        state.metrics.add_mean(parts.critic.update(batch, shares.rows, shares.mini_batches))
        batch.drop({"values", "returns"})
    return batch


def begin_sync(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Let each rank of the actor begin :func:`sync` after its next update, before the driver has the metrics.

    If the reference changes, it copies the weights first, and :func:`sync` begins when the driver calls it.
    """
    if not parts.config.ref_changes and parts.rollout.sync_after_next():
        _ask(parts)
    return batch


def _ask(parts: StepParts) -> None:
    """Request the reports that :func:`sync` takes; they arrive during the next wait."""
    parts.process_metrics.ask()
    parts.store.ask()


def update_actor(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Update the actor, after the critic's warm-up."""
    config = parts.config
    if state.step <= config.critic.warmup_steps:
        return batch
    with stage("update_actor"):
        shares = parts.balance.shares(batch, mini_batch_prompts=config.actor.mini_batch_size)
        terms = UpdateTerms(
            columns=update_columns(config),
            mean_weight=state.metrics.mean_weight,
            is_corrected=state.steering.is_corrected(config, gap_now=state.metrics.log_prob_gap),
        )
        state.metrics.add_update(parts.actor.update(batch, shares.rows, shares.mini_batches, terms))
        skips_zeros = config.actor.skip_zero_advantages
        state.metrics.learnt_tokens = config.actor.epochs * num_tokens(batch, skips_zeros=skips_zeros)
    return batch


def reset_reference(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Give the reference the actor's weights after every ``ref.reset_every`` steps; average a teacher that is an
    average of the policy with them after each step.
    """
    every, algorithm = parts.config.ref.reset_every, parts.config.algorithm
    if parts.ref is not None and algorithm.self_distillation == "ema":
        with stage("ref_reset"):
            parts.ref.reset(weight=algorithm.distill_ema)
    elif parts.ref is not None and every and state.step % every == 0:
        with stage("ref_reset"):
            parts.ref.reset()
    return batch


def record_trained(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Record the prompts that the updates were given; prompts without any advantage count as filtered."""
    if parts.critic is None and parts.config.actor.skip_zero_advantages:
        state.prompts.keep_in_flight(num_prompts(batch, batch.facts["has_advantage"]), "filtered")
    state.prompts.keep_in_flight(0, "trained")
    return batch


def sync(parts: StepParts, state: StepState, batch: RemoteBatch) -> RemoteBatch:
    """Send the new weights to the engines, and report the step's use of the store and of the processes."""
    with stage("sync"):
        _ask(parts)
        found = parts.rollout.sync()
    state.version = found.version
    state.metrics.add(found.metrics)
    parts.snapshots.settle()
    with stage("report"):
        state.metrics.add(parts.store.take(batch))
        state.metrics.add(parts.process_metrics.take(state.step))
    return batch


# The stages after the rollout, by which PPO, GRPO and their relatives learn from a batch on any schedule.
LEARNING = (
    add_log_probs,
    score,
    keep_position,
    add_advantages,
    balance_update,
    update_critic,
    begin_sync,
    update_actor,
    reset_reference,
    record_trained,
    sync,
)
