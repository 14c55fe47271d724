"""Rules on pools of workers and on schedules: each names what was found, what is expected and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from verl_like.checks.cluster import ranks_problem
from verl_like.checks.gpus import Gpus
from verl_like.checks.pools import POOL_RULES, pool_ranks, pool_sizes, pools_have_a_role
from verl_like.checks.schedule import SCHEDULE_RULES, schedule_warnings
from verl_like.config.compose import compose
from verl_like.config.schema import Config

PLACED = "cluster.placement={trainer: 1, rollout: 1}"
ASYNC = ("trainer=async", PLACED)


def config_of(*words: str) -> Config:
    return compose(None, list(words)).config


def problems(*words: str) -> list[str]:
    return [problem for rule in (*SCHEDULE_RULES, pools_have_a_role) for problem in rule(config_of(*words))]


def pool_problems(*words: str, gpus: int | None = 8) -> list[str]:
    return [problem for rule in POOL_RULES for problem in rule(config_of(*words), Gpus(gpus))]


def test_the_presets_are_accepted_with_a_placement() -> None:
    assert problems(*ASYNC) == problems("trainer=one_step_off", PLACED) == problems() == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("trainer=async",), "has no pool rollout, so that engines and training share workers"),
        (("trainer=one_step_off", PLACED, "trainer.max_staleness=0"), "leaves nothing to generate while the policy"),
        ((*ASYNC, "trainer.pipeline_depth=3"), "trainer.max_staleness=1 allows 2 batches in flight"),
        (("trainer.max_staleness=2",), "trainer.schedule=sync learns from the newest weights alone"),
        (("trainer.pipeline_depth=2",), "leave trainer.pipeline_depth at 0"),
        (("rollout.on_sync=wait",), "no request runs at a sync"),
        (("rollout.max_replacements=1",), "a lost engine is a lost trainer, too"),
        (
            ("trainer=async", "algorithm=ppo", "cluster.placement={trainer: 1, critic: 1}"),
            "cluster.placement has no pool rollout",
        ),
        (("cluster.placement={trainer: 1, ref: 1}",), "it has no reference in other workers. Leave out"),
        (
            ("cluster.placement={trainer: 1, ref: 1}", "actor.kl_loss_coef=0.1", "model.lora.rank=4"),
            "its reference is the actor without its adapters. Leave out the pool.",
        ),
        (("cluster.placement={trainer: 1, critic: 1}",), "but the run has no critic. Leave out the pool."),
        ((*ASYNC, "algorithm.filter_groups=true"), "which trainer.schedule=async does not do yet"),
        ((*ASYNC, "actor.policy_loss=gpg"), "actor.policy_loss=gpg has no ratio"),
        ((*ASYNC, "actor.policy_loss=reinforce"), "Set actor.policy_loss=ppo, or trainer.schedule=sync"),
        ((*ASYNC, "trainer.replay_schedule=/nowhere/schedule.jsonl"), "does not exist. Give the schedule.jsonl of"),
        (("trainer.replay_schedule=a",), "trainer.schedule=sync repeats without a record"),
    ],
)
def test_a_schedule_that_cannot_work_is_refused_with_a_remedy(words: tuple[str, ...], found: str) -> None:
    [problem] = problems(*words)
    assert found in problem


def test_a_schedule_with_environments_cannot_be_repeated(tmp_path: Path) -> None:
    record = tmp_path / "schedule.jsonl"
    record.write_text("")
    assert problems(*ASYNC, f"trainer.replay_schedule={record}") == []
    [problem] = problems(*ASYNC, f"trainer.replay_schedule={record}", "environment.path=game.py:Game")
    assert "answers of environments arrive at other times" in problem


def test_losses_without_a_ratio_are_allowed_without_staleness() -> None:
    assert problems(*ASYNC, "actor.policy_loss=gpg", "trainer.max_staleness=0") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("actor.policy_loss=kl_cov",), "does not clip the ratio"),
        (
            ("actor.use_rollout_log_probs=false", "algorithm.rollout_correction.level=off"),
            "not with the one that sampled",
        ),
    ],
)
def test_settings_that_are_rarely_intended_give_a_warning(words: tuple[str, ...], found: str) -> None:
    [warning] = schedule_warnings(config_of(*ASYNC, *words))
    assert found in warning
    assert list(schedule_warnings(config_of(*ASYNC))) == list(schedule_warnings(config_of(*words))) == []


@pytest.mark.parametrize(
    ("placement", "sizes"),
    [
        ("{trainer: 4, rollout: 4}", {"trainer": 4, "rollout": 4}),
        ("{trainer: 0.25, rollout: 0.75}", {"trainer": 2, "rollout": 6}),
        ("{trainer: 0.25, rollout: 4, ref: 0.25}", {"trainer": 2, "rollout": 4, "ref": 2}),
        ("{trainer: 6, critic: 2}", {"trainer": 6, "critic": 2}),
    ],
)
def test_pools_are_numbers_or_fractions_of_all_workers(placement: str, sizes: dict[str, int]) -> None:
    config = config_of(f"cluster.placement={placement}")
    assert pool_sizes(config, 8) == sizes
    assert all(pool_ranks(config, name, 8) == size for name, size in sizes.items())
    shared = {"rollout", "ref", "critic"} - sizes.keys()
    assert all(pool_ranks(config, name, 8) == sizes["trainer"] for name in shared)


def test_without_a_placement_all_workers_train_and_generate() -> None:
    assert pool_ranks(Config(), "trainer", 8) == pool_ranks(Config(), "rollout", 8) == 8


@pytest.mark.parametrize(
    ("words", "gpus", "found"),
    [
        (
            ("cluster.placement={trainer: 4, engines: 4}",),
            8,
            "names engines; expected some of trainer, rollout, ref, c",
        ),
        (("cluster.placement={trainer: 4, reward_model: 4}",), 8, "by reward.model.placement=own"),
        (("cluster.placement={rollout: 4}",), 8, "has no pool trainer, but a policy needs workers that train it"),
        (("cluster.placement={trainer: 4, rollout: 2}", "cluster.workers_per_node=8"), 8, "of 8 workers"),
        (("cluster.placement={trainer: 0.01, rollout: 0.99}",), 8, "at least one worker per pool"),
        (
            ("cluster.placement={trainer: 12, rollout: 4}", "cluster.num_nodes=2", "cluster.address=auto"),
            16,
            "neither at most the 8 of a node nor a multiple of it",
        ),
    ],
)
def test_pools_that_do_not_fit_are_refused_with_a_remedy(words: tuple[str, ...], gpus: int, found: str) -> None:
    assert found in " ".join(pool_problems(*words, gpus=gpus))


def test_each_model_is_sharded_over_the_workers_of_its_pool() -> None:
    words = ("cluster.placement={trainer: 2, critic: 6}", "algorithm=ppo", "critic.fsdp.shard_size=4")
    [problem] = ranks_problem(config_of(*words), per_node=8)
    assert "critic.fsdp.shard_size is 4, which does not divide the 6 workers" in problem
    assert not list(ranks_problem(config_of(*words[1:]), per_node=8))


def test_the_number_of_workers_is_the_sum_of_the_pools() -> None:
    cluster: Any = config_of("cluster.placement={trainer: 2, rollout: 6}").cluster
    assert cluster.wanted_per_node == 8
    assert config_of("cluster.placement={trainer: 0.5, rollout: 0.5}").cluster.wanted_per_node == 0
    assert pool_problems("cluster.placement={trainer: 2, rollout: 6}") == []
