"""What reward functions see of an environment's object after its episode."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.environments._processes import playing
from verl_like_environments.attributes import MAX_CHARS, public_attributes


class Board:
    size = 3

    def __init__(self, **attributes: Any) -> None:
        self._secret = 1
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def area(self) -> int:
        return self.size**2

    @property
    def broken(self) -> int:
        raise RuntimeError("no such thing")

    def move(self) -> None:
        pass


def test_attributes_and_properties_are_seen_and_methods_and_private_ones_are_not() -> None:
    assert public_attributes(Board(moves=["a", "b"])) == {"area": 9, "moves": ["a", "b"], "size": 3}


def test_arrays_become_lists_and_their_scalars_numbers() -> None:
    found = public_attributes(Board(grid=np.eye(2, dtype=np.int8), score=np.float32(0.5), by_name={"a": (1, None)}))
    assert found["grid"] == [[1, 0], [0, 1]] and found["score"] == 0.5 and found["by_name"] == {"a": [1, None]}


@pytest.mark.parametrize("value", [math.nan, object(), {1, 2}, b"bytes", np.zeros(MAX_CHARS), np.array([math.inf])])
def test_what_json_does_not_have_is_left_out(value: Any) -> None:
    assert public_attributes(Board(odd=value)) == {"area": 9, "size": 3}


def test_a_value_in_itself_is_left_out() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "cycle" not in public_attributes(Board(cycle=cycle))


def test_all_attributes_together_have_a_largest_size_and_small_ones_fit_after_a_large_one() -> None:
    found = public_attributes(Board(corpus=["text"] * MAX_CHARS, first="x" * (MAX_CHARS - 100), second="x" * 200))
    assert "corpus" not in found and "second" not in found and found["size"] == 3
    assert len(found["first"]) == MAX_CHARS - 100


@pytest.mark.processes
def test_the_end_of_an_episode_has_the_attributes_of_its_object(tmp_path: Path) -> None:
    source = "class Env:\n    def reset(self, **row):\n        self.moves = 0\n\n    def get_reward(self):\n"
    with playing(tmp_path, source + "        self.moves += 1\n        return 0.5\n", "Env") as played:
        process, _ = played.reset()
        assert played.finish(process) == {"reward": 0.5, "attributes": {"moves": 1}}
