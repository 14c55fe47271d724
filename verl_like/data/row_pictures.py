"""Rows with pictures as prompts: which picture is where in the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, located, shown
from verl_like.data.media import is_media, refuse_other_media
from verl_like.data.picture_files import content_of, picture_folder, picture_name
from verl_like.data.pictures import MAX_PICTURES, Picture, PictureTokens, picture, size_of

PLACEHOLDER = "<image>"  # in the text of a prompt, as EasyR1 and verl write it
IMAGE = {"type": "image"}  # the part of a message's content that a chat template renders as the picture's token
_OTHER_COLUMN = "image"  # read without the column data.image_key
_THREADS = 4
_ROWS_AT_ONCE = 16  # whose pictures are in memory
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class IllustratedPrompt:
    """The prompt of a row without the content of its pictures.

    Args:
        prompt: a chat, in which each picture is the part ``IMAGE`` and contents without pictures are strings; or a
            string if it was one and has no pictures, or if ``data.apply_chat_template`` is false, with ``PLACEHOLDER``
            for each.
        pictures: the values of the pictures, in their order in the prompt.
    """

    prompt: Any
    pictures: list[Any]


def illustrated_prompt(row: Row, data: DataConfig) -> IllustratedPrompt:
    """Return a row's prompt with its pictures.

    Pictures of the column are those of ``<image>`` in the text and of image parts that hold none, in order. Without
    either, they precede the text of the first message of the user.

    Raises:
        ValueError: for another form, or another number of pictures than of their positions.
    """
    prompt = row.value(data.prompt_key, "data.prompt_key")
    columns = picture_columns(row, data)
    refuse_other_media(row, columns, data.image_key)
    values = [value for name in columns for value in _listed(row.values[name])]
    with located(row):
        if isinstance(prompt, str) and not (values and data.apply_chat_template):
            if values and PLACEHOLDER not in prompt:
                prompt = PLACEHOLDER * len(values) + prompt
            _check_counts(prompt.count(PLACEHOLDER), values, data)
            return IllustratedPrompt(prompt, values)
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
            return IllustratedPrompt(prompt, values)  # the renderer refuses it
        found = [(message, _parts(message.get("content"))) for message in prompt]
        return _filled(found, values, data)


def picture_columns(row: Row, data: DataConfig) -> list[str]:
    """Return the column of a row's pictures; none if it has none.

    Raises:
        ValueError: two columns hold pictures.
    """
    is_filled = {name: bool(_listed(row.values.get(name))) for name in (data.image_key, _OTHER_COLUMN)}
    other = row.values.get(_OTHER_COLUMN)
    if data.image_key == _OTHER_COLUMN or not is_filled[_OTHER_COLUMN]:
        return [data.image_key] if is_filled[data.image_key] else []
    if not is_filled[data.image_key]:
        return [_OTHER_COLUMN]
    if is_media(_OTHER_COLUMN, other):
        raise ValueError(
            f"{row.location} has pictures in the columns {data.image_key!r} (data.image_key) and {_OTHER_COLUMN!r}; "
            f"expected one of them. Remove one column, or set data.image_key={_OTHER_COLUMN}."
        )
    return [data.image_key]  # the other column is a text, such as a description


def other_columns(row: Row, data: DataConfig) -> Iterator[str]:
    """Yield the columns of a row that hold no pictures, and in no other row would."""
    columns = picture_columns(row, data)
    for name, value in row.values.items():
        is_empty = name == _OTHER_COLUMN and not _listed(value)
        if name not in (data.image_key, *columns) and not is_empty:
            yield name


def counted_prompts(
    rows: Iterable[Row], data: DataConfig, tokens: PictureTokens
) -> Iterator[tuple[Row, Any, list[int]]]:
    """Yield each row, its prompt without pictures, and the number of tokens of each picture, all of which are decoded.

    Raises:
        ValueError: for a row whose pictures cannot be read; the message names it.
    """
    left = iter(rows)
    with ThreadPoolExecutor(_THREADS) as threads:
        while chunk := list(islice(left, _ROWS_AT_ONCE)):
            found = [illustrated_prompt(row, data) for row in chunk]
            for row, each in zip(chunk, found, strict=True):
                _refuse_token_in_text(row, each.prompt, tokens)
                if len(each.pictures) > MAX_PICTURES:
                    raise ValueError(
                        f"{row.location} has {len(each.pictures)} pictures; expected at most {MAX_PICTURES}, as many "
                        "as an engine reads of a prompt. Remove the row, or some of its pictures."
                    )
            jobs = [
                [threads.submit(_picture, row, i, value, data) for i, value in enumerate(each.pictures)]
                for row, each in zip(chunk, found, strict=True)
            ]
            for row, each, of_row in zip(chunk, found, jobs, strict=True):
                sizes = [(one.height, one.width) for one in (job.result() for job in of_row)]
                yield row, each.prompt, [tokens.count(*size) for size in sizes]


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


def picture_contents(rows: Sequence[Row], found: Sequence[IllustratedPrompt], data: DataConfig) -> list[list[bytes]]:
    """Return the encoded files of the pictures of each row.

    Raises:
        ValueError: for a picture that cannot be read; the message names its row.
    """
    with ThreadPoolExecutor(_THREADS) as threads:
        jobs = [
            [threads.submit(_content, row, i, value, data) for i, value in enumerate(each.pictures)]
            for row, each in zip(rows, found, strict=True)
        ]
        return [[job.result() for job in of_row] for of_row in jobs]


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


def digests(found: IllustratedPrompt) -> list[str]:
    """Return a digest of each picture: of its content if the row holds it, otherwise of its path or URL."""
    return [blake2b(_digested(value), digest_size=_DIGEST_BYTES).hexdigest() for value in found.pictures]


def _digested(value: Any) -> bytes:
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]
    if isinstance(value, (bytes, str, dict)):
        return value if isinstance(value, bytes) else repr(value).encode()
    return content_of(value, None, max_pixels=0)


def _picture(row: Row, number: int, value: Any, data: DataConfig) -> Picture:
    content = _content(row, number, value, data)
    try:
        return picture(content, data.max_image_pixels)
    except ValueError as error:
        raise _of_picture(row, number, value, error) from error


def _content(row: Row, number: int, value: Any, data: DataConfig) -> bytes:
    try:
        return content_of(value, picture_folder(row, data), max_pixels=data.max_image_pixels)
    except ValueError as error:
        raise _of_picture(row, number, value, error) from error


def _of_picture(row: Row, number: int, value: Any, error: ValueError) -> ValueError:
    return ValueError(f"{row.location}: its picture {number} ({picture_name(value)}) {error}")


def _listed(value: Any) -> list[Any]:
    """Return the pictures of a column, which holds one, a list of them, or none."""
    if isinstance(value, (list, tuple)):
        return list(value)
    is_empty = value is None or (isinstance(value, str) and not value)
    if isinstance(value, dict) and value.keys() <= {"bytes", "path"}:
        is_empty = all(each is None for each in value.values())
    return [] if is_empty else [value]


def _parts(content: Any) -> Any:
    """Return a message's content as parts; contents of other types, which the renderer refuses, unchanged.

    A part is a text, or a tuple of the picture that it holds: of None if it is the next one of the column.
    """
    if isinstance(content, str):
        texts = content.split(PLACEHOLDER)
        return [texts[0], *(part for text in texts[1:] for part in ((None,), text))]
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Any) -> str | tuple[Any]:
    given = {name: value for name, value in part.items() if value is not None} if isinstance(part, dict) else {}
    kind = given.pop("type", None)
    if kind == "text" and given.keys() == {"text"} and isinstance(given["text"], str):
        return str(given["text"])
    if kind == "image_url" and given.keys() == {"image_url"}:
        url = given["image_url"]
        return (url["url"] if isinstance(url, dict) and "url" in url else url,)
    if kind == "image" and given.keys() <= {"bytes", "path"}:
        return (given or None,)
    if kind == "image" and len(given) == 1 and given.keys() <= {"image", "url"}:
        return (*given.values(),)
    what = f"with the keys {sorted(part)} and the type {kind!r}" if isinstance(part, dict) else shown(part)
    raise ValueError(
        f"the prompt has a part {what} in a message; expected a text, {{type: text, text}}, or a picture, "
        f"{{type: image}} with one of image, path, url and bytes or {{type: image_url, image_url: {{url}}}}. Correct "
        f"or remove the row."
    )


def _filled(found: list[tuple[dict[str, Any], Any]], of_column: list[Any], data: DataConfig) -> IllustratedPrompt:
    """Return the chat, with the pictures of the column where parts hold none."""
    all_parts = [part for _, parts in found if isinstance(parts, list) for part in parts]
    users = [i for i, (message, parts) in enumerate(found) if message.get("role") == "user" and isinstance(parts, list)]
    if of_column and users and not any(isinstance(part, tuple) for part in all_parts):
        message, parts = found[users[0]]
        found[users[0]] = (message, [*((None,) for _ in of_column), *parts])
        all_parts = [(None,)] * len(of_column)
    _check_counts(sum(part[0] is None for part in all_parts if isinstance(part, tuple)), of_column, data)
    left, pictures, chat = iter(of_column), [], []
    for message, parts in found:
        if isinstance(parts, list):
            held = [part[0] for part in parts if isinstance(part, tuple)]
            pictures += [next(left) if value is None else value for value in held]
            message = {**message, "content": _content_of_parts(parts)}
        chat.append(message)
    return IllustratedPrompt(chat, pictures)


def _content_of_parts(parts: list[Any]) -> Any:
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    return [{"type": "text", "text": part} if isinstance(part, str) else dict(IMAGE) for part in parts if part != ""]


def _check_counts(num_positions: int, pictures: list[Any], data: DataConfig) -> None:
    if num_positions != len(pictures):
        raise ValueError(
            f"the prompt has {num_positions} placeholders ({PLACEHOLDER}, or an image part without content), but the "
            f"column {data.image_key!r} (data.image_key) or {_OTHER_COLUMN!r} has {len(pictures)} pictures; "
            f"expected one for each. Add or remove pictures or placeholders; write {PLACEHOLDER} as a text part "
            f"({{type: text}}) where it is meant as text."
        )


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
