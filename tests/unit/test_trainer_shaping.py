"""Scores become rewards; selects the groups and rows to learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_trainer_plan import planned
from verl_like.config.schema import AlgorithmConfig, Config
from verl_like.controller.errors import FeedbackError
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.training.shaping import (
    groups_with_signal,
    has_differing_scores,
    is_usable,
    learnt_from,
    resampled,
    rewards_of,
    row_rewards,
    scaled_scores,
)

NAN = float("nan")


def scored(group_ids: list[int], scores: list[float], **facts: Any) -> RemoteBatch:
    """Rows with these scores; NaN is one that failed."""
    score = np.array(scores, np.float32)
    return RemoteBatch(
        {
            "group_id": np.array(group_ids, np.int64),
            "score": score,
            "reward_status": np.where(np.isnan(score), "timeout", "ok"),
            **{name: np.array(values) for name, values in facts.items()},
        }
    )


def config(**changes: object) -> Config:
    """Responses of at most 10 tokens; ``changes`` are of the algorithm's section."""
    made = Config()
    made.data.max_response_length = 10
    for name, value in changes.items():
        assert hasattr(made.algorithm, name), name
        setattr(made.algorithm, name, value)
    return made


# --- what a score is worth


def test_a_score_is_clipped_before_it_is_scaled() -> None:
    scores = np.array([-3.0, -0.5, 0.25, 3.0], np.float32)
    found = scaled_scores(scores, AlgorithmConfig(reward_clip=1.0, reward_scale=2.0))
    assert found.tolist() == [-2.0, -1.0, 0.5, 2.0]
    assert found.dtype == np.float32
    assert scores.tolist() == [-3.0, -0.5, 0.25, 3.0], "the batch keeps what the reward function said"


def test_a_score_is_worth_itself_by_default() -> None:
    scores = np.array([-1e6, 0.1, 1e6], np.float32)
    assert np.array_equal(scaled_scores(scores, AlgorithmConfig()), scores)


def test_the_over_long_penalty_rises_evenly_over_the_buffer() -> None:
    """DAPO, equation 13, with L_max 10 and L_cache 4: 0 up to 6 tokens, ((10 - 4) - y) / 4 above, -1 at 10."""
    batch = scored([0] * 6, [1.0] * 6, response_tokens=[1, 6, 7, 8, 9, 10])
    assert rewards_of(batch, config(overlong_buffer_len=4)).tolist() == [1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    assert rewards_of(batch, config(overlong_buffer_len=4, overlong_penalty_factor=2.0)).tolist() == [
        1.0,
        1.0,
        0.5,
        0.0,
        -0.5,
        -1.0,
    ]
    assert batch.facts["score"].tolist() == [1.0] * 6, "the batch keeps what the reward function said"


def test_the_penalty_comes_after_clip_and_scale() -> None:
    batch = scored([0, 0], [5.0, 5.0], response_tokens=[6, 10])
    found = rewards_of(batch, config(reward_clip=1.0, reward_scale=0.5, overlong_buffer_len=4))
    assert found.tolist() == [0.5, -0.5]
    assert found.dtype == np.float32


def test_without_a_buffer_no_length_is_penalised() -> None:
    assert rewards_of(scored([0], [1.0], response_tokens=[10]), config()).tolist() == [1.0]


# --- inputs of the advantages stage


def test_a_baseline_is_clipped_and_scaled_like_a_score() -> None:
    batch = scored([0, 0], [4.0, 1.0], baseline_score=[3.0, 0.5])
    facts = row_rewards(batch, config(reward_clip=2.0, reward_scale=10.0), mini_batch_prompts=None)
    assert facts.rewards.tolist() == [20.0, 10.0]
    assert facts.baseline_rewards is not None
    assert facts.baseline_rewards.tolist() == [20.0, 5.0]


def test_row_rewards_have_only_what_a_run_needs() -> None:
    facts = row_rewards(scored([0, 0], [1.0, 0.0]), config(), mini_batch_prompts=None)
    assert facts.baseline_rewards is None and facts.mini_batches is None and facts.components == {}


def test_mini_batches_are_cut_by_prompt_as_the_update_cuts_them() -> None:
    batch = scored(
        [0, 0, 2, 3, 3, 5], [0.0] * 6, response_tokens=[1] * 6, prompt_tokens=[1] * 6
    )  # prompts 1 and 4 have no usable row
    found = row_rewards(batch, config(), mini_batch_prompts=2).mini_batches
    assert found is not None and found.tolist() == [0, 0, 1, 1, 1, 2]
    cuts = planned(batch, mini_batch_prompts=2, ranks=1)[0].mini_batches[0]
    assert [cut.tolist() for cut in cuts] == [np.flatnonzero(found == i).tolist() for i in range(3)]


def test_components_are_the_values_reported_in_addition_to_the_score() -> None:
    batch = scored(
        [0, 0], [1.0, 0.0], details=[{"correct": 1.0, "format": 0.5, "pred": "7"}, {"correct": 0, "format": 0.0}]
    )
    found = row_rewards(
        batch, config(reward_components={"correct": 1.0, "format": 0.2}), mini_batch_prompts=None
    ).components
    assert {name: values.tolist() for name, values in found.items()} == {"correct": [1.0, 0.0], "format": [0.5, 0.0]}
    assert {values.dtype for values in found.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("reported", [{}, {"format": "good"}, {"format": NAN}, {"format": 1e300}])
def test_a_component_that_is_no_finite_number_is_refused_with_what_there_was(reported: dict[str, object]) -> None:
    batch = scored([0, 0], [1.0, 0.0], details=[{"format": 1.0}, reported], uid=["a.jsonl:3", "a.jsonl:4"])
    with pytest.raises(FeedbackError) as caught:
        row_rewards(batch, config(reward_components={"format": 1.0}), mini_batch_prompts=None)
    assert str(caught.value) == (
        "algorithm.reward_components names 'format', but for a response to prompt a.jsonl:4 the reward "
        f"function reported {reported} in addition to its score. Return a dict with 'format' as a finite number, or "
        "remove the name."
    )


# --- which rows are learnt from


def test_a_row_without_a_score_is_not_usable() -> None:
    assert is_usable(scored([0, 0, 0], [1.0, NAN, 0.0])).tolist() == [True, False, True]


def test_a_row_whose_prompts_baseline_failed_is_not_usable() -> None:
    batch = scored([0, 0, 1, 1], [1.0, NAN, 1.0, NAN], baseline_score=[0.5, 0.5, NAN, NAN])
    assert is_usable(batch).tolist() == [True, False, False, False]


def test_all_rows_are_learnt_from_by_default() -> None:
    batch = scored([0, 0], [1.0, 0.0], finish_reason=["length", "stop"])
    assert learnt_from(batch, config(), np.random.default_rng(0)).tolist() == [0, 1]


def test_over_long_responses_are_left_out_where_they_are_masked() -> None:
    batch = scored([0, 0, 0], [1.0, 0.0, 0.5], finish_reason=["stop", "length", "stop"])
    assert learnt_from(batch, config(mask_overlong=True), np.random.default_rng(0)).tolist() == [0, 2]


def test_a_batch_of_nothing_but_over_long_responses_fails_loudly() -> None:
    batch = scored([0, 0], [1.0, 0.0], finish_reason=["length", "length"])
    message = (
        r"left no response to learn from.*max_response_length=10\. Raise it, or set algorithm\.mask_overlong=false"
    )
    with pytest.raises(FeedbackError, match=message):
        learnt_from(batch, config(mask_overlong=True), np.random.default_rng(0))


def test_resampling_draws_from_what_masking_left() -> None:
    batch = scored(
        [0] * 5,
        [9.0, 1.0, 2.0, 9.0, 3.0],
        finish_reason=["length", "stop", "stop", "length", "stop"],
        response_tokens=[1] * 5,
    )
    chosen = config(mask_overlong=True, pf_ppo="max_min")
    drawn = [learnt_from(batch, chosen, np.random.default_rng(seed)).tolist() for seed in range(20)]
    assert {row for rows in drawn for row in rows} == {1, 4}, (
        "of rows 1, 2 and 4, those of lowest and of highest reward"
    )
    assert {len(rows) for rows in drawn} == {3}, "as many draws as rows were left"


def test_resampling_uses_the_shaped_reward() -> None:
    batch = scored([0, 0], [1.0, 1.0], response_tokens=[1, 10])  # the penalty takes the second to 0
    chosen = config(pf_ppo="pow", overlong_buffer_len=5)
    assert learnt_from(batch, chosen, np.random.default_rng(0)).tolist() == [0, 0]


# --- PF-PPO


@pytest.mark.parametrize(
    ("scheme", "weight_pow", "rewards", "shares"),
    [
        ("pow", 2.0, [1.0, 2.0, 0.0, -3.0], [1 / 14, 4 / 14, 0, 9 / 14]),
        ("pow", 1.0, [1.0, 2.0, 0.0, -3.0], [1 / 6, 2 / 6, 0, 3 / 6]),
        ("max_min", 2.0, [1.0, 2.0, 0.0, -3.0], [0, 1 / 2, 0, 1 / 2]),
        ("max_random", 2.0, [1.0, 2.0, 0.0, -3.0], [1 / 7, 4 / 7, 1 / 7, 1 / 7]),
        ("pow", 2.0, [0.0, 0.0, 0.0, 0.0], [1 / 4] * 4),
        ("max_min", 2.0, [0.0, 0.0, 0.0, 0.0], [1 / 4] * 4),
        ("max_random", 2.0, [0.0, 0.0, 0.0, 0.0], [1 / 4] * 4),
    ],
)
def test_rows_are_drawn_as_often_as_their_scheme_weighs_them(
    scheme: str, weight_pow: float, rewards: list[float], shares: list[float]
) -> None:
    copies = 5000
    drawn = resampled(
        np.tile(np.array(rewards, np.float32), copies),
        scheme=scheme,
        weight_pow=weight_pow,
        rng=np.random.default_rng(0),
    )
    assert len(drawn) == copies * len(rewards)
    found = np.bincount(drawn % len(rewards), minlength=len(rewards)) / len(drawn)
    assert found == pytest.approx(shares, abs=0.02)  # four standard errors: 4 * sqrt(0.25 / 20000) = 0.014
    assert not found[np.array(shares) == 0].any(), "a weight of zero is never drawn"


def test_a_resampling_is_the_generators_alone() -> None:
    rewards = np.random.default_rng(1).normal(size=100).astype(np.float32)

    def draw(rng: np.random.Generator) -> list[int]:
        rows: list[int] = resampled(rewards, scheme="pow", weight_pow=2.0, rng=rng).tolist()
        return rows

    first = np.random.default_rng((7, 3))
    same = np.random.default_rng((7, 3))
    assert draw(first) == draw(same)
    assert draw(first) != draw(np.random.default_rng((7, 4)))


@settings(max_examples=50, deadline=None)
@given(
    rewards=st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=20),
    scheme=st.sampled_from(["pow", "max_min", "max_random"]),
)
def test_a_resampling_is_as_large_as_the_batch_and_in_its_order(rewards: list[float], scheme: str) -> None:
    drawn = resampled(np.array(rewards, np.float32), scheme=scheme, weight_pow=2.0, rng=np.random.default_rng(0))
    assert len(drawn) == len(rewards)
    assert (np.diff(drawn) >= 0).all(), "mini-batches are cut by prompt, whose rows stand together"
    assert drawn.min() >= 0 and drawn.max() < len(rewards)


# --- dynamic sampling


def test_a_group_has_signal_iff_two_of_its_usable_scores_differ() -> None:
    groups = {
        "equal": ([1.0, 1.0, 1.0], False),
        "one differs": ([1.0, 1.0, 0.0], True),
        "equal but for one that failed": ([1.0, 1.0, NAN], False),
        "differs next to one that failed": ([1.0, 0.0, NAN], True),
        "only one is left": ([1.0, NAN, NAN], False),
        "all failed": ([NAN, NAN, NAN], False),
    }
    batch = scored(
        [i for i in range(len(groups)) for _ in range(3)], [score for scores, _ in groups.values() for score in scores]
    )
    found = has_differing_scores(batch).reshape(len(groups), 3)
    assert {name: row.tolist() for name, row in zip(groups, found, strict=True)} == {
        name: [has_signal] * 3 for name, (_, has_signal) in groups.items()
    }


def test_scores_whose_baseline_failed_are_no_signal() -> None:
    batch = scored([0, 0, 1, 1], [1.0, 0.0, 1.0, 0.0], baseline_score=[NAN, NAN, 0.5, 0.5])
    assert has_differing_scores(batch).tolist() == [False, False, True, True]


def drawing(batches: list[RemoteBatch]) -> tuple[Callable[[int], RemoteBatch], list[int]]:
    """Return a draw that returns these batches, and a list of the numbers passed to it."""
    drawn: list[int] = []

    def draw(number: int) -> RemoteBatch:
        drawn.append(number)
        return batches[number]

    return draw, drawn


def test_groups_without_signal_give_way_to_those_of_the_next_draw() -> None:
    first = scored([0, 0, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0], uid=["a", "a", "b", "b", "c", "c"])
    second = scored([0, 0, 1, 1, 2, 2], [0, 1, 0, 0, 1, 0], uid=["d", "d", "e", "e", "f", "f"])
    draw, drawn = drawing([first, second])
    batch, metrics = groups_with_signal(draw, num_groups=3, max_batches=2)
    assert batch.facts["uid"].tolist() == ["b", "b", "d", "d", "f", "f"]
    assert batch.facts["group_id"].tolist() == [0, 0, 1, 1, 2, 2], (
        "numbered anew from 0, as mini-batches are cut by these numbers"
    )
    assert batch.facts["score"].tolist() == [1, 0, 0, 1, 1, 0]
    assert metrics == {"rollout/num_batches": 2.0, "rollout/signal_frac": 3 / 6}
    assert len(drawn) == 2
    assert first.facts["group_id"].tolist() == [0, 0, 1, 1, 2, 2], "a draw is not changed"


def test_surplus_groups_are_dropped_and_nothing_is_drawn_in_vain() -> None:
    draw, drawn = drawing([scored([0, 0, 1, 1, 2, 2], [1, 0, 0, 1, 1, 0], uid=["a", "a", "b", "b", "c", "c"])])
    batch, metrics = groups_with_signal(draw, num_groups=2, max_batches=10)
    assert batch.facts["uid"].tolist() == ["a", "a", "b", "b"]
    assert metrics == {"rollout/num_batches": 1.0, "rollout/signal_frac": 1.0}, "the fraction is of all that was drawn"
    assert len(drawn) == 1


def test_a_failed_row_stays_in_its_group_until_the_report_has_counted_it() -> None:
    draw, _ = drawing([scored([0, 0, 0], [1.0, NAN, 0.0])])
    batch, _ = groups_with_signal(draw, num_groups=1, max_batches=1)
    assert batch.facts["reward_status"].tolist() == ["ok", "timeout", "ok"]


def test_too_few_groups_with_signal_fail_loudly() -> None:
    silent = [scored([0, 0, 1, 1], [1, 1, 0, 0]) for _ in range(2)]
    draw, drawn = drawing([*silent, scored([0, 0, 1, 1], [1, 0, 0, 0]), scored([0, 0, 1, 1], [1, 0, 1, 0])])
    with pytest.raises(FeedbackError) as caught:
        groups_with_signal(draw, num_groups=2, max_batches=3)
    assert str(caught.value) == (
        "algorithm.filter_groups found 1 of 2 groups with differing scores in algorithm.max_num_gen_batches=3 batches "
        "(6 prompts). The "
        "task is too easy or too hard for this policy: raise algorithm.max_num_gen_batches or rollout.n, choose other "
        "prompts, or set "
        "algorithm.filter_groups=false."
    )
    assert len(drawn) == 3, "the limit is a limit"


@settings(max_examples=60, deadline=None)
@given(
    draws=st.lists(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=2, max_size=2), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    num_groups=st.integers(1, 5),
)
def test_the_groups_are_the_first_ones_with_signal_in_the_order_drawn(
    draws: list[list[list[float]]], num_groups: int
) -> None:
    batches, expected = [], []
    for number, groups in enumerate(draws):
        uids = [f"{number}/{group}" for group in range(len(groups)) for _ in range(2)]
        batches.append(
            scored([i // 2 for i in range(2 * len(groups))], [score for group in groups for score in group], uid=uids)
        )
        expected += [f"{number}/{group}" for group, scores in enumerate(groups) if sorted(scores) == [0.0, 1.0]]
    draw, drawn = drawing(batches)
    if len(expected) < num_groups:
        with pytest.raises(FeedbackError, match=f"found {len(expected)} of {num_groups} groups"):
            groups_with_signal(draw, num_groups=num_groups, max_batches=len(batches))
        return
    batch, _ = groups_with_signal(draw, num_groups=num_groups, max_batches=len(batches))
    assert batch.facts["uid"].tolist() == [uid for uid in expected[:num_groups] for _ in range(2)]
    assert batch.facts["group_id"].tolist() == [group for group in range(num_groups) for _ in range(2)]
    assert expected[num_groups - 1].startswith(f"{len(drawn) - 1}/"), "the last draw was needed"


# --- rows without advantage in the plan of the update


def test_rows_that_the_update_does_not_run_cost_nothing_in_its_plan() -> None:
    batch = scored(
        [0, 1, 2, 3],
        [0.0] * 4,
        response_tokens=[97, 97, 7, 7],
        prompt_tokens=[3] * 4,
        has_advantage=[False, True, True, True],
    )
    plan, imbalance = planned(batch, mini_batch_prompts=4, ranks=2, skips_zeros=True)
    tokens = batch.facts["response_tokens"]
    run = [sorted(tokens[row] for row in rows if batch.facts["has_advantage"][row]) for rows in plan.rows]
    assert sorted(run) == [[7, 7], [97]]
    assert imbalance == pytest.approx(100 / 60)
    assert sorted(np.concatenate(plan.rows).tolist()) == [0, 1, 2, 3], "they still count in the totals"


def test_a_batch_without_any_advantage_still_has_a_plan() -> None:
    batch = scored([0, 1, 2], [0.0] * 3, response_tokens=[5, 6, 7], prompt_tokens=[3] * 3, has_advantage=[False] * 3)
    for by in ("tokens", "attention"):
        plan, imbalance = planned(batch, mini_batch_prompts=2, ranks=2, by=by, skips_zeros=True)
        assert sorted(np.concatenate(plan.rows).tolist()) == [0, 1, 2]
        assert imbalance == 1.0
        assert {len(cuts) for cuts in plan.mini_batches} == {2}
