"""Every rule on algorithms: the message says what was found and what would work, and what it offers does."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from verl_like.checks import algorithm as algorithm_checks
from verl_like.checks.algorithm import ALGORITHM_RULES, algorithm_warnings
from verl_like.config.compose import compose
from verl_like.config.folders import conf_dir
from verl_like.config.options import wrong_values
from verl_like.config.problems import refuse
from verl_like.config.schema import Config

PRESETS = sorted(path.stem for path in (conf_dir() / "algorithm").glob("*.yaml"))
_GAME = ["environment.path=game.py:Game"]
NEEDED = {"gigpo": _GAME, "turn_credit": _GAME}  # what a preset leaves to the user
COMPONENTS = {"algorithm__adv_estimator": "gdpo", "algorithm__reward_components": {"correct": 1.0}}


def config(**changes: object) -> Config:
    """Return the default configuration with these changes (dots as double underscores)."""
    made = Config()
    for name, value in changes.items():
        *parents, leaf = name.split("__")
        section: object = made
        for parent in parents:
            section = getattr(section, parent)
        assert hasattr(section, leaf), name
        setattr(section, leaf, value)
    return made


def check(made: Config) -> None:
    assert not wrong_values(made)
    refuse(problem for rule in ALGORITHM_RULES for problem in rule(made))


def refusal(**changes: object) -> str:
    with pytest.raises(ValueError) as caught:
        check(config(**changes))
    return str(caught.value)


def passes(**changes: object) -> bool:
    """True, or the error of what is refused."""
    check(config(**changes))
    return True


def test_the_defaults_pass_without_a_warning() -> None:
    assert passes()
    assert not list(algorithm_warnings(config()))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_passes(preset: str) -> None:
    check(compose(None, [f"algorithm={preset}", *NEEDED.get(preset, [])]).config)


def test_every_rule_of_the_module_is_in_the_list() -> None:
    rules = [
        entry
        for entry in vars(algorithm_checks).values()
        if inspect.isfunction(entry)
        and list(inspect.signature(entry).parameters) == ["config"]
        and entry.__annotations__["return"] == "Iterator[str]"
    ]
    apart = {algorithm_checks.algorithms_exist, algorithm_checks.algorithm_warnings}
    assert set(rules) == {*ALGORITHM_RULES, *apart}


# --- groups


def test_one_response_per_prompt_with_a_group_estimator_is_refused() -> None:
    assert refusal(rollout__n=1) == (
        "rollout.n is 1, but algorithm.adv_estimator=grpo compares siblings and needs at least 2. "
        "Set rollout.n=8, or use algorithm.adv_estimator=gae."
    )
    assert passes(rollout__n=1, algorithm__adv_estimator="gae")
    assert passes(rollout__n=2)


def test_one_response_per_prompt_with_filtered_groups_is_refused() -> None:
    text = refusal(rollout__n=1, algorithm__adv_estimator="remax", algorithm__filter_groups=True)
    assert text == (
        "rollout.n is 1, but algorithm.filter_groups keeps groups whose scores differ and needs at least 2 responses "
        "to a "
        "prompt. Set rollout.n=8, or algorithm.filter_groups=false."
    )
    assert passes(rollout__n=8, algorithm__adv_estimator="remax", algorithm__filter_groups=True)


# --- turns


@pytest.mark.parametrize("name", ["gigpo", "turn_credit", "own"])
def test_an_estimator_of_turns_without_an_environment_is_refused(name: str, tmp_path: Path) -> None:
    if name == "own":
        (file := tmp_path / "own.py").write_text(
            "from verl_like.algorithms.advantages import Estimator\n"
            "mine = Estimator(fn=lambda inputs, config: None, needs=frozenset({'turns'}))\n"
        )
        name = f"{file}:mine"
    assert refusal(algorithm__adv_estimator=name) == (
        f"environment.path and environment.tools are empty, but algorithm.adv_estimator={name} needs the turns of "
        "episodes, which only an environment gives. Set one of them, or use algorithm.adv_estimator=grpo."
    )
    assert passes(algorithm__adv_estimator=name, environment__path="game.py:Game")
    assert passes(algorithm__adv_estimator=name, environment__tools="tools.py")
    assert passes(algorithm__adv_estimator="grpo")


# --- maxrl


@pytest.mark.parametrize(("option", "value"), [("kl_coef", 0.01), ("overlong_buffer_len", 8)])
def test_maxrl_with_what_makes_rewards_negative_is_refused(option: str, value: object) -> None:
    text = refusal(algorithm__adv_estimator="maxrl", **{f"algorithm__{option}": value})
    assert text.startswith(
        f"algorithm.{option} is set and subtracts from rewards, but algorithm.adv_estimator=maxrl divides by the "
        f"group's mean reward and needs rewards of at least 0. Set algorithm.{option}=0"
    )
    assert passes(algorithm__adv_estimator="maxrl") and passes(**{f"algorithm__{option}": value})


# --- critic and reference


@pytest.mark.parametrize(("option", "value"), [("warmup_steps", 3), ("path", "model")])
def test_critic_options_without_a_critic_are_refused(option: str, value: object) -> None:
    text = refusal(**{f"critic__{option}": value})
    assert text.startswith(
        f"critic.{option} is set, but algorithm.adv_estimator=grpo needs no critic, so none exists. Leave "
        f"critic.{option} "
    )
    assert passes(**{f"critic__{option}": value}, algorithm__adv_estimator="gae")


def test_a_reference_that_nothing_uses_is_refused() -> None:
    assert refusal(ref__path="model") == (
        "ref.path is model, but no KL term has a coefficient above 0, so no reference exists. "
        "Set actor.kl_loss_coef, algorithm.kl_coef or algorithm.distill_coef, or leave ref.path empty."
    )
    assert passes(ref__path="model", actor__kl_loss_coef=0.01)
    assert passes(ref__path="model", algorithm__kl_coef=0.01)


USERS_OWN = """
from verl_like.algorithms.advantages import Estimator
from verl_like.algorithms.policy_losses import PolicyLoss

advantages = Estimator(fn=print, needs=frozenset({"ref_log_probs"}))
loss = PolicyLoss(fn=print, needs=frozenset({"ref_log_probs"}))
"""


def test_a_reference_that_the_users_own_estimator_reads_passes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN)
    assert passes(ref__path="model", algorithm__adv_estimator=f"{tmp_path}/mine.py:advantages")


def test_a_reference_that_the_users_own_loss_reads_passes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_OWN)
    assert passes(ref__path="model", actor__policy_loss=f"{tmp_path}/mine.py:loss")


def test_two_kl_terms_are_warned_about() -> None:
    changes = {"actor__kl_loss_coef": 0.02, "algorithm__kl_coef": 0.01}
    assert passes(**changes)
    assert list(algorithm_warnings(config(**changes))) == [
        "both actor.kl_loss_coef=0.02 and algorithm.kl_coef=0.01 are above 0: the KL to the reference is penalised "
        "twice."
    ]


# --- adaptive KL


def test_an_adaptive_coefficient_that_starts_at_zero_is_refused() -> None:
    assert refusal(algorithm__kl_target=0.1) == (
        "algorithm.kl_target is 0.1, but algorithm.kl_coef is 0, and a coefficient of 0 stays 0. "
        "Set algorithm.kl_coef=0.001 to start from, or algorithm.kl_target=0."
    )
    assert passes(algorithm__kl_target=0.1, algorithm__kl_coef=0.001)


def test_a_horizon_that_one_step_could_use_up_is_refused() -> None:
    """A step of 32 x 8 responses may take 0.2 x 256 / horizon off the coefficient."""
    adaptive = {"algorithm__kl_target": 0.1, "algorithm__kl_coef": 0.01}
    assert refusal(**adaptive, algorithm__kl_horizon=51) == (
        "algorithm.kl_horizon is 51, but a step has 256 responses, which could set the coefficient to 0 in one step. "
        "Set algorithm.kl_horizon above 51.2."
    )
    assert passes(**adaptive, algorithm__kl_horizon=52)
    assert passes(algorithm__kl_coef=0.01, algorithm__kl_horizon=1), "a fixed coefficient has no horizon"


# --- rollout correction


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("top_p", 0.9, "rollout.top_p is 0.9 and rollout.top_k is -1"),
        ("top_k", 20, "rollout.top_p is 1 and rollout.top_k is 20"),
    ],
)
def test_truncated_training_sampling_cannot_be_corrected(option: str, value: float, found: str) -> None:
    text = refusal(**{f"rollout__{option}": value})
    assert text.startswith(f"{found}, but algorithm.rollout_correction needs 1 and -1: ")
    assert text.endswith(
        "Set rollout.keep_sampling_mask=true, or rollout.top_p=1 rollout.top_k=-1, or turn the correction off: "
        "algorithm.rollout_correction.level=off."
    )
    kept = {f"rollout__{option}": value, "rollout__keep_sampling_mask": True}
    assert passes(**kept) and not list(algorithm_warnings(config(**kept)))


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [("top_p", 0.9, "rollout.top_p=0.9, rollout.top_k=-1"), ("top_k", 20, "rollout.top_p=1, rollout.top_k=20")],
)
def test_truncated_training_sampling_without_correction_is_warned_about(option: str, value: float, found: str) -> None:
    changes = {f"rollout__{option}": value, "algorithm__rollout_correction__level": "off"}
    assert passes(**changes)
    (warning,) = algorithm_warnings(config(**changes))
    assert found in warning and "rollout/log_prob_diff_mean will not be near zero" in warning


def test_the_remedy_names_every_part_of_the_correction_that_is_on() -> None:
    text = refusal(
        rollout__top_p=0.9,
        algorithm__rollout_correction__level="off",
        algorithm__rollout_correction__rejection="token",
        algorithm__rollout_correction__veto_threshold=1e-4,
    )
    assert text.endswith(
        "turn the correction off: algorithm.rollout_correction.rejection=off, "
        "algorithm.rollout_correction.veto_threshold=0."
    )


@pytest.mark.parametrize(
    ("option", "value", "shown"), [("batch_normalize", True, "batch_normalize=true"), ("mode", "mask", "mode=mask")]
)
def test_options_of_weights_without_weights_are_refused(option: str, value: object, shown: str) -> None:
    text = refusal(algorithm__rollout_correction__level="off", **{f"algorithm__rollout_correction__{option}": value})
    section = "algorithm.rollout_correction"
    assert text == (
        f"{section}.{shown} changes importance weights, but {section}.level=off uses none. Set {section}.level=token, "
        f"or leave "
        f"{option} at its default."
    )
    assert passes(algorithm__rollout_correction__level="token", **{f"algorithm__rollout_correction__{option}": value})


# --- the engine's log-probs for the old policy's


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"algorithm__kl_coef": 0.01}, "algorithm.kl_coef > 0"),
        ({"algorithm__adv_estimator": "optimal_token_baseline"}, "algorithm.adv_estimator=optimal_token_baseline"),
        ({"actor__policy_loss": "clip_cov"}, "actor.policy_loss=clip_cov"),
        ({"actor__policy_loss": "kl_cov"}, "actor.policy_loss=kl_cov"),
        ({"algorithm__top_entropy_quantile": 0.2}, "algorithm.top_entropy_quantile < 1"),
        ({"algorithm__rollout_correction__batch_normalize": True}, "algorithm.rollout_correction.batch_normalize=true"),
    ],
)
def test_the_engines_log_probs_do_not_do_for_what_needs_the_trainers(changes: dict[str, object], named: str) -> None:
    assert refusal(actor__use_rollout_log_probs=True, **changes) == (
        f"actor.use_rollout_log_probs is true, but {named} needs the trainer's own old log-probs. "
        "Set actor.use_rollout_log_probs=false, or change the other."
    )
    assert passes(actor__use_rollout_log_probs=False, **changes)


def test_the_engines_log_probs_do_for_the_rest() -> None:
    assert passes(actor__use_rollout_log_probs=True)
    assert passes(actor__use_rollout_log_probs=True, actor__policy_loss="gspo", actor__kl_loss_coef=0.1)


# --- policy losses


def test_a_covariance_band_that_is_narrower_than_its_share_is_refused() -> None:
    text = refusal(actor__policy_loss="clip_cov", actor__clip_cov_ratio=0.05)
    assert text == (
        "actor.clip_cov_ratio is 0.05 of the tokens, but between actor.clip_cov_rank_low=0.0002 and "
        "actor.clip_cov_rank_high=0.02 there are only 0.0198. Lower actor.clip_cov_ratio, or raise "
        "actor.clip_cov_rank_high."
    )
    assert passes(actor__policy_loss="clip_cov", actor__clip_cov_ratio=0.01)
    assert passes(actor__policy_loss="clip_cov", actor__clip_cov_ratio=0.05, actor__clip_cov_rank_high=0.06)


@pytest.mark.parametrize("option", ["kl_loss_coef", "rollout_kl_coef", "entropy_coef"])
def test_rows_without_advantage_are_not_skipped_where_another_term_moves_the_weights(option: str) -> None:
    assert refusal(actor__skip_zero_advantages=True, **{f"actor__{option}": 0.01}) == (
        f"actor.skip_zero_advantages is true, but actor.{option} is above 0, so responses without advantage also "
        f"change the weights. Set actor.skip_zero_advantages=false, or actor.{option}=0."
    )
    assert passes(actor__skip_zero_advantages=False, **{f"actor__{option}": 0.01})
    assert passes(actor__skip_zero_advantages=True)


@pytest.mark.parametrize("name", ["kl_cov", "dro"])
def test_rows_without_advantage_are_not_skipped_where_the_loss_acts_on_them(name: str) -> None:
    assert refusal(actor__skip_zero_advantages=True, actor__policy_loss=name) == (
        f"actor.skip_zero_advantages is true, but actor.policy_loss={name} may change the weights for responses "
        "without advantage. Set actor.skip_zero_advantages=false."
    )


def test_rows_without_advantage_are_not_skipped_for_a_loss_of_which_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loss(inputs, config): ...\n")
    assert "may change the weights" in refusal(
        actor__skip_zero_advantages=True, actor__policy_loss=f"{tmp_path}/mine.py:loss"
    )


# --- rewards


def test_components_that_nothing_reads_are_refused() -> None:
    assert refusal(algorithm__reward_components={"format": 0.5}) == (
        "algorithm.reward_components is {'format': 0.5}, but algorithm.adv_estimator=grpo reads only the score. "
        "Use algorithm.adv_estimator=gdpo, or leave it empty."
    )
    assert passes(**COMPONENTS)


@pytest.mark.parametrize(("option", "value"), [("rae_decay", 0.9), ("rae_role_key", "player")])
def test_options_of_role_baselines_that_nothing_reads_are_refused(option: str, value: object) -> None:
    assert refusal(**{f"algorithm__{option}": value}) == (
        f"algorithm.{option} is {value}, but algorithm.adv_estimator=grpo reads no baselines of roles. Use "
        f"algorithm.adv_estimator=rae, or leave algorithm.{option} at its default."
    )
    assert passes(algorithm__adv_estimator="rae", rollout__n=1, **{f"algorithm__{option}": value})


def test_a_kl_in_rewards_whose_role_baselines_lack_it_is_refused() -> None:
    assert refusal(algorithm__adv_estimator="rae", algorithm__kl_coef=0.1) == (
        "algorithm.kl_coef is 0.1, but algorithm.adv_estimator=rae subtracts a baseline of rewards without the KL "
        "penalty. Set algorithm.kl_coef=0; for a KL penalty in the loss, set actor.kl_loss_coef=0.001."
    )
    assert passes(algorithm__adv_estimator="rae", actor__kl_loss_coef=0.1)


def test_an_estimator_of_components_without_any_is_refused() -> None:
    text = refusal(algorithm__adv_estimator="gdpo")
    assert text.startswith(
        "algorithm.reward_components is empty, but algorithm.adv_estimator=gdpo learns from the components"
    )
    assert text.endswith("Set algorithm.reward_components={name: weight, ...}.")


@pytest.mark.parametrize(
    ("option", "value"), [("kl_coef", 0.01), ("reward_clip", 1.0), ("reward_scale", 2.0), ("overlong_buffer_len", 64)]
)
def test_what_changes_the_score_is_refused_where_its_parts_are_read(option: str, value: float) -> None:
    assert refusal(**COMPONENTS, **{f"algorithm__{option}": value}) == (
        f"algorithm.{option} is set, but it changes only the score, and algorithm.adv_estimator=gdpo reads its "
        f"components. Leave algorithm.{option} at its default."
    )
    assert passes(**{f"algorithm__{option}": value})


def test_an_over_long_buffer_as_long_as_the_response_is_refused() -> None:
    assert refusal(algorithm__overlong_buffer_len=513) == (
        "algorithm.overlong_buffer_len is 513 tokens, but data.max_response_length is 512. Set a shorter buffer, "
        "e.g. algorithm.overlong_buffer_len=102."
    )
    assert passes(algorithm__overlong_buffer_len=512)  # then each token costs, as in scripts of verl's
    assert passes(algorithm__overlong_buffer_len=102)


@pytest.mark.parametrize("overrides", [{"algorithm__mask_overlong": True}, {"algorithm__pf_ppo": "pow"}])
def test_rows_that_come_and_go_are_refused_where_a_mini_batchs_tokens_are_ranked(overrides: dict[str, object]) -> None:
    [name] = [name.replace("__", ".") for name in overrides]
    assert refusal(actor__policy_loss="clip_cov", **overrides) == (
        f"{name} is set, but actor.policy_loss=clip_cov ranks the tokens of a whole mini-batch, and {name} then drops "
        f"or repeats some of its rows. Leave {name} at its default, or use another actor.policy_loss."
    )
    assert passes(**overrides) and passes(actor__policy_loss="clip_cov")
    assert refusal(algorithm__top_entropy_quantile=0.2, **overrides) == (
        f"{name} is set, but algorithm.top_entropy_quantile=0.2 ranks the tokens of a whole mini-batch, and {name} "
        f"then drops or repeats some of its rows. Leave {name} at its default, or set "
        "algorithm.top_entropy_quantile=1."
    )
    assert passes(algorithm__top_entropy_quantile=0.2)
