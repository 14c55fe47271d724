"""The roles of a run, which are derived from the algorithm, never switched on."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.algorithms.advantages import estimator
from verl_like.algorithms.policy_losses import policy_loss
from verl_like.config.schema import Config


@dataclass(frozen=True, slots=True)
class Needs:
    """Roles, stages and columns that a step must provide."""

    critic: bool
    ref: bool
    old_log_probs: bool
    sum_pi_squared: bool = False
    entropy: bool = False  # of the old policy
    covariance_rank: bool = False
    baseline: bool = False  # a greedy response to each prompt
    role_baselines: bool = False  # moved by each step
    reward_model: bool = False  # colocated in the hybrid workers
    ref_log_probs: bool = False  # in their own stage; a reference without it is read by the updates
    advantages_of_tokens: bool = False  # otherwise a response's advantage is a fact, computed from its group's scores

    @property
    def advantage_columns(self) -> frozenset[str]:
        """Columns that the advantages stage adds."""
        if not self.advantages_of_tokens:
            return frozenset()
        return frozenset(
            {
                "advantages",
                *["returns"] * self.critic,
                *["covariance_rank"] * self.covariance_rank,
                *["is_high_entropy"] * self.entropy,
            }
        )

    @property
    def compares_mini_batches(self) -> bool:
        """Whether the advantages stage ranks tokens within their mini-batch."""
        return self.covariance_rank or self.entropy

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(
            {"actor", "rollout", *["critic"] * self.critic, *["ref"] * self.ref, *["reward_model"] * self.reward_model}
        )


def needs(config: Config) -> Needs:
    """Return what a run needs: a critic iff the advantage needs values; a reference iff a KL term or distillation has a
    coefficient.

    Old log-probs have their own stage unless each batch makes exactly one update: then the policy that is updated is
    the one that generated, and the update's first forward pass gives the same numbers.
    """
    wanted = estimator(config.algorithm.adv_estimator).needs | policy_loss(config.actor.policy_loss).needs
    takes_entropy = config.algorithm.top_entropy_quantile < 1
    is_of_tokens = (
        estimator(config.algorithm.adv_estimator).takes != "scores"
        or config.algorithm.kl_coef > 0
        or "covariance_rank" in wanted
        or takes_entropy
    )
    one_update = config.actor.epochs == 1 and config.actor.mini_batch_size == config.data.train_batch_size
    is_read = (
        takes_entropy
        or config.algorithm.kl_coef > 0
        or bool(wanted & {"old_log_probs", "sum_pi_squared", "covariance_rank"})
    )
    has_ref_log_probs = config.algorithm.kl_coef > 0 or "ref_log_probs" in wanted | _of_updates(config)
    return Needs(
        critic="values" in wanted,
        ref=has_ref_log_probs or config.algorithm.distillation == "jsd",
        ref_log_probs=has_ref_log_probs,
        old_log_probs=is_read
        or config.algorithm.rollout_correction.batch_normalize
        or not (one_update or config.actor.use_rollout_log_probs),
        sum_pi_squared="sum_pi_squared" in wanted,
        entropy=takes_entropy,
        covariance_rank="covariance_rank" in wanted,
        baseline="baseline_rewards" in wanted,
        role_baselines="role_baselines" in wanted,
        reward_model=bool(config.reward.model.path) and config.reward.model.placement == "colocated",
        advantages_of_tokens=is_of_tokens,
    )


def step_columns(config: Config) -> list[str]:
    """Return the token columns of a step."""
    wanted = needs(config)
    return [
        "prompt_ids",
        *["teacher_prompt_ids"] * bool(config.algorithm.self_distillation),
        "response_ids",
        "response_mask",
        "rollout_log_probs",
        *["weight_version"] * ("rollout" in config.cluster.placement),
        *["num_candidates"] * config.rollout.keep_sampling_mask,
        *["advantages"] * wanted.advantages_of_tokens,
        *["old_log_probs"] * wanted.old_log_probs,
        *["sum_pi_squared"] * wanted.sum_pi_squared,
        *["entropy", "is_high_entropy"] * wanted.entropy,
        *["ref_log_probs"] * wanted.ref_log_probs,
        *["values", "returns"] * wanted.critic,
        *["covariance_rank"] * wanted.covariance_rank,
    ]


def update_columns(config: Config) -> tuple[str, ...]:
    """Return the token columns that the actor's update reads in addition to the sequence."""
    wanted = needs(config)
    columns = [*["advantages"] * wanted.advantages_of_tokens, "rollout_log_probs"]
    columns += ["old_log_probs"] * wanted.old_log_probs + ["covariance_rank"] * wanted.covariance_rank
    columns += ["is_high_entropy"] * wanted.entropy
    reads_teacher_prompts = config.algorithm.distillation == "jsd" and bool(config.algorithm.self_distillation)
    columns += ["teacher_prompt_ids"] * reads_teacher_prompts
    return (*columns, *_of_updates(config))


def _of_updates(config: Config) -> frozenset[str]:
    """Return the columns of the reference that the actor's loss reads."""
    is_read = (
        config.actor.kl_loss_coef > 0
        or config.algorithm.distillation == "pg"
        or "ref_log_probs" in policy_loss(config.actor.policy_loss).needs
    )
    return frozenset({"ref_log_probs"} if is_read else ())
