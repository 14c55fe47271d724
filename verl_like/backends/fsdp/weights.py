"""Assemble full tensors from shards: stream them in buckets to a rollout engine, or write them as a Hugging Face
folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from transformers import AutoTokenizer

from verl_like.backends.fsdp.gathering import Gather
from verl_like.backends.fsdp.models import HEAD, VALUE_HEAD_FILE, ShardedModel, ValueModel
from verl_like.backends.model_folder import fresh_folder
from verl_like.config.schema import ModelConfig

log = logging.getLogger(__name__)

_PREFIX = "backbone."


class _Sharded:
    """A parameter split over ranks along its first axis, in equal pieces except for the last ones."""

    def __init__(self, parameter: nn.Parameter, ranks: int) -> None:
        self.names: list[str] = []  # more than one when tied
        self.parameter, self.shape = parameter, parameter.shape
        rows = int(self.shape[0])
        most = -(-rows // ranks)
        of_row = parameter.numel() // max(rows, 1)
        # number of elements of each rank
        self.sizes = [max(min(most, rows - rank * most), 0) * of_row for rank in range(ranks)]

    @property
    def width(self) -> int:
        """Number of elements of the rank with the most."""
        return self.sizes[0]

    def local(self) -> Tensor:
        assert isinstance(self.parameter, DTensor), f"{self.names[0]} is not sharded; reshard before reading shards"
        *copies, cut = self.parameter.placements
        assert cut == Shard(0) and all(copy.is_replicate() for copy in copies), (
            f"{self.names[0]} has placements {self.parameter.placements}, expected Shard(0) as the last one, after "
            "replicas"
        )
        return self.parameter.to_local().reshape(-1)


Named = Iterable[tuple[str, nn.Parameter]]


def stream_full_tensors(
    parameters: Named, *, dtype: torch.dtype, device: torch.device, gather: Gather, bucket_bytes: int
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of every parameter in model order, with tied ones one after the other.

    Every tensor owns its storage and is on ``device`` in ``dtype``; tied names share one tensor. The parameters must be
    resharded. All ranks must exhaust the stream.

    Args:
        parameters: parameters with their names; a tied parameter appears under each of its names.
        bucket_bytes: number of bytes gathered at once; small parameters are gathered together, larger ones in parts.
    """
    tied: dict[int, _Sharded] = {}
    for name, parameter in parameters:
        if id(parameter) not in tied:
            tied[id(parameter)] = _Sharded(parameter, gather.ranks)
        tied[id(parameter)].names.append(name)
    gather.begin()
    widest = bucket_bytes // dtype.itemsize // gather.ranks
    for bucket in _buckets(list(tied.values()), widest=widest):
        fulls = _gathered(bucket, gather, widest=widest, dtype=dtype, device=device)
        for sharded, full in zip(bucket, fulls, strict=True):
            yield from ((name, full) for name in sharded.names)


def whole_tensors(parameters: Named, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of replicas: the parameter itself if it has the dtype, valid until the next update."""
    cast: dict[int, Tensor] = {}
    for name, parameter in parameters:
        if id(parameter) not in cast:
            cast[id(parameter)] = parameter.detach().to(dtype)
        yield name, cast[id(parameter)]


def _buckets(parameters: list[_Sharded], *, widest: int) -> Iterator[list[_Sharded]]:
    """Yield groups in their order, each at most ``widest`` elements of a rank wide; wider parameters are alone."""
    bucket: list[_Sharded] = []
    width = 0
    for sharded in parameters:
        own = sharded.width
        if bucket and width + own > widest:
            yield bucket
            bucket, width = [], 0
        bucket.append(sharded)
        width += own
    if bucket:
        yield bucket


@torch.no_grad()
def _gathered(
    bucket: list[_Sharded], gather: Gather, *, widest: int, dtype: torch.dtype, device: torch.device
) -> Iterator[Tensor]:
    widths = [sharded.width for sharded in bucket]
    if sum(widths) > widest:
        [sharded] = bucket
        yield _in_parts(sharded, gather, widest=widest, dtype=dtype, device=device)
        return

    def fill(own: Tensor) -> None:
        # Cast before the gather: a shard is smaller than the gathered tensor, and a bfloat16 gather moves half the
        # bytes.
        for sharded, target in zip(bucket, own.split(widths), strict=True):
            shard = sharded.local()
            target[: shard.numel()].copy_(shard)

    pieces = gather.table(fill, sum(widths), dtype).split(widths, dim=1)
    for sharded, table in zip(bucket, pieces, strict=True):
        yield torch.cat([row[:size] for row, size in zip(table, sharded.sizes, strict=True)]).view(sharded.shape)


def _in_parts(sharded: _Sharded, gather: Gather, *, widest: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return one parameter that is larger than a bucket, gathered in parts."""
    full = torch.empty(sharded.shape, dtype=dtype, device=device)
    shard, parts = sharded.local(), full.view(-1).split(sharded.sizes)
    for start in range(0, sharded.width, widest):
        part = shard[start : start + widest]

        def fill(own: Tensor, part: Tensor = part) -> None:
            own[: part.numel()].copy_(part)

        table = gather.table(fill, min(widest, sharded.width - start), dtype)
        for row, whole in zip(table, parts, strict=True):
            target = whole[start : start + widest]
            target.copy_(row[: target.numel()])
    return full


def export_folder(
    path: Path, *, module: ShardedModel, model: ModelConfig, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]
) -> None:
    """Write config, weights in ``dtype`` and tokenizer as a Hugging Face folder.

    ``path`` appears complete or not at all, and an older folder is replaced. All ranks gather, rank 0 writes, and all
    return when it is done.

    Args:
        tensors: the result of :func:`stream_full_tensors`.
    """
    is_writer = dist.get_rank() == 0
    state: dict[str, Tensor] = {}
    for name, tensor in tensors:
        if is_writer:
            state[name] = tensor.cpu()
    if is_writer:
        _write(path, state=state, module=module, model=model, dtype=dtype)
    dist.barrier()


def _write(
    path: Path, *, state: dict[str, Tensor], module: ShardedModel, model: ModelConfig, dtype: torch.dtype
) -> None:
    with fresh_folder(path) as fresh:
        _write_model(fresh, state=state, module=module, dtype=dtype)
        _write_tokenizer(fresh, model=model)


def _write_model(fresh: Path, *, state: dict[str, Tensor], module: ShardedModel, dtype: torch.dtype) -> None:
    backbone = module.backbone
    master_dtype, backbone.config.dtype = backbone.config.dtype, dtype
    weights = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items() if name.startswith(_PREFIX)}
    with module.original_layers():
        own = backbone.state_dict().items()
        buffers = {name: buffer.cpu() for name, buffer in own if not isinstance(buffer, DTensor)}
        backbone.save_pretrained(fresh, state_dict=buffers | weights)
    backbone.config.dtype = master_dtype
    if isinstance(module, ValueModel) and not hasattr(backbone, HEAD):
        head = {
            name.removeprefix("value_head."): tensor for name, tensor in state.items() if name.startswith("value_head.")
        }
        save_file(head, fresh / VALUE_HEAD_FILE)


def _write_tokenizer(folder: Path, *, model: ModelConfig) -> None:
    source = model.tokenizer
    if Path(source).is_dir() and not (Path(source) / "tokenizer_config.json").is_file():
        log.warning("%s contains no tokenizer, so the exported folder has none. Set model.tokenizer_path.", source)
        return
    AutoTokenizer.from_pretrained(source, trust_remote_code=model.trust_remote_code).save_pretrained(folder)
