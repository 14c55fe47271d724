"""Full tensors out of shards: streamed in buckets to a rollout engine, or written as a Hugging Face folder."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from transformers import AutoTokenizer

from verl_like.backends.fsdp.collectives import all_gather
from verl_like.backends.fsdp.models import VALUE_HEAD_FILE, ShardedModel, ValueModel
from verl_like.config.schema import ModelConfig
from verl_like.telemetry.beacon import BEACON

log = logging.getLogger(__name__)

_PREFIX = "backbone."


@dataclass(frozen=True, slots=True)
class _Sharded:
    """A parameter split over ranks along its first axis, in equal pieces but for the last ones."""

    names: list[str]  # more than one when tied
    parameter: nn.Parameter

    def local(self) -> Tensor:
        assert isinstance(self.parameter, DTensor), f"{self.names[0]} is not sharded; reshard before reading shards"
        assert self.parameter.placements == (Shard(0),), (
            f"{self.names[0]} has placements {self.parameter.placements}, expected (Shard(0),)"
        )
        return self.parameter.to_local()

    @property
    def row_numel(self) -> int:
        return self.parameter.numel() // max(self.parameter.shape[0], 1)

    def rows_of(self, rank: int, world_size: int) -> int:
        """Rows that ``rank`` holds; the first ranks hold ceil(rows / world_size), the last ones what is left."""
        rows = int(self.parameter.shape[0])
        most = -(-rows // world_size)
        return max(min(most, rows - rank * most), 0)


def stream_full_tensors(
    module: nn.Module, *, dtype: torch.dtype, device: torch.device, bucket_mib: float
) -> Iterator[tuple[str, Tensor]]:
    """(name inside ``module``, full tensor) of every parameter, in the module's order, tied ones under each of their
    names.

    One collective per bucket. Every tensor owns its storage and is on ``device`` in ``dtype``; tied names share one
    tensor. The parameters must be resharded. All ranks must exhaust the stream.
    """
    tied: dict[int, _Sharded] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        tied.setdefault(id(parameter), _Sharded([], parameter)).names.append(name)
    bucket: list[_Sharded] = []
    size = 0
    for sharded in tied.values():
        nbytes = sharded.parameter.numel() * dtype.itemsize
        if bucket and size + nbytes > bucket_mib * 2**20:
            yield from _gathered(bucket, dtype=dtype, device=device)
            bucket, size = [], 0
        bucket.append(sharded)
        size += nbytes
    if bucket:
        yield from _gathered(bucket, dtype=dtype, device=device)


@torch.no_grad()
def _gather(bucket: list[_Sharded], *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[ranks, elements]: every rank's shards of the bucket one after the other,
    each padded to the largest rank's rows.
    """
    world_size = dist.get_world_size()
    widths = [sharded.rows_of(0, world_size) * sharded.row_numel for sharded in bucket]
    # Cast before the gather: shards are smaller than what they gather to, and a bfloat16 gather moves half the bytes.
    mine = torch.zeros(sum(widths), dtype=dtype, device=device)
    for sharded, place in zip(bucket, mine.split(widths), strict=True):
        shard = sharded.local().reshape(-1)
        place[: shard.numel()].copy_(shard)
    with BEACON.waiting("all ranks, for a bucket of weights"):
        return all_gather(mine)


@torch.no_grad()
def _gathered(bucket: list[_Sharded], *, dtype: torch.dtype, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    gathered = _gather(bucket, dtype=dtype, device=device)
    world_size = len(gathered)
    if len(bucket) == 1 and bucket[0].parameter.shape[0] % world_size == 0:
        # Alone and without padding, the gathered buffer already is the tensor: large ones are not copied again.
        full = gathered.view(bucket[0].parameter.shape)
        del gathered
        yield from ((name, full) for name in bucket[0].names)
        return
    start = 0
    for sharded in bucket:
        pieces = [
            gathered[rank, start : start + sharded.rows_of(rank, world_size) * sharded.row_numel]
            for rank in range(world_size)
        ]
        start += sharded.rows_of(0, world_size) * sharded.row_numel
        full = torch.cat(pieces).view(sharded.parameter.shape)
        yield from ((name, full) for name in sharded.names)


def named_weights(
    module: ShardedModel, *, dtype: torch.dtype, device: torch.device, bucket_mib: float
) -> Iterator[tuple[str, Tensor]]:
    """:func:`stream_full_tensors` of the language model, by the names Hugging Face gives them."""
    yield from stream_full_tensors(module.backbone, dtype=dtype, device=device, bucket_mib=bucket_mib)


def export_folder(
    path: Path, *, module: ShardedModel, model: ModelConfig, dtype: torch.dtype, device: torch.device, bucket_mib: float
) -> None:
    """Write config, weights in ``dtype`` and tokenizer as a Hugging Face folder; ``path`` appears complete or not at
    all.

    An older folder at ``path`` is replaced. All ranks gather, rank 0 writes, and all return when it is done.
    """
    is_writer = dist.get_rank() == 0
    state: dict[str, Tensor] = {}
    for name, tensor in stream_full_tensors(module, dtype=dtype, device=device, bucket_mib=bucket_mib):
        if is_writer:
            state[name] = tensor.cpu()
    if is_writer:
        _write(path, state=state, module=module, model=model, dtype=dtype)
    dist.barrier()


def _write(
    path: Path, *, state: dict[str, Tensor], module: ShardedModel, model: ModelConfig, dtype: torch.dtype
) -> None:
    fresh = path.with_name(f".{path.name}.writing-{os.getpid()}")
    old = path.with_name(f".{path.name}.replaced-{os.getpid()}")
    fresh.mkdir(parents=True)
    backbone = module.backbone
    master_dtype, backbone.config.dtype = backbone.config.dtype, dtype
    buffers = {name: buffer.cpu() for name, buffer in backbone.state_dict().items() if not isinstance(buffer, DTensor)}
    weights = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items() if name.startswith(_PREFIX)}
    backbone.save_pretrained(fresh, state_dict=buffers | weights)
    backbone.config.dtype = master_dtype
    if isinstance(module, ValueModel):
        head = {
            name.removeprefix("value_head."): tensor for name, tensor in state.items() if name.startswith("value_head.")
        }
        save_file(head, fresh / VALUE_HEAD_FILE)
    _write_tokenizer(fresh, model=model)
    if path.exists():
        path.rename(old)
    fresh.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _write_tokenizer(folder: Path, *, model: ModelConfig) -> None:
    source = model.tokenizer
    if Path(source).is_dir() and not (Path(source) / "tokenizer_config.json").is_file():
        log.warning("no tokenizer lies in %s, so the exported folder has none. Set model.tokenizer_path.", source)
        return
    AutoTokenizer.from_pretrained(source, trust_remote_code=model.trust_remote_code).save_pretrained(folder)
