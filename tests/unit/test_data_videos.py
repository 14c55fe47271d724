"""Rows with videos: every form of input, the frames that it gives, and the message for each that is refused."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from tests.unit._videos import encoded_video, shades
from tests.unit.test_data_pictures import (
    LARGE,
    PAD,
    SMALL,
    TEXT,
    data_url,
    dataset,
    images,
    jsonl,
    one,
    tokenizer,
    user,
)
from verl_like.data.files import read_rows
from verl_like.data.pictures import decoded, size_of
from verl_like.data.prompts import Prompt

__all__ = ["tokenizer"]  # the fixture

EMPTY_VIDEO = {"type": "video"}
MP4 = encoded_video("mpeg4", "mp4", size=(4, 6))  # of 6 tokens a frame, and 30 frames


def frames(prompt: Prompt) -> list[int]:
    """Return the numbers of a generated video's frames among a prompt's pictures."""
    return shades([np.asarray(decoded(content)) for content in images(prompt)])


def url(content: bytes) -> str:
    return "data:video/mp4;base64," + base64.b64encode(content).decode()


# --- forms ---


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"prompt": "1+1", "videos": [MP4]}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": MP4}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": [{"bytes": MP4, "path": "gone.mp4"}]}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": {"bytes": MP4, "path": None}}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": [{"video": MP4}]}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": [{"type": "video", "video": MP4, "nframes": 3}]}, f"{PAD * 3}1+1="),
        ({"prompt": "1+1", "videos": [url(MP4)]}, f"{PAD * 3}1+1="),
        ({"prompt": "1<video>+1", "videos": [MP4]}, f"1{PAD * 3}+1="),
        ({"prompt": [{"role": "user", "content": "<video>1"}], "videos": [MP4]}, f"{PAD * 3}1="),
        ({"prompt": user(TEXT, EMPTY_VIDEO), "videos": [MP4]}, f"1+1{PAD * 3}="),
        ({"prompt": user({"type": "video", "video": MP4, "path": None}, TEXT)}, f"{PAD * 3}1+1="),
        ({"prompt": user({"type": "video", "bytes": MP4, "path": "gone.mp4"})}, f"{PAD * 3}="),
        ({"prompt": user({"type": "video", "url": url(MP4)})}, f"{PAD * 3}="),
        ({"prompt": user({"type": "video_url", "video_url": {"url": url(MP4)}})}, f"{PAD * 3}="),
    ],
)
def test_each_form_of_a_video_gives_its_frames(
    row: dict[str, Any], text: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    prompt = one(row, tokenizer, video_frames=3)
    assert (prompt.text, frames(prompt)) == (text, [0, 14, 29])
    assert "videos" not in prompt.columns and b"ftyp" not in repr((prompt.messages, prompt.columns)).encode()


def test_a_list_of_pictures_is_a_video(tokenizer: PreTrainedTokenizerBase) -> None:
    listed = [SMALL, {"bytes": LARGE, "path": None}, data_url(SMALL)]
    for row in (
        {"prompt": "1", "videos": [listed]},
        {"prompt": "<video>1", "videos": [{"video": listed}]},
        {"prompt": user({"type": "video", "video": listed}, {"type": "text", "text": "1"})},
    ):
        assert images(one(row, tokenizer)) == [SMALL, LARGE, SMALL]
        assert images(one(row, tokenizer, video_frames=2)) == [SMALL, SMALL]
    assert one({"prompt": "1", "videos": [listed]}, tokenizer).text == f"{PAD * 3}1="


def test_pictures_and_videos_keep_their_order(tokenizer: PreTrainedTokenizerBase) -> None:
    video = {"video": [LARGE, LARGE]}
    row = {"prompt": "1<video>+<image>1<video>", "images": [SMALL], "videos": [video, {"video": [SMALL]}]}
    prompt = one(row, tokenizer)
    assert (prompt.text, images(prompt)) == (f"1{PAD * 2}+{PAD}1{PAD}=", [LARGE, LARGE, SMALL, SMALL])
    prompt = one({"prompt": "1", "images": [SMALL], "videos": [video]}, tokenizer)
    assert (prompt.text, images(prompt)) == (f"{PAD * 3}1=", [SMALL, LARGE, LARGE])
    plain = one(row, tokenizer, apply_chat_template=False)
    assert plain.text == f"1{PAD * 2}+{PAD}1{PAD}" and images(plain) == [LARGE, LARGE, SMALL, SMALL]


def test_a_path_and_a_stores_url_are_read(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips/a.mp4").write_bytes(MP4)
    part = {"type": "video", "video": "clips/a.mp4", "nframes": 2}
    [column, chat] = dataset(
        jsonl(tmp_path / "x.jsonl", {"prompt": "1", "videos": ["clips/a.mp4"]}, {"prompt": user(part)}), tokenizer
    )
    assert frames(column) == [0, 4, 8, 12, 17, 21, 25, 29] and frames(chat) == [0, 29]
    fsspec.filesystem("memory").pipe_file("/clips/a.mp4", MP4)
    assert frames(one({"prompt": "1", "videos": ["memory://clips/a.mp4"]}, tokenizer, video_frames=1)) == [0]


def test_another_column_may_have_the_videos(tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = one({"prompt": "1", "clips": [MP4]}, tokenizer, video_key="clips", video_frames=1)
    assert frames(prompt) == [0] and "clips" not in prompt.columns


def test_structs_of_parquet_with_null_keys_are_read(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    videos = [[{"video": None, "bytes": MP4, "nframes": None}], [], None]
    rows = [{"prompt": "1", "videos": each} for each in videos]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    found = dataset(read_rows([str(tmp_path / "x.parquet")]), tokenizer, video_frames=2)
    assert [frames(prompt) for prompt in found] == [[0, 29], [], []]


# --- prompts ---


def test_each_frame_takes_its_tokens_and_is_a_picture_without_loss(tokenizer: PreTrainedTokenizerBase) -> None:
    prompt = one({"prompt": "1<video>", "videos": [MP4]}, tokenizer, video_frames=2)
    assert prompt.prompt_ids.tolist().count(tokenizer.convert_tokens_to_ids(PAD)) == 2 * 6
    assert prompt.messages == user({"type": "text", "text": "1"}, {"type": "image"}, {"type": "image"})
    assert all(content.startswith(b"\x89PNG") and size_of(content) == (4, 6) for content in images(prompt))


def test_the_limit_of_pictures_counts_frames(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"prompt": "1", "images": [SMALL], "videos": [{"video": [SMALL] * 64, "nframes": 64}]}
    with pytest.raises(
        ValueError, match=r"row 0 of x has 65 pictures, 64 of them frames of videos; expected at most 64"
    ):
        one(row, tokenizer)
    assert len(images(one({**row, "images": []}, tokenizer))) == 64


def test_long_prompts_with_videos_are_never_truncated(tokenizer: PreTrainedTokenizerBase) -> None:
    row = {"prompt": "1", "videos": [MP4]}
    limits: dict[str, Any] = {"video_frames": 2, "max_prompt_length": 10}
    with pytest.raises(ValueError, match=r"has a prompt of 14 tokens, 12 of them of pictures"):
        one(row, tokenizer, overlong_prompts="truncate", **limits)
    with pytest.raises(ValueError, match=r"row 0 of x has a prompt of 14 tokens"):
        one(row, tokenizer, **limits)


def test_the_digest_covers_videos_and_their_frames(tokenizer: PreTrainedTokenizerBase) -> None:
    values: list[Any] = [MP4, {"video": MP4}, {"video": MP4, "nframes": 2}, [SMALL], [LARGE], MP4 + b"\0"]
    found = [dataset([{"prompt": "1", "videos": [each]}], tokenizer).digest for each in values]
    assert found[0] == found[1] and len(set(found)) == 5


def test_a_file_that_changes_after_the_start_is_reported(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "a.mp4").write_bytes(MP4)
    found = dataset(jsonl(tmp_path / "x.jsonl", {"prompt": "1", "videos": ["a.mp4"]}), tokenizer, video_frames=2)
    (tmp_path / "a.mp4").write_bytes(encoded_video("mpeg4", "mp4", num_frames=1, size=(4, 6)))
    with pytest.raises(ValueError, match=r"row 0 of .*its pictures take 6 tokens, but took 12 at the start"):
        found[0]


# --- refusals ---


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "<video>1<video>", "videos": [MP4]}, r"has 2 placeholders of videos .* has 1 videos"),
        ({"prompt": "<video>1"}, r"has 1 placeholders of videos .* has 0 videos.*\{type: text\}"),
        ({"prompt": "<image>1", "videos": [MP4]}, r"has 1 placeholders .* has 0 pictures"),
        (
            {"prompt": "1", "clips": {"bytes": MP4, "path": None}},
            r"has clips, .* Set data\.image_key or data\.video_key",
        ),
        ({"prompt": "1", "videos": [{"video": MP4, "fps": 2}]}, r"a video has the keys \['fps'\]; expected video, or"),
        ({"prompt": user({"type": "video", "video": MP4, "fps": 2})}, r"has a part with the keys .*'fps'.* expected a"),
        (
            {"prompt": "1", "videos": [{"video": MP4, "nframes": 0}]},
            r"has nframes=0; expected a whole number from 1 to 64",
        ),
        ({"prompt": "1", "videos": [{"video": MP4, "nframes": "9"}]}, r"has nframes='9'; expected a whole number"),
        ({"prompt": "1", "videos": [{"video": MP4, "nframes": math.nan}]}, r"has nframes=nan; expected a whole number"),
        ({"prompt": "1", "videos": [{"video": MP4, "nframes": math.inf}]}, r"has nframes=inf; expected a whole number"),
        (
            {"prompt": "1", "videos": [3]},
            r"its video 0 \(int\) is a int; expected bytes, a path or a URL.* list of frames",
        ),
        ({"prompt": "1", "videos": [[]]}, r"its video 0 \(0 frames\) has no frames"),
        (
            {"prompt": "1", "videos": [[SMALL, b"GIF"]]},
            r"its video 0 \(2 frames\) has a frame 1 \(3 bytes\) that is not an im",
        ),
        (
            {"prompt": "1", "videos": [[SMALL], ["a.png"]]},
            r"its video 1 \(1 frames\) has a frame 0 \('a\.png'\) that is a p",
        ),
        ({"prompt": "1", "videos": ["a.mp4"]}, r"its video 0 \('a\.mp4'\) is a path, but the rows come from no file"),
        ({"prompt": "1", "videos": ["http://host/a.mp4"]}, r"is at http://.*Download the files"),
        ({"prompt": "1", "videos": ["file:///etc/passwd"]}, r"is at file://, which is not read; expected a path"),
        ({"prompt": "1", "videos": ["http://169.254.169.254/latest"]}, r"is at http://, which is not read"),
        ({"prompt": "1", "videos": ["memory://nowhere.mp4"]}, r"does not exist in the store"),
        ({"prompt": "1", "videos": ["data:video/mp4,abc"]}, r"without base64; expected data:video/mp4;base64,\.\.\."),
    ],
)
def test_rows_that_are_refused_are_named(row: dict[str, Any], message: str, tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=rf"^row 0 of x.*{message}"):
        one(row, tokenizer)


def test_no_file_outside_of_the_folder_is_read(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "out.mp4").write_bytes(MP4)
    (tmp_path / "rows/link.mp4").symlink_to(tmp_path / "out.mp4")
    for path in ("../out.mp4", "link.mp4", str(tmp_path / "out.mp4")):
        rows = jsonl(tmp_path / "rows/x.jsonl", {"prompt": "1", "videos": [path]})
        with pytest.raises(
            ValueError, match=r"row 0 of .*its video 0 .* leads to .*, outside of .*, where no file is read"
        ):
            dataset(rows, tokenizer)
