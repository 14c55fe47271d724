"""The tree of an episode: contexts, forks and training rows, with ids made by hand."""

from __future__ import annotations

import pytest

from verl_like.environments.tree import EpisodeTree


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def policy(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def two_turns() -> EpisodeTree:
    tree = EpisodeTree()
    root = tree.add(-1, [user("1")], [1, 2])
    first = tree.add_turn(root, policy("a"), [10, 11], [-0.5, -0.25], version=3)
    between = tree.add(first, [user("2")], [3])
    tree.add_turn(between, policy("b"), [12], [-1.0], version=4)
    return tree


def test_a_chain_gives_one_row_whose_mask_marks_what_was_sampled() -> None:
    [row] = two_turns().rows()
    assert row.prompt_ids.tolist() == [1, 2]
    assert row.response_ids.tolist() == [10, 11, 3, 12]
    assert row.response_mask.tolist() == [True, True, False, True]
    assert row.log_probs.tolist() == [-0.5, -0.25, 0.0, -1.0]
    assert row.turn_index.tolist() == [0, 0, -1, 1]
    assert row.versions.tolist() == [3, 3, -1, 4]


def test_the_context_of_a_node_is_what_the_engine_has_seen() -> None:
    tree = two_turns()
    assert tree.context(2) == [1, 2, 10, 11, 3] and tree.messages(2) == [user("1"), policy("a"), user("2")]


def test_a_rewritten_history_forks_after_the_last_node_it_shares() -> None:
    tree = two_turns()
    at = tree.fork([user("1"), policy("a"), user("2"), policy("b*"), user("3")], [1, 2, 10, 11, 3, 99, 4])
    tree.add_turn(at, policy("c"), [13], [-2.0], version=5)
    assert tree.nodes[at].parent == 2 and tree.nodes[at].token_ids.tolist() == [99, 4]
    assert tree.nodes[at].messages == (policy("b*"), user("3"))
    first, second = tree.rows()
    assert first.response_mask.tolist() == [True, True, False, True], "the row before the fork is what it was"
    assert second.response_ids.tolist() == [10, 11, 3, 99, 4, 13]
    assert second.response_mask.tolist() == [False, False, False, False, False, True], "each token is learned once"
    assert second.turn_index.tolist() == [0, 0, -1, -1, -1, 2]


def test_a_fork_shares_no_part_of_a_node() -> None:
    tree = two_turns()
    at = tree.fork([user("1"), policy("a*"), user("2")], [1, 2, 10, 98, 3])
    assert tree.nodes[at].parent == 0 and tree.nodes[at].token_ids.tolist() == [10, 98, 3]


def test_a_branch_in_which_nothing_was_sampled_is_no_row() -> None:
    tree = two_turns()
    tree.fork([user("1"), user("new")], [1, 2, 7])
    assert len(list(tree.rows())) == 1


def test_a_changed_first_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"changes the first prompt .* or append to the history"):
        two_turns().fork([user("other")], [9, 2, 7])


def test_a_context_that_begins_with_no_root_is_another_root() -> None:
    tree = two_turns()
    other = tree.place([user("sub")], [7, 8])
    tree.add_turn(other, policy("c"), [13], [-2.0], version=5)
    assert tree.nodes[other].parent == -1 and tree.branches(-1) == [0, other]
    first, second = tree.rows()
    assert first.response_ids.tolist() == [10, 11, 3, 12]
    assert second.prompt_ids.tolist() == [7, 8] and second.response_ids.tolist() == [13]
    assert second.turn_index.tolist() == [2]


def test_a_context_that_the_tree_contains_adds_nothing() -> None:
    tree = two_turns()
    assert tree.place([user("1"), policy("a"), user("2")], [1, 2, 10, 11, 3]) == 2 and len(tree.nodes) == 4


def test_of_branches_that_begin_a_context_the_longest_is_shared() -> None:
    tree = two_turns()
    short = tree.add(0, [user("s")], [20])
    tree.add(short, [user("t")], [99])
    long = tree.add(0, [user("l")], [20, 21])
    assert tree.shared([1, 2, 20, 21, 5]) == (long, 4) and tree.shared([1, 2, 20, 99]) == (5, 4)
