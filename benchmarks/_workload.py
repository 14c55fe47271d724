"""The PPO step that the data plane is measured on: row lengths, and the columns that each stage reads and adds.

Our side and the peers' sides of ``benchmarks.data_plane`` take rows, columns and hand-overs from here, so that all of
them move the same table. Needs numpy only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROMPT_LENGTH = 1024
MIN_RESPONSE_LENGTH = 16
MAX_RESPONSE_LENGTH = 7168
MEAN_RESPONSE_LENGTH = 1024
SAMPLES_PER_PROMPT = 16
NUM_WORKERS = 2

# Rows of the table for timing put and get: with a mean response of 1024 tokens, about 104 MB over all columns below.
THROUGHPUT_ROWS = 3072

# Columns with one entry per response token, and the bytes of an entry. The table also has prompt_ids and score.
TOKEN_DTYPES = {
    "response_ids": "int32",
    "response_mask": "bool",
    "rollout_log_probs": "float32",
    "old_log_probs": "float32",
    "ref_log_probs": "float32",
    "values": "float32",
    "advantages": "float32",
    "returns": "float32",
}
PROMPT_DTYPE = "int32"
SCORE_DTYPE = "float32"

SEQUENCE = ("prompt_ids", "response_ids", "response_mask")


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """One stage: the columns that its worker needs and adds."""

    stage: str
    reads: tuple[str, ...]
    adds: tuple[str, ...] = ()


STEP = (
    HandOver(stage="rollout", reads=("prompt_ids",), adds=("response_ids", "response_mask", "rollout_log_probs")),
    HandOver(stage="reward", reads=("prompt_ids", "response_ids"), adds=("score",)),
    HandOver(stage="old_log_probs", reads=SEQUENCE, adds=("old_log_probs",)),
    HandOver(stage="ref_log_probs", reads=SEQUENCE, adds=("ref_log_probs",)),
    HandOver(stage="values", reads=SEQUENCE, adds=("values",)),
    HandOver(
        stage="advantages",
        reads=("response_mask", "score", "old_log_probs", "ref_log_probs", "values"),
        adds=("advantages", "returns"),
    ),
    HandOver(stage="update_critic", reads=(*SEQUENCE, "values", "returns")),
    HandOver(
        stage="update_actor", reads=(*SEQUENCE, "rollout_log_probs", "old_log_probs", "ref_log_probs", "advantages")
    ),
)


def lengths(rows: int, seed: int) -> NDArray[np.int64]:
    """Draw the response tokens of each row, [rows].

    Log-normal (sigma 1), clipped to 16..7168, with a mean of 1024 within 1 %.

    Raises:
        ValueError: rows that are not a multiple of 16 samples per prompt, or cannot be halved between the workers.
    """
    if rows <= 0 or rows % (SAMPLES_PER_PROMPT * NUM_WORKERS):
        raise ValueError(
            f"found rows={rows}, expected a positive multiple of {SAMPLES_PER_PROMPT * NUM_WORKERS}: whole prompts of "
            f"{SAMPLES_PER_PROMPT} samples, as many for each of {NUM_WORKERS} workers. Use --rows 1024."
        )
    shape = np.random.default_rng(seed).lognormal(sigma=1.0, size=rows)
    low, high = 0.0, MAX_RESPONSE_LENGTH / float(shape.min())
    # Clipping moves the mean, so the scale is searched for; 60 halvings are beyond float64's resolution.
    for _ in range(60):
        scale = (low + high) / 2
        clipped = np.clip(np.rint(shape * scale), MIN_RESPONSE_LENGTH, MAX_RESPONSE_LENGTH).astype(np.int64)
        low, high = (scale, high) if clipped.mean() < MEAN_RESPONSE_LENGTH else (low, scale)
    assert abs(clipped.mean() / MEAN_RESPONSE_LENGTH - 1) < 0.01, f"the mean response is {clipped.mean()} tokens"
    return clipped


def payload_bytes(response_lengths: NDArray[np.int64]) -> int:
    """Return the bytes of these rows' columns, each counted once and packed."""
    per_row = PROMPT_LENGTH * np.dtype(PROMPT_DTYPE).itemsize + np.dtype(SCORE_DTYPE).itemsize
    per_token = sum(np.dtype(name).itemsize for name in TOKEN_DTYPES.values())
    return len(response_lengths) * per_row + int(response_lengths.sum()) * per_token


class MemoryGrowth:
    """Sample this process's own memory while the block runs (Linux's RssAnon, without Ray's store, which is mapped).

    ``mb``: the highest sample minus the first, in MB.
    """

    def __init__(self, sample_every_s: float = 0.02) -> None:
        self.sample_every_s = sample_every_s
        self.first = self.highest = 0
        self.stop = threading.Event()
        self.sampler = threading.Thread(target=self._sample, daemon=True)

    @property
    def mb(self) -> float:
        return (self.highest - self.first) / 1e6

    def __enter__(self) -> MemoryGrowth:
        self.first = self.highest = anonymous_bytes()
        self.sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop.set()
        self.sampler.join(timeout=10)
        self.highest = max(self.highest, anonymous_bytes())

    def _sample(self) -> None:
        while not self.stop.wait(self.sample_every_s):
            self.highest = max(self.highest, anonymous_bytes())


def anonymous_bytes() -> int:
    """Return this process's resident memory that no file and no shared segment backs."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def token_column(name: str, num_tokens: int) -> NDArray[Any]:
    """Return a freshly written column of ones, [num_tokens], as the result of a worker that does no arithmetic.

    Zeros that were never written are one page of memory and read faster than data.
    """
    return np.ones(num_tokens, TOKEN_DTYPES[name])
