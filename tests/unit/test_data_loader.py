"""The loader: every epoch anew, and a resumed run sees exactly the batches it would have seen."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path

import pytest
import torch

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import PromptDataset

NUM_ROWS, BATCH_SIZE = 11, 3  # 3 batches an epoch, 2 rows left over


@pytest.fixture
def dataset(tmp_path: Path) -> PromptDataset:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"prompt": str(i), "answer": ""}) + "\n" for i in range(NUM_ROWS)))
    return PromptDataset(read_rows([str(path)]), DataConfig(apply_chat_template=False), character_tokenizer())


def loader(
    dataset: PromptDataset, *, seed: int = 1, shuffle: bool = True, batch_size: int = BATCH_SIZE
) -> PromptLoader:
    return PromptLoader(dataset, DataConfig(train_batch_size=batch_size, shuffle=shuffle), seed=seed)


def texts(source: PromptLoader, num_batches: int) -> list[list[str]]:
    return [[prompt.text for prompt in batch] for batch in itertools.islice(source, num_batches)]


def test_an_epoch_shows_each_row_at_most_once_and_drops_the_rest(dataset: PromptDataset) -> None:
    source = loader(dataset)
    assert source.batches_per_epoch == 3
    epoch = [text for batch in texts(source, 3) for text in batch]
    assert len(epoch) == 9 and len(set(epoch)) == 9


def test_epochs_are_shuffled_anew_and_deterministically(dataset: PromptDataset) -> None:
    batches = texts(loader(dataset), 6)
    assert batches[:3] != batches[3:]
    assert batches == texts(loader(dataset), 6)
    assert batches != texts(loader(dataset, seed=2), 6)


def test_without_shuffling_rows_keep_their_order(dataset: PromptDataset) -> None:
    assert texts(loader(dataset, shuffle=False), 4) == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7", "8"],
        ["0", "1", "2"],
    ]


@pytest.mark.parametrize("stop_after", [0, 1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("shuffle", [True, False])
def test_resuming_continues_exactly(dataset: PromptDataset, stop_after: int, shuffle: bool) -> None:
    """In the middle of an epoch (1, 2, 4, 7), at its border (3, 6) and before the first batch."""
    expected = texts(loader(dataset, shuffle=shuffle), stop_after + 8)
    first = loader(dataset, shuffle=shuffle)
    texts(first, stop_after)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    resumed = loader(dataset, shuffle=shuffle)
    resumed.load_state_dict(state)
    assert resumed.num_drawn == first.num_drawn == len(expected[:stop_after]) * len(expected[0])
    assert texts(resumed, 8) == expected[stop_after:]
    assert texts(first, 8) == expected[stop_after:], "taking the state must not disturb the loader"


def test_state_can_be_taken_again_after_resuming(dataset: PromptDataset) -> None:
    expected = texts(loader(dataset), 10)
    source = loader(dataset)
    for position in range(0, 10, 2):
        assert texts(source, 2) == expected[position : position + 2]
        state, source = source.state_dict(), loader(dataset)
        source.load_state_dict(state)


def test_loading_draws_nothing_from_the_global_random_state(dataset: PromptDataset) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    texts(loader(dataset), 5)
    assert torch.equal(torch.rand(2), expected)


def test_a_checkpoint_of_other_settings_is_refused(dataset: PromptDataset) -> None:
    state = loader(dataset).state_dict()
    with pytest.raises(ValueError, match=r"does not fit this run.*'batch_size': \(3, 4\)"):
        loader(dataset, batch_size=4).load_state_dict(state)
    with pytest.raises(ValueError, match=r"'seed': \(1, 2\)"):
        loader(dataset, seed=2).load_state_dict(state)


def test_fewer_rows_than_a_batch_is_refused(dataset: PromptDataset) -> None:
    with pytest.raises(ValueError, match=r"has 11 rows.*data\.train_batch_size=12\. Set data\.train_batch_size=11"):
        loader(dataset, batch_size=12)
