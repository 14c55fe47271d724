"""Rollout engines in separate processes, one per rank, called from a test like local objects.

Imports nothing heavy at the top: a child imports this module before its environment is complete.
"""

import importlib
import multiprocessing
import os
import sys
import traceback
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

from verl_like.config.schema import LoraConfig, ModelConfig, RolloutConfig
from verl_like.controller.malloc_trim import malloc_trim

TIMEOUT_S = 180.0


class EngineProcesses:
    """The same engine calls sent to every rank; the answer of the first is returned after comparing that all gave one.

    Args:
        lora_rank: of the model's adapters; 0 for none.
        rollout: keyword arguments of RolloutConfig.
    """

    def __init__(self, model_path, *, num_ranks=1, max_model_len, run_id, lora_rank=0, **rollout):
        from verl_like.backends.rollout import rollout_environment

        context = multiprocessing.get_context("spawn")
        # Ranks meet in a file, because another process could take a free port.
        self._folder = TemporaryDirectory(prefix="engine-")
        meeting = f"file://{self._folder.name}/ranks"
        self._children = []
        for rank in range(num_ranks):
            variables = {
                "RANK": str(rank),
                "WORLD_SIZE": str(num_ranks),
                "LOCAL_RANK": "0",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "0",
                "CUDA_VISIBLE_DEVICES": "",
            }
            ours, peer = context.Pipe()
            with patch.dict(os.environ, rollout_environment("vllm", device="cpu") | variables):
                child = context.Process(
                    target=_serve,
                    args=(peer, meeting, str(model_path), max_model_len, run_id, lora_rank, rollout),
                    daemon=True,
                )
                child.start()
            peer.close()
            self._children.append((child, ours))
        self._is_ready = False

    def call(self, name, *args):
        """Call a method of the engine, or a function of this module with the engine as its first argument."""
        if not self._is_ready:
            self._answers()
            self._is_ready = True
        for _, connection in self._children:
            connection.send((name, args))
        return self._answers()[0]

    def close(self):
        for child, connection in self._children:
            connection.close()
            child.join(timeout=20)
        for child, _ in self._children:
            if child.is_alive():
                child.kill()
                child.join()
        return [child.exitcode for child, _ in self._children]

    def _answers(self):
        answers = []
        for rank, (_, connection) in enumerate(self._children):
            if not connection.poll(TIMEOUT_S):
                raise TimeoutError(f"rank {rank} of the engine gave no answer in {TIMEOUT_S} s")
            answers.append(connection.recv())
        errors = [answer for is_error, answer in answers if is_error]
        if errors:
            raise errors[0]
        return [answer for _, answer in answers]


def sync(engine, version, weights, on_running="REFUSE"):
    """``weights``: name -> numpy array, handed over one by one as fresh tensors, which then become others."""
    import torch

    from verl_like.backends.base import OnRunning

    handed = {name: torch.tensor(array) for name, array in weights.items()}
    engine.begin_sync(version, on_running=OnRunning[on_running])
    engine.load(iter(handed.items()))
    engine.finish_sync()
    for tensor in handed.values():
        tensor.fill_(torch.nan)


def generate(engine, requests, max_steps=10_000):
    """Submit and step until all is finished, or for ``max_steps``."""
    engine.submit(requests)
    return more_steps(engine, max_steps)


def more_steps(engine, max_steps=10_000):
    finished = []
    while engine.has_unfinished() and max_steps > 0:
        finished += engine.step()
        max_steps -= 1
    return finished


def generate_from_reloaded(engine, weights, requests):
    """Generate after vLLM's own reload of these weights, which expects that every linear layer is packed."""
    import torch

    for layer in engine._packed._linears:
        layer.quant_method.process_weights_after_loading(layer)
    handed = ((name, torch.tensor(array)) for name, array in weights.items())
    engine._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": handed})
    engine._drop_caches()
    return generate(engine, requests)


def sync_without_onednn(engine, version, weights):
    """Sync with unpacked layers, as on processors for which nothing is packed."""
    from vllm import _custom_ops

    with patch.object(_custom_ops, "_supports_onednn", False):
        sync(engine, version, weights)


def forget_routes(engine, way="unpacked"):
    """Make the next sync the engine's first one.

    ``way``: "unpacked", "packed" (small layers too) or "by loaders" (packed, and every sync through vLLM's loaders).
    """
    from verl_like.backends.vllm import internals, unpacked
    from verl_like.backends.vllm.packing import PackedWeights
    from verl_like.backends.vllm.routes import RouteRecorder

    for replaced in _REPLACED:
        replaced.stop()
    _REPLACED.clear()
    if way != "unpacked":
        _REPLACED.append(patch.object(unpacked, "MAX_ELEMENTS", 0))
    if way == "by loaders":
        _REPLACED.append(patch.object(RouteRecorder, "routes", lambda recorder, tied: None))
    for replaced in _REPLACED:
        replaced.start()
    model = internals.model_runner(engine._engine).get_model()
    engine._packed = PackedWeights(model, engine._folder.tied_names, num_passes=1)


_REPLACED = []


def unpacked_layers(engine):
    """Return the numbers of linear layers and of those that multiply by unpacked weights."""
    from verl_like.backends.vllm.unpacked import UnpackedProduct

    layers = engine._packed._linears
    return len(layers), sum(isinstance(layer.cpu_linear, UnpackedProduct) for layer in layers)


def usage(engine):
    """Since it was last asked."""
    from verl_like.backends.base import EngineUsage

    found, engine.usage = engine.usage, EngineUsage()
    return found


def submit_one_per_step(engine, requests):
    finished = []
    for request in requests:
        engine.submit([request])
        finished += engine.step()
    return finished + more_steps(engine)


def growth_one_by_one(engine, requests, warm_up):
    """Return the growth of the process's private memory in MiB over the requests after the first ``warm_up``.

    Free heap memory is returned to the system before each measurement, so it does not count as growth.
    """

    def private_mib():
        malloc_trim()()
        with open("/proc/self/statm") as statm:
            _, resident, shared, *_ = map(int, statm.read().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE") / 2**20

    for request in requests[:warm_up]:
        generate(engine, [request])
    before = private_mib()
    for request in requests[warm_up:]:
        generate(engine, [request])
    return private_mib() - before


def mapped_shared_memory(engine):
    """Names of the segments in /dev/shm that this process has mapped, with or without a name by now."""
    del engine
    with open("/proc/self/maps") as maps:
        return sorted({line.split("/dev/shm/")[1].split()[0] for line in maps if "/dev/shm/" in line})


def segments_of_a_check_of_nodes(engine, run_id):
    """Names of the shared memory by which vLLM finds out whether the ranks of a group are on one node."""
    from multiprocessing.shared_memory import SharedMemory

    from vllm.distributed.parallel_state import get_tp_group, in_the_same_node_as

    from verl_like.backends.vllm.shared_memory import named_by_run

    del engine
    names = []
    build = SharedMemory.__init__

    def built(memory, *args, **kwargs):
        build(memory, *args, **kwargs)
        names.append(memory.name)

    with patch.object(SharedMemory, "__init__", built), named_by_run(run_id, "cpu"):
        assert in_the_same_node_as(get_tp_group().cpu_group) == [True, True]
    return names


def arguments_with(engine, engine_kwargs, device="cpu", tensor_parallel_size=1):
    del engine
    from verl_like.backends.vllm.engine import engine_arguments

    return engine_arguments(
        model_path="m",
        model=ModelConfig(),
        rollout=RolloutConfig(engine_kwargs=engine_kwargs, tensor_parallel_size=tensor_parallel_size),
        max_model_len=64,
        device=device,
        seed=1,
    )


def drained(engine, num_under_way):
    """Steps that an engine which plans ahead is given until it is at rest; vLLM on CPU never plans ahead."""
    from verl_like.backends.vllm import internals

    del engine
    under_way = list(range(num_under_way))
    core = SimpleNamespace(batch_queue=under_way, batch_queue_size=2)
    steps = []

    def step():
        steps.append(under_way.pop())

    internals.drain(SimpleNamespace(engine_core=SimpleNamespace(engine_core=core, get_output=step)))
    return len(steps)


def generate_and_count(engine, requests):
    """Generate, and return the samples and the number of tokens that the model computed in each step."""
    from verl_like.backends.vllm import internals

    counts = []
    model = internals.model_runner(engine._engine).get_model()
    hook = model.register_forward_pre_hook(
        lambda module, args, named: counts.append(len(named["input_ids"])), with_kwargs=True
    )
    try:
        return generate(engine, requests), counts
    finally:
        hook.remove()


def state_after_building(engine):
    """Return the state that other code in the process sees: the next random number, settable thread counts."""
    import torch

    del engine
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    is_settable = torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    return {"random": _RANDOM_AFTER[0], "set_num_threads works": is_settable}


def state_of_the_compiler(engine):
    """Return whether PyTorch's compiler is loaded, and then whether a function can be compiled."""
    import torch

    from verl_like.backends.vllm.cpu_start import COMPILER

    is_loaded = COMPILER in sys.modules
    compiled = torch.compile(lambda: 0)
    return {
        "is loaded": is_loaded,
        "compiles": COMPILER in sys.modules and "_torchdynamo_orig_callable" in dir(compiled),
    }


def kernels_of_triton(engine):
    """Return the number of kernels that vLLM has replaced, and the variables that hold one of them, themselves or as
    their attribute ``kernel``.
    """
    from vllm.triton_utils import dispatcher

    replaced = [original for original, _ in dispatcher._registry.values()]
    held = [
        f"{name}.{variable}"
        for name, module in list(sys.modules.items())
        for variable, value in list(getattr(module, "__dict__", {}).items())
        for kernel in (value, getattr(value, "__dict__", {}).get("kernel"))
        if any(kernel is original for original in replaced)
    ]
    return len(replaced), held


_RANDOM_AFTER: list[float] = []


def _serve(connection: Connection, meeting, model_path, max_model_len, run_id, lora_rank, rollout):
    import torch
    import torch.distributed as dist

    from verl_like.backends.rollout import rollout_engine, slowest_imports
    from verl_like.imports import importing

    try:
        with importing():
            for call in slowest_imports("vllm"):  # as in a forked worker
                module, _, function = call.partition(":")
                loaded = importlib.import_module(module)
                if function:
                    vars(loaded)[function]()
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
        torch.manual_seed(123)
        engine = rollout_engine(
            "vllm",
            model_path=model_path,
            tokenizer_path="",
            model=ModelConfig(path=model_path, lora=LoraConfig(rank=lora_rank)),
            rollout=RolloutConfig(**rollout),
            max_model_len=max_model_len,
            device="cpu",
            seed=1,
            run_id=run_id,
        )
        _RANDOM_AFTER.append(torch.rand(1).item())
        connection.send((False, None))
        while True:
            name, args = connection.recv()
            try:
                method = globals().get(name)
                connection.send((False, method(engine, *args) if method else getattr(engine, name)(*args)))
            except (ValueError, RuntimeError, AssertionError) as error:
                connection.send((True, error))
    except EOFError:
        dist.destroy_process_group()
    except Exception:
        traceback.print_exc()
        raise
