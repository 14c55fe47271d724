"""An episode as an append-only tree of messages; each leaf gives one training row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from verl_like.environments.pictures import ShownPicture
from verl_like.protocol import Array

Message: TypeAlias = Mapping[str, Any]  # role, content, and where present tool_calls, reasoning_content, name

ROOT = 0  # index of the node that holds the first prompt of the episode


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeNode:
    """Messages and the tokens that they add to the context of their parent.

    Args:
        parent: index of the parent node; -1 for a root, which holds a first prompt.
        messages: the messages of the tokens: one of the policy, or those between two of its turns.
        token_ids: [T] int32; the template's separators belong to the node that follows them.
        is_sampled: [T] bool, the tokens that the policy sampled.
        log_probs: [T] float32 nats from the engine, 0 where not sampled.
        versions: [T] int32, of the weights that sampled the tokens, -1 where not sampled.
        reward: reward of this turn, if the environment gives rewards per turn.
        pictures: those whose tokens are among ``token_ids``, in their sequence.
    """

    parent: int
    messages: tuple[Message, ...]
    token_ids: Array
    is_sampled: Array
    log_probs: Array
    versions: Array
    reward: float = 0.0
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeRow:
    """One training row: the path from a root to a leaf.

    Args:
        leaf: index of the leaf.
        prompt_ids: [L] int32, the tokens of the path's root.
        response_ids: [T] int32, the tokens of all other nodes on the path.
        response_mask: [T] bool, the sampled tokens of which no earlier row has a copy; each is learned from once.
        log_probs: [T] float32 nats, 0 where not sampled.
        versions: [T] int32, of the weights that sampled a token, -1 where not sampled.
        turn_index: [T] int32, number of the policy's turn that sampled a token, -1 where not sampled.
        prompt_pictures, pictures: of the prompt and of the response, in the sequence of their tokens.
    """

    leaf: int
    prompt_ids: Array
    response_ids: Array
    response_mask: Array
    log_probs: Array
    versions: Array
    turn_index: Array
    prompt_pictures: tuple[ShownPicture, ...] = ()
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(slots=True)
class EpisodeTree:
    """The messages and tokens of one episode. Nodes are added and never changed.

    A chat template that keeps the history makes a chain, and the episode becomes one row. A template that rewrites the
    history makes a fork: the rewritten context becomes a new branch, and the episode becomes several rows. An agent
    program may begin several chats in one episode; each has a root.
    """

    nodes: list[TreeNode] = field(default_factory=list)
    _branches: dict[int, list[int]] = field(default_factory=dict)  # by parent

    def add(
        self, parent: int, messages: Sequence[Message], token_ids: Sequence[int], pictures: Sequence[ShownPicture] = ()
    ) -> int:
        """Add a node of inserted tokens, and return its index. A root has the parent -1."""
        ids = np.asarray(token_ids, np.int32)
        return self._add(
            TreeNode(
                parent=parent,
                messages=tuple(messages),
                token_ids=ids,
                is_sampled=np.zeros(len(ids), bool),
                log_probs=np.zeros(len(ids), np.float32),
                versions=np.full(len(ids), -1, np.int32),
                pictures=tuple(pictures),
            )
        )

    def add_turn(
        self,
        parent: int,
        message: Message,
        token_ids: Sequence[int],
        log_probs: Sequence[float],
        *,
        version: int | Array,
        reward: float = 0.0,
    ) -> int:
        """Add a turn of the policy, and return its index.

        Args:
            version: of the weights that sampled the tokens: one for all, or [T] int32.
        """
        assert len(token_ids) == len(log_probs), f"{len(token_ids)} sampled ids with {len(log_probs)} log-probs"
        return self._add(
            TreeNode(
                parent=parent,
                messages=(message,),
                token_ids=np.asarray(token_ids, np.int32),
                is_sampled=np.ones(len(token_ids), bool),
                log_probs=np.asarray(log_probs, np.float32),
                versions=np.full(len(token_ids), version, np.int32),
                reward=reward,
            )
        )

    def _add(self, node: TreeNode) -> int:
        assert -1 <= node.parent < len(self.nodes), f"there is no node {node.parent}"
        assert node.parent == -1 or self.nodes, "the first node is a root"
        self.nodes.append(node)
        self._branches.setdefault(node.parent, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def set_reward(self, index: int, reward: float) -> None:
        """Record the reward of a turn, which the environment gives after it."""
        self.nodes[index] = replace(self.nodes[index], reward=reward)

    def path(self, index: int) -> list[int]:
        """Return the indices from the root to a node."""
        found = []
        while index >= 0:
            found.append(index)
            index = self.nodes[index].parent
        return found[::-1]

    def context(self, index: int) -> list[int]:
        """Return the token ids from the root to the end of a node."""
        ids: list[int] = np.concatenate([self.nodes[each].token_ids for each in self.path(index)]).tolist()
        return ids

    def pictures(self, index: int) -> tuple[ShownPicture, ...]:
        """Return the pictures of :meth:`context`, in the sequence of their tokens."""
        return tuple(picture for each in self.path(index) for picture in self.nodes[each].pictures)

    def messages(self, index: int) -> list[Message]:
        """Return the messages from the root to a node."""
        return [message for each in self.path(index) for message in self.nodes[each].messages]

    def num_prompt_messages(self, index: int) -> int:
        """Return how many of :meth:`messages` are the first prompt."""
        return len(self.nodes[self.path(index)[0]].messages)

    def fork(self, messages: Sequence[Message], token_ids: Sequence[int], pictures: Sequence[ShownPicture] = ()) -> int:
        """Add a rewritten context as a branch, and return the index of its last node.

        The branch starts at the last node whose tokens the new context still begins with. Its tokens count as inserted,
        also those of the policy's earlier turns.

        Args:
            messages: all messages of the new context.
            token_ids: [K] all of its tokens.
            pictures: all of its pictures, in the sequence of their tokens.

        Raises:
            ValueError: the new context begins with no root.
        """
        if self.shared(token_ids, pictures)[0] < 0:
            raise ValueError(
                "the chat template changes the first prompt when messages follow it, so the prompt of an episode's "
                "rows would differ. Use a template that keeps it, or append to the history."
            )
        return self.place(messages, token_ids, pictures)

    def place(
        self, messages: Sequence[Message], token_ids: Sequence[int], pictures: Sequence[ShownPicture] = ()
    ) -> int:
        """Add a context as :meth:`fork` does, or as another root if it begins with none; return its last node.

        A context that the tree contains already adds nothing.
        """
        at, num_shared = self.shared(token_ids, pictures)
        if at < 0:
            return self.add(-1, messages, token_ids, pictures)
        if num_shared == len(token_ids):
            return at
        new = pictures[len(self.pictures(at)) :]
        return self.add(at, messages[len(self.messages(at)) :], token_ids[num_shared:], new)

    def shared(self, token_ids: Sequence[int], pictures: Sequence[ShownPicture] = ()) -> tuple[int, int]:
        """Return the last node whose context ``token_ids`` begin with, and the length of that context.

        The node is -1 if they begin with no root. Equal ids with other pictures are another context.
        """
        ids, shown = np.asarray(token_ids, np.int32), [each.digest for each in pictures]
        found, to_try = (-1, 0), [(-1, 0, 0)]
        while to_try:
            at, num_shared, num_pictures = to_try.pop()
            if num_shared > found[1]:
                found = at, num_shared
            for branch in self.branches(at):
                node = self.nodes[branch]
                end, last = num_shared + len(node.token_ids), num_pictures + len(node.pictures)
                is_same = np.array_equal(ids[num_shared:end], node.token_ids)
                of_node = [each.digest for each in node.pictures]
                if len(node.token_ids) and is_same and shown[num_pictures:last] == of_node:
                    to_try.append((branch, end, last))
        return found

    def branches(self, index: int) -> list[int]:
        """Return the nodes that follow a node; the roots for -1."""
        return list(self._branches.get(index, ()))

    def leaves(self) -> list[int]:
        """Return the indices of all nodes without branches, in the sequence in which they were added."""
        return [number for number in range(len(self.nodes)) if number not in self._branches]

    def rows(self) -> Iterator[TreeRow]:
        """Yield one row per leaf whose path has sampled tokens that no earlier row contains."""
        learned: set[int] = set()  # nodes that an earlier row contains
        turns = {number: turn for turn, number in enumerate(self._sampled())}
        for leaf in self.leaves():
            root, *path = self.path(leaf)
            new = [each for each in path if each in turns and each not in learned]
            if not new:
                continue
            learned.update(new)
            nodes = [self.nodes[each] for each in path]
            yield TreeRow(
                leaf=leaf,
                prompt_ids=self.nodes[root].token_ids,
                response_ids=np.concatenate([node.token_ids for node in nodes]),
                response_mask=np.concatenate(
                    [node.is_sampled & (each in new) for each, node in zip(path, nodes, strict=True)]
                ),
                log_probs=np.concatenate([node.log_probs for node in nodes]),
                versions=np.concatenate([node.versions for node in nodes]),
                turn_index=np.concatenate(
                    [
                        np.full(len(node.token_ids), turns.get(each, -1), np.int32)
                        for each, node in zip(path, nodes, strict=True)
                    ]
                ),
                prompt_pictures=self.nodes[root].pictures,
                pictures=tuple(picture for node in nodes for picture in node.pictures),
            )

    def turn_rewards(self) -> list[float]:
        """Return the reward of each turn of the policy, by its number in ``turn_index``."""
        return [self.nodes[number].reward for number in self._sampled()]

    def _sampled(self) -> Iterator[int]:
        return (number for number, node in enumerate(self.nodes) if node.is_sampled.any())
