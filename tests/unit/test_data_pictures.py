"""Rows with pictures: every form of input, the prompt that it gives, and the message for each that is refused."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.custom_rows import CustomRows
from verl_like.data.files import EncodedRows, read_rows
from verl_like.data.pictures import decoded, picture, size_of
from verl_like.data.prompts import Prompt, PromptDataset, prompt_table

PAD = "<|image_pad|>"
TEMPLATE = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}" + PAD + "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}="
)
LIMIT = 50_000_000


class Patches:
    """A token for each 2 x 2 pixels."""

    token = PAD

    def __init__(self, token_id: int) -> None:
        self.token_id = token_id

    def count(self, height: int, width: int) -> int:
        return max(1, height // 2 * (width // 2))


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = character_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [PAD]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def encoded(height: int = 4, width: int = 6, *, mode: str = "RGB", form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, form, **options)
    return file.getvalue()


SMALL, LARGE = encoded(2, 4), encoded(4, 6)  # of 2 and of 6 tokens


def data(**options: Any) -> DataConfig:
    return DataConfig(**{"answer_key": "", **options})


def dataset(
    rows: list[dict[str, Any]] | EncodedRows, tokenizer: PreTrainedTokenizerBase, **options: Any
) -> PromptDataset:
    found = read_rows(["x"], lambda _: rows) if isinstance(rows, list) else rows
    pictures = Patches(tokenizer.convert_tokens_to_ids(PAD))
    return PromptDataset(found, data(**options), tokenizer, pictures=pictures)


def one(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase, **options: Any) -> Prompt:
    return dataset([row], tokenizer, **options)[0]


def images(prompt: Prompt) -> list[bytes]:
    return [] if prompt.features is None else list(prompt.features["images"])


def jsonl(path: Path, *rows: dict[str, Any]) -> EncodedRows:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_rows([str(path)])


def data_url(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


TEXT, EMPTY = {"type": "text", "text": "1+1"}, {"type": "image"}


# --- forms ---


@pytest.mark.parametrize(
    ("row", "text", "expected"),
    [
        ({"prompt": "1+1", "images": [SMALL]}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "images": SMALL}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "images": [{"bytes": SMALL, "path": "gone.png"}]}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "image": {"bytes": SMALL, "path": None}}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "images": [data_url(SMALL)]}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "images": [{"image": data_url(SMALL)}]}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "images": [{"type": "image", "image": SMALL, "url": None}]}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1+1", "image": {"url": data_url(SMALL)}}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": "1<image>+<image>1", "images": [SMALL, LARGE]}, f"1{PAD}+{PAD}1=", [SMALL, LARGE]),
        ({"prompt": [{"role": "user", "content": "<image>1"}], "images": [SMALL]}, f"{PAD}1=", [SMALL]),
        ({"prompt": user(TEXT, EMPTY), "images": [SMALL]}, f"1+1{PAD}=", [SMALL]),
        ({"prompt": user({"type": "image", "image": SMALL, "path": None}, TEXT)}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": user({"type": "image", "bytes": SMALL, "path": "gone.png"})}, f"{PAD}=", [SMALL]),
        ({"prompt": user({"type": "image", "url": data_url(SMALL)}, TEXT)}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": user({"type": "image_url", "image_url": {"url": data_url(SMALL)}})}, f"{PAD}=", [SMALL]),
        (
            {"prompt": user(EMPTY, {"type": "image", "image": LARGE}, EMPTY), "images": [SMALL, SMALL]},
            f"{PAD}{PAD}{PAD}=",
            [SMALL, LARGE, SMALL],
        ),
        ({"prompt": user(TEXT, TEXT), "images": [SMALL]}, f"{PAD}1+11+1=", [SMALL]),
        ({"prompt": user(TEXT, TEXT)}, "1+11+1=", []),
        ({"prompt": "1+1", "images": [], "image": None}, "1+1=", []),
        (
            {
                "prompt": [{"role": "system", "content": "0"}, {"role": "user", "content": "1"}],
                "images": [SMALL, SMALL],
            },
            f"0{PAD}{PAD}1=",
            [SMALL, SMALL],
        ),
        (
            {
                "prompt": [{"role": "system", "content": "<image>0"}, {"role": "user", "content": "1"}],
                "images": [SMALL],
            },
            f"{PAD}01=",
            [SMALL],
        ),
        (
            {
                "prompt": [
                    {"role": "user", "content": "1"},
                    {"role": "assistant", "content": [EMPTY, TEXT]},
                    {"role": "user", "content": "2"},
                ],
                "images": [SMALL],
            },
            f"1{PAD}1+12=",
            [SMALL],
        ),
        ({"prompt": "1+1", "images": [SMALL], "image": "a red ball"}, f"{PAD}1+1=", [SMALL]),
        ({"prompt": user({"type": "text", "text": "<image>"})}, "<image>=", []),
    ],
)
def test_each_form_of_row_gives_its_text_and_pictures(
    row: dict[str, Any], text: str, expected: list[bytes], tokenizer: PreTrainedTokenizerBase
) -> None:
    prompt = one(row, tokenizer)
    assert (prompt.text, images(prompt)) == (text, expected)
    assert "images" not in prompt.columns and b"PNG" not in repr((prompt.messages, prompt.columns)).encode()


def test_more_pictures_than_an_engine_reads_are_refused_at_the_start(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"prompt": "1", "images": [encoded()] * 65}
    with pytest.raises(ValueError, match=r"has 65 pictures; expected at most 64, as many as an engine reads"):
        one(row, tokenizer)


def test_an_image_of_pillow_is_read_as_png(tokenizer: PreTrainedTokenizerBase) -> None:
    [content] = images(one({"prompt": "1", "images": [Image.new("RGB", (4, 2), "red")]}, tokenizer))
    assert decoded(content).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("mode", ["I", "I;16"])
def test_shades_of_16_bits_are_read_whatever_pillow_calls_them(mode: str, tokenizer: PreTrainedTokenizerBase) -> None:
    [content] = images(one({"prompt": "1", "images": [Image.new(mode, (4, 2), 257 * 9)]}, tokenizer))
    assert decoded(content).getpixel((0, 0)) == (9, 9, 9)


def test_a_custom_function_may_return_images_of_pillow(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "mine.py").write_text(
        "from PIL import Image\n"
        "def rows(entry):\n"
        "    red = Image.new('CMYK', (4, 2), (0, 255, 255, 0))\n"
        "    return [{'prompt': '1', 'images': [red]},\n"
        "            {'prompt': [{'role': 'user', 'content': [{'type': 'image', 'image': red}]}]}]\n"
    )
    rows = read_rows(["x"], CustomRows(data(custom_dataset=f"{tmp_path}/mine.py:rows")))
    for prompt in dataset(rows, tokenizer):
        [content] = images(prompt)
        assert decoded(content).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.skipif(find_spec("datasets") is None, reason="needs datasets")
def test_a_data_set_of_hugging_face_is_read(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    import datasets

    (tmp_path / "a.png").write_bytes(SMALL)
    rows = {"prompt": ["1"], "image": [str(tmp_path / "a.png")]}
    datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image()).to_parquet(tmp_path / "x.parquet")
    [prompt] = dataset(read_rows([str(tmp_path / "x.parquet")]), tokenizer)[:]
    assert images(prompt) == [SMALL]


def test_structs_of_parquet_with_null_keys_are_read(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    parts = [{"type": "image", "text": None, "image": {"bytes": SMALL, "path": None}}]
    parts.append({"type": "text", "text": "1", "image": None})
    rows = [{"prompt": user(*parts), "images": None}, {"prompt": user(EMPTY), "images": [{"bytes": LARGE, "path": ""}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    found = dataset(read_rows([str(tmp_path / "x.parquet")]), tokenizer)
    assert [(prompt.text, images(prompt)) for prompt in found] == [(f"{PAD}1=", [SMALL]), (f"{PAD}=", [LARGE])]


def test_text_in_a_file_of_pictures_stays_as_it_is(tokenizer: PreTrainedTokenizerBase) -> None:
    chat = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}]
    found = dataset([{"prompt": "1"}, {"prompt": chat}], tokenizer)
    assert [prompt.messages for prompt in found] == ["1", chat]


def test_paths_are_relative_to_the_file_or_to_the_configured_folder(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    for folder, content in (("rows", SMALL), ("elsewhere", LARGE)):
        (tmp_path / folder / "deep").mkdir(parents=True)
        (tmp_path / folder / "deep/a.png").write_bytes(content)
    absolute = str(tmp_path / "rows/deep/a.png")
    both = [{"type": "image", "path": "deep/../deep/a.png"}, {"type": "image", "image": absolute}]
    rows = jsonl(tmp_path / "rows/x.jsonl", {"prompt": "1", "images": ["deep/a.png"]}, {"prompt": user(*both)})
    assert [images(prompt) for prompt in dataset(rows, tokenizer)] == [[SMALL], [SMALL, SMALL]]
    assert images(dataset(rows.take([0]), tokenizer, image_dir=str(tmp_path / "elsewhere"))[0]) == [LARGE]


def test_a_stores_url_is_read(tokenizer: PreTrainedTokenizerBase) -> None:
    fsspec.filesystem("memory").pipe_file("/pictures/a.png", SMALL)
    assert images(one({"prompt": "1", "images": ["memory://pictures/a.png"]}, tokenizer)) == [SMALL]


def test_plain_strings_have_the_token_for_a_placeholder(tokenizer: PreTrainedTokenizerBase) -> None:
    options: dict[str, Any] = {"apply_chat_template": False, "format_prompt": "0{{ content }}="}
    found = one({"prompt": "1<image>", "images": [SMALL]}, tokenizer, **options)
    assert (found.text, found.messages) == (f"01{PAD}=", "1<image>")
    assert one({"prompt": "1", "images": [SMALL]}, tokenizer, **options).text == f"0{PAD}1="


def test_format_prompt_wraps_the_text_around_the_pictures(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"prompt": "1<image>2", "images": [SMALL]}
    assert one(row, tokenizer, format_prompt="0{{ content }}3").text == f"01{PAD}23="
    assert one({"prompt": "12", "images": [SMALL]}, tokenizer, format_prompt="0{{ content }}").text == f"0{PAD}12="
    with pytest.raises(
        ValueError, match=r"row 0 of x: data\.format_prompt gives a text with 2 positions of pictures.*1"
    ):
        one(row, tokenizer, format_prompt="{{ content }}{{ content }}")


# --- prompts ---


def test_each_picture_takes_its_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = one({"prompt": "1<image>+<image>", "images": [SMALL, LARGE]}, tokenizer)
    pad = tokenizer.convert_tokens_to_ids(PAD)
    digit, plus, end = tokenizer.convert_tokens_to_ids(["1", "+", "="])
    assert prompt.prompt_ids.tolist() == [digit, *[pad] * 2, plus, *[pad] * 6, end]
    assert prompt.messages == user({"type": "text", "text": "1"}, EMPTY, {"type": "text", "text": "+"}, EMPTY)


def test_the_prompt_table_has_the_pictures(tokenizer: PreTrainedTokenizerBase) -> None:
    found = dataset([{"prompt": "1", "images": [SMALL], "image": None, "id": 3}, {"prompt": "2"}], tokenizer)
    table = prompt_table(found[:])
    assert table["features"] == [{"images": [SMALL]}, {}]
    assert [inputs["columns"] for inputs in table["reward_inputs"]] == [{"id": 3}, {}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": f"1{PAD}", "images": [SMALL]},
        {"prompt": f"1{PAD}"},
        {"prompt": user({"type": "text", "text": "<|image"}, {"type": "text", "text": "_pad|>"})},
    ],
)
def test_the_token_in_the_text_is_refused(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"row 0 of x has the text <\|image_pad\|> in its prompt"):
        one(row, tokenizer)


def test_a_template_that_writes_another_number_of_tokens_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"row 0 of x has a prompt with 2 tokens <\|image_pad\|>.* but 1 pictures"):
        one({"prompt": "1", "images": [SMALL]}, tokenizer, format_prompt=PAD + "{{ content }}")


def test_long_prompts_with_pictures_are_never_truncated(
    tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "1" * 9}, {"prompt": "1", "images": [LARGE]}]
    limits: dict[str, Any] = {"max_prompt_length": 7}
    with pytest.raises(
        ValueError,
        match=r"row 1 of x has a prompt of 8 tokens, 6 of them of pictures, but data\.max_prompt_length is 7",
    ):
        dataset(rows, tokenizer, overlong_prompts="truncate", **limits)
    with pytest.raises(ValueError, match=r"row 0 of x has a prompt of 10 tokens"):
        dataset(rows, tokenizer, **limits)
    found = dataset([*rows, {"prompt": "2", "images": [SMALL]}], tokenizer, overlong_prompts="drop", **limits)
    assert [(prompt.uid, images(prompt)) for prompt in found] == [("x:2", [SMALL])]
    assert dataset(rows[:1], tokenizer, overlong_prompts="truncate", **limits)[0].prompt_ids.shape == (7,)


def test_the_digest_covers_the_pictures(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [[{"prompt": "1", "images": [content]}] for content in (SMALL, LARGE, SMALL)]
    first, other, same = (dataset(each, tokenizer).digest for each in rows)
    assert first == same != other
    assert (
        dataset([{"prompt": "1"}], tokenizer).digest
        == PromptDataset(read_rows(["x"], lambda _: [{"prompt": "1"}]), data(), tokenizer).digest
    )


def test_a_file_that_changes_after_the_start_is_reported(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "a.png").write_bytes(SMALL)
    found = dataset(jsonl(tmp_path / "x.jsonl", {"prompt": "1", "images": ["a.png"]}), tokenizer)
    (tmp_path / "a.png").write_bytes(LARGE)
    with pytest.raises(ValueError, match=r"row 0 of .*its pictures take 6 tokens, but took 2 at the start"):
        found[0]
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=r"row 0 of .*its picture 0 \('a\.png'\) does not exist"):
        found[0]


# --- refusals ---


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "<image>1<image>", "images": [SMALL]}, r"has 2 placeholders .* has 1 pictures"),
        ({"prompt": "<image>1", "images": [SMALL, SMALL]}, r"has 1 placeholders .* has 2 pictures"),
        ({"prompt": "<image>1"}, r"has 1 placeholders .* has 0 pictures.*\{type: text\}"),
        (
            {"prompt": user({"type": "image", "image": SMALL}), "images": [SMALL]},
            r"has 0 placeholders .* has 1 pictures",
        ),
        ({"prompt": [{"role": "system", "content": "1"}], "images": [SMALL]}, r"has 0 placeholders .* has 1 pictures"),
        ({"prompt": "1", "images": [SMALL], "image": SMALL}, r"pictures in the columns 'images' .* and 'image'"),
        ({"prompt": "1", "images": [SMALL], "video": [b"mp4"]}, r"has video, .* only pictures in the column"),
        ({"prompt": "1", "audio": {"bytes": b"wav", "path": None}}, r"has audio, .* only pictures"),
        ({"prompt": "1", "figure": {"bytes": SMALL, "path": None}}, r"has figure, .* Set data\.image_key"),
        ({"prompt": user({"type": "audio", "audio": "a.wav"})}, r"has a part .*'audio'.* expected a text"),
        ({"prompt": user({"type": "image", "image": SMALL, "max_pixels": 3})}, r"has a part .*max_pixels"),
        ({"prompt": "1", "images": [3]}, r"its picture 0 \(int\) is a int; expected bytes, a path"),
        ({"prompt": "1", "images": [None]}, r"its picture 0 \(NoneType\) is a NoneType"),
        ({"prompt": None, "images": [SMALL]}, r"has no prompt: 'prompt' is null"),
        (
            {"prompt": "1", "images": ["a.png"]},
            r"\('a\.png'\) is a path, but the rows come from no file. Set data\.imag",
        ),
        ({"prompt": "1", "images": ["http://host/a.png"]}, r"is at http://.*Download the files"),
        ({"prompt": "1", "images": ["https://host/a.png"]}, r"is at https://.*Download the files"),
        ({"prompt": "1", "images": ["file:///etc/passwd"]}, r"is at file://, which is not read; expected a path"),
        ({"prompt": "1", "images": ["local:///etc/passwd"]}, r"is at local://, which is not read"),
        ({"prompt": "1", "images": ["zip://a.png::file:///a.zip"]}, r"is at zip://, which is not read"),
        ({"prompt": "1", "images": ["memory://a::file:///etc/passwd"]}, r"is at memory://, which is not read"),
        ({"prompt": "1", "images": ["nonsense://a"]}, r"is at nonsense://, which is not read"),
        ({"prompt": "1", "images": ["memory://nowhere.png"]}, r"does not exist in the store"),
        ({"prompt": "1", "images": ["data:image/png,abc"]}, r"is a data: URL without base64"),
        ({"prompt": "1", "images": ["data:image/png;base64,a"]}, r"base64 is damaged"),
    ],
)
def test_rows_that_are_refused_are_named(row: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=rf"^row 0 of x.*{message}"):
        one(row, tokenizer)


def test_without_the_tokens_of_pictures_rows_with_them_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    for row, message in (
        ({"prompt": "1", "images": [SMALL]}, r"row 0 of x has images, .*because the model reads only text"),
        ({"prompt": user(TEXT, EMPTY)}, r"row 0 of x: the prompt has the message .*by models of pictures"),
    ):
        with pytest.raises(ValueError, match=message):
            PromptDataset(read_rows(["x"], lambda _, row=row: [row]), data(), tokenizer)


def test_a_teacher_with_a_privileged_context_gets_no_pictures(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = read_rows(["x"], lambda _: [{"prompt": "1", "images": [SMALL], "privileged_context": "2"}])
    pictures = Patches(tokenizer.convert_tokens_to_ids(PAD))
    with pytest.raises(ValueError, match=r"row 0 of x has pictures, but the prompts of a teacher .* are text"):
        PromptDataset(rows, data(), tokenizer, has_privileged_teacher=True, pictures=pictures)


@pytest.mark.parametrize(
    "path", ["../secret.png", "link.png", "linked/secret.png", "ABSOLUTE", "inner/../../secret.png"]
)
def test_paths_that_leave_the_folder_are_refused(path: str, tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "secret.png").write_bytes(SMALL)
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "link.png").symlink_to(tmp_path / "secret.png")
    (rows / "linked").symlink_to(tmp_path)
    path = str(tmp_path / "secret.png") if path == "ABSOLUTE" else path
    of_columns: list[Any] = [path, {"image": path}, {"path": path}]
    rows_of = [{"prompt": "1", "images": [value]} for value in of_columns]
    for row in (*rows_of, {"prompt": user({"type": "image", "path": path})}):
        with pytest.raises(ValueError, match=r"row 0 of .* leads to .*secret\.png, outside of .*rows, where no file"):
            dataset(jsonl(rows / "x.jsonl", row), tokenizer)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("gone.png", "does not exist: there is no file"),
        ("folder", "which is a folder; expected an image file"),
        (".", "which is a folder"),
        ("circle.png", "cannot be read"),
        ("pipe.png", "which is no regular file"),
        ("huge.png", r"has \d+ bytes, more than \d+, which no picture within data\.max_image_pixels has"),
        ("a" * 300, "cannot be read"),
        ("a\0.png", "contains a null byte"),
    ],
)
def test_files_that_cannot_be_read_are_named(
    path: str, message: str, tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle.png").symlink_to(tmp_path / "circle.png")
    os.mkfifo(tmp_path / "pipe.png")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(10 * 2**30)  # takes no disk
    with pytest.raises(ValueError, match=rf"^row 0 of .*x\.jsonl: its picture 0 .*{message}"):
        dataset(jsonl(tmp_path / "x.jsonl", {"prompt": "1", "images": [path]}), tokenizer)


def test_a_folder_of_pictures_that_does_not_exist_is_named(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"\('a\.png'\) is relative to s3:/bucket, which is no folder of this machine"):
        one({"prompt": "1", "images": ["a.png"]}, tokenizer, image_dir="s3://bucket")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_without_permission_is_named(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "a.png").write_bytes(SMALL)
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(ValueError, match=r"its picture 0 \('a\.png'\) cannot be read \(.*Permission denied"):
        dataset(jsonl(tmp_path / "x.jsonl", {"prompt": "1", "images": ["a.png"]}), tokenizer)


# --- hostile pictures ---


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int) -> bytes:
    """Make a PNG whose header states this size, with compressed zeros as its pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def zip_file() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.png", SMALL)
    return file.getvalue()


def animation(form: str) -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "green", "blue")]
    frames[0].save(file, form, save_all=True, append_images=frames[1:])
    return file.getvalue()


NOISE = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 40, 3), np.uint8))


def noise(form: str) -> bytes:
    file = io.BytesIO()
    NOISE.save(file, form)
    return file.getvalue()


HOSTILE = {
    "zip": (zip_file(), r"is not an image: its \d+ bytes begin with b'PK"),
    "empty": (b"", "is not an image: its 0 bytes"),
    "text": (b"<svg></svg>", "is not an image"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image"),
    "truncated png": (noise("PNG")[:2000], "cannot be decoded .*truncated"),
    "truncated jpeg": (noise("JPEG")[:1200], "cannot be decoded .*truncated"),
    "truncated webp": (noise("WEBP")[:300], "cannot be decoded|is not an image"),
    "header alone": (SMALL[:33], "cannot be decoded|is not an image"),
    "bomb of 10 GB": (png(100_000, 33_333), r"has far more pixels than data\.max_image_pixels=50000000"),
    "more pixels than allowed": (
        png(10_000, 5_001),
        "has 5001 x 10000 pixels, 50010000 in all, but data.max_image_pix",
    ),
    "more pixels than Pillow warns of": (png(10_000, 9_000), "has 9000 x 10000 pixels"),
    "no pixels": (png(0, 0), "has 0 x 0 pixels|is not an image|cannot be decoded"),
    "no rows": (png(5, 0), "has 0 x 5 pixels|is not an image|cannot be decoded"),
    "long": (encoded(1, 10_000), "has 1 x 10000 pixels; expected sides of a ratio up to 200"),
    "a bit too tall": (encoded(201, 1), "has 201 x 1 pixels; expected sides of a ratio up to 200"),
    "gif": (animation("GIF"), "is an animation of 3 frames"),
    "webp": (animation("WEBP"), "is an animation of 3 frames"),
    "apng": (animation("PNG"), "is an animation of 3 frames"),
    "tiff": (animation("TIFF"), "is an animation of 3 frames"),
    "floats": (encoded(mode="F", form="TIFF"), "has pixels of floating-point"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pictures_are_refused_without_a_warning(kind: str, tokenizer: PreTrainedTokenizerBase) -> None:
    content, message = HOSTILE[kind]
    limit = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=rf"^row 0 of x: its picture 1 \(\d+ bytes\) ({message})"):
            one({"prompt": "1", "images": [SMALL, content]}, tokenizer)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_the_limit_of_pixels_is_that_of_the_option_and_not_that_of_pillow(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)
    row = {"prompt": "1", "images": [LARGE]}
    assert images(one(row, tokenizer, max_image_pixels=24)) == [LARGE]
    assert Image.MAX_IMAGE_PIXELS == 5
    with pytest.raises(ValueError, match=r"has 4 x 6 pixels, 24 in all, but data\.max_image_pixels is 23"):
        one(row, tokenizer, max_image_pixels=23)


@pytest.mark.parametrize("size", [(200, 1), (1, 200), (1, 1)])
def test_sides_of_the_largest_ratio_pass(size: tuple[int, int]) -> None:
    found = picture(encoded(*size), LIMIT)
    assert (found.height, found.width) == size == size_of(found.content)


# --- pixels ---


@pytest.mark.parametrize(
    ("mode", "color", "form", "expected"),
    [
        ("RGB", (1, 2, 3), "PNG", (1, 2, 3)),
        ("1", 1, "PNG", (255, 255, 255)),
        ("L", 7, "PNG", (7, 7, 7)),
        ("L", 7, "GIF", (7, 7, 7)),
        ("LA", (7, 0), "PNG", (255, 255, 255)),
        ("LA", (7, 255), "PNG", (7, 7, 7)),
        ("RGBA", (10, 20, 30, 255), "PNG", (10, 20, 30)),
        ("RGBA", (10, 20, 30, 0), "PNG", (255, 255, 255)),
        ("RGBA", (0, 0, 0, 51), "PNG", (204, 204, 204)),
        ("CMYK", (0, 255, 255, 0), "TIFF", (255, 0, 0)),
        ("I;16", 65535, "PNG", (255, 255, 255)),
        ("I;16", 257 * 9, "PNG", (9, 9, 9)),
        ("I;16", 257 * 9, "TIFF", (9, 9, 9)),
    ],
)
def test_each_mode_becomes_rgb(mode: str, color: Any, form: str, expected: tuple[int, ...]) -> None:
    file = io.BytesIO()
    Image.new(mode, (3, 2), color).save(file, form)
    found = decoded(picture(file.getvalue(), LIMIT).content)
    assert (found.mode, found.size, found.getpixel((2, 1))) == ("RGB", (3, 2), expected)


def test_palettes_become_rgb_with_their_transparency_on_white() -> None:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([9, 8, 7, 1, 2, 3])
    image.putpixel((0, 0), 0)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0)
    found = decoded(file.getvalue())
    assert (found.getpixel((0, 0)), found.getpixel((1, 1))) == ((255, 255, 255), (1, 2, 3))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF"])
def test_a_picture_that_exif_turns_has_the_size_that_is_seen(form: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    content = encoded(2, 8, form=form, exif=exif)
    found = picture(content, LIMIT)
    assert (found.height, found.width) == (8, 2) == size_of(content)
    assert decoded(content).size == (2, 8)


@pytest.mark.processes
def test_pillow_and_pyav_are_imported_only_for_pictures_and_videos() -> None:
    code = (
        "import sys; import verl_like.data.row_pictures, verl_like.data.custom_rows;"
        "found = {name.partition('.')[0] for name in sys.modules} & {'PIL', 'av'};"
        "assert not found, f'{found} are imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
