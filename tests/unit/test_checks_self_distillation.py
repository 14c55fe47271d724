"""Rules on a teacher that is a version of the policy: what each refuses, and that its remedy works."""

from __future__ import annotations

import inspect

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks import self_distillation as self_distillation_checks
from verl_like.checks.distillation import DISTILLATION_RULES
from verl_like.checks.gpus import Gpus
from verl_like.checks.lora import ref_has_its_own_model
from verl_like.checks.pools import pools_have_a_role
from verl_like.checks.self_distillation import SELF_DISTILLATION_RULES

ON = {"algorithm__distill_coef": 1.0}
TEACHERS = ("base", "self", "ema")


def problems(**changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in (*DISTILLATION_RULES, *SELF_DISTILLATION_RULES) for problem in rule(made)]


def with_teacher(name: str, **changes: object) -> list[str]:
    return problems(**ON, algorithm__distill_teacher=name, **changes)


def test_every_rule_of_the_module_is_in_the_list() -> None:
    own = vars(self_distillation_checks).values()
    rules = [each for each in own if inspect.isfunction(each) and each.__module__ == self_distillation_checks.__name__]
    assert set(rules) == set(SELF_DISTILLATION_RULES)


@pytest.mark.parametrize("loss", ["pg", "jsd"])
@pytest.mark.parametrize("teacher", TEACHERS)
def test_a_version_of_the_policy_needs_no_path(teacher: str, loss: str) -> None:
    options = {"data__privileged_context_key": "hint", "data__max_privileged_context_length": 64}
    assert not with_teacher(teacher, algorithm__distill_loss=loss, **options)
    assert not with_teacher("ema", algorithm__distill_loss=loss, algorithm__distill_ema=0.5)


@pytest.mark.parametrize("teacher", TEACHERS)
def test_another_model_an_episode_and_a_reset_are_refused(teacher: str) -> None:
    assert with_teacher(teacher, ref__path="other") == [
        f"algorithm.distill_teacher is {teacher}, a version of the policy, but ref.path names other models: other. "
        "Leave ref.path empty, or set algorithm.distill_teacher=ref."
    ]
    assert with_teacher(teacher, ref__teachers={"math": "one", "code": "two"}) == [
        f"algorithm.distill_teacher is {teacher}, a version of the policy, but ref.teachers names other models: one, "
        "two. Leave ref.teachers empty, or set algorithm.distill_teacher=ref."
    ]
    [problem] = with_teacher(teacher, ref__reset_every=2)
    assert problem.startswith(f"algorithm.distill_teacher is {teacher}, but ref.reset_every is 2, which would replace")
    assert "Set ref.reset_every=0" in problem
    [problem] = with_teacher(teacher, environment__path="game.py:Game")
    assert problem.startswith(f"algorithm.distill_teacher is {teacher}, whose prompt is the row's prompt with its")
    assert "Leave environment.path and environment.tools empty" in problem


def test_an_average_has_all_weights_and_is_where_the_policy_is() -> None:
    [problem] = with_teacher("ema", model__lora__rank=4)
    assert problem.startswith("algorithm.distill_teacher is ema, but model.lora.rank is 4")
    assert problem.endswith("Set model.lora.rank=0, or algorithm.distill_teacher=base or self.")
    assert not with_teacher("base", model__lora__rank=4) and not with_teacher("self", model__lora__rank=4)
    placement = {"cluster__placement": {"trainer": 1, "ref": 1}}
    [problem] = with_teacher("ema", **placement)
    assert problem.endswith("Leave the pool ref out, or set algorithm.distill_teacher=base.")
    assert not with_teacher("base", **placement)


def test_a_policy_that_is_its_own_teacher_has_no_pool_and_no_options_of_a_reference() -> None:
    made = config(**ON, algorithm__distill_teacher="self", cluster__placement={"trainer": 1, "ref": 1})
    [problem] = pools_have_a_role(made)
    assert "the run cannot use it: its reference is the actor itself" in problem
    made = config(**ON, algorithm__distill_teacher="self", ref__max_tokens_per_micro_batch="100")
    assert list(ref_has_its_own_model(made, Gpus(0))) == [
        "ref.max_tokens_per_micro_batch would have no effect: with algorithm.distill_teacher=self the reference is the "
        "actor. Leave ref.max_tokens_per_micro_batch at the default and set actor.max_tokens_per_micro_batch."
    ]


def test_pieces_of_sequences_with_other_tokens_are_refused() -> None:
    sizes = {"actor__sequence_parallel_size": 2, "ref__sequence_parallel_size": 2}
    [problem] = with_teacher("base", algorithm__distill_loss="jsd", **sizes)
    assert problem.endswith("Set actor.sequence_parallel_size=1, or algorithm.distill_loss=pg.")
    assert not with_teacher("base", **sizes)
    [problem] = with_teacher("self", algorithm__distill_loss="jsd", actor__sequence_parallel_size=2)
    assert problem.endswith("Set actor.sequence_parallel_size=1, or algorithm.distill_loss=pg.")


def test_options_that_nothing_reads_are_refused() -> None:
    assert problems(algorithm__distill_teacher="base") == [
        "algorithm.distill_teacher is base, but algorithm.distill_coef is 0, so nothing is distilled. Set "
        "algorithm.distill_coef=1, or leave algorithm.distill_teacher at its default."
    ]
    [problem] = with_teacher("base", algorithm__distill_ema=0.5)
    assert problem.startswith(
        "algorithm.distill_ema is 0.5, but algorithm.distill_teacher is base, which is no average"
    )
    [problem] = problems(data__teacher_prompt="{{ content }}{{ privileged_context }}")
    assert problem.startswith("data.teacher_prompt is set, but no teacher reads a privileged context")
    [problem] = problems(**ON, ref__path="t", data__teacher_prompt="x", data__privileged_context_key="hint")
    assert problem.startswith("data.privileged_context_key, data.teacher_prompt are set")
    assert problem.endswith("or leave data.privileged_context_key, data.teacher_prompt at their defaults.")
