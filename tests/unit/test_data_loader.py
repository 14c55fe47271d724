"""The loader: every epoch anew, and a resumed run sees exactly the batches it would have seen."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import PromptDataset
from verl_like.data.samplers import epoch_sampler

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


def test_epochs_are_shuffled_again_and_deterministically(dataset: PromptDataset) -> None:
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


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three files: 6 rows a0 to a5, 20 rows b0 to b19, 2 rows c0 and c1."""
    for name, size in (("a", 6), ("b", 20), ("c", 2)):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"prompt": f"{i}" + "+*-"["abc".index(name)], "answer": ""}) + "\n" for i in range(size))
        )
    return [str(tmp_path / f"{name}.jsonl") for name in "abc"]


def mixture(files: list[str], weights: list[float], *, batch_size: int = 6, shuffle: bool = True) -> PromptLoader:
    data = DataConfig(
        train_files=files,
        train_weights=weights,
        train_batch_size=batch_size,
        shuffle=shuffle,
        apply_chat_template=False,
    )
    dataset = PromptDataset(read_rows(files), data, character_tokenizer())
    return PromptLoader(dataset, data, seed=1)


def of(batch: list[str], sign: str) -> int:
    return sum(text.endswith(sign) for text in batch)


def test_every_batch_has_the_files_in_their_shares(files: list[str]) -> None:
    """Weights 2 and 1 in batches of 6: 4 and 2 prompts; 26 rows make epochs of 4 batches, which have 16 and 8."""
    source = mixture(files[:2], [2, 1])
    batches = texts(source, 8)
    assert source.batches_per_epoch == 4
    assert all(abs(of(batch, "+") - 4) <= 1 and of(batch, "+") + of(batch, "*") == 6 for batch in batches)
    assert sum(of(batch, "+") for batch in batches[:4]) == sum(of(batch, "+") for batch in batches[4:]) == 16


@pytest.mark.parametrize(
    ("weights", "batch_size"), [([20, *[1] * 10], 8), ([20, *[1] * 10], 32), ([1] * 8, 5), ([7, 3, 1], 4), ([1], 3)]
)
def test_every_batch_has_less_than_two_prompts_too_many_or_too_few_of_a_file(
    weights: list[int], batch_size: int
) -> None:
    """Equal weights have equal places, and do not come in a lump: of 20/30 of 8 prompts a batch once had none."""
    num_rows = sum(weights) * batch_size  # so that an epoch has the shares exactly
    numbers = [row % len(weights) for row in range(num_rows)]
    files = [f"{i}.jsonl" for i in range(len(weights))]
    data = DataConfig(train_files=files, train_weights=weights, train_batch_size=batch_size)
    source = epoch_sampler(numbers, data, seed=1)
    batches = [Counter(numbers[row] for row in source.next_batch()) for _ in range(source.batches_per_epoch)]
    for file, weight in enumerate(weights):
        share = weight / sum(weights) * batch_size
        assert all(abs(batch[file] - share) < 2 for batch in batches)
        assert sum(batch[file] for batch in batches) == weight * batch_size, "of an epoch it is exact"


def test_weights_whose_sum_is_too_large_for_a_float_are_shares(files: list[str]) -> None:
    assert texts(mixture(files, [1e308, 1e308, 5e307]), 4) == texts(mixture(files, [2, 2, 1]), 4)


def test_a_file_is_gone_through_pass_by_pass_across_epochs(files: list[str]) -> None:
    """Of the 20 rows of b an epoch takes 8: two and a half epochs are a pass, in which each row comes once."""
    drawn = [text for batch in texts(mixture(files[:2], [2, 1]), 20) for text in batch]
    assert sorted(drawn_of_b := [text for text in drawn if text.endswith("*")][:20]) == sorted(set(drawn_of_b))
    first, second = [[t for t in drawn if t.endswith("+")][start : start + 6] for start in (0, 6)]
    assert len(set(first)) == len(set(second)) == 6 and first != second, "each pass has its own order"


def test_unshuffled_files_keep_their_order_in_a_mixture(files: list[str]) -> None:
    drawn = [text for batch in texts(mixture(files[:2], [2, 1], shuffle=False), 10) for text in batch]
    assert [text for text in drawn if text.endswith("*")] == [f"{i}*" for i in range(20)]
    assert [text for text in drawn if text.endswith("+")][:12] == [f"{i % 6}+" for i in range(12)]


def test_weights_of_the_files_own_sizes_take_every_row_once(files: list[str]) -> None:
    source = mixture(files, [6, 20, 2], batch_size=4)
    epoch = [text for batch in texts(source, source.batches_per_epoch) for text in batch]
    assert len(epoch) == len(set(epoch)) == 28


@pytest.mark.parametrize("stop_after", [0, 1, 3, 4, 9])
def test_a_mixture_resumes_exactly(files: list[str], stop_after: int) -> None:
    expected = [[p.uid for p in batch] for batch in itertools.islice(mixture(files, [1, 1, 1]), stop_after + 8)]
    first = mixture(files, [1, 1, 1])
    texts(first, stop_after)
    resumed = mixture(files, [1, 1, 1])
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [[p.uid for p in batch] for batch in itertools.islice(resumed, 8)] == expected[stop_after:]


def test_a_row_that_comes_twice_in_a_batch_has_two_uids(files: list[str]) -> None:
    """A third of 12 prompts is 4, and c has 2 rows."""
    batch = next(iter(mixture(files, [1, 1, 1], batch_size=12)))
    uids = [prompt.uid for prompt in batch]
    assert len(set(uids)) == 12 and {"c.jsonl:0", "c.jsonl:0#2", "c.jsonl:1", "c.jsonl:1#2"} <= set(uids)


def test_a_checkpoint_of_other_weights_is_refused(files: list[str]) -> None:
    state = mixture(files, [1, 1, 1]).state_dict()
    with pytest.raises(ValueError, match=r"'weights': \(\[1, 1, 1\], \[2, 1, 1\]\)"):
        mixture(files, [2, 1, 1]).load_state_dict(state)


def test_a_share_that_gives_no_prompt_is_refused(files: list[str]) -> None:
    with pytest.raises(ValueError, match=r"gives .*c\.jsonl none of the 24 prompts of an epoch.*Raise its weight"):
        mixture(files, [1, 1, 0.001])


def test_a_share_of_a_file_without_rows_is_refused(files: list[str]) -> None:
    rows = read_rows(files)
    rows = rows.take(np.flatnonzero(rows.file_numbers != 1))
    data = DataConfig(train_files=files, train_weights=[1, 1, 1], train_batch_size=2, apply_chat_template=False)
    with pytest.raises(ValueError, match=r"gives .*b\.jsonl a share, but none of its rows is left"):
        PromptLoader(PromptDataset(rows, data, character_tokenizer()), data, seed=1)


def test_fewer_rows_than_a_batch_is_refused(dataset: PromptDataset) -> None:
    with pytest.raises(ValueError, match=r"has 11 rows.*data\.train_batch_size=12\. Set data\.train_batch_size=11"):
        loader(dataset, batch_size=12)
