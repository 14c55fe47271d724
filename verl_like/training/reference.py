"""The reference's log-probs of given responses, computed once and kept on disk.

A file holds rows of (digest of the row's tokens, log-prob). Its folder is named after a digest of the reference's
weights and settings, so that another model never reads it.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from huggingface_hub import snapshot_download

from verl_like.context import current
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.ops.partition import partition
from verl_like.protocol import Array
from verl_like.remote_models import local_path, weights_in
from verl_like.telemetry.ledger import stage
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import write_atomically

log = logging.getLogger(__name__)

DIGEST_BYTES = 16
ENTRY = np.dtype([("row", f"V{DIGEST_BYTES}"), ("log_prob", np.float64)])
_CHUNK_BYTES = 2**24
Text = tuple[Array, Array]  # token ids of a prompt and of a response
# A batch, and the rows of each rank -> the log-prob of each row's response, [B] nats.
ComputeLogProbs = Callable[[RemoteBatch, Sequence[Array]], Array]


class Reference:
    """A fixed model, and its log-probs on disk.

    Args:
        log_probs: computes its log-probs.
        ranks: number of its ranks.
    """

    def __init__(self, log_probs: ComputeLogProbs, cache: ReferenceCache, *, ranks: int) -> None:
        self._log_probs, self._cache, self._ranks = log_probs, cache, ranks

    def log_probs(self, texts: Iterable[Text], batch: RemoteBatch) -> Array:
        """Return the log-prob of each row's response, [B] float64 nats; those on disk are not computed.

        Args:
            texts: the tokens of the batch's rows.
        """

        def compute(indices: Array) -> Array:
            current(Startup).now(f"computing the reference's log-probs of {len(indices)} responses")
            missing = batch.select(indices)
            with stage("ref_log_probs"):
                return self._log_probs(missing, partition(missing.facts["tokens"], self._ranks))

        return self._cache.completed(texts, compute)


class ReferenceCache:
    """Log-probs of responses on disk.

    Args:
        folder: of the cache; empty keeps nothing.
        model: path of the reference.
        settings: what else decides its log-probs, such as the dtype of its forward pass.
    """

    def __init__(self, folder: str, *, model: str, settings: str) -> None:
        self._folder: Path | None = None
        if folder and (weights := weights_digest(model, Path(folder).expanduser())) is not None:
            suffix = hashlib.blake2b(settings.encode(), digest_size=4).hexdigest()
            self._folder = Path(folder).expanduser() / f"{weights}-{suffix}"

    def completed(self, texts: Iterable[Text], compute: Callable[[Array], Array]) -> Array:
        """Return the log-prob of each row's response, [B] float64 nats.

        Args:
            compute: returns those of the rows with these indices.
        """
        digests = row_digests(texts)
        known = self._read()
        missing = np.flatnonzero([digest not in known for digest in digests])
        if len(missing):
            computed = compute(missing)
            known.update(zip((digests[i] for i in missing), computed.tolist(), strict=True))
            finite = missing[np.isfinite(computed)]  # a defective model is not remembered
            self._write(np.array([(digests[i], known[digests[i]]) for i in finite], ENTRY))
        log.info("reference log-probs: %d of %d rows were on disk", len(digests) - len(missing), len(digests))
        return np.array([known[digest] for digest in digests], np.float64)

    def _read(self) -> dict[bytes, float]:
        known: dict[bytes, float] = {}
        for file in sorted(self._folder.glob("*.npy")) if self._folder is not None else ():
            try:
                entries = np.load(file)
                assert entries.dtype == ENTRY, f"{entries.dtype} instead of {ENTRY}"
            except (OSError, ValueError, EOFError, AssertionError) as error:
                log.warning("%s is not read and its rows are computed again: %s", file, error)
                continue
            known.update(zip(entries["row"].tolist(), entries["log_prob"].tolist(), strict=True))
        return known

    def _write(self, entries: Array) -> None:
        if self._folder is None:
            return
        content = io.BytesIO()
        np.save(content, entries)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / f"{uuid.uuid4().hex}.npy", content.getvalue())
        except OSError as error:
            log.warning("trainer.reference_cache: the log-probs are not kept in %s: %s", self._folder, error)


def row_digests(texts: Iterable[Text]) -> list[bytes]:
    """Return a digest of each row's prompt and response."""
    found = []
    for prompt, response in texts:
        digest = hashlib.blake2b(np.int64(len(prompt)).tobytes(), digest_size=DIGEST_BYTES)
        digest.update(np.asarray(prompt, np.int32).tobytes())
        digest.update(np.asarray(response, np.int32).tobytes())
        found.append(digest.digest())
    return found


def weights_digest(model: str, cache: Path) -> str | None:
    """Return a digest of a model's configuration and weights, or None if its files are not on this machine.

    The digest of a file is kept in ``cache``, by its size and time of change.
    """
    path = Path(local_path(model)).expanduser()
    if not path.is_dir():
        try:
            path = Path(snapshot_download(model, local_files_only=True))
        except (OSError, ValueError):
            log.info("the weights of %s are not on this machine yet, so nothing is kept of the reference", model)
            return None
    digests = _FileDigests(cache / "files.json")
    found = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in (path / "config.json", *weights_in(path)):
        found.update(f"{file.name} {digests.of(file)}".encode())
    digests.keep()
    return found.hexdigest()


class _FileDigests:
    """Digests of large files, which take a second per GiB."""

    def __init__(self, memo: Path) -> None:
        self._memo, self._known = memo, dict[str, str]()
        with suppress(OSError, ValueError, AttributeError):  # computed again
            self._known = {str(key): str(value) for key, value in json.loads(memo.read_text()).items()}

    def of(self, file: Path) -> str:
        status = file.stat()
        key = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
        if key not in self._known:
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            with file.open("rb") as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    digest.update(chunk)
            self._known[key] = digest.hexdigest()
        return self._known[key]

    def keep(self) -> None:
        with suppress(OSError):  # computed again
            self._memo.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._memo, json.dumps(self._known))
