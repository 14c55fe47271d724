"""Rules on algorithms that span sections, and warnings. Each yields problems: found, expected, remedy.

All rules except ``algorithms_exist`` read the algorithms' needs, so they run only if it finds no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl_like.algorithms.advantages import estimator, estimator_of
from verl_like.algorithms.kl_controller import MAX_KL_ERROR
from verl_like.algorithms.policy_losses import policy_loss, policy_loss_of
from verl_like.algorithms.roles import needs
from verl_like.config.schema import AlgorithmConfig, Config


def algorithms_exist(config: Config) -> Iterator[str]:
    for look_up in (lambda: estimator_of(config.algorithm), lambda: policy_loss_of(config.actor)):
        try:
            look_up()
        except ValueError as error:
            yield str(error)


def batch_divides_into_mini_batches(config: Config) -> Iterator[str]:
    sizes = {"actor.mini_batch_size": config.actor.mini_batch_size}
    if "values" in estimator(config.algorithm.adv_estimator).needs:
        sizes["critic.mini_batch_size"] = config.critic.mini_batch_size
    batch = config.data.train_batch_size
    for name, size in sizes.items():
        if batch % size:
            nearest = max(divisor for divisor in range(1, min(size, batch) + 1) if batch % divisor == 0)
            yield (
                f"data.train_batch_size is {batch} prompts, which {name}={size} does not divide. Set "
                f"{name}={nearest}, or change data.train_batch_size."
            )


def group_estimators_have_siblings(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if config.rollout.n > 1:
        return
    if estimator(algorithm.adv_estimator).compares_siblings:
        yield (
            f"rollout.n is 1, but algorithm.adv_estimator={algorithm.adv_estimator} compares siblings and needs "
            "at least 2. Set rollout.n=8, or use algorithm.adv_estimator=gae."
        )
    if algorithm.filter_groups:
        yield (
            "rollout.n is 1, but algorithm.filter_groups keeps groups whose scores differ and needs at least 2 "
            "responses to a prompt. Set rollout.n=8, or algorithm.filter_groups=false."
        )


def turn_estimators_have_an_environment(config: Config) -> Iterator[str]:
    name = config.algorithm.adv_estimator
    if "turns" in estimator(name).needs and not config.environment.is_used:
        yield (
            f"environment.path and environment.tools are empty, but algorithm.adv_estimator={name} needs the turns of "
            "episodes, which only an environment gives. Set one of them, or use algorithm.adv_estimator=grpo."
        )


def critic_options_have_a_critic(config: Config) -> Iterator[str]:
    if "values" in estimator(config.algorithm.adv_estimator).needs:
        return
    for name, is_set in (
        ("critic.warmup_steps", config.critic.warmup_steps > 0),
        ("critic.path", bool(config.critic.path)),
    ):
        if is_set:
            yield (
                f"{name} is set, but algorithm.adv_estimator={config.algorithm.adv_estimator} needs no critic, so none "
                f"exists. Leave {name} at its default, or use algorithm.adv_estimator=gae."
            )


def reference_options_have_a_reference(config: Config) -> Iterator[str]:
    if config.ref.path and not needs(config).ref:
        yield (
            f"ref.path is {config.ref.path}, but no KL term has a coefficient above 0, so no reference exists. "
            "Set actor.kl_loss_coef, algorithm.kl_coef or algorithm.distill_coef, or leave ref.path empty."
        )


def adaptive_kl_can_move(config: Config) -> Iterator[str]:
    algorithm, responses = config.algorithm, config.data.train_batch_size * config.rollout.n
    if algorithm.kl_target == 0:
        return
    if algorithm.kl_coef == 0:
        yield (
            f"algorithm.kl_target is {algorithm.kl_target}, but algorithm.kl_coef is 0, and a coefficient of 0 "
            "stays 0. Set algorithm.kl_coef=0.001 to start from, or algorithm.kl_target=0."
        )
    if MAX_KL_ERROR * responses >= algorithm.kl_horizon:
        yield (
            f"algorithm.kl_horizon is {algorithm.kl_horizon}, but a step has {responses} responses, which could set "
            f"the coefficient to 0 in one step. Set algorithm.kl_horizon above {MAX_KL_ERROR * responses:g}."
        )


def correction_is_valid(config: Config) -> Iterator[str]:
    section, correction, rollout = "algorithm.rollout_correction", config.algorithm.rollout_correction, config.rollout
    if correction.level == "off":
        for option, is_set in (
            ("batch_normalize=true", correction.batch_normalize),
            ("mode=mask", correction.mode == "mask"),
        ):
            if is_set:
                yield (
                    f"{section}.{option} changes importance weights, but {section}.level=off uses none. Set "
                    f"{section}.level=token, or leave {option.partition('=')[0]} at its default."
                )
    off = {
        "level=off": correction.level != "off",
        "rejection=off": correction.rejection != "off",
        "veto_threshold=0": correction.veto_threshold > 0,
    }
    remedy = ", ".join(f"{section}.{option}" for option, is_on in off.items() if is_on)
    if remedy and _differs_in_candidates(config):
        yield (
            f"rollout.top_p is {rollout.top_p:g} and rollout.top_k is {rollout.top_k}, but {section} needs 1 and -1: "
            "the engine's log-probs are over the kept candidates and the actor's over the whole vocabulary, so every "
            "weight would shrink by the mass that was cut off. Set rollout.keep_sampling_mask=true, or rollout.top_p=1 "
            f"rollout.top_k=-1, or turn the correction off: {remedy}."
        )


def _differs_in_candidates(config: Config) -> bool:
    """Return whether the engine normalises log-probs over fewer tokens than the trainer."""
    return config.rollout.cuts_candidates and not config.rollout.keep_sampling_mask


def engine_log_probs_are_enough(config: Config) -> Iterator[str]:
    if not config.actor.use_rollout_log_probs:
        return
    wanted = estimator(config.algorithm.adv_estimator).needs | policy_loss(config.actor.policy_loss).needs
    for name, needs_them in (
        ("algorithm.kl_coef > 0", config.algorithm.kl_coef > 0),
        (
            f"algorithm.adv_estimator={config.algorithm.adv_estimator}",
            bool(wanted & {"old_log_probs", "sum_pi_squared"}),
        ),
        (f"actor.policy_loss={config.actor.policy_loss}", "covariance_rank" in wanted),
        ("algorithm.top_entropy_quantile < 1", config.algorithm.top_entropy_quantile < 1),
        ("algorithm.rollout_correction.batch_normalize=true", config.algorithm.rollout_correction.batch_normalize),
    ):
        if needs_them:
            yield (
                f"actor.use_rollout_log_probs is true, but {name} needs the trainer's own old log-probs. "
                "Set actor.use_rollout_log_probs=false, or change the other."
            )


def covariance_band_is_wide_enough(config: Config) -> Iterator[str]:
    actor = config.actor
    band = actor.clip_cov_rank_high - actor.clip_cov_rank_low
    if actor.policy_loss == "clip_cov" and actor.clip_cov_ratio > band:
        yield (
            f"actor.clip_cov_ratio is {actor.clip_cov_ratio:g} of the tokens, but between actor.clip_cov_rank_low="
            f"{actor.clip_cov_rank_low:g} and actor.clip_cov_rank_high={actor.clip_cov_rank_high:g} there are only "
            f"{band:g}. Lower actor.clip_cov_ratio, or raise actor.clip_cov_rank_high."
        )


def ranks_are_of_the_learnt_rows(config: Config) -> Iterator[str]:
    algorithm, loss = config.algorithm, f"actor.policy_loss={config.actor.policy_loss}"
    ranking = {
        loss: ("covariance_rank" in policy_loss(config.actor.policy_loss).needs, "use another actor.policy_loss"),
        f"algorithm.top_entropy_quantile={algorithm.top_entropy_quantile:g}": (
            algorithm.top_entropy_quantile < 1,
            "set algorithm.top_entropy_quantile=1",
        ),
    }
    for name, is_set in (("mask_overlong", algorithm.mask_overlong), ("pf_ppo", algorithm.pf_ppo != "off")):
        for option, (is_on, remedy) in ranking.items():
            if is_set and is_on:
                yield (
                    f"algorithm.{name} is set, but {option} ranks the tokens of a whole mini-batch, and "
                    f"algorithm.{name} then drops or repeats some of its rows. Leave algorithm.{name} at its default, "
                    f"or {remedy}."
                )


def skipped_rows_have_no_gradient(config: Config) -> Iterator[str]:
    actor = config.actor
    if not actor.skip_zero_advantages:
        return
    for name, has_gradient in (
        ("actor.kl_loss_coef", actor.kl_loss_coef > 0),
        ("actor.rollout_kl_coef", actor.rollout_kl_coef > 0),
        ("actor.entropy_coef", actor.entropy_coef > 0),
        ("algorithm.distill_coef", config.algorithm.distill_coef > 0),
    ):
        if has_gradient:
            yield (
                f"actor.skip_zero_advantages is true, but {name} is above 0, so responses without advantage also "
                f"change the weights. Set actor.skip_zero_advantages=false, or {name}=0."
            )
    if policy_loss(actor.policy_loss).acts_without_advantage:
        yield (
            f"actor.skip_zero_advantages is true, but actor.policy_loss={actor.policy_loss} may change the weights for "
            "responses without advantage. Set actor.skip_zero_advantages=false."
        )


def components_are_named(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if "reward_components" not in estimator(algorithm.adv_estimator).needs:
        if algorithm.reward_components:
            yield (
                f"algorithm.reward_components is {algorithm.reward_components}, but algorithm.adv_estimator="
                f"{algorithm.adv_estimator} reads only the score. Use algorithm.adv_estimator=gdpo, or leave it empty."
            )
        return
    if not algorithm.reward_components:
        yield (
            f"algorithm.reward_components is empty, but algorithm.adv_estimator={algorithm.adv_estimator} learns from "
            "the components that the reward function reports in addition to its score. Set "
            "algorithm.reward_components={name: weight, ...}."
        )
    for name, is_set in (
        ("kl_coef", algorithm.kl_coef > 0),
        ("reward_clip", algorithm.reward_clip > 0),
        ("reward_scale", algorithm.reward_scale != 1),
        ("overlong_buffer_len", algorithm.overlong_buffer_len > 0),
    ):
        if is_set:
            yield (
                f"algorithm.{name} is set, but it changes only the score, and algorithm.adv_estimator="
                f"{algorithm.adv_estimator} reads its components. Leave algorithm.{name} at its default."
            )


def role_baselines_are_read(config: Config) -> Iterator[str]:
    algorithm, default = config.algorithm, AlgorithmConfig()
    if "role_baselines" in estimator(algorithm.adv_estimator).needs:
        if algorithm.kl_coef > 0:
            yield (
                f"algorithm.kl_coef is {algorithm.kl_coef:g}, but algorithm.adv_estimator={algorithm.adv_estimator} "
                "subtracts a baseline of rewards without the KL penalty. Set algorithm.kl_coef=0; for a "
                "KL penalty in the loss, set actor.kl_loss_coef=0.001."
            )
        return
    for name in ("rae_decay", "rae_role_key"):
        value = getattr(algorithm, name)
        if value != getattr(default, name):
            yield (
                f"algorithm.{name} is {value}, but algorithm.adv_estimator={algorithm.adv_estimator} reads no "
                f"baselines of roles. Use algorithm.adv_estimator=rae, or leave algorithm.{name} at its default."
            )


def maxrl_rewards_are_not_negative(config: Config) -> Iterator[str]:
    algorithm = config.algorithm
    if algorithm.adv_estimator != "maxrl":
        return
    for name, is_set, remedy in (
        ("kl_coef", algorithm.kl_coef > 0, "Set algorithm.kl_coef=0, and actor.kl_loss_coef to keep to the reference."),
        ("overlong_buffer_len", algorithm.overlong_buffer_len > 0, "Set algorithm.overlong_buffer_len=0."),
    ):
        if is_set:
            yield (
                f"algorithm.{name} is set and subtracts from rewards, but algorithm.adv_estimator=maxrl divides by the "
                f"group's mean reward and needs rewards of at least 0. {remedy}"
            )


def overlong_buffer_fits(config: Config) -> Iterator[str]:
    buffer, longest = config.algorithm.overlong_buffer_len, config.data.max_response_length
    if buffer > longest:
        yield (
            f"algorithm.overlong_buffer_len is {buffer} tokens, but data.max_response_length is {longest}. Set a "
            f"shorter buffer, e.g. algorithm.overlong_buffer_len={longest // 5}."
        )


def warmup_is_set_once(config: Config) -> Iterator[str]:
    for name, optim in (("actor.optim", config.actor.optim), ("critic.optim", config.critic.optim)):
        if optim.warmup_steps and optim.warmup_frac:
            yield (
                f"{name}.warmup_steps is {optim.warmup_steps} and {name}.warmup_frac is {optim.warmup_frac}, but only "
                "one of them can set the length of the warm-up. Set the other to 0."
            )


def algorithm_warnings(config: Config) -> Iterator[str]:
    """Yield warnings of settings that work but are rarely intended."""
    if config.actor.kl_loss_coef > 0 and config.algorithm.kl_coef > 0:
        yield (
            f"both actor.kl_loss_coef={config.actor.kl_loss_coef:g} and algorithm.kl_coef={config.algorithm.kl_coef:g} "
            "are above 0: the KL to the reference is penalised twice."
        )
    if _differs_in_candidates(config):
        yield (
            f"rollout.top_p={config.rollout.top_p:g}, rollout.top_k={config.rollout.top_k}: the engine's log-probs are "
            "over the kept candidates and the actor's over all, so rollout/log_prob_diff_mean will not be near zero. "
            "Set rollout.keep_sampling_mask=true for log-probs over the same candidates."
        )


ALGORITHM_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    batch_divides_into_mini_batches,
    group_estimators_have_siblings,
    turn_estimators_have_an_environment,
    critic_options_have_a_critic,
    reference_options_have_a_reference,
    adaptive_kl_can_move,
    correction_is_valid,
    engine_log_probs_are_enough,
    covariance_band_is_wide_enough,
    ranks_are_of_the_learnt_rows,
    skipped_rows_have_no_gradient,
    components_are_named,
    role_baselines_are_read,
    maxrl_rewards_are_not_negative,
    overlong_buffer_fits,
    warmup_is_set_once,
)
