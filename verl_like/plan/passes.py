"""Work and duration of a model's passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from verl_like.config.schema import Config
from verl_like.config.schema.fields import is_on
from verl_like.ops.tiles import FLOAT32
from verl_like.plan.counter import Work
from verl_like.plan.devices import ATTENTION_SHARE, LINK_SHARE, MEMORY_SHARE, PRODUCT_SHARE, Device
from verl_like.plan.stages import Location, Role, sharing_rows
from verl_like.plan.work import OutputPass, layer_work, output_work

ATTENTION_BACKWARD = 2.5  # FlashAttention computes the scores again
LAUNCH_S = 6e-6  # an operation of PyTorch on the host, with autograd's part. Assumed.
PASS_HOST_S = 1e-3  # Python between passes that no GPU hides. Assumed.
# AdamW reads weights, gradients and two moments, and writes all except gradients; before it gradients are clipped.
STEP_FLOATS, CLIP_FLOATS = 7, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows that a rank runs in a stage.

    Args:
        count: in all passes of all updates.
        prompt_tokens: that are computed for a row, fewer than its prompt has where rows share one.
        context: tokens to which a token attends, on average.
        num_passes: of all updates.
        num_updates: 0 if nothing learns.
    """

    count: float
    prompt_tokens: float
    response_tokens: float
    context: float
    num_passes: int
    num_updates: int

    @property
    def tokens(self) -> float:
        return self.count * (self.prompt_tokens + self.response_tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class OnePass:
    """The tokens of a pass, of which ``response_tokens`` are predicted."""

    tokens: float
    response_tokens: float
    learns: bool


WorkOf = Callable[[Config, Role, OnePass], Work]


def link_bytes_per_s(location: Location, ranks: int) -> float:
    """Return the rate of collectives over ``ranks`` neighbouring ranks, in bytes/s: that of the slowest link."""
    device = location.device
    rate = device.peer_gb_s if ranks <= location.ranks_per_node else min(device.peer_gb_s, device.node_gb_s)
    return rate * 1e9 * LINK_SHARE


def product_flops(device: Device) -> float:
    return device.tflops * 1e12 * PRODUCT_SHARE


def memory_bytes_per_s(device: Device) -> float:
    return device.memory_gb_s * 1e9 * MEMORY_SHARE


def work_seconds(work: Work, device: Device) -> float:
    """Return the seconds of counted work: those of the accelerator, or of the host if it launches more slowly."""
    moved_s = (work.product_bytes + work.other_bytes) / memory_bytes_per_s(device)
    return max(work.flops / product_flops(device) + moved_s, LAUNCH_S * work.launches)


def rows_of(
    config: Config, role: Role, response_tokens: float, *, epochs: int = 0, mini_batch_size: int = 0, share: float = 1.0
) -> Rows:
    """Return the rows of ``epochs`` epochs of updates, or of one forward pass over all rows if there are none.

    All have the longest prompt and responses of the mean length, so a pass has as many whole groups as fit into it.

    Args:
        share: of the rows that this model runs.
    """
    prompts, prompt = config.data.train_batch_size, config.data.max_prompt_length
    num_updates = epochs * ceil(prompts / mini_batch_size) if epochs else 0
    count = share * max(epochs, 1) * prompts * config.rollout.n / role.location.ranks
    sharing = sharing_rows(config, role.max_tokens, ceil(response_tokens))
    groups = max(int(role.max_tokens // (prompt + sharing * response_tokens)), 1)
    of_update = count * role.sequence_ranks / max(num_updates, 1)
    return Rows(
        count=count,
        prompt_tokens=prompt / sharing,
        response_tokens=response_tokens,
        context=(prompt + response_tokens) / 2,
        num_passes=max(num_updates, 1) * ceil(of_update / (sharing * groups)),
        num_updates=num_updates,
    )


def pass_work(config: Config, role: Role, one: OnePass) -> Work:
    """Return the work of a pass, without attention's products."""
    sharded, shape = role.sharded, role.sharded.shape
    layer = layer_work(
        shape, one.tokens, dtype=role.dtype, is_fused=sharded.is_fused, has_frozen_weights=sharded.has_adapters
    )
    work = layer.forward * shape.num_layers
    if one.learns:
        work = work + layer.backward * shape.num_layers + layer.recomputed * role.run.recomputed
    if shape.vocab_size:
        how = OutputPass(
            dtype=role.dtype,
            budget_mib=config.actor.logits_mib,
            is_compiled=compiles_logits(config, role),
            entropy=one.learns and config.actor.entropy_coef > 0,
            learns=one.learns,
            has_frozen_weights=sharded.has_adapters,
        )
        output = output_work(shape, one.response_tokens, how)
        work = work + output.forward + output.backward
    return work


def compiles_logits(config: Config, role: Role) -> bool:
    """Return whether the log-prob function of this role is compiled."""
    return is_on(config.actor.use_torch_compile, auto=role.location.is_gpu)


def passes_seconds(config: Config, role: Role, rows: Rows, *, work_of: WorkOf = pass_work) -> float:
    """Return the seconds of passes and updates; gathers run in parallel with work, so the longer of both counts.

    Args:
        work_of: returns the work of a pass; a measurement of the plan counts it on the real module.
    """
    location, sharded, device = role.location, role.sharded, role.location.device
    shape, learns = sharded.shape, rows.num_updates > 0
    num_passes = rows.num_passes
    one = OnePass(
        tokens=rows.tokens / num_passes, response_tokens=rows.count * rows.response_tokens / num_passes, learns=learns
    )
    pass_s = work_seconds(work_of(config, role, one) + _sharding_work(role, learns=learns), device)
    again = ATTENTION_BACKWARD + role.run.recomputed / shape.num_layers if learns else 0.0
    attention_s = (
        shape.attention_flops(rows.tokens * rows.context) * (1 + again) / (device.tflops * 1e12 * ATTENTION_SHARE)
    )
    compute_s = num_passes * (pass_s + PASS_HOST_S * location.is_gpu) + attention_s
    # Weights are gathered once or twice in a shard group; gradients are reduced over all ranks in float32.
    gathered = sharded.itemsize * (1 + learns) * sharded.num_gathered / link_bytes_per_s(location, sharded.ranks)
    reduced = FLOAT32 * sharded.num_gathered_learning * learns / link_bytes_per_s(location, location.ranks)
    link_s = num_passes * (gathered * (sharded.ranks > 1) + reduced) if location.ranks > 1 else 0.0
    compute_s += _exchanges_s(role, rows)  # layers wait for their tokens
    host = device.host_gb_s * 1e9 * LINK_SHARE
    step = (STEP_FLOATS + CLIP_FLOATS) * sharded.gradients
    if sharded.is_on_host:  # copies for passes overlap with them; copies of gradients and the step do not
        streamed_s = num_passes * (1 + learns) * sharded.weights / host
        return max(compute_s, link_s, streamed_s) + rows.num_updates * (sharded.gradients + step) / host
    updates_s = rows.num_updates * step / memory_bytes_per_s(device)
    return max(compute_s, link_s) + updates_s + 2 * _moved(role, rows.num_updates) / host


def _exchanges_s(role: Role, rows: Rows) -> float:
    """Return the seconds in which ranks send states of tokens to the ranks of their experts, and results back, and sum
    the experts' gradients over copies of the model.

    A backward pass sends as much as a forward pass, and each recomputed layer sends again.
    """
    sharded, location, learns = role.sharded, role.location, rows.num_updates > 0
    if sharded.own_experts is None:
        return 0.0
    own = FLOAT32 * (sharded.num_learning - sharded.num_gathered_learning) / sharded.ranks
    summed = rows.num_updates * own * (location.ranks > sharded.ranks)
    again = 1 + role.run.recomputed / sharded.shape.num_layers if learns else 0.0
    states = 2 * (1 + again) * sharded.own_experts.num_layers * sharded.own_experts.top_k * rows.tokens
    to_others = 1 - 1 / sharded.ranks
    width = sharded.itemsize * sharded.shape.hidden_size
    exchanged_s = states * to_others * width / link_bytes_per_s(location, sharded.ranks)
    return exchanged_s + summed / link_bytes_per_s(location, location.ranks)


def _sharding_work(role: Role, *, learns: bool) -> Work:
    """Return the copies of a pass that FSDP2 makes: of gathered weights, and of gradients to float32."""
    sharded = role.sharded
    if not sharded.is_cut:
        return Work()
    gathers = (1 + learns) * 2.0 * sharded.itemsize * sharded.num_gathered * (sharded.ranks > 1)
    gradients = learns * (sharded.itemsize + FLOAT32) * sharded.num_gathered_learning
    return Work(other_bytes=gathers + gradients)


def _moved(role: Role, num_updates: int) -> float:
    """Return the bytes that a stage copies from host memory and back, each way."""
    moments = num_updates if role.optim is not None and role.optim.offload and role.location.is_gpu else 0
    return role.sharded.weights * role.is_offloaded + role.sharded.optimizer * moments
