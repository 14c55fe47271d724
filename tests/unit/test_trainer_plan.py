"""Which rank updates on which rows, which roles a run has, and the seeds of its samples: no timing, no rank count in
the results.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.algorithms.roles import Needs, needs, update_columns
from verl_like.config.schema import Config
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.ops.partition import imbalance, partition
from verl_like.training.balance import MAX_IMBALANCE, Balance, RankRows, by_rank, by_reader, rank_rows
from verl_like.workers.samples import sample_seed


def facts_of(group_ids: list[int], response_tokens: list[int]) -> RemoteBatch:
    return RemoteBatch(
        {
            "group_id": np.array(group_ids, np.int64),
            "response_tokens": np.array(response_tokens, np.int64),
            "prompt_tokens": np.full(len(group_ids), 3, np.int64),
        }
    )


def planned(
    batch: RemoteBatch, *, mini_batch_prompts: int, ranks: int, by: str = "tokens", skips_zeros: bool = False
) -> tuple[RankRows, float]:
    """Return the plan of an assignment for these mini-batches, and its imbalance."""
    unevenness = Balance(mini_batch_prompts, ranks, by=by).assign(batch, skips_zeros=skips_zeros)
    return rank_rows(batch, mini_batch_prompts=mini_batch_prompts, ranks=ranks), unevenness


def members(plan: RankRows, mini_batch: int) -> set[int]:
    """Rows of one mini-batch, of all ranks together."""
    return {int(row) for rows, cuts in zip(plan.rows, plan.mini_batches, strict=True) for row in rows[cuts[mini_batch]]}


def test_mini_batches_are_cut_by_prompt_before_balancing() -> None:
    # Four prompts of two responses; the long ones are all in the first half.
    batch = facts_of([0, 0, 1, 1, 2, 2, 3, 3], [90, 80, 70, 60, 1, 1, 1, 1])
    plan, _ = planned(batch, mini_batch_prompts=2, ranks=2)
    assert members(plan, 0) == {0, 1, 2, 3}
    assert members(plan, 1) == {4, 5, 6, 7}
    tokens = batch.facts["response_tokens"]
    assert [int(tokens[plan.rows[rank][plan.mini_batches[rank][0]]].sum()) for rank in (0, 1)] == [150, 150], (
        "90 + 60 and 80 + 70"
    )


def test_a_shared_prompt_counts_once_for_its_group() -> None:
    """Long prompts with short responses are then little work compared with short prompts with long responses."""
    batch = facts_of([g for g in range(4) for _ in range(8)], [10] * 16 + [100] * 16)
    batch.facts["prompt_tokens"] = np.array([100] * 16 + [10] * 16)
    alone, shared = (Balance(4, 2, shares_prompts=shares) for shares in (False, True))
    assert alone.assign(batch) == pytest.approx(1, abs=0.01)
    assert shared.assign(batch) == pytest.approx(1, abs=0.02)
    for rows in by_rank(batch, 2):
        assert sorted(batch.facts["prompt_tokens"][rows].tolist()) == [10] * 8 + [100] * 8
    batch.facts["prompt_tokens"][:] = 0
    assert alone.assign(batch) == shared.assign(batch)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=40),
    per_group=st.integers(1, 4),
    per_cut=st.integers(1, 5),
    ranks=st.integers(1, 5),
)
def test_every_row_is_updated_on_once_and_the_cut_does_not_depend_on_ranks(
    lengths: list[int], per_group: int, per_cut: int, ranks: int
) -> None:
    batch = facts_of([i // per_group for i in range(len(lengths))], lengths)
    plan, _ = planned(batch, mini_batch_prompts=per_cut, ranks=ranks)
    alone, _ = planned(batch, mini_batch_prompts=per_cut, ranks=1)
    assert sorted(np.concatenate(plan.rows).tolist()) == list(range(len(lengths)))
    assert len({len(cuts) for cuts in plan.mini_batches}) == 1, (
        "ranks that make different numbers of updates wait for each other for ever"
    )
    for mini_batch in range(len(alone.mini_batches[0])):
        assert members(plan, mini_batch) == members(alone, mini_batch)
    for rows, cuts in zip(plan.rows, plan.mini_batches, strict=True):
        assert sorted(np.concatenate(cuts).tolist()) == list(range(len(rows))), (
            "positions must cover what the rank fetches"
        )


def test_a_prompt_whose_samples_all_failed_leaves_the_other_cuts_alone() -> None:
    batch = facts_of([0, 0, 2, 3, 3], [5] * 5)  # prompt 1 has no scored sample
    plan, _ = planned(batch, mini_batch_prompts=2, ranks=1)
    assert [members(plan, i) for i in range(2)] == [{0, 1}, {2, 3, 4}]


def tokens_of_ranks(batch: RemoteBatch, plan: RankRows) -> list[int]:
    return [int((batch.facts["response_tokens"] + batch.facts["prompt_tokens"])[rows].sum()) for rows in plan.rows]


def test_ranks_get_about_equal_tokens_and_the_plan_says_how_equal() -> None:
    batch = facts_of(list(range(6)), [100, 10, 10, 10, 50, 60])
    plan, imbalance = planned(batch, mini_batch_prompts=6, ranks=2)
    tokens = tokens_of_ranks(batch, plan)
    assert imbalance == max(tokens) / (sum(tokens) / 2) == pytest.approx(1.0, abs=0.05)


def test_many_groups_stay_whole() -> None:
    lengths = np.random.default_rng(0).integers(1, 500, 512).tolist()
    plan, imbalance = planned(facts_of([i // 8 for i in range(512)], lengths), mini_batch_prompts=64, ranks=2)
    assert imbalance <= MAX_IMBALANCE
    assert all(len(rows) % 8 == 0 for rows in plan.rows), "no group is on both ranks"


def test_attention_balances_squares_and_tokens_balance_sums() -> None:
    lengths = [1000] + [100] * 30
    batch = facts_of(list(range(31)), [length - 3 for length in lengths])
    by_tokens, _ = planned(batch, mini_batch_prompts=31, ranks=2)
    by_attention, _ = planned(batch, mini_batch_prompts=31, ranks=2, by="attention")
    assert sorted(tokens_of_ranks(batch, by_tokens)) == [2000, 2000]
    assert sorted(tokens_of_ranks(batch, by_attention)) == [1000, 3000], (
        "one row of 1000 attends to more than thirty of 100 do"
    )


def written(num_groups: int, *, ranks: int, nodes: int = 2, per_group: int = 8) -> RemoteBatch:
    """Rows of very different lengths, whose prompts were assigned in turn to ranks on so many nodes."""
    lengths = np.minimum(np.random.default_rng(0).lognormal(5, 0.8, num_groups * per_group), 4096).astype(int)
    groups = np.repeat(np.arange(num_groups), per_group)
    batch = facts_of(groups.tolist(), lengths.tolist())
    batch.add_facts({"node": groups % ranks * nodes // ranks})
    return batch


def test_of_several_nodes_rows_stay_where_they_were_written_but_for_those_beyond_a_share() -> None:
    batch = written(128, ranks=16)
    imbalance = Balance(64, 16, nodes=2).assign(batch)
    node, home = batch.facts["rank"] // 8, batch.facts["node"]
    assert imbalance <= MAX_IMBALANCE
    assert 0.9 <= np.mean(node == home) < 1
    on_both = [len(set(node[batch.facts["group_id"] == group])) == 2 for group in range(128)]
    assert 0 < np.mean(on_both) < 0.2, "what is beyond a node's share is dealt by rows"


def test_rows_leave_their_node_where_nothing_else_is_even() -> None:
    batch = facts_of([0, 1, 2, 3], [100, 100, 100, 100])
    batch.add_facts({"node": np.array([0, 0, 0, 0])})
    assert Balance(4, 4, nodes=2).assign(batch) == 1.0
    assert sorted(batch.facts["rank"]) == [0, 1, 2, 3]
    one_group = facts_of([0] * 8, [10] * 8)
    one_group.add_facts({"node": np.zeros(8, np.int64)})
    assert Balance(1, 4, nodes=2).assign(one_group) == 1.0, "one group cannot be split over two nodes"


def test_rows_stay_where_one_is_too_long_for_any_dealing_and_leave_where_leaving_helps() -> None:
    batch = facts_of([0, 0, 1, 1, 2, 2, 3, 3], [2000, 10, 30, 31, 32, 13, 14, 15])
    node = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    batch.add_facts({"node": node})
    assert Balance(4, 4, nodes=2).assign(batch) > 3
    assert (batch.facts["rank"] // 2)[2:].tolist() == node[2:].tolist()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        batch = facts_of(np.repeat(np.arange(4), 4).tolist(), rng.integers(1, 100, 16).tolist())
        batch.add_facts({"node": np.repeat(rng.integers(0, 4, 4) // 2, 4)})
        costs = batch.facts["prompt_tokens"] + batch.facts["response_tokens"]
        assert Balance(4, 4, nodes=2).assign(batch) <= max(MAX_IMBALANCE, imbalance(costs, partition(costs, 4)))


def test_rows_of_a_node_without_training_ranks_go_to_any_rank() -> None:
    batch = facts_of(np.repeat(np.arange(8), 2).tolist(), [100] * 16)
    batch.add_facts({"node": np.repeat([-1, -1, -1, -1, 1, 1, 1, -1], 2)})
    assert Balance(8, 4, nodes=2).assign(batch) == 1.0
    assert set((batch.facts["rank"] // 2)[8:14]) == {1}, "rows with a node stay on it"


def test_the_same_rows_are_assigned_as_before_and_others_anew() -> None:
    batch, balance = written(128, ranks=4), Balance(64, 4)
    balance.assign(batch)
    again = batch.select(np.arange(len(batch)))
    balance.assign(again)
    assert again.facts["rank"].tolist() == batch.facts["rank"].tolist()
    fewer = batch.select(np.arange(0, len(batch), 3))
    assert balance.assign(fewer) == Balance(64, 4).assign(fewer) <= MAX_IMBALANCE


def test_blocks_have_no_rows_of_two_nodes_nor_of_two_ranks_of_one() -> None:
    batch = written(128, ranks=4)
    Balance(128, 4, nodes=2).assign(batch)
    rank = batch.facts["rank"]
    for nodes, readers in (([range(2), range(2, 4)], rank // 2), ([range(4)], rank)):
        blocks = by_reader(batch, nodes, {"advantages"})
        assert sorted(np.concatenate(blocks)) == list(range(len(batch)))
        assert [set(readers[rows]) for rows in blocks] == [{i} for i in sorted(set(readers))]


def test_a_rank_keeps_its_rows_when_others_leave_the_batch() -> None:
    batch = facts_of([0, 0, 1, 1, 2, 2, 3, 3], [90, 80, 70, 60, 5, 4, 3, 2])
    Balance(2, 2).assign(batch)
    before = [set(rows.tolist()) for rows in by_rank(batch, 2)]
    assert before[0] | before[1] == set(range(8)) and not before[0] & before[1]
    kept = np.array([0, 2, 3, 5, 7])
    after = [set(kept[rows].tolist()) for rows in by_rank(batch.select(kept), 2)]
    assert after == [rows & set(kept.tolist()) for rows in before]


def test_two_learners_with_their_own_mini_batches_work_on_the_same_assignment() -> None:
    batch = facts_of([0, 0, 1, 1, 2, 2, 3, 3], [90, 80, 70, 60, 5, 4, 3, 2])
    Balance(2, 2).assign(batch)
    actor = rank_rows(batch, mini_batch_prompts=4, ranks=2)
    critic = rank_rows(batch, mini_batch_prompts=2, ranks=2)
    for rank, rows in enumerate(by_rank(batch, 2)):
        assert actor.rows[rank].tolist() == critic.rows[rank].tolist() == rows.tolist()
    assert [members(critic, i) for i in range(2)] == [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert members(actor, 0) == set(range(8))


# --- roles


def config(**changes: object) -> Config:
    made = Config()
    for name, value in changes.items():
        section, leaf = name.split("__")
        setattr(getattr(made, section), leaf, value)
    return made


def test_a_strictly_on_policy_run_without_kl_has_an_actor_and_a_rollout_only() -> None:
    assert needs(config()) == Needs(critic=False, ref=False, old_log_probs=False)
    assert needs(config()).roles == {"actor", "rollout"}
    assert update_columns(config()) == ("rollout_log_probs",)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
def test_a_critic_exists_iff_the_advantage_needs_values(name: str) -> None:
    assert needs(config(algorithm__adv_estimator=name)).critic == ("values" in ADVANTAGES[name].needs)


def test_gae_has_a_critic() -> None:
    assert "critic" in needs(config(algorithm__adv_estimator="gae")).roles


@pytest.mark.parametrize("option", ["algorithm__kl_coef", "actor__kl_loss_coef"])
def test_a_reference_exists_iff_a_kl_term_has_a_coefficient(option: str) -> None:
    assert "ref" in needs(config(**{option: 0.01})).roles
    assert "ref" not in needs(config(**{option: 0.0})).roles


def test_kl_in_the_loss_reads_the_references_log_probs_and_kl_in_the_reward_does_not() -> None:
    assert "ref_log_probs" in update_columns(config(actor__kl_loss_coef=0.1))
    assert "ref_log_probs" not in update_columns(config(algorithm__kl_coef=0.1))


@pytest.mark.parametrize(
    ("changes", "has_stage"),
    [
        ({}, False),
        ({"actor__epochs": 2}, True),
        ({"actor__mini_batch_size": 16}, True),
        ({"algorithm__kl_coef": 0.1}, True),
    ],
)
def test_old_log_probs_are_skipped_iff_a_batch_makes_one_update(changes: dict[str, object], has_stage: bool) -> None:
    made = config(data__train_batch_size=32, **changes)
    assert needs(made).old_log_probs == has_stage
    assert ("old_log_probs" in update_columns(made)) == has_stage


# --- seeds


def test_a_samples_seed_is_stable_across_versions_and_machines() -> None:
    # int.from_bytes(hashlib.blake2b(b"1/3/train.parquet:7/0", digest_size=8).digest(), "little") >> 1
    assert sample_seed(1, 3, "train.parquet:7", 0) == 4931247909066076097
    assert sample_seed(1, 3, "train.parquet:7", 0).bit_length() <= 63


def test_every_part_of_a_samples_name_changes_its_seed() -> None:
    names = [
        (1, 3, "a:7", 0),
        (2, 3, "a:7", 0),
        (1, 4, "a:7", 0),
        (1, 3, "a:8", 0),
        (1, 3, "b:7", 0),
        (1, 3, "a:7", 1),
        (1, -1, "a:7", 0),
    ]
    seeds = [sample_seed(*name) for name in names]
    assert len(set(seeds)) == len(names)
    neighbours = [sample_seed(1, 3, "a:7", sample) for sample in range(64)]
    assert min(abs(a - b) for i, a in enumerate(neighbours) for b in neighbours[:i]) > 1000, (
        "engines map near seeds to shared samples"
    )
