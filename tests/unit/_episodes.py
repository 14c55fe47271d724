"""Episodes of several turns as training rows: whole, or forked into several rows at some of their turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verl_like.protocol import Array, DataProto, Ragged

VOCAB = 64


@dataclass(frozen=True)
class Turn:
    """What the policy sampled, and what the environment answered; ``numbers`` has a column of each sampled token."""

    sampled: list[int]
    answer: list[int]
    reward: float = 0.0
    state_key: int = 0


@dataclass(frozen=True)
class Episode:
    """``forks`` are the turns before which the history is rewritten, into the same tokens."""

    group: int
    score: float
    turns: tuple[Turn, ...]
    prompt: tuple[int, ...] = (1, 2)
    forks: tuple[int, ...] = ()

    def rows(self) -> list[range]:
        """Return the turns that each row is learned from."""
        bounds = [0, *self.forks, len(self.turns)]
        return [range(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]

    def tokens(self, row: range) -> tuple[list[int], list[bool], list[int]]:
        """Ids of a row, its mask, and the number of each token in the episode if that were one row."""
        ids: list[int] = []
        mask: list[bool] = []
        for number, turn in enumerate(self.turns[: row.stop]):
            answer = turn.answer if number + 1 < row.stop else []
            ids += [*turn.sampled, *answer]
            mask += [number in row] * len(turn.sampled) + [False] * len(answer)
        return ids, mask, list(range(len(ids)))


def random_episodes(num_groups: int, n: int, *, seed: int = 0, longest: int = 5) -> list[Episode]:
    """Return groups of ``n`` episodes of one to four turns."""
    rng = np.random.default_rng(seed)

    def ids(least: int) -> list[int]:
        return [int(token) for token in rng.integers(0, VOCAB, rng.integers(least, longest))]

    return [
        Episode(
            group=group,
            score=float(abs(rng.normal())),  # not negative, which maxrl refuses
            prompt=(group + 3, 7),
            turns=tuple(
                Turn(ids(1), ids(0), reward=float(rng.normal()), state_key=int(rng.integers(0, 3)))
                for _ in range(rng.integers(1, 5))
            ),
        )
        for group in range(num_groups)
        for _ in range(n)
    ]


def forked(episodes: Sequence[Episode], *, seed: int = 0) -> list[Episode]:
    """Return the same episodes, forked before some of their turns; at least one of them."""
    rng = np.random.default_rng(seed)
    found = []
    for episode in episodes:
        forks = tuple(turn for turn in range(1, len(episode.turns)) if rng.random() < 0.6)
        found.append(Episode(episode.group, episode.score, episode.turns, episode.prompt, forks))
    assert any(each.forks for each in found), "no episode is forked"
    return found


def table_of(episodes: Sequence[Episode], *, seed: int = 0, columns: Sequence[str] = ()) -> DataProto:
    """Return the rows of these episodes as the rollout makes them, with random numbers in further token columns.

    The number of a token depends on its position in the episode only, so that forks do not change it.
    """
    rows = [(number, episode, row) for number, episode in enumerate(episodes) for row in episode.rows()]
    parts = [episode.tokens(row) for _, episode, row in rows]

    def random(name: str) -> Ragged:
        longest = max(len(ids) for ids, _, _ in parts)
        numbers = np.random.default_rng((seed, len(name), ord(name[0]))).normal(size=(len(episodes), longest))
        numbers = np.abs(numbers) if name == "sum_pi_squared" else -np.abs(numbers) if "log_probs" in name else numbers
        return Ragged.from_rows(
            [numbers[number][slots] for (number, _, _), (_, _, slots) in zip(rows, parts, strict=True)], "float32"
        )

    def of_turns(values: list[list[float]], dtype: str) -> Ragged:
        return Ragged.from_rows(values, dtype)

    chosen = [[episode.turns[turn] for turn in row] for _, episode, row in rows]
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows([list(episode.prompt) for _, episode, _ in rows], "int32"),
            "response_ids": Ragged.from_rows([ids for ids, _, _ in parts], "int32"),
            "response_mask": Ragged.from_rows([mask for _, mask, _ in parts], "bool"),
            "episode_row": np.concatenate([np.arange(len(each.rows())) for each in episodes]).astype(np.int32),
            "turn_index": of_turns([list(row) for _, _, row in rows], "int32"),
            "turn_tokens": of_turns([[len(turn.sampled) for turn in row] for row in chosen], "int32"),
            "turn_rewards": of_turns([[turn.reward for turn in row] for row in chosen], "float32"),
            "state_keys": of_turns([[turn.state_key for turn in row] for row in chosen], "int64"),
            **{name: random(name) for name in columns},
        }
    )


def facts_of(episodes: Sequence[Episode], table: DataProto) -> dict[str, Array]:
    """Return the facts of the rows in ``table``."""
    counts = [len(each.rows()) for each in episodes]
    lengths = table.ragged("response_ids").lengths
    return {
        "group_id": np.repeat([each.group for each in episodes], counts),
        "sample": np.repeat(np.arange(len(episodes)), counts),
        "uid": np.repeat([f"prompt {each.group}" for each in episodes], counts),
        "score": np.repeat([each.score for each in episodes], counts).astype(np.float32),
        "episode_row": np.asarray(table["episode_row"]),
        "sampled_tokens": table.ragged("response_mask").count_nonzero(),
        "response_tokens": lengths,
        "prompt_tokens": table.ragged("prompt_ids").lengths,
    }


def sampled(episodes: Sequence[Episode], table: DataProto, column: str) -> list[list[float]]:
    """Return a token column as one list per episode: its sampled tokens turn by turn."""
    values = iter(zip(table.ragged(column), table.ragged("response_mask"), strict=True))
    return [
        np.concatenate([value[mask] for value, mask in (next(values) for _ in episode.rows())]).tolist()
        for episode in episodes
    ]
