"""The tiles of the output layer: they cover the vocabulary, and on GPUs their widths suit matrix products."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like.ops.tiles import FLOAT32, TILES_IN_BUDGET, num_tiles, tile_spans

# Columns of the output layer, as in the config.json of each family.
VOCABULARIES = {
    "qwen2.5-0.5b": 151_936,
    "qwen2.5-7b": 152_064,
    "qwen3": 151_936,
    "llama-2": 32_000,
    "llama-3": 128_256,
    "mistral": 32_768,
    "mistral-nemo": 131_072,
    "gemma-3": 262_208,
    "deepseek-v2": 102_400,
    "deepseek-v3": 129_280,
    "gpt-oss": 201_088,
    "phi-3": 32_064,
}
BUDGET = 512 * 2**20


@pytest.mark.parametrize("vocabulary", VOCABULARIES.values(), ids=VOCABULARIES)
@pytest.mark.parametrize("rows", [1, 7, 100, 1024, 5_000, 14_336, 65_536])
def test_widths_on_a_gpu_are_multiples_of_64(vocabulary: int, rows: int) -> None:
    count = num_tiles(rows, vocabulary, budget=BUDGET, on_cpu=False)
    spans = tile_spans(vocabulary, count, on_cpu=False)
    assert [width % 64 for width in widths(spans)] == [0] * len(spans)
    assert all(start % 64 == 0 for start, _ in spans)
    assert max(widths(spans)) * rows * FLOAT32 <= 1.25 * BUDGET / TILES_IN_BUDGET or count == 1


@given(st.integers(1, 300_000), st.integers(1, 3000), st.booleans())
def test_tiles_cover_the_vocabulary_once_and_are_about_equal(vocabulary: int, count: int, on_cpu: bool) -> None:
    count = min(count, vocabulary)
    spans = tile_spans(vocabulary, count, on_cpu=on_cpu)
    assert spans[0][0] == 0 and spans[-1][1] == vocabulary
    assert all(stop == start for (_, stop), (start, _) in zip(spans[:-1], spans[1:], strict=True))
    assert min(widths(spans)) > 0 and max(widths(spans)) - min(widths(spans)) <= 2 * 128


def widths(spans: list[tuple[int, int]]) -> list[int]:
    return [stop - start for start, stop in spans]
