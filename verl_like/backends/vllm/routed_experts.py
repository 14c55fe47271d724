"""The experts that a model chose for each token of a request, for router replay.

vLLM reports them on GPUs (``enable_return_routed_experts``, 0.32: its newer model runner alone). On CPU they are
collected from the routers in each step. Checked against vllm 0.32, routed_experts_capturer.py and scheduler.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from vllm.model_executor.layers.fused_moe.layer import MoERunner
from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter


class RoutedExperts(Protocol):
    """Experts of the tokens of unfinished requests, by vLLM's request ids."""

    def begin(self, request_id: str) -> None:
        """Collect the experts of this request from now on."""

    def taken(self, request_id: str, num_tokens: int) -> NDArray[Any] | None:
        """Return [num_tokens, layers, k] uint8 or int16, and drop them; None if the request does not want them."""


def routed_layers(model: torch.nn.Module) -> dict[int, MoERunner]:
    """Return the mixtures of experts of a model by the number of their layer, in increasing order.

    Raises:
        ValueError: there is none.
    """
    found = {module.layer_id: module for module in model.modules() if isinstance(module, MoERunner)}
    if not found:
        raise ValueError(
            "rollout.router_replay is true, but the model has no experts. Set rollout.router_replay=false."
        )
    return dict(sorted(found.items()))


class CapturedExperts:
    """Collects the experts from the model's routers in each step, on CPU.

    A step has new tokens of several requests, each from the first one whose keys are not known yet: all of them after a
    preemption or a sync that drops the keys.
    """

    def __init__(self, scheduler: Any, runner: Any) -> None:
        layers = routed_layers(runner.get_model())
        self._steps: list[Tensor | None] = [None] * len(layers)  # of the newest step, [tokens, k] per layer
        for number, layer in enumerate(layers.values()):
            if layer._quant_method.is_monolithic or not isinstance(layer.router, BaseRouter):
                raise ValueError(
                    f"vLLM chooses experts inside the kernel of {type(layer.router).__name__}, so that they cannot be "
                    "recorded on CPU. Use rollout.backend=hf, or set rollout.router_replay=false."
                )
            layer.router.set_capture_fn(partial(self._steps.__setitem__, number))
        num_experts = max(int(layer.router.global_num_experts) for layer in layers.values())
        self._dtype = np.uint8 if num_experts <= 256 else np.int16
        self._of_request: dict[str, list[tuple[int, NDArray[Any]]]] = {}  # number of the first token, and experts
        self._update = scheduler.update_from_output
        scheduler.update_from_output = self._update_from_output

    def begin(self, request_id: str) -> None:
        self._of_request[request_id] = []

    def taken(self, request_id: str, num_tokens: int) -> NDArray[Any] | None:
        pieces = self._of_request.pop(request_id, None)
        if pieces is None:
            return None
        known: list[NDArray[Any]] = []
        length = 0
        for start, experts in pieces:
            assert start <= length, f"the experts of tokens {length} to {start} of {request_id} are missing"
            if start < length:  # computed again from there
                known, length = [np.concatenate(known)[:start]], start
            known.append(experts)
            length += len(experts)
        assert length >= num_tokens, f"{length} tokens of {request_id} have experts, expected {num_tokens}"
        return np.concatenate(known)[:num_tokens]

    def _update_from_output(self, scheduled: Any, result: Any) -> Any:
        steps = [step for step in self._steps if step is not None]
        if steps:
            self._steps[:] = [None] * len(self._steps)
            self._record(torch.stack(steps, dim=1).numpy().astype(self._dtype), scheduled, result)
        return self._update(scheduled, result)

    def _record(self, experts: NDArray[Any], scheduled: Any, result: Any) -> None:
        cached = scheduled.scheduled_cached_reqs
        first = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        first |= {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
        end = 0
        for request_id in sorted(result.req_id_to_index, key=result.req_id_to_index.__getitem__):
            start, end = end, end + scheduled.num_scheduled_tokens[request_id]
            if request_id in self._of_request:
                self._of_request[request_id].append((first[request_id], experts[start:end]))
        assert end == len(experts), f"a step had {end} tokens, and routers chose experts for {len(experts)}"


class ReportedExperts:
    """Collects the experts that vLLM reports with the outputs of its steps, on GPUs."""

    def __init__(self, scheduler: Any, runner: Any) -> None:
        self._layers = [*routed_layers(runner.get_model())]  # vLLM reports all layers of the model
        self._of_request: dict[str, list[NDArray[Any]]] = {}
        self._update = scheduler.update_from_output
        scheduler.update_from_output = self._update_from_output

    def begin(self, request_id: str) -> None:
        self._of_request[request_id] = []

    def taken(self, request_id: str, num_tokens: int) -> NDArray[Any] | None:
        pieces = self._of_request.pop(request_id, None)
        if pieces is None:
            return None
        experts = np.concatenate(pieces)[:num_tokens, self._layers]
        assert len(experts) == num_tokens, f"{len(experts)} tokens of {request_id} have experts, expected {num_tokens}"
        return experts if experts.dtype == np.uint8 else experts.astype(np.int16)

    def _update_from_output(self, scheduled: Any, result: Any) -> Any:
        outputs = self._update(scheduled, result)
        for of_client in outputs.values():
            for output in of_client.outputs:
                if output.routed_experts is not None and output.request_id in self._of_request:
                    self._of_request[output.request_id].append(output.routed_experts)
        return outputs
