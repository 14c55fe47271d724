"""vLLM in this process behind the RolloutEngine protocol."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from vllm import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

from verl_like.backends.base import Finished, Request
from verl_like.backends.lifecycle import SyncedEngine
from verl_like.backends.model_folder import ModelFolder, as_in_files, converts, model_folder
from verl_like.backends.pictures import PictureReader, forbidden_ids, reads_pictures
from verl_like.backends.vllm import internals
from verl_like.backends.vllm.assumptions import check_engine
from verl_like.backends.vllm.blocks import BlockTails
from verl_like.backends.vllm.cache_memory import ZeroedWhenUsed
from verl_like.backends.vllm.cpu_start import kernels_in_vllm
from verl_like.backends.vllm.kernels import check_kernels
from verl_like.backends.vllm.log_probs import ReportedLogProbs
from verl_like.backends.vllm.packing import PackedWeights
from verl_like.backends.vllm.pictures import PicturePrompts, picture_arguments
from verl_like.backends.vllm.requests import OpenRequest, OpenRequests, ScheduledRequests
from verl_like.backends.vllm.routed_experts import CapturedExperts, ReportedExperts, RoutedExperts
from verl_like.backends.vllm.sampling import CountedSampling
from verl_like.backends.vllm.shared_memory import named_by_run
from verl_like.backends.vllm.shared_prompts import SharedPrompts
from verl_like.backends.vllm.short_sequences import ShortSequences
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.context import current
from verl_like.machine.engine_arguments import OWN, unusable
from verl_like.telemetry.device_memory import DeviceMemory, asleep_bytes

if TYPE_CHECKING:
    from verl_like.backends.vllm.adapter import EngineAdapter

logger = logging.getLogger(__name__)

SPARE_BYTES = 2**30  # of a GPU, after an engine has woken
_MOST_CAPTURED = 512  # sequences for which vLLM captures CUDA graphs by default
_CPU_BLOCK_TOKENS = 32  # the CPU kernels require multiples of it
_MAX_CPU_BLOCK_TOKENS = 128

# Arguments that users may set freely although the adapter sets them.
_SOFT_ARGUMENTS = frozenset({"async_scheduling", "block_size", "compilation_config", "enable_prefix_caching"})


class VllmEngine(SyncedEngine):
    """One vLLM engine, or this rank's share of a tensor-parallel one, in this process.

    Engines of ``tensor_parallel_size`` T consist of ranks 0..T-1, T..2T-1, and so on. The arguments are those of
    :func:`verl_like.backends.rollout.rollout_engine`.

    ``abort`` leaves out ids that have already finished. Log-probs of greedy samples are those at temperature 1.
    """

    def __init__(
        self,
        *,
        model_path: str,
        tokenizer_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        max_model_len: int,
        device: str,
        seed: int,
        run_id: str,
    ) -> None:
        internals.check_version(device)
        internals.quiet()
        check_kernels()
        _check_process(rollout.tensor_parallel_size)
        _check_sampling_mask(rollout, device)
        folder = model_folder(model_path=model_path, tokenizer_path=tokenizer_path, model=model)
        internals.check_head_size(folder.config, device)
        self._adapter = _adapter(folder, model, run_id) if model.lora.rank and rollout.lora == "adapter" else None
        super().__init__(
            weight_shapes=folder.weight_shapes if self._adapter is None else self._adapter.shapes,
            max_model_len=max_model_len,
            vocab_size=folder.vocab_size,
        )
        self._device = device
        self.end_token_ids, self._max_num_seqs = frozenset(folder.end_token_ids), rollout.num_seqs
        arguments = engine_arguments(
            model_path=model_path,
            model=model,
            rollout=rollout,
            max_model_len=max_model_len,
            device=device,
            # Data-parallel engines get different seeds, the ranks of one engine the same seed.
            seed=seed + dist.get_rank() // rollout.tensor_parallel_size,
        )
        if self._adapter is not None:
            arguments |= self._adapter.arguments
        reader: PictureReader | None = None
        if reads_pictures(folder.config):
            self.takes_features, reader = True, PictureReader(model_path, model=model)
            arguments |= picture_arguments(tokenizer_path or model_path)
        self._engine = _constructed(
            arguments, folder, rollout=rollout, max_model_len=max_model_len, device=device, run_id=run_id
        )
        internals.leave_process_group(self._engine)
        check_engine(self._engine, device=device, tensor_parallel_size=rollout.tensor_parallel_size)
        pictures = None if reader is None else PicturePrompts(self._engine, reader)
        self._requests = self._open_requests(rollout, max_model_len, pictures, forbidden_ids(folder.config))
        built, self._folder = internals.model_runner(self._engine).get_model(), folder
        is_plain = self._adapter is None and PackedWeights.fit(built) and not converts(folder)
        is_packed = is_plain and device == "cpu"
        self._packed = PackedWeights(built, folder.tied_names, num_passes=max_model_len) if is_packed else None
        self._loads_in_place = is_plain and device == "cuda"
        self._name_of = internals.engine_names(built)
        self._unknown_names = internals.unknown_names(
            [name for tied in folder.tied_names.values() for name in tied], built
        )

    def _open_requests(
        self, rollout: RolloutConfig, max_model_len: int, pictures: PicturePrompts | None, forbidden: list[int]
    ) -> OpenRequests:
        """Return what runs the requests: the adapter itself where vLLM's scheduler would have nothing to decide."""
        runner, scheduler = internals.model_runner(self._engine), internals.scheduler_of(self._engine)
        is_counted = self._device == "cpu" and CountedSampling.is_available()
        experts = _routed_experts(scheduler, runner, device=self._device) if rollout.router_replay else None
        shares = self._device == "cpu" and experts is None and SharedPrompts.fit(runner)
        shared = SharedPrompts(runner) if shares else None
        # Arguments of the user may be for the scheduler.
        is_plain = is_counted and rollout.tensor_parallel_size == 1 and not rollout.engine_kwargs
        if shared is not None and is_plain and ShortSequences.fit(runner, max_model_len):
            return ShortSequences(
                runner,
                shared,
                end_token_ids=self.end_token_ids,
                max_num_seqs=rollout.num_seqs,
                max_num_batched_tokens=rollout.max_num_batched_tokens,
            )
        if self._device == "cpu" and BlockTails.fit(scheduler):
            BlockTails(scheduler)  # the scheduler keeps it
        return ScheduledRequests(
            self._engine,
            end_token_ids=self.end_token_ids,
            adapter=self._adapter,
            reported=ReportedLogProbs(scheduler, has_masks=rollout.keep_sampling_mask and self._device == "cuda"),
            counted=CountedSampling(runner) if is_counted else None,
            experts=experts,
            pictures=pictures,
            forbidden_ids=forbidden,
        )

    def submit(self, requests: list[Request]) -> None:
        self._check_submit(requests, in_use=self._requests)
        for request in requests:
            self._requests.add(request)

    def step(self) -> list[Finished]:
        self._check_step()
        _, waiting = self._requests.queues()
        with self._eager():
            ended = self._requests.step()
        finished = [self._finished(opened) for opened in ended]
        self._record_usage(waiting, num_finished=len(finished))
        return finished

    def _record_usage(self, waiting: int, *, num_finished: int) -> None:
        """Record queue usage after a step; ``waiting`` is the queue's length before it, and the queue grows only by
        preemption.
        """
        running, still_waiting = self._requests.queues()
        running += num_finished
        self.usage.record(running=running, waiting=still_waiting)
        # A queue that only waits for its turn in the step's tokens gets shorter.
        is_stuck = 0 < waiting <= still_waiting and running < self._max_num_seqs
        self.usage.starving = still_waiting if is_stuck else 0
        self.usage.preemptions += max(still_waiting - waiting, 0)

    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def num_free_slots(self) -> int:
        running, waiting = self._requests.queues()
        return 0 if waiting else self._max_num_seqs - running

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        return [self._result(opened, "abort") for opened in self._requests.abort(request_ids)]

    def _load_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
        if self._adapter is not None:
            self._adapter.load(self._engine, weights)
            return
        known = ((self._name_of(name), tensor) for name, tensor in weights if name not in self._unknown_names)
        if self._packed is not None:
            self._packed.load(known, num_weights=len(self._weight_shapes) - len(self._unknown_names))
        elif self._loads_in_place:
            internals.load_in_place(self._engine, known)
        else:
            if self._device == "cpu":  # vLLM keeps tensors until their layer is complete
                known = ((name, tensor.clone()) for name, tensor in known)
                internals.forget_expert_kernels(internals.model_runner(self._engine).get_model())
            self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": as_in_files(self._folder, known)})

    def _drop_caches(self) -> None:
        self._requests.drop_caches()

    def _free_memory(self) -> None:
        if self._device == "cuda":  # level 1 keeps in host memory the weights that no sync transfers
            current(DeviceMemory).mark()
            self._engine.sleep(level=2 if self._adapter is None else 1)

    def _wake_weights(self) -> None:
        self._wake("weights")

    def _wake_cache(self) -> None:
        self._wake("kv_cache")

    def _wake(self, tag: str) -> None:
        if self._device != "cuda":
            return
        # Memory that PyTorch caches is not free for the engine. It is returned only if the device lacks it: PyTorch
        # would have to request it again.
        if torch.cuda.mem_get_info()[0] < asleep_bytes(tag) + SPARE_BYTES:
            torch.cuda.empty_cache()
        current(DeviceMemory).mark()
        self._engine.wake_up(tags=[tag])

    def _eager(self) -> AbstractContextManager[Any]:
        # vLLM compiles its log-prob and embedding helpers on first use even in eager mode: 20 s of C++ compiler inside
        # the first rollout on CPU.
        return torch.compiler.set_stance("force_eager") if self._device == "cpu" else nullcontext()

    def _finished(self, opened: OpenRequest) -> Finished:
        assert opened.finish_reason in ("stop", "length"), (
            f"vLLM ended request {opened.request_id} with {opened.finish_reason!r}"
        )
        self.usage.cached_prompt_tokens += opened.num_cached_tokens
        return self._result(opened, opened.finish_reason)

    def _result(self, opened: OpenRequest, finish_reason: str) -> Finished:
        token_ids = opened.token_ids
        return Finished(
            request_id=opened.request_id,
            response_ids=token_ids,
            finish_reason=finish_reason,
            num_cached_tokens=opened.num_cached_tokens,
            log_probs=opened.log_probs,
            candidates=opened.candidates,
            experts=opened.experts,
            versions=self._versions_of(opened.request_id, len(token_ids)),
        )

    def _num_sampled(self) -> dict[str, int]:
        return self._requests.num_sampled()


def _routed_experts(scheduler: Any, runner: Any, *, device: str) -> RoutedExperts:
    return CapturedExperts(scheduler, runner) if device == "cpu" else ReportedExperts(scheduler, runner)


def _adapter(folder: ModelFolder, model: ModelConfig, run_id: str) -> EngineAdapter:
    from verl_like.backends.vllm.adapter import EngineAdapter  # imports peft, which nothing else needs

    return EngineAdapter(folder.config, model, run_id)


def engine_arguments(
    *, model_path: str, model: ModelConfig, rollout: RolloutConfig, max_model_len: int, device: str, seed: int
) -> dict[str, Any]:
    """Return the arguments of vLLM's engine, with ``rollout.engine_kwargs`` merged last.

    Raises:
        ValueError: for an engine_kwargs key that vLLM does not know or that the adapter must set itself.
    """
    arguments: dict[str, Any] = {
        "model": model_path,
        "trust_remote_code": model.trust_remote_code,
        "hf_overrides": dict(model.override_config),
        "skip_tokenizer_init": True,  # prompts and responses are ids
        "load_format": "dummy",  # weights arrive by sync
        "dtype": {"cpu": "float32", "cuda": "bfloat16"}[device] if rollout.dtype == "auto" else rollout.dtype,
        "max_model_len": max_model_len,
        "max_num_seqs": rollout.num_seqs,
        # More than all sequences together would only enlarge buffers.
        "max_num_batched_tokens": min(rollout.max_num_batched_tokens, rollout.num_seqs * max_model_len),
        "distributed_executor_backend": "external_launcher",
        "tensor_parallel_size": rollout.tensor_parallel_size,
        "logprobs_mode": "processed_logprobs",  # the default ignores temperature, top-p and top-k
        "seed": seed,
        "disable_log_stats": True,
        # Plan the next step while one runs. When vLLM does that depends on numbers of requests and steps alone, not on
        # time (0.32, step_with_batch_queue), so the ranks of an engine do the same. Its CPU platform does not support
        # it.
        "async_scheduling": device == "cuda",
        # vLLM's check of peer access numbers the ranks' GPUs in each process, but a worker sees only its own (vLLM
        # 0.32, all_reduce_utils.gpu_p2p_access_check). environment.py turns off two similar features.
        "disable_custom_all_reduce": device == "cuda" and rollout.tensor_parallel_size > 1,
        "enforce_eager": rollout.enforce_eager or device == "cpu",
        "enable_sleep_mode": device == "cuda",
    }
    if device == "cuda":
        arguments |= {"gpu_memory_utilization": rollout.memory_share}
        if rollout.keep_sampling_mask:  # on CPU the adapter's own sampling collects the kept tokens
            arguments |= {"return_sampling_mask": True}
        if rollout.router_replay:
            arguments |= {"enable_return_routed_experts": True}
        compilation: dict[str, Any] = {}
        if rollout.tensor_parallel_size > 1:  # a compiled kernel that includes such a sum
            compilation |= {"pass_config": {"fuse_allreduce_rms": False}}
        if rollout.num_seqs > _MOST_CAPTURED:
            compilation |= {"cudagraph_capture_sizes": capture_sizes(rollout.num_seqs)}
        arguments |= {"compilation_config": compilation} if compilation else {}
    else:
        # Otherwise no sequence of that length could ever start; checks before a run ensure it.
        assert rollout.max_num_batched_tokens >= max_model_len, (
            f"max_num_batched_tokens is {rollout.max_num_batched_tokens}, max_model_len {max_model_len}"
        )
        # Chunked prefill of seeded requests crashes on CPU ("CPU Generator does not use offset").
        block_tokens = _cpu_block_tokens(max_model_len)
        arguments |= {
            "kv_cache_memory_bytes": int(rollout.kv_cache_memory_gib * 2**30),
            "enable_chunked_prefill": False,
            "block_size": block_tokens,
            # The experts of tokens whose keys are cached are not chosen again.
            "enable_prefix_caching": max_model_len > block_tokens and not rollout.router_replay,
        }
    known, own = {field.name for field in fields(EngineArgs)}, OWN | (arguments.keys() - _SOFT_ARGUMENTS)
    for problem in unusable(rollout.engine_kwargs, known=known, own=own):
        raise ValueError(problem)
    return _merged(arguments, rollout.engine_kwargs)


def capture_sizes(num_seqs: int) -> list[int]:
    """Return the numbers of sequences for which an engine captures CUDA graphs, about as many as vLLM does by default.

    By default vLLM runs a step of more than 512 sequences without a graph (0.32, VllmConfig._set_cudagraph_sizes).
    """
    return sorted({1, 2, 4, *range(8, 256, 16), *range(256, num_seqs, 32), num_seqs})


def _merged(arguments: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the others' values; a mapping keeps the entries that the others do not have.

    Raises:
        ValueError: a value would replace a mapping, some of whose entries tensor parallelism relies on.
    """
    merged = dict(arguments)
    for name, value in others.items():
        if isinstance(own := merged.get(name), Mapping):
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"rollout.engine_kwargs.{name} is {value!r}, expected a mapping, since the engine needs "
                    f"{dict(own)} as well. Write it as {{{name}: {{...}}}}."
                )
            value = _merged(own, value)
        merged[name] = value
    return merged


def _constructed(
    arguments: dict[str, Any],
    folder: ModelFolder,
    *,
    rollout: RolloutConfig,
    max_model_len: int,
    device: str,
    run_id: str,
) -> LLMEngine:
    """Construct vLLM's engine; an error names the options that set its arguments.

    Raises:
        ValueError: if vLLM refuses the arguments.
    """
    with ExitStack() as opened:
        if device == "cpu":
            opened.enter_context(ZeroedWhenUsed())
            opened.enter_context(kernels_in_vllm())
        opened.enter_context(internals.construction(device))
        opened.enter_context(named_by_run(run_id, device))
        internals.inspect_in_process(folder.config.architectures or [])
        try:
            engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        except ValueError as error:  # its message names only vLLM's arguments
            cache = (
                f"rollout.kv_cache_memory_gib={rollout.kv_cache_memory_gib}"
                if device == "cpu"
                else f"rollout.gpu_memory_utilization={rollout.memory_share}"
            )
            raise ValueError(
                f"vLLM rejected its configuration: {error}\nIts longest sequence is data.max_prompt_length + "
                f"data.max_response_length={max_model_len}; its cache is set by {cache}."
            ) from error
    built = engine.vllm_config.cache_config
    logger.info("vLLM engine ready: %d cache blocks of %d tokens", built.num_gpu_blocks, built.block_size)
    return engine


def _cpu_block_tokens(max_model_len: int) -> int:
    """Return the cache block size, no longer than the longest sequence: each running sequence holds at least one whole
    block.
    """
    needed = -(-max_model_len // _CPU_BLOCK_TOKENS) * _CPU_BLOCK_TOKENS
    return min(needed, _MAX_CPU_BLOCK_TOKENS)


def _check_sampling_mask(rollout: RolloutConfig, device: str) -> None:
    if rollout.keep_sampling_mask and device == "cpu" and not CountedSampling.is_available():
        raise ValueError(
            "rollout.keep_sampling_mask is true, but this build of vLLM lacks the kernel fused_gumbel_argmax, with "
            "which the adapter samples on CPU. Install the version in the lock file in requirements/, or set "
            "rollout.backend=hf."
        )


def _check_process(tensor_parallel_size: int) -> None:
    missing = [
        name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
    ]
    if missing or os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING") != "0":
        raise RuntimeError(
            f"The process lacks {', '.join(missing) or 'VLLM_ENABLE_V1_MULTIPROCESSING=0'} in its environment. Set the "
            "rendezvous variables and those of rollout_environment() before importing anything heavy."
        )
    assert dist.is_initialized(), "torch.distributed must be initialised before the engine is built"
    num_workers = dist.get_world_size()
    assert num_workers % tensor_parallel_size == 0, (
        f"{num_workers} workers cannot be divided into engines of {tensor_parallel_size}"
    )
