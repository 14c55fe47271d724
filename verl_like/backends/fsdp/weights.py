"""Assemble full tensors from shards: stream them in buckets to a rollout engine, or write them as a Hugging Face
folder.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from transformers import AutoTokenizer
from transformers.utils import cached_file

from verl_like.backends.fsdp.gathering import Gather, Pieces
from verl_like.backends.fsdp.models import HEAD, VALUE_HEAD_FILE, ShardedModel, ValueModel
from verl_like.backends.model_folder import fresh_folder
from verl_like.backends.pictures import reads_pictures
from verl_like.config.schema import ModelConfig

log = logging.getLogger(__name__)

_PREFIX = "backbone."
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")


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

    def pieces(self) -> Pieces:
        return Pieces(self._local(), self.sizes)

    def _local(self) -> Tensor:
        assert isinstance(self.parameter, DTensor), f"{self.names[0]} is not sharded; reshard before reading shards"
        *copies, cut = self.parameter.placements
        assert cut == Shard(0) and all(copy.is_replicate() for copy in copies), (
            f"{self.names[0]} has placements {self.parameter.placements}, expected Shard(0) as the last one, after "
            "replicas"
        )
        return self.parameter.to_local().reshape(-1)


Named = Iterable[tuple[str, nn.Parameter]]


def stream_full_tensors(
    parameters: Named, *, dtype: torch.dtype, gather: Gather, bucket_bytes: int, is_kept: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of every parameter in model order, with tied ones one after the other.

    The tensors are in ``dtype``; tied names share one. The parameters must be resharded. All ranks must exhaust the
    stream.

    Args:
        parameters: parameters with their names; a tied parameter appears under each of its names.
        bucket_bytes: number of bytes gathered at once; small parameters are gathered together, larger ones in parts
            unless the gather has enough memory.
        is_kept: whether every tensor owns its storage; otherwise it is valid until the next one is taken.
    """
    tied: dict[int, _Sharded] = {}
    for name, parameter in parameters:
        if id(parameter) not in tied:
            tied[id(parameter)] = _Sharded(parameter, gather.ranks)
        tied[id(parameter)].names.append(name)
    gather.begin()
    widest = bucket_bytes // dtype.itemsize // gather.ranks
    for bucket in _buckets(list(tied.values()), widest=widest):
        fulls = gather.whole([sharded.pieces() for sharded in bucket], dtype, widest=widest)
        for sharded, flat in zip(bucket, fulls, strict=True):
            full = (flat.clone() if is_kept and gather.reuses_memory else flat).view(sharded.shape)
            yield from ((name, full) for name in sharded.names)


def whole_tensors(parameters: Named, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, full tensor) of replicas: the parameter itself if it has the dtype, valid until the next update."""
    cast: dict[int, Tensor] = {}
    for name, parameter in parameters:
        if id(parameter) not in cast:
            cast[id(parameter)] = parameter.detach().to(dtype)
        yield name, cast[id(parameter)]


def saved_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) of the buffers that a model's files contain, such as the bias of a router's choice."""
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


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


def export_folder(
    path: Path, *, module: ShardedModel, model: ModelConfig, dtype: torch.dtype, tensors: Iterable[tuple[str, Tensor]]
) -> None:
    """Write config, weights in ``dtype``, tokenizer and processor of pictures as a Hugging Face folder.

    ``path`` appears complete or not at all, and an older folder is replaced. All ranks gather, rank 0 writes, and all
    return when it is done.

    Args:
        tensors: the result of :func:`stream_full_tensors`, kept.
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
        if reads_pictures(module.backbone.config):
            _copy_processor(fresh, model.path)


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


def _copy_processor(folder: Path, source: str) -> None:
    """Copy the files of a model's processors unchanged: saving them again would write another version's defaults."""
    for name in _PROCESSOR_FILES:
        found = cached_file(  # None for a file that the folder or the repository lacks; those in use were downloaded
            source, name, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
        )
        if found is not None:
            shutil.copyfile(found, folder / name)
