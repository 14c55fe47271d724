"""Tokenised prompts on disk: when they are used, when they are made again, and what happens to a damaged entry."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit.test_data_large import as_text
from verl_like.config.schema import DataConfig
from verl_like.data import prompt_cache, prompts, tokenised_prompts
from verl_like.data.files import open_rows
from verl_like.data.prompt_cache import PromptCache
from verl_like.data.prompts import PromptDataset
from verl_like.data.records import JsonLines
from verl_like.data.tokenised_prompts import prompt_batches

NUM_ROWS = 20
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if sign is defined %}{{ sign }}{% endif %}"


@pytest.fixture(autouse=True)
def every_size_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_cache, "MIN_ROWS", 1)
    monkeypatch.setattr(tokenised_prompts, "ROWS_PER_BATCH", 8)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the numbers of rows that are tokenised."""
    found: list[int] = []

    def recorded(rows: Any, *arguments: Any) -> Iterator[pa.RecordBatch]:
        found.append(len(rows))
        return prompt_batches(rows, *arguments)

    monkeypatch.setattr(prompts, "prompt_batches", recorded)
    return found


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "x.jsonl")


def write(path: Path, *, last: str = "1+1=") -> Path:
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "data_source": f"s{i % 2}"} for i in range(NUM_ROWS - 1)]
    rows.append({"prompt": last, "answer": "2", "data_source": "last"})
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def started(file: Path, tokenizer: PreTrainedTokenizerBase, cache: Path | str, **options: Any) -> PromptDataset:
    """Return the prompts as a start of a run reads them."""
    data = DataConfig(prompt_cache=str(cache), **options)
    return PromptDataset(open_rows([str(file)]), data, tokenizer)


def entry(cache: Path, suffix: str) -> Path:
    [found] = cache.glob(f"*{suffix}")
    return found


def same(one: PromptDataset, other: PromptDataset) -> bool:
    return (one.digest, one.data_sources, [as_text(p) for p in one]) == (
        other.digest,
        other.data_sources,
        [as_text(p) for p in other],
    )


def test_a_second_start_tokenises_and_decodes_nothing(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = started(file, tokenizer, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(JsonLines, "read", lambda *_: pytest.fail("rows were decoded"))
        patch.setattr(JsonLines, "check", lambda *_: pytest.fail("rows were decoded"))
        second = started(file, tokenizer, tmp_path / "cache")
    assert made == [NUM_ROWS]
    assert same(first, second) and same(first, started(file, tokenizer, ""))
    assert second.file_numbers.tolist() == [0] * NUM_ROWS
    assert second[0].prompt_ids.flags.owndata


def test_a_copy_in_another_folder_and_options_that_change_no_prompt_use_the_entry(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, made: list[int]
) -> None:
    started(file, tokenizer, tmp_path / "cache")
    started(write(tmp_path / "copy/x.jsonl"), tokenizer, tmp_path / "cache", train_batch_size=4, shuffle=False)
    assert made == [NUM_ROWS]


@pytest.mark.parametrize(
    "options",
    [
        {"chat_template_kwargs": {"sign": "-"}},
        {"format_prompt": "({{ content }})"},
        {"apply_chat_template": False},
        {"answer_key": "data_source"},
        {"prompt_key": "answer"},
        {"data_source": "other"},
        {"max_prompt_length": 511},
        {"overlong_prompts": "drop"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_option_that_decides_prompts_has_its_own_entry(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, made: list[int], options: dict[str, Any]
) -> None:
    started(file, tokenizer, tmp_path / "cache")
    found = started(file, tokenizer, tmp_path / "cache", **options)
    assert made == [NUM_ROWS, NUM_ROWS]
    assert same(found, started(file, tokenizer, "", **options))


@pytest.mark.parametrize("change", ["rows", "name", "template", "special tokens", "vocabulary", "format file", "code"])
def test_another_source_of_the_prompts_has_its_own_entry(
    tmp_path: Path,
    file: Path,
    tokenizer: PreTrainedTokenizerBase,
    made: list[int],
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "f.jinja").write_text("{{ content }}")
    options = {"format_prompt": str(tmp_path / "f.jinja")}
    started(file, tokenizer, tmp_path / "cache", **options)
    if change == "rows":
        write(file, last="2+2=")
    elif change == "name":
        file = file.rename(tmp_path / "y.jsonl")
    elif change == "template":
        tokenizer.chat_template = TEMPLATE + "="
    elif change == "special tokens":
        tokenizer.eos_token = "="
    elif change == "vocabulary":
        tokenizer.add_tokens(["1+1"])
    elif change == "format file":
        (tmp_path / "f.jinja").write_text("{{ content }}=")
    else:
        monkeypatch.setattr(prompt_cache, "_own_code", lambda: "another version")
    found = started(file, tokenizer, tmp_path / "cache", **options)
    assert made == [NUM_ROWS, NUM_ROWS]
    assert same(found, started(file, tokenizer, "", **options))


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "no manifest", "another manifest", "odd manifest"])
def test_a_damaged_entry_is_made_again(
    tmp_path: Path,
    file: Path,
    tokenizer: PreTrainedTokenizerBase,
    made: list[int],
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = tmp_path / "cache"
    first = [as_text(prompt) for prompt in started(file, tokenizer, cache)]
    arrow, manifest = entry(cache, ".arrow"), entry(cache, ".json")
    content = bytearray(arrow.read_bytes())
    if damage == "cut":
        arrow.write_bytes(content[:-100])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        arrow.write_bytes(content)
    elif damage == "missing":
        arrow.unlink()
    elif damage == "no manifest":
        manifest.write_text("")
    elif damage == "another manifest":
        manifest.write_text(manifest.read_text().replace('"last"', '"lost"'))
    else:
        manifest.write_text('{"facts": {"rows": 3}}')
    with caplog.at_level(logging.WARNING):
        second = started(file, tokenizer, cache)
    assert [as_text(prompt) for prompt in second] == first and second.data_sources == ["s0", "s1", "last"]
    assert made == [NUM_ROWS, NUM_ROWS]
    assert ("is damaged" in caplog.text) == (damage != "missing")
    started(file, tokenizer, cache)
    assert made == [NUM_ROWS, NUM_ROWS]  # the new entry is whole


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file")
    with caplog.at_level(logging.WARNING):
        found = started(file, tokenizer, tmp_path / "cache/prompts")
    assert "data.prompt_cache: cannot write" in caplog.text
    assert same(found, started(file, tokenizer, ""))


def test_a_full_disk_is_a_warning_and_leaves_nothing(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    rows, data = open_rows([str(file)]), DataConfig()
    tries: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        tries.append(len(tries))
        for batch in prompt_batches(rows, data, tokenizer):
            yield batch
            if tries == [0]:
                raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.WARNING):
        found = PromptCache(tmp_path / "cache", "key").stored(batches)
    assert "No space left on device" in caplog.text and list((tmp_path / "cache").iterdir()) == []
    assert len(found.lengths) == NUM_ROWS and tries == [0, 1]


def test_a_damaged_entry_that_cannot_be_written_again_stays_damaged(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    started(file, tokenizer, cache)
    [entry] = cache.glob("*.arrow")
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    with monkeypatch.context() as disk:
        disk.setattr(pa, "OSFile", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        started(file, tokenizer, cache)
    assert same(started(file, tokenizer, ""), started(file, tokenizer, cache)), "the damaged prompts were read"


@pytest.mark.parametrize("written", ["{{ strftime_now('%d %b %Y') }}", "{{ ['a', 'b'] | random }}"])
def test_a_template_that_writes_the_date_or_draws_is_rendered_at_each_start(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, made: list[int], written: str
) -> None:
    tokenizer.chat_template = TEMPLATE + written
    for _ in range(2):
        started(file, tokenizer, tmp_path / "cache")
    assert made == [NUM_ROWS, NUM_ROWS] and not (tmp_path / "cache").exists()


def test_a_few_rows_and_an_empty_option_leave_no_folder(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    started(file, tokenizer, "")
    monkeypatch.setattr(prompt_cache, "MIN_ROWS", NUM_ROWS + 1)
    started(file, tokenizer, "cache")
    assert made == [NUM_ROWS, NUM_ROWS] and [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_errors_of_rows_come_at_each_start_and_leave_no_entry(
    tmp_path: Path, file: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    write(file, last="")
    for _ in range(2):
        with pytest.raises(ValueError, match=rf"row {NUM_ROWS - 1} of .*x\.jsonl has an empty prompt"):
            started(file, tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_warnings_of_long_prompts_and_tools_are_repeated(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"prompt": "1" * (1 + i % 2), "answer": "2", "extra_info": {"need_tools_kwargs": True}} for i in range(6)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = started(
                tmp_path / "x.jsonl", tokenizer, tmp_path / "cache", max_prompt_length=1, overlong_prompts="drop"
            )
        assert "dropped 3 of 6 prompts" in caplog.text and "3 of 3 rows require tools" in caplog.text
        assert [prompt.uid for prompt in found] == ["x.jsonl:0", "x.jsonl:2", "x.jsonl:4"]
