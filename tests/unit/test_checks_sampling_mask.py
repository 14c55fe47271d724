"""Rules on rollout.keep_sampling_mask: what each refuses, and that its remedy works."""

from __future__ import annotations

import pytest

from tests.unit.test_checks_algorithm import config
from verl_like.checks.gpus import Gpus
from verl_like.checks.rules import check_devices
from verl_like.checks.sampling_mask import SAMPLING_MASK_RULES
from verl_like.config.problems import Refused

KEPT = {"rollout__keep_sampling_mask": True, "rollout__top_p": 0.9}
ON_GPU = {**KEPT, "rollout__top_k": 256, "rollout__val__top_k": 256}
NEEDS = "with rollout.keep_sampling_mask=true vLLM on GPUs needs"
OFF = "or set rollout.keep_sampling_mask=false."


def problems(num_gpus: int | None, **changes: object) -> list[str]:
    made = config(**changes)
    return [problem for rule in SAMPLING_MASK_RULES for problem in rule(made, Gpus(num_gpus))]


def test_the_defaults_and_top_p_or_top_k_pass() -> None:
    assert not problems(0) and not problems(8)
    assert not problems(0, **KEPT)
    assert not problems(0, rollout__keep_sampling_mask=True, rollout__top_k=20)
    assert not problems(8, **ON_GPU)
    assert not problems(8, **KEPT, rollout__backend="hf")
    assert not problems(None, **KEPT), "the cluster may have no GPUs"


def test_a_mask_of_the_whole_vocabulary_is_refused() -> None:
    assert problems(0, rollout__keep_sampling_mask=True) == [
        "rollout.keep_sampling_mask is true, but rollout.top_p is 1 and rollout.top_k is -1, which keep the whole "
        f"vocabulary. Set rollout.top_p below 1 or rollout.top_k above 0, {OFF}"
    ]


def test_an_environment_is_refused() -> None:
    assert problems(0, **KEPT, environment__tools="tools.py") == [
        "rollout.keep_sampling_mask is true, but episodes with an environment (environment.path='', "
        "environment.tools='tools.py') do not record the tokens that the engine kept. Leave both empty, "
        f"{OFF}"
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"rollout__top_k": -1},
            f"rollout.top_k is -1, but {NEEDS} a limit on the tokens that it reports per position. Set "
            f"rollout.top_k=256, {OFF}",
        ),
        (
            {"rollout__val__top_k": -1},
            f"rollout.val.top_k is -1, but {NEEDS} a limit on the tokens that it reports per position. Set "
            f"rollout.val.top_k=256, {OFF}",
        ),
        (
            {"rollout__val__temperature": 0.0},
            f"rollout.val.temperature is 0, but {NEEDS} one above 0. Set rollout.val.temperature=1, {OFF}",
        ),
        (
            {"algorithm__adv_estimator": "remax"},
            "algorithm.adv_estimator is remax, which draws a greedy response to each prompt, but "
            f"{NEEDS} a temperature above 0. Use another algorithm.adv_estimator, {OFF}",
        ),
    ],
    ids=["top_k", "val.top_k", "val.temperature", "remax"],
)
def test_requests_of_which_vllm_reports_no_mask_on_gpus_are_refused(changes: dict[str, object], problem: str) -> None:
    validating = {**ON_GPU, "data__val_files": ["val.parquet"], **changes}
    assert problems(8, **validating) == [problem]
    assert not problems(0, **validating)
    is_of_validation = any(name.startswith("rollout__val") for name in changes)
    assert bool(problems(8, **{**ON_GPU, **changes})) != is_of_validation


def test_the_gpus_of_a_joined_cluster_are_checked_when_they_are_known() -> None:
    made = config(**{**ON_GPU, "rollout__top_k": -1})
    with pytest.raises(Refused, match=r"rollout.top_k is -1, but with rollout.keep_sampling_mask=true vLLM on GPUs"):
        check_devices(made, world_size=8, device="cuda", cores=8)
