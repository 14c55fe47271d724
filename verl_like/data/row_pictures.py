"""Pictures of rows, read and counted. A video becomes the pictures of its frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, located
from verl_like.data.illustrated_prompts import IllustratedPrompt, illustrated_prompt
from verl_like.data.message_parts import PLACEHOLDER, with_repeated
from verl_like.data.picture_files import content_of, picture_folder, picture_name
from verl_like.data.pictures import MAX_PICTURES, PictureTokens, picture, size_of
from verl_like.data.videos import Video, frame_contents, frame_sizes, video_name
from verl_like.machine.cores import usable_cores

_MIN_THREADS, _MAX_THREADS = 4, 16  # each may hold a decoded picture of the largest size
_ROWS_AT_ONCE = 16  # whose pictures are in memory


def counted_prompts(
    rows: Iterable[Row], data: DataConfig, tokens: PictureTokens
) -> Iterator[tuple[Row, Any, list[int]]]:
    """Yield each row, its prompt without pictures, and the number of tokens of each picture, all of which are decoded.

    Raises:
        ValueError: for a row whose pictures or videos cannot be read; the message names it.
    """
    left = iter(rows)
    with ThreadPoolExecutor(_num_threads()) as threads:
        while chunk := list(islice(left, _ROWS_AT_ONCE)):
            found = [illustrated_prompt(row, data) for row in chunk]
            for row, each in zip(chunk, found, strict=True):
                _refuse_token_in_text(row, each.prompt, tokens)
                _check_number(row, len(each.pictures), 0)
            jobs = [
                [threads.submit(_sizes, row, i, each.pictures, data) for i in range(len(each.pictures))]
                for row, each in zip(chunk, found, strict=True)
            ]
            for row, each, of_row in zip(chunk, found, jobs, strict=True):
                sizes = [job.result() for job in of_row]
                num_frames = sum(
                    len(one) for one, value in zip(sizes, each.pictures, strict=True) if isinstance(value, Video)
                )
                _check_number(row, sum(map(len, sizes)), num_frames)
                prompt = with_repeated(each.prompt, [len(one) for one in sizes])
                yield row, prompt, [tokens.count(*size) for one in sizes for size in one]


def _check_number(row: Row, number: int, num_frames: int) -> None:
    if number > MAX_PICTURES:
        of_videos = f", {num_frames} of them frames of videos" if num_frames else ""
        remedy = " or frames (data.video_frames)" if num_frames else ""
        raise ValueError(
            f"{row.location} has {number} pictures{of_videos}; expected at most {MAX_PICTURES}, as many as an engine "
            f"reads of a prompt. Remove the row, or some of its pictures{remedy}."
        )


def expanded(ids: Sequence[int], counts: Sequence[int], tokens: PictureTokens, location: str) -> list[int]:
    """Return a prompt's token ids with the token of each picture repeated.

    Args:
        counts: number of tokens of each picture.

    Raises:
        ValueError: the prompt has more or fewer of these tokens than pictures.
    """
    num_found = list(ids).count(tokens.token_id)
    if num_found != len(counts):
        raise ValueError(
            f"{location} has a prompt with {num_found} tokens {tokens.token} (id {tokens.token_id}), but "
            f"{len(counts)} pictures; expected one for each. Use the model's chat template, which writes it once for "
            f"a picture, and remove the token from the row's text and from data.format_prompt."
        )
    left = iter(counts)
    return [each for token in ids for each in ([token] * next(left) if token == tokens.token_id else [token])]


def loaded_prompts(
    rows: Sequence[Row], found: Sequence[IllustratedPrompt], data: DataConfig
) -> list[IllustratedPrompt]:
    """Return the prompts with the encoded files of their pictures, and frames in the stead of videos.

    Raises:
        ValueError: for a picture or a video that cannot be read; the message names its row.
    """
    with ThreadPoolExecutor(_num_threads()) as threads:
        jobs = [
            [threads.submit(_contents, row, i, each.pictures, data) for i in range(len(each.pictures))]
            for row, each in zip(rows, found, strict=True)
        ]
        contents = [[job.result() for job in of_row] for of_row in jobs]
    return [
        IllustratedPrompt(
            with_repeated(each.prompt, [len(one) for one in of_row]), [content for one in of_row for content in one]
        )
        for each, of_row in zip(found, contents, strict=True)
    ]


def refuse_changed(row: Row, contents: Sequence[bytes], num_tokens: int, tokens: PictureTokens) -> None:
    """Raise ValueError if the pictures take other numbers of tokens than at the start.

    Args:
        num_tokens: number of the prompt's tokens that stand for pictures.
    """
    with located(row):
        found = sum(tokens.count(*size_of(content)) for content in contents)
        if found != num_tokens:
            raise ValueError(
                f"its pictures take {found} tokens, but took {num_tokens} at the start: a file has changed. Start "
                f"again, and leave the files unchanged meanwhile."
            )


def _num_threads() -> int:
    """Return the number of threads that decode: Pillow and FFmpeg let them run at the same time."""
    return min(max(usable_cores(), _MIN_THREADS), _MAX_THREADS)


def _sizes(row: Row, number: int, values: Sequence[Any], data: DataConfig) -> list[tuple[int, int]]:
    """Return height and width of a picture or of each frame of a video, all of which are decoded."""
    folder, limit, value = picture_folder(row, data), data.max_image_pixels, values[number]
    with _named(row, number, values):
        if isinstance(value, Video):
            return frame_sizes(value, folder, max_pixels=limit)
        found = picture(content_of(value, folder, max_pixels=limit), limit)
        return [(found.height, found.width)]


def _contents(row: Row, number: int, values: Sequence[Any], data: DataConfig) -> list[bytes]:
    """Return the encoded file of a picture, or of each frame of a video."""
    folder, limit, value = picture_folder(row, data), data.max_image_pixels, values[number]
    with _named(row, number, values):
        if isinstance(value, Video):
            return frame_contents(value, folder, max_pixels=limit)
        return [content_of(value, folder, max_pixels=limit)]


@contextmanager
def _named(row: Row, number: int, values: Sequence[Any]) -> Iterator[None]:
    """Begin messages with the row and the picture or video; each kind is numbered from 0."""
    try:
        yield
    except ValueError as error:
        value = values[number]
        is_video = isinstance(value, Video)
        of_kind = sum(isinstance(each, Video) == is_video for each in values[:number])
        name = f"video {of_kind} ({video_name(value)})" if is_video else f"picture {of_kind} ({picture_name(value)})"
        raise ValueError(f"{row.location}: its {name} {error}") from error


def _refuse_token_in_text(row: Row, prompt: Any, tokens: PictureTokens) -> None:
    """Raise ValueError for text with the token of a picture, which would be read as one."""
    for message in prompt if isinstance(prompt, list) else [{"content": prompt}]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        if isinstance(content, str) and tokens.token in content:
            raise ValueError(
                f"{row.location} has the text {tokens.token} in its prompt, which the model would read as a picture; "
                f"expected pictures as image parts or as {PLACEHOLDER}. Correct or remove the row."
            )
