"""The pictures of a call's rows, as inputs of its passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.backends.pictures import PictureReader, digest_of, has_rotary_planes, positions_of
from verl_like.ops.packing import ModelInputs, input_lengths
from verl_like.protocol import PICTURES, Ragged


class RowPictures:
    """The pictures of each row's prompt.

    Args:
        features: column ``features`` of the rows.
        model: the model without its output layer, which defines the positions of tokens.
    """

    def __init__(self, features: Sequence[Mapping[str, Any]], reader: PictureReader, model: Any) -> None:
        self._reader, self._model = reader, model
        none: list[bytes] = []
        self._of_row: list[list[bytes]] = [each.get(PICTURES, none) for each in features]
        known: dict[bytes, int] = {}
        # The samples of a prompt have the same objects, which are read once.
        of_object = {id(each): known.setdefault(digest_of(each), len(known)) for each in _distinct(self._of_row)}
        # Equal for rows with the same pictures, [B]: prompts that differ only by their pictures have the same ids.
        self.numbers = np.array([of_object[id(each)] for each in self._of_row], np.int64)

    def added(
        self, inputs: ModelInputs, rows: NDArray[np.int64], prompts: Ragged, responses: Ragged, at: NDArray[np.int64]
    ) -> ModelInputs:
        """Return the inputs of a pass with the pictures of its rows, and with their positions.

        Args:
            prompts, responses: of ``rows``.
            at: :func:`verl_like.ops.packing.input_numbers` of the inputs.
        """
        if not any(self._of_row[row] for row in rows):
            return inputs
        device = inputs.input_ids.device
        lengths = input_lengths(prompts, responses)
        starts = np.cumsum(lengths) - lengths
        shown = at[(inputs.input_ids.flatten() == self._reader.token_id).cpu().numpy()]
        # Rows that share a prompt have its pictures once; dict.fromkeys keeps the order of the tokens.
        in_order = dict.fromkeys((np.searchsorted(starts, shown, side="right") - 1).tolist())
        pictures = self._reader.inputs([each for row in in_order for each in self._of_row[rows[row]]])
        inputs = replace(inputs, pictures={name: value.to(device) for name, value in pictures.items()})
        if not has_rotary_planes(self._model):
            return inputs
        in_rows = [self._positions(row, *pair) for row, *pair in zip(rows, prompts, responses, strict=True)]
        planes = torch.cat(in_rows, 1)[:, torch.from_numpy(np.maximum(at, 0))]
        return replace(inputs, position_ids=planes.view(3, *inputs.input_ids.shape).to(device))

    def _positions(self, row: int, prompt: NDArray[np.int32], response: NDArray[np.int32]) -> Tensor:
        """Return [3, P + R - 1] of a row."""
        pictures = self._of_row[row]
        of_prompt = torch.arange(len(prompt)).expand(3, -1)
        if pictures:
            of_prompt = positions_of(self._model, prompt, self._reader.inputs(pictures), self._reader.token_id)
        after = int(of_prompt.max()) + 1 + torch.arange(max(len(response) - 1, 0))
        return torch.cat([of_prompt, after.expand(3, -1)], 1)


def _distinct(lists: Iterable[list[bytes]]) -> Iterable[list[bytes]]:
    return {id(each): each for each in lists}.values()


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
