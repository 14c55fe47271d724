"""The samples of a call: their requests, and what identifies each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from verl_like.backends.base import Request, Sampling
from verl_like.protocol import FEATURES, PICTURES, DataProto

VALIDATION_STEP = -1  # every validation draws the same samples, so that curves differ only by the policy


def sample_seed(run_seed: int, step: int, uid: str, sample: int, turn: int = 0) -> int:
    """Hash everything that identifies a turn to 63 bits: engines map neighbouring seeds to overlapping samples."""
    of_turn = f"/{turn}" if turn else ""
    digest = hashlib.blake2b(f"{run_seed}/{step}/{uid}/{sample}{of_turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def environment_seed(run_seed: int, step: int, uid: str) -> int:
    """Return the seed of the environments of a prompt in a step."""
    return sample_seed(run_seed, step, f"environment of {uid}", 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptSamples:
    """``n`` samples of each prompt.

    Args:
        prompts: the columns of the prompts.
        seed: seed of the run.
        first_sample: number of a prompt's first sample in this step's seeds.
        first_row: number of the first prompt's row; rows are unique among the prompts of an engine.
    """

    prompts: DataProto
    n: int
    sampling: Sampling
    seed: int
    step: int
    first_sample: int
    first_row: int = 0

    @property
    def rows(self) -> range:
        """The rows of the prompts."""
        return range(self.first_row, self.first_row + len(self.prompts))

    def of_row(self, row: int) -> PromptSamples:
        """Return the samples among which this row is, as :class:`OpenSamples` does."""
        return self

    def requests(self, row: int) -> list[Request]:
        """Return the first request of each sample of a prompt."""
        index = row - self.first_row
        prompt_ids = self.prompts.ragged("prompt_ids")[index].tolist()
        features: Any = self.prompts.columns.get(FEATURES)
        return [
            Request(
                request_id=f"{row}:{number}",
                prompt_ids=prompt_ids,
                sampling=self.sampling,
                seed=self.seed_of(row, number),
                features=features[index] if features is not None else None,
            )
            for number in range(self.n)
        ]

    def request_of_turn(
        self,
        row: int,
        number: int,
        *,
        turn: int,
        prompt_ids: list[int],
        max_tokens: int,
        features: Mapping[str, Any] | None = None,
    ) -> Request:
        """Return the request for a turn of a sample; the first turn has the seed of a sample of one turn."""
        return Request(
            request_id=f"{row}:{number}:{turn}",
            prompt_ids=prompt_ids,
            sampling=replace(self.sampling, max_tokens=max_tokens),
            seed=self.seed_of(row, number, turn),
            features=features,
        )

    def pictures(self, row: int) -> list[bytes]:
        """Return the encoded pictures of a prompt."""
        features: Any = self.prompts.columns.get(FEATURES)
        return list(features[row - self.first_row].get(PICTURES, ())) if features is not None else []

    def seed_of(self, row: int, number: int, turn: int = 0) -> int:
        uid = str(self.prompts["uid"][row - self.first_row])
        return sample_seed(self.seed, self.step, uid, self.first_sample + number, turn)

    def environment_seed(self, row: int) -> int:
        """Return the seed of the environments of a prompt: its samples face the same task, so their scores compare."""
        return environment_seed(self.seed, self.step, str(self.prompts["uid"][row - self.first_row]))

    def inputs(self, row: int) -> Mapping[str, Any]:
        """Return what scorers get of a prompt: its messages, ground truth and other columns."""
        inputs: Any = self.prompts["reward_inputs"]
        found: Mapping[str, Any] = inputs[row - self.first_row]
        return found


class SamplesByRow(Protocol):
    """The samples of an engine's prompts, by row."""

    def of_row(self, row: int) -> PromptSamples: ...


class OpenSamples:
    """The samples of several calls, which may come and go while others run."""

    def __init__(self) -> None:
        self._of_row: dict[int, PromptSamples] = {}
        self.next_row = 0  # the first row of the next samples

    def add(self, samples: PromptSamples) -> None:
        assert samples.first_row == self.next_row, f"row {samples.first_row} is not the next one, {self.next_row}"
        self._of_row.update(dict.fromkeys(samples.rows, samples))
        self.next_row = samples.rows.stop

    def remove(self, samples: PromptSamples) -> None:
        """Forget the samples of a call, all of which have ended."""
        for row in samples.rows:
            del self._of_row[row]

    def of_row(self, row: int) -> PromptSamples:
        return self._of_row[row]
