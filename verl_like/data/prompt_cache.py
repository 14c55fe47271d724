"""Tokenised prompts on disk, by a digest of everything that decides them: rows, options, tokenizer and code.

An entry is an Arrow file of texts and token ids, and a manifest that is written last. The manifest has digests of both,
so that a damaged entry is found and made again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from verl_like.config.schema import DataConfig
from verl_like.data.files import EncodedRows
from verl_like.data.records import DIGEST_BYTES, digest_of_file
from verl_like.data.tokenised_prompts import SCHEMA, TokenisedPrompts
from verl_like.telemetry.trackers import write_atomically

MIN_ROWS = 5000  # fewer are tokenised in less than a second
# Options that decide the text of a prompt, or which rows are valid.
_OPTIONS = (
    *("prompt_key", "answer_key", "data_source", "apply_chat_template", "chat_template_kwargs", "format_prompt"),
    *("max_prompt_length", "overlong_prompts"),
)
_LIBRARIES = ("jinja2", "pyarrow", "tokenizers", "transformers")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromptSummary:
    """Figures of all kept rows that a start needs; they are cached, so that the next start does not decode the rows.

    Args:
        digest: of the uids and the prompts.
        sources: the distinct values of ``data_source``, in order of appearance, with the index of their first prompt.
        num_with_tools: number of rows that require tools.
    """

    digest: str
    sources: dict[str, int]
    num_with_tools: int


class PromptCache:
    """The entry of some rows.

    Args:
        folder: of the cache.
        key: digest of what decides the prompts.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._prompts, self._manifest = folder / f"{key}.arrow", folder / f"{key}.json"
        self._is_stored = False

    def read(self) -> tuple[TokenisedPrompts, PromptSummary] | None:
        """Return the entry, mapped into memory; None if there is none."""
        try:
            manifest = json.loads(self._manifest.read_text(encoding="utf-8"))
            summary = PromptSummary(**manifest["summary"])
            if manifest["digests"] == [_summary_digest(summary), digest_of_file(self._prompts)]:
                return _mapped(self._prompts), summary
            problem = "its digests differ"
        except FileNotFoundError:
            return None
        except PermissionError as error:
            log.warning("%s cannot be read (%s), and its prompts are tokenised again", self._prompts, error.strerror)
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        log.warning("%s is damaged (%s), and its prompts are tokenised again", self._prompts, problem)
        return None

    def stored(self, batches: Callable[[], Iterable[pa.RecordBatch]]) -> TokenisedPrompts:
        """Write batches and return them, mapped; in memory if they cannot be written.

        Args:
            batches: makes them, a second time if needed.
        """
        try:
            self._prompts.parent.mkdir(parents=True, exist_ok=True)
            with _replacing(self._prompts) as partial:
                with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as file:
                    for batch in batches():
                        file.write_batch(batch)
            self._is_stored = True
            return _mapped(self._prompts)
        except OSError as error:
            log.warning(
                "data.prompt_cache: cannot write %s (%s), so prompts are tokenised at each start. Set it to a folder "
                "that can be written.",
                self._prompts.parent,
                error,
            )
            return TokenisedPrompts(batches())

    def publish(self, summary: PromptSummary) -> None:
        """Write the manifest of the prompts, if they have been stored."""
        if not self._is_stored:  # the file may be an older one
            return
        with suppress(OSError):  # reported by stored, or the next start makes the entry again
            digests = [_summary_digest(summary), digest_of_file(self._prompts)]
            write_atomically(self._manifest, json.dumps({"summary": asdict(summary), "digests": digests}))


def prompt_cache(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, needs_ground_truth: bool
) -> PromptCache | None:
    """Return the cache of these rows' prompts; None if there is no folder, the rows are few, or the text of a prompt
    does not follow from its row, the options and the tokenizer alone.
    """
    if not data.prompt_cache or len(rows) < MIN_ROWS or not _is_determined(data, tokenizer):
        return None
    key = blake2b(digest_size=DIGEST_BYTES)
    options = {name: value for name, value in asdict(data).items() if name in _OPTIONS}
    versions = [version(name) for name in _LIBRARIES]
    for part in (_own_code(), versions, rows.digest, options, _format_file(data), needs_ground_truth):
        key.update(repr(part).encode())
    for part in _parts(tokenizer):
        key.update(part.encode())
    return PromptCache(Path(data.prompt_cache).expanduser(), key.hexdigest())


def _is_determined(data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the same row always gives the same prompt.

    A template may write the time of day or draw at random, and a tokenizer's own code may do anything.
    """
    templates = (
        f"{tokenizer.chat_template if data.apply_chat_template else ''} {data.format_prompt} {_format_file(data)}"
    )
    is_known = isinstance(tokenizer, PreTrainedTokenizerFast) and type(tokenizer).__module__.startswith("transformers.")
    return is_known and not any(word in templates for word in ("strftime_now", "random"))


def _parts(tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Yield what decides a fast tokenizer's work, whatever its folder."""
    assert isinstance(tokenizer, PreTrainedTokenizerFast), f"{type(tokenizer).__name__} has no tokenizer.json"
    yield tokenizer.backend_tokenizer.to_str()
    yield repr((type(tokenizer).__name__, tokenizer.chat_template, tokenizer.special_tokens_map))
    yield repr(tokenizer.split_special_tokens)


def _format_file(data: DataConfig) -> str:
    """Return the text of the file that ``data.format_prompt`` names; empty if it names none."""
    with suppress(OSError, UnicodeDecodeError):  # reported where the template is read
        if data.format_prompt.endswith(".jinja"):
            return Path(data.format_prompt).expanduser().read_text(encoding="utf-8")
    return ""


def _own_code() -> str:
    """Return a digest of the code that reads, checks and renders rows."""
    found = blake2b(digest_size=DIGEST_BYTES)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()


def _mapped(file: Path) -> TokenisedPrompts:
    reader = pa.ipc.open_file(pa.memory_map(str(file)))
    return TokenisedPrompts(reader.get_batch(number) for number in range(reader.num_record_batches))


def _summary_digest(summary: PromptSummary) -> str:
    return blake2b(repr(summary).encode(), digest_size=DIGEST_BYTES).hexdigest()


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a new file that replaces ``path`` at the end, or is removed after an error.

    An equal file stays: on NFS, another host may have it mapped, and would lose it.
    """
    partial = path.with_name(f".{path.stem}.{uuid4().hex}.partial")  # a temporary file would be its owner's alone
    try:
        yield partial
        if not (path.exists() and digest_of_file(path) == digest_of_file(partial)):
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
