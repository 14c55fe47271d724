"""Rules on distillation: what each refuses, and that its remedy works."""

from __future__ import annotations

import inspect

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks import distillation as distillation_checks
from verl_like.checks.distillation import DISTILLATION_RULES

ON = {"algorithm__distill_coef": 1.0, "ref__path": "teacher"}
JSD = {**ON, "algorithm__distill_loss": "jsd"}
SEVERAL = {"algorithm__distill_coef": 1.0, "ref__teachers": {"math": "a", "code": "b"}}


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in DISTILLATION_RULES for problem in rule(made)]


def test_every_rule_of_the_module_is_in_the_list() -> None:
    own = vars(distillation_checks).values()
    rules = [each for each in own if inspect.isfunction(each) and each.__module__ == distillation_checks.__name__]
    assert set(rules) == set(DISTILLATION_RULES)


def test_a_run_with_a_teacher_and_one_without_distillation_pass() -> None:
    assert not problems()
    assert not problems(**ON)
    assert not problems(**JSD, algorithm__distill_beta=1.0)
    assert not problems(**ON, algorithm__adv_estimator="none")
    assert not problems(**SEVERAL, algorithm__distill_loss="jsd")
    assert not problems(**SEVERAL, data__teacher_key="subject", cluster__placement={"trainer": 1, "ref": 1})


def test_distillation_without_a_teacher_is_refused() -> None:
    assert problems(algorithm__distill_coef=1.0) == [
        "algorithm.distill_coef is 1, but ref.path and ref.teachers are empty, so there is no teacher. Set ref.path to "
        "the teacher's folder or hub name, algorithm.distill_teacher=base, or algorithm.distill_coef=0."
    ]


def test_teachers_that_nothing_reads_are_refused() -> None:
    assert problems(ref__teachers={"math": "a", "code": "b"}) == [
        "ref.teachers names math, code, but algorithm.distill_coef is 0, so nothing is distilled. Set "
        "algorithm.distill_coef=1, or leave ref.teachers empty."
    ]
    assert problems(**SEVERAL, ref__path="c") == [
        "ref.teachers names math, code, but ref.path is c: expected either several teachers or one. Leave ref.path "
        "empty, or ref.teachers."
    ]
    assert problems(**ON, data__teacher_key="subject") == [
        "data.teacher_key is subject, but ref.teachers is empty, so nothing reads it. Set ref.teachers={name: model, "
        "...}, or leave data.teacher_key at its default."
    ]


@pytest.mark.parametrize("teachers", [ON, SEVERAL])
@pytest.mark.parametrize("option", ["actor.kl_loss_coef", "algorithm.kl_coef"])
def test_a_kl_to_the_teacher_is_refused(option: str, teachers: dict[str, object]) -> None:
    assert problems(**teachers, **{option.replace(".", "__"): 0.01}) == [
        f"{option} compares the policy with the reference, but with algorithm.distill_coef=1 the reference is the "
        f"teacher. Set {option}=0, or algorithm.distill_coef=0."
    ]


def test_a_policy_loss_that_reads_the_reference_is_refused() -> None:
    [problem] = problems(**ON, actor__policy_loss="a_star_po")
    assert problem.startswith("actor.policy_loss=a_star_po compares the policy with the reference")


def test_options_that_nothing_reads_are_refused() -> None:
    assert problems(algorithm__distill_loss="jsd") == [
        "algorithm.distill_loss is jsd, but algorithm.distill_coef is 0, so nothing is distilled. Set "
        "algorithm.distill_coef=1, or leave algorithm.distill_loss at its default."
    ]
    assert problems(**ON, algorithm__distill_beta=0.9) == [
        "algorithm.distill_beta is 0.9, but only algorithm.distill_loss=jsd with algorithm.distill_coef above 0 reads "
        "it. Set these, or leave algorithm.distill_beta at its default."
    ]


def test_a_teacher_elsewhere_cannot_take_part_in_updates() -> None:
    assert problems(**JSD, cluster__placement={"trainer": 1, "ref": 1}) == [
        "algorithm.distill_loss is jsd, which runs the teacher in the policy's updates, but cluster.placement gives it "
        "the workers of the pool ref. Leave this pool out, or set algorithm.distill_loss=pg."
    ]
    assert not problems(**ON, cluster__placement={"trainer": 1, "ref": 1})


def test_the_teacher_shares_sequences_as_the_policy_does() -> None:
    [problem] = problems(**JSD, actor__sequence_parallel_size=2)
    assert problem.endswith("Set ref.sequence_parallel_size=2.")
    assert not problems(**JSD, actor__sequence_parallel_size=2, ref__sequence_parallel_size=2)


def test_a_policy_without_anything_to_learn_from_is_refused() -> None:
    assert problems(algorithm__adv_estimator="none") == [
        "algorithm.adv_estimator is none, which gives no response an advantage, and algorithm.distill_coef is 0, so "
        "the policy has nothing to learn from. Set algorithm.distill_coef=1, or algorithm.adv_estimator=grpo."
    ]


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_ranks_without_the_teachers_term_are_refused(name: str) -> None:
    [problem] = problems(**ON, actor__policy_loss=name)
    assert problem.startswith(f"actor.policy_loss={name} ranks tokens by their advantages, to which")
    assert not problems(**JSD, actor__policy_loss=name)


@pytest.mark.parametrize(
    ("option", "value", "default"),
    [
        ("algorithm.filter_groups", True, "false"),
        ("algorithm.pf_ppo", "pow", "off"),
        ("algorithm.top_entropy_quantile", 0.2, "1"),
        ("actor.off_policy_mask_threshold", 0.5, "0"),
    ],
)
def test_a_selection_by_rewards_is_refused_where_none_are_learnt(option: str, value: object, default: str) -> None:
    [problem] = problems(**JSD, algorithm__adv_estimator="none", **{option.replace(".", "__"): value})
    assert problem.startswith(f"{option} is set, but it selects") and problem.endswith(f"Set {option}={default}.")
    assert not problems(**JSD, **{option.replace(".", "__"): value})
