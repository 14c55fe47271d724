"""The pictures of a call's rows, as inputs of its passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.backends.pictures import PictureReader, digest_of, has_rotary_planes, positions_of
from verl_like.ops.packing import ModelInputs, input_lengths
from verl_like.protocol import FEATURES, PICTURES, PROMPT_PICTURES, RESPONSE_FEATURES, DataProto, Ragged


class RowPictures:
    """The pictures of each row's prompt and response.

    Args:
        rows: rows with a column ``features`` or ``response_features``, of which only the second is read if there are
            both.
        model: the model without its output layer, which defines the positions of tokens.
    """

    def __init__(self, rows: DataProto, reader: PictureReader, model: Any) -> None:
        self._reader, self._model = reader, model
        none: list[bytes] = []
        in_responses = RESPONSE_FEATURES in rows.columns
        features: Any = rows[RESPONSE_FEATURES if in_responses else FEATURES]
        of_prompts = [each.get(PROMPT_PICTURES if in_responses else PICTURES, none) for each in features]
        of_responses = [each.get(PICTURES, none) if in_responses else none for each in features]
        self._of_row: list[tuple[list[bytes], list[bytes]]] = list(zip(of_prompts, of_responses, strict=True))
        # Rows mostly have the same objects, which are read once.
        digests = {id(each): digest_of([each]) for of_prompt in of_prompts for each in of_prompt}
        known: dict[tuple[bytes, ...], int] = {}
        # Equal for prompts with the same pictures, [B]: prompts that differ only by their pictures have the same ids.
        self.numbers = np.array(
            [known.setdefault(tuple(digests[id(each)] for each in found), len(known)) for found in of_prompts], np.int64
        )

    def added(
        self, inputs: ModelInputs, rows: NDArray[np.int64], prompts: Ragged, responses: Ragged, at: NDArray[np.int64]
    ) -> ModelInputs:
        """Return the inputs of a pass with the pictures of its rows, and with their positions.

        Args:
            prompts, responses: of ``rows``.
            at: :func:`verl_like.ops.packing.input_numbers` of the inputs.
        """
        if not any(any(self._of_row[row]) for row in rows):
            return inputs
        for row, response in zip(rows, responses, strict=True):
            assert not self._of_row[row][1] or response[-1] != self._reader.token_id, (
                f"the response of row {row} ends within a picture; text must follow each"
            )
        device = inputs.input_ids.device
        lengths = input_lengths(prompts, responses)
        starts = np.cumsum(lengths) - lengths
        shown = at[(inputs.input_ids.flatten() == self._reader.token_id).cpu().numpy()]
        of_row = np.searchsorted(starts, shown, side="right") - 1
        in_response = shown - starts[of_row] >= prompts.lengths[of_row]
        # Rows that share a prompt have its pictures once; dict.fromkeys keeps the order of the tokens.
        in_order = dict.fromkeys(zip(of_row.tolist(), in_response.tolist(), strict=True))
        pictures = self._reader.inputs([each for row, part in in_order for each in self._of_row[rows[row]][part]])
        inputs = replace(inputs, pictures={name: value.to(device) for name, value in pictures.items()})
        if not has_rotary_planes(self._model):
            return inputs
        in_rows = [self._positions(row, *pair) for row, *pair in zip(rows, prompts, responses, strict=True)]
        planes = torch.cat(in_rows, 1)[:, torch.from_numpy(np.maximum(at, 0))]
        return replace(inputs, position_ids=planes.view(3, *inputs.input_ids.shape).to(device))

    def _positions(self, row: int, prompt: NDArray[np.int32], response: NDArray[np.int32]) -> Tensor:
        """Return [3, P + R - 1] of a row."""
        of_prompt, of_response = self._of_row[row]
        known = np.concatenate([prompt, response[:-1]]) if of_response else prompt
        found = torch.arange(len(known)).expand(3, -1)
        if of_prompt or of_response:
            pictures = self._reader.inputs([*of_prompt, *of_response])
            found = positions_of(self._model, known, pictures, self._reader.token_id)
        missing = len(prompt) + max(len(response) - 1, 0) - len(known)
        after = int(found.max()) + 1 + torch.arange(missing)
        return torch.cat([found, after.expand(3, -1)], 1)


def with_unused_picture(model: Any, embedded: Tensor, unused: Mapping[str, Tensor]) -> Tensor:
    """Return the embedded tokens unchanged, after the model has looked at a picture.

    A rank without pictures takes part in gathering the weights that read them, and in the reduction of their gradients.
    """
    found = model.get_image_features(**unused, return_dict=True)
    read = _tensors([found.pooler_output, getattr(found, "deepstack_features", None) or ()])
    return embedded + torch.stack([each.sum() for each in read]).sum().to(embedded.dtype) * 0.0


def _tensors(found: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists."""
    if isinstance(found, Tensor):
        yield found
    else:
        for each in found:
            yield from _tensors(each)


def unused_picture(reader: PictureReader, device: torch.device) -> dict[str, Tensor]:
    """Return the arguments for a small picture."""
    return {name: value.to(device) for name, value in reader.inputs([reader.smallest()]).items()}
