"""Samplers from a user's file: orders of epochs, choices of batches, and the message of each error."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.loader import PromptLoader, rehearse
from verl_like.data.prompts import PromptDataset

NUM_ROWS, BATCH_SIZE = 7, 3  # 2 batches an epoch

SOURCE = """
import random
from itertools import count

import numpy as np

def longest_first(prompts, seed, epoch):
    return sorted(range(len(prompts)), key=lambda row: -len(prompts[row].prompt_ids))

def same_row(prompts, seed, epoch, row=0):
    return (row for _ in count())

def by_epoch(prompts, seed, epoch):
    return np.random.default_rng([seed, epoch]).permutation(len(prompts))

def unseeded(prompts, seed, epoch):
    return random.sample(range(len(prompts)), len(prompts))

def few(prompts, seed, epoch): return [0, 1]
def floats(prompts, seed, epoch): return [0.0] * 7
def mask(prompts, seed, epoch): return [True] * 7
def beyond(prompts, seed, epoch): return [0, 1, 7, 2, 3, 4]
def negative(prompts, seed, epoch): return [-1] * 7
def text(prompts, seed, epoch): return "0123456"
def nothing(prompts, seed, epoch): pass
def fails(prompts, seed, epoch): raise KeyError("level")
def no_epoch(prompts): return range(7)

class Hardest:
    '''The rows of the lowest mean score so far, drawn at random among equals.'''
    def __init__(self, prompts, batch_size, seed, start=1.0):
        self.batch_size, self.rng = batch_size, np.random.default_rng(seed)
        self.scores = [start] * len(prompts)
    def next_batch(self):
        tie = self.rng.random(len(self.scores))
        return np.lexsort([tie, self.scores])[: self.batch_size]
    def feedback(self, scores):
        for row, score in scores.items():
            self.scores[row] = score
    def state_dict(self):
        return {"scores": self.scores, "rng": self.rng.bit_generator.state}
    def load_state_dict(self, state):
        self.scores, self.rng.bit_generator.state = state["scores"], state["rng"]

class Forgetful(Hardest):
    def state_dict(self):
        return {"scores": self.scores}
    def load_state_dict(self, state):
        self.scores = state["scores"]
        self.rng.random(100)

class Tuples(Hardest):
    def state_dict(self):
        return {"scores": {"all": tuple(self.scores)}}

class Numbered(Hardest):
    def state_dict(self):
        return {"scores": dict(enumerate(self.scores))}

class Arrays(Hardest):
    def state_dict(self):
        return np.array(self.scores)

class Same(Hardest):
    '''A row that comes again.'''
    def __init__(self, prompts, batch_size, seed, row):
        super().__init__(prompts, batch_size, seed)
        self.row = row
    def next_batch(self):
        return [self.row] * self.batch_size

class Pops:
    '''The rows in their order, each taken out of the list that its state holds.'''
    def __init__(self, prompts, batch_size, seed, **unused):
        self.batch_size, self.left = batch_size, list(range(len(prompts)))
    def next_batch(self): return [self.left.pop(0) for _ in range(self.batch_size)]
    def state_dict(self): return {"left": self.left}
    def load_state_dict(self, state): self.left = state["left"]

class Deaf:
    def __init__(self, prompts, batch_size, seed): self.batch_size = batch_size
    def next_batch(self): return range(self.batch_size)
    def state_dict(self): return {}
    def load_state_dict(self, state): pass

class Short(Hardest):
    def next_batch(self):
        return [0]

class Long(Hardest):
    def next_batch(self):
        return count()

class Late(Hardest):
    def feedback(self, scores, step):
        pass

class Stateless:
    def __init__(self, prompts, batch_size, seed): pass
    def next_batch(self): return [0, 1, 2]

class Built:
    def __init__(self, prompts): pass
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


@pytest.fixture
def dataset(tmp_path: Path) -> PromptDataset:
    """Row i is the digit i, i + 1 times."""
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"prompt": str(i) * (i + 1), "answer": ""}) + "\n" for i in range(NUM_ROWS)))
    return PromptDataset(read_rows([str(path)]), DataConfig(apply_chat_template=False), character_tokenizer())


def options(file: str, name: str, **kwargs: Any) -> DataConfig:
    return DataConfig(sampler=f"{file}:{name}", sampler_kwargs=kwargs, train_batch_size=BATCH_SIZE)


def loader(dataset: PromptDataset, file: str, name: str, **kwargs: Any) -> PromptLoader:
    return PromptLoader(dataset, options(file, name, **kwargs), seed=1)


def rows(source: PromptLoader, num_batches: int) -> list[list[int]]:
    return [[int(prompt.text[0]) for prompt in batch] for batch in itertools.islice(source, num_batches)]


def feed(source: PromptLoader, batch: Sequence[int], score: float) -> None:
    source.feedback([f"x.jsonl:{row}" for row in batch for _ in range(2)], [score - 0.1, score + 0.1] * len(batch))


def test_a_function_orders_each_epoch(dataset: PromptDataset, file: str) -> None:
    assert rows(loader(dataset, file, "longest_first"), 3) == [[6, 5, 4], [3, 2, 1], [6, 5, 4]]
    epochs = rows(loader(dataset, file, "by_epoch"), 4)
    assert epochs[:2] != epochs[2:] and epochs == rows(loader(dataset, file, "by_epoch"), 4)


def test_a_row_may_be_repeated_and_an_endless_order_is_cut(dataset: PromptDataset, file: str) -> None:
    batch = next(iter(loader(dataset, file, "same_row", row=4)))
    assert [prompt.uid for prompt in batch] == ["x.jsonl:4", "x.jsonl:4#2", "x.jsonl:4#3"]


def test_a_class_chooses_by_the_scores_it_gets(dataset: PromptDataset, file: str) -> None:
    source = loader(dataset, file, "Hardest")
    [first] = rows(source, 1)
    feed(source, first, 0.2)
    assert sorted(rows(source, 1)[0]) == sorted(first), "the lowest scores so far"
    feed(source, first, 1.5)
    assert set(rows(source, 1)[0]).isdisjoint(first)


def test_the_mean_score_of_a_row_leaves_out_responses_without_one(dataset: PromptDataset, file: str) -> None:
    source = loader(dataset, file, "Hardest")
    [[row, *_]] = rows(source, 1)
    source.feedback([f"x.jsonl:{row}"] * 3, [0.0, float("nan"), 1.0])
    assert source.state_dict()["sampler"]["scores"][row] == 0.5
    source.feedback([f"x.jsonl:{row}"], [float("nan")])
    assert source.state_dict()["sampler"]["scores"][row] == 0.5


def test_a_row_that_came_twice_is_scored_once_by_all_its_responses(dataset: PromptDataset, file: str) -> None:
    source = loader(dataset, file, "Hardest")
    [[row, *_]] = rows(source, 1)
    repeated = loader(dataset, file, "Same", row=row)
    uids = [prompt.uid for prompt in repeated.next_batch()]
    repeated.feedback(uids, [0.0, 0.0, 1.5])
    assert repeated.state_dict()["sampler"]["scores"][row] == 0.5


@pytest.mark.parametrize(("name", "learns"), [("longest_first", False), ("Deaf", False), ("Hardest", True)])
def test_scores_are_kept_for_those_that_take_them(dataset: PromptDataset, file: str, name: str, learns: bool) -> None:
    source = loader(dataset, file, name)
    uids = [prompt.uid for prompt in source.next_batch()]
    source.feedback(uids, [0.5] * len(uids))
    assert len(source._row) == (len(uids) if learns else 0), "a driver of millions of prompts holds none of them"


@pytest.mark.parametrize("name", ["longest_first", "by_epoch", "Hardest"])
@pytest.mark.parametrize("stop_after", [0, 1, 2, 3])
def test_resuming_continues_exactly(dataset: PromptDataset, file: str, name: str, stop_after: int) -> None:
    def taken(source: PromptLoader, num_batches: int) -> list[list[int]]:
        found = []
        for _ in range(num_batches):
            [batch] = rows(source, 1)
            feed(source, batch, sum(batch) / 10)
            found.append(batch)
        return found

    expected = taken(loader(dataset, file, name), stop_after + 5)
    first = loader(dataset, file, name)
    taken(first, stop_after)
    state = json.dumps(first.state_dict())
    assert taken(first, 5) == expected[stop_after:], "taking the state must not disturb the sampler"
    resumed = loader(dataset, file, name)
    resumed.load_state_dict(json.loads(state))
    assert taken(resumed, 5) == expected[stop_after:]


def test_a_state_is_a_copy_that_later_scores_leave_alone(dataset: PromptDataset, file: str) -> None:
    """A dropped step is drawn again from the state before it, whatever scores it had reported."""
    source = loader(dataset, file, "Hardest")
    state = source.state_dict()
    [batch] = rows(source, 1)
    feed(source, batch, 0.3)
    assert state["sampler"]["scores"] == [1.0] * NUM_ROWS


def test_a_state_that_was_loaded_is_a_copy_too(dataset: PromptDataset, file: str) -> None:
    """It is saved once more where the first step of a continued run does not finish."""
    state = loader(dataset, file, "Pops").state_dict()
    resumed = loader(dataset, file, "Pops")
    resumed.load_state_dict(state)
    assert rows(resumed, 1) == [[0, 1, 2]]
    assert state["sampler"]["left"] == list(range(NUM_ROWS))


@pytest.mark.parametrize("kwargs", [{"by_level": {0: 1.0, 1: 2.0}}, {"missing": float("nan")}])
def test_arguments_that_json_changes_are_those_of_the_checkpoint(
    dataset: PromptDataset, file: str, kwargs: dict[str, Any]
) -> None:
    rehearse(dataset, options(file, "Pops", **kwargs), seed=1)
    state = json.loads(json.dumps(loader(dataset, file, "Pops", **kwargs).state_dict()))
    with pytest.raises(ValueError, match=r"'sampler_kwargs': \(.*, \{'other': 1\}\)"):
        loader(dataset, file, "Pops", other=1).load_state_dict(state)


def test_a_checkpoint_of_another_sampler_is_refused(dataset: PromptDataset, file: str) -> None:
    state = loader(dataset, file, "Hardest").state_dict()
    with pytest.raises(ValueError, match=r"'sampler': \('mine.py:Hardest', 'mine.py:by_epoch'\)"):
        loader(dataset, file, "by_epoch").load_state_dict(state)
    with pytest.raises(ValueError, match=r"'sampler_kwargs': \(\{\}, \{'start': 0.5\}\)"):
        loader(dataset, file, "Hardest", start=0.5).load_state_dict(state)


@pytest.mark.parametrize("name", ["longest_first", "by_epoch", "same_row", "Hardest"])
def test_what_works_passes_the_rehearsal(dataset: PromptDataset, file: str, name: str) -> None:
    rehearse(dataset, options(file, name), seed=1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("few", r"returned 2 rows for epoch 0; expected at least 6, which are 2 batches of data\.train_batch_size=3"),
        ("floats", r"returned 0\.0 at position 0 of epoch 0; expected row numbers, integers from 0 to 6"),
        ("mask", r"returned True at position 0 of epoch 0"),
        ("beyond", r"returned 7 at position 2 of epoch 0.*there are 7 prompts, without those that are too long"),
        ("negative", r"returned -1 at position 0"),
        ("text", r"returned a str for epoch 0; expected row numbers: a list, an array"),
        ("nothing", r"returned a NoneType for epoch 0"),
        ("fails", r"failed:\n(.*\n)*.*KeyError: 'level'\nCorrect the file, or data\.sampler_kwargs"),
        ("no_epoch", r"failed:\n(.*\n)*.*no_epoch\(\) got an unexpected keyword argument 'seed'"),
        ("unseeded", r"does not continue from its state.*Draw at random only from the given seed"),
        ("Forgetful", r"does not continue from its state: a second sampler with that state returns x\.jsonl:\d"),
        ("Tuples", r"returned a tuple in 'all' as its state; expected a dict with text for keys"),
        ("Numbered", r"returned the key 0 in 'scores' as its state"),
        ("Arrays", r"returned a ndarray as its state"),
        ("Short", r"returned 1 rows for a batch; expected data\.train_batch_size=3"),
        ("Long", r"returned more than 3 rows for a batch"),
        ("Late", r"failed:\n(.*\n)*.*feedback\(\) missing 1 required positional argument: 'step'"),
        ("Stateless", r"lacks state_dict, load_state_dict; expected a class with next_batch\(\)"),
        ("Built", r"failed:\n(.*\n)*.*__init__\(\) got an unexpected keyword argument 'batch_size'"),
        ("nowhere", r"defines no 'nowhere'"),
    ],
)
def test_errors_of_a_file_are_reported_before_anything_starts(
    dataset: PromptDataset, file: str, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        rehearse(dataset, options(file, name), seed=1)
    assert "data.sampler=" in str(caught.value) and "custom_sampler.py" not in str(caught.value)


def test_unknown_arguments_are_reported(dataset: PromptDataset, file: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected keyword argument 'level'\nCorrect the file, or data\.sampler_k"):
        rehearse(dataset, options(file, "Hardest", level=1), seed=1)


@pytest.mark.parametrize("name", ["shortest_first", "Unsolved"])
def test_the_samplers_of_the_page_work(dataset: PromptDataset, tmp_path: Path, name: str) -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    (tmp_path / "page.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)))
    rehearse(dataset, options(str(tmp_path / "page.py"), name), seed=1)
