"""The turns that a row is learned from, with their rewards and states."""

from __future__ import annotations

from verl_like.environments.tree import ROOT, EpisodeTree
from verl_like.environments.turns import NO_STATE, hashed_state, no_turns, turns_of


def sampled(tree: EpisodeTree, at: int, ids: list[int], reward: float) -> int:
    return tree.add_turn(at, {"role": "assistant", "content": ""}, ids, [-1.0] * len(ids), version=1, reward=reward)


def test_each_row_has_the_turns_that_no_earlier_row_has() -> None:
    tree = EpisodeTree()
    tree.add(-1, [{"role": "user", "content": "hi"}], [1, 2])
    first = sampled(tree, ROOT, [5, 6], 0.5)
    answer = tree.add(first, [{"role": "tool", "content": "x"}], [9])
    sampled(tree, answer, [7], 1.5)
    other = tree.add(first, [{"role": "user", "content": "y"}], [8, 8, 8])
    sampled(tree, other, [3, 4], -1.0)
    one, two = (turns_of(tree, row, ["a", None, "a"]) for row in tree.rows())
    assert one.index.tolist() == [0, 1] and two.index.tolist() == [2]
    assert one.num_tokens.tolist() == [2, 1] and two.num_tokens.tolist() == [2]
    assert one.rewards.tolist() == [0.5, 1.5] and two.rewards.tolist() == [-1.0]
    assert one.state_keys.tolist() == [hashed_state("a"), NO_STATE] and two.state_keys.tolist() == [hashed_state("a")]


def test_turns_after_the_last_state_key_have_none() -> None:
    tree = EpisodeTree()
    tree.add(-1, [{"role": "user", "content": "hi"}], [1])
    sampled(tree, ROOT, [5], 0.0)
    [row] = tree.rows()
    assert turns_of(tree, row, []).state_keys.tolist() == [NO_STATE]


def test_a_state_is_hashed_to_the_same_63_bits_in_every_process() -> None:
    assert hashed_state("board 1") == 971847232057636618
    assert 0 <= hashed_state("\ud800 is a lone surrogate") < 2**63
    assert hashed_state(None) == NO_STATE < 0


def test_a_row_without_sampled_tokens_has_no_turns() -> None:
    turns = no_turns()
    assert all(len(values) == 0 for values in (turns.index, turns.num_tokens, turns.rewards, turns.state_keys))
