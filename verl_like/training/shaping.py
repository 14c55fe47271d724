"""Turn scores into rewards, and select the rows and groups to learn from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verl_like.config.schema import AlgorithmConfig, Config
from verl_like.controller.errors import FeedbackError
from verl_like.controller.remote_batch import Facts, RemoteBatch
from verl_like.protocol import Array, episode_numbers
from verl_like.reward.results import MAX_SCORE
from verl_like.workers.messages import RowRewards

OVERLONG = ("length", "max_episode_tokens")  # finish reasons: of the engine, and of an episode with an environment


def scaled_scores(scores: Array, config: AlgorithmConfig) -> Array:
    """Return [B] float32: scores clipped to +-``reward_clip``, times ``reward_scale``."""
    held = scores.clip(-config.reward_clip, config.reward_clip) if config.reward_clip > 0 else scores
    scaled: Array = (held * config.reward_scale).astype(np.float32)
    return scaled


def rewards_of(batch: RemoteBatch, config: Config) -> Array:
    """Return [B] float32: the reward of each response, its score's :func:`scaled_scores` less the over-long penalty.

    The penalty (DAPO, 2503.14476, equation 13) is 0 up to ``overlong_buffer_len`` tokens below
    ``data.max_response_length`` and rises linearly to ``overlong_penalty_factor`` there. The rows of an episode share
    the penalty of the longest one; tokens of the environment count, because they fill the same context.
    """
    algorithm = config.algorithm
    rewards = scaled_scores(batch.facts["score"], algorithm)
    if algorithm.overlong_buffer_len:
        excess = _longest_row(batch.facts) - (config.data.max_response_length - algorithm.overlong_buffer_len)
        rewards -= np.float32(algorithm.overlong_penalty_factor) * (
            excess.clip(min=0) / algorithm.overlong_buffer_len
        ).astype(np.float32)
    return rewards


def _longest_row(facts: Facts) -> Array:
    """Return [B] int64: the tokens of the longest row of each row's episode."""
    tokens, episodes = facts["response_tokens"], episode_numbers(facts)
    if episodes is None:
        return tokens
    starts = np.flatnonzero(np.diff(episodes, prepend=-1))
    longest: Array = np.maximum.reduceat(tokens, starts)[episodes]
    return longest


def row_rewards(
    batch: RemoteBatch, config: Config, *, mini_batch_prompts: int | None, ranks_covariance: bool = False
) -> RowRewards:
    """Return the inputs of the advantages stage for these rows.

    Args:
        mini_batch_prompts: prompts per mini-batch, if the tokens of one are compared.
        ranks_covariance: whether they are compared by covariance, for the policy loss.

    Raises:
        FeedbackError: the reward function did not report a reward component.
    """
    baseline = batch.facts.get("baseline_score")
    return RowRewards(
        rewards=rewards_of(batch, config),
        group_ids=batch.facts["group_id"],
        baseline_rewards=None if baseline is None else scaled_scores(baseline, config.algorithm),
        components={name: _component(batch, name) for name in config.algorithm.reward_components},
        mini_batches=None if mini_batch_prompts is None else batch.facts["group_id"] // mini_batch_prompts,
        ranks_covariance=ranks_covariance,
        episodes=episode_numbers(batch.facts),
    )


def _component(batch: RemoteBatch, name: str) -> Array:
    """Return [B] float32: a number that the reward function reported in addition to its score."""
    details = batch.facts["details"]
    for row, reported in enumerate(details):
        value = reported.get(name)
        if not isinstance(value, int | float) or not abs(value) <= MAX_SCORE:  # also refuses NaN
            raise FeedbackError(
                f"algorithm.reward_components names {name!r}, but for a response to prompt {batch.facts['uid'][row]} "
                f"the reward function reported {reported} in addition to its score. Return a dict with {name!r} as a "
                "finite number, or remove the name."
            )
    return np.array([reported[name] for reported in details], np.float32)


def learnt_from(batch: RemoteBatch, config: Config, rng: np.random.Generator) -> Array:
    """Return the row indices for the updates.

    Over-long responses are left out under ``mask_overlong``; samples are resampled under ``pf_ppo``, each with all
    rows of its episode.
    """
    rows = np.arange(len(batch))
    if config.algorithm.mask_overlong:
        rows = rows[~np.isin(batch.facts["finish_reason"], OVERLONG)]
        if not len(rows):
            raise FeedbackError(
                "algorithm.mask_overlong left no response to learn from: every response reached "
                f"data.max_response_length={config.data.max_response_length}. Raise it, or set "
                "algorithm.mask_overlong=false."
            )
    if config.algorithm.pf_ppo != "off":
        samples = np.split(rows, _ends_of_samples(batch.facts, rows))
        rewards = rewards_of(batch, config)[[own[-1] for own in samples]]
        drawn = resampled(
            rewards, scheme=config.algorithm.pf_ppo, weight_pow=config.algorithm.pf_ppo_weight_pow, rng=rng
        )
        rows = np.concatenate([samples[sample] for sample in drawn])
    return rows


def _ends_of_samples(facts: Facts, rows: Array) -> Array:
    """Return the positions after the last row of each sample but the last one, among some rows of whole samples."""
    episodes = episode_numbers(facts)
    return np.arange(1, len(rows)) if episodes is None else np.flatnonzero(np.diff(episodes[rows])) + 1


def is_usable(batch: RemoteBatch) -> Array:
    """Return [B] bool: rows that have the inputs of the advantage.

    A failed score, or a failed score of the prompt's baseline, never counts as zero.
    """
    usable: Array = ~np.isnan(batch.facts["score"])
    if "baseline_score" in batch.facts:
        usable = usable & ~np.isnan(batch.facts["baseline_score"])
    return usable


def has_differing_scores(batch: RemoteBatch) -> Array:
    """Return [B] bool: rows of groups in which two usable scores differ.

    In other groups, siblings carry no information about each other.
    """
    usable = is_usable(batch)
    group = batch.facts["group_id"]
    size = int(group.max()) + 1
    highest, lowest = np.full(size, -np.inf), np.full(size, np.inf)
    np.maximum.at(highest, group[usable], batch.facts["score"][usable])
    np.minimum.at(lowest, group[usable], batch.facts["score"][usable])
    differs: Array = (highest > lowest)[group]
    return differs


def groups_with_signal(
    draw: Callable[[int], RemoteBatch], *, num_groups: int, max_batches: int
) -> tuple[RemoteBatch, dict[str, float]]:
    """Draw scored batches until ``num_groups`` groups have differing scores.

    This is DAPO's dynamic sampling (2503.14476, section 3.2).

    Args:
        draw: returns a scored batch; receives the number of earlier draws in this step.

    Returns:
        The first ``num_groups`` such groups, numbered from 0, and metrics. Surplus groups are dropped, because the next
        step has another policy.

    Raises:
        FeedbackError: ``max_batches`` batches were not enough.
    """
    kept: list[RemoteBatch] = []
    found = drawn = 0
    for number_of_draw in range(max_batches):
        batch = draw(number_of_draw)
        drawn += len(np.unique(batch.facts["group_id"]))
        chosen = batch.select(has_differing_scores(batch))
        _, number = np.unique(chosen.facts["group_id"], return_inverse=True)
        chosen.facts["group_id"] = found + number
        found += int(number.max(initial=-1)) + 1
        kept.append(chosen)
        if found >= num_groups:
            joined = RemoteBatch.concat(kept)
            metrics = {"rollout/num_batches": float(len(kept)), "rollout/signal_frac": found / drawn}
            return joined.select(joined.facts["group_id"] < num_groups), metrics
    raise FeedbackError(
        f"algorithm.filter_groups found {found} of {num_groups} groups with differing scores in "
        f"algorithm.max_num_gen_batches={max_batches} batches ({drawn} prompts). The task is too easy or too hard for "
        "this policy: raise algorithm.max_num_gen_batches or rollout.n, choose other prompts, or set "
        "algorithm.filter_groups=false."
    )


def resampled(rewards: Array, *, scheme: str, weight_pow: float, rng: np.random.Generator) -> Array:
    """Return [B] row indices drawn with replacement (PF-PPO, 2409.06957), more often for informative rewards.

    Args:
        rewards: [B].
        scheme: ``pow`` weights a row by |reward| to the power ``weight_pow``; ``max_min`` takes the rows of highest and
            of lowest reward; ``max_random`` takes those of highest reward, and any other a quarter as often.
    """
    if scheme == "pow":
        weights = np.abs(rewards.astype(np.float64)) ** weight_pow
    elif scheme == "max_min":
        weights = ((rewards == rewards.max()) | (rewards == rewards.min())).astype(np.float64)
    else:
        weights = np.where(rewards == rewards.max(), 1.0, 0.25)
    total = weights.sum()
    chances = weights / total if total > 0 else np.full(len(rewards), 1 / len(rewards))
    drawn: Array = np.sort(rng.choice(len(rewards), size=len(rewards), p=chances))
    return drawn
