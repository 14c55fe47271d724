"""The adapter to vLLM without an engine: what it asks of one, checks before it builds one, and draws for a request.

The tests are in one file because importing vLLM takes five seconds: one process imports it, and only for these tests.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from verl_like.backends.base import Request, Sampling
from verl_like.config.schema import ModelConfig, RolloutConfig


def module(name: str) -> Any:
    return pytest.importorskip(f"verl_like.backends.vllm.{name}", reason="vLLM is not installed")


@pytest.fixture(scope="module")
def assumptions() -> Any:
    return module("assumptions")


@pytest.fixture(scope="module")
def internals() -> Any:
    return module("internals")


@pytest.fixture(scope="module")
def sampling() -> Any:
    return module("sampling")


class Runner:
    __module__ = "vllm.v1.worker.gpu.model_runner"

    def __init__(self) -> None:
        seeds = SimpleNamespace(np=SimpleNamespace(dtype=SimpleNamespace(itemsize=8)))
        states = SimpleNamespace(seeds=seeds)
        self.sampler = SimpleNamespace(logprobs_mode="processed_logprobs", sampling_states=states)

    def reload_weights(self, weights_iterator: object = None) -> None: ...


def engine() -> Any:
    """One that holds all that is asked."""
    worker = SimpleNamespace(model_runner=Runner(), device="cuda:0")
    scheduler = SimpleNamespace(defer_block_free=False, needs_kv_cache_zeroing=False)
    core = SimpleNamespace(batch_queue=[], batch_queue_size=2, scheduler=scheduler)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_size=1),
        speculative_config=None,
        model_config=SimpleNamespace(enable_sleep_mode=True, logits_processors=None),
        reasoning_config=None,
        compilation_config=SimpleNamespace(pass_config=SimpleNamespace(fuse_allreduce_rms=True)),
    )
    return SimpleNamespace(
        vllm_config=config,
        dp_group=None,
        engine_core=SimpleNamespace(engine_core=core),
        model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=worker)),
    )


@pytest.fixture
def one_rank(assumptions: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Of one rank; what sums over ranks is returned, to be changed."""
    communicator = SimpleNamespace(ca_comm=None, fi_ar_comm=None, fi_pcie_ipc_ar_comm=None, symm_mem_comm=None)
    group = SimpleNamespace(ranks=[0], device_communicator=communicator)
    monkeypatch.setattr(assumptions.parallel_state, "get_tp_group", lambda: group)
    monkeypatch.setattr(assumptions.dist, "get_rank", lambda: 0)
    monkeypatch.setattr(assumptions, "_tags", lambda parts: True)
    return communicator


@pytest.mark.usefixtures("one_rank")
def test_an_engine_that_holds_everything_is_taken(assumptions: Any) -> None:
    assumptions.check_engine(engine(), device="cuda", tensor_parallel_size=1)


def broken_runner(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.model_runner.__class__ = type(
        "Runner", (Runner,), {"__module__": "vllm.v1.worker.gpu_model_runner"}
    )


def broken_log_probs(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.model_runner.sampler.logprobs_mode = "raw_logprobs"


def broken_queue(engine: Any) -> None:
    engine.engine_core.engine_core.batch_queue_size = 3


def broken_zeroing(engine: Any) -> None:
    engine.engine_core.engine_core.scheduler.needs_kv_cache_zeroing = True


def broken_sampler(engine: Any) -> None:
    engine.vllm_config.model_config.logits_processors = ["mine:Processor"]


def broken_thinking(engine: Any) -> None:
    engine.vllm_config.reasoning_config = SimpleNamespace(enabled=True)


def broken_device(engine: Any) -> None:
    engine.model_executor.driver_worker.worker.device = "cuda:1"


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize(
    ("breaks", "reported"),
    [
        (broken_runner, "the model runner is vllm.v1.worker.gpu.model_runner"),
        (broken_log_probs, "log-probs are those after temperature"),
        (broken_queue, "at most one step is planned ahead"),
        (broken_zeroing, "the cache need not be zeroed"),
        (broken_device, "on this process's one GPU"),
        (broken_sampler, "no logits processors and no budget for thinking"),
        (broken_thinking, "no logits processors and no budget for thinking"),
    ],
)
def test_violated_assumptions_are_reported(assumptions: Any, breaks: Any, reported: str) -> None:
    found = engine()
    breaks(found)
    with pytest.raises(RuntimeError, match="that the adapter cannot use") as raised:
        assumptions.check_engine(found, device="cuda", tensor_parallel_size=1)
    assert reported in str(raised.value)
    assert "lock file" in str(raised.value)


@pytest.mark.parametrize("name", ["ca_comm", "fi_ar_comm", "fi_pcie_ipc_ar_comm", "symm_mem_comm"])
def test_another_way_of_summing_is_reported(assumptions: Any, one_rank: SimpleNamespace, name: str) -> None:
    setattr(one_rank, name, object())
    with pytest.raises(RuntimeError, match="only NCCL sums over ranks"):
        assumptions.check_engine(engine(), device="cuda", tensor_parallel_size=1)


def test_a_fused_sum_is_reported_where_ranks_share_an_engine(assumptions: Any, one_rank: SimpleNamespace) -> None:
    found = engine()
    assumptions.parallel_state.get_tp_group().ranks = [0, 1]
    with pytest.raises(RuntimeError, match="no compiled kernel includes a sum over ranks"):
        assumptions.check_engine(found, device="cuda", tensor_parallel_size=2)
    found.vllm_config.compilation_config.pass_config.fuse_allreduce_rms = False
    assumptions.check_engine(found, device="cuda", tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("device", "version", "is_taken"),
    [("cpu", "0.24.0", True), ("cuda", "0.24.0", False), ("cuda", "0.32.0", True), ("cpu", "0.23.1", False)],
)
def test_a_version_is_supported_by_device(
    internals: Any, monkeypatch: pytest.MonkeyPatch, device: str, version: str, is_taken: bool
) -> None:
    monkeypatch.setattr(internals.vllm, "__version__", version)
    if is_taken:
        internals.check_version(device)
    else:
        with pytest.raises(RuntimeError, match=rf"Found vllm {version}, expected 0\.\d+ or newer on {device}"):
            internals.check_version(device)


def test_settings_of_the_users_are_added_to_those_that_the_engine_needs() -> None:
    merged = module("engine")._merged
    own = {"compilation_config": {"pass_config": {"fuse_allreduce_rms": False}}, "block_size": 16}
    users = {"compilation_config": {"mode": 3, "pass_config": {"eliminate_noops": True}}, "seed": 1}
    assert merged(own, users) == {
        "compilation_config": {"mode": 3, "pass_config": {"fuse_allreduce_rms": False, "eliminate_noops": True}},
        "block_size": 16,
        "seed": 1,
    }
    with pytest.raises(ValueError, match=r"compilation_config is 3, expected a mapping, .*Write it as"):
        merged(own, {"compilation_config": 3})


@pytest.mark.parametrize("num_seqs", [512, 513, 700, 1024])
def test_a_step_of_all_sequences_of_an_engine_runs_as_a_graph(num_seqs: int) -> None:
    """vLLM captures graphs of up to 512 sequences by default."""
    rollout = RolloutConfig(max_num_seqs=str(num_seqs), tensor_parallel_size=2)
    arguments = module("engine").engine_arguments(
        model_path="", model=ModelConfig(), rollout=rollout, max_model_len=64, device="cuda", seed=0
    )
    assert arguments["compilation_config"]["pass_config"] == {"fuse_allreduce_rms": False}
    sizes = arguments["compilation_config"].get("cudagraph_capture_sizes", [512])
    assert (max(sizes), sizes) == (num_seqs, sorted(set(sizes)))
    assert len(sizes) <= 51, "vLLM captures so many by default"


def test_log_probs_are_those_of_the_tokens_that_a_step_kept() -> None:
    """The step has five requests: one is not collected here, one has no new token yet, and one has ended."""
    from vllm.v1.outputs import LogprobsLists

    def reported(log_probs: list[float], starts: list[int] | None) -> LogprobsLists:
        values = np.array(log_probs, np.float32)[:, None]
        return LogprobsLists(values.astype(np.int64), values, values[:, 0].astype(np.int64), starts)

    kept: dict[str, int] = {"a": 1, "b": 1, "elsewhere": 1, "reads": 0}
    seen = []

    def update(scheduled: object, result: SimpleNamespace) -> dict[int, SimpleNamespace]:
        seen.append(result.logprobs)
        outputs = [SimpleNamespace(request_id=name, new_token_ids=[7] * number) for name, number in kept.items()]
        return {0: SimpleNamespace(outputs=outputs)}

    scheduler = SimpleNamespace(update_from_output=update)
    collected = module("log_probs").ReportedLogProbs(scheduler)
    for name in ("a", "b", "reads"):
        collected.begin(name)
    rows = {"ended": 0, "b": 1, "elsewhere": 2, "a": 3, "reads": 4}
    for first, starts in ((0.0, None), (10.0, [0, 1, 2, 3, 4])):
        result = SimpleNamespace(logprobs=reported([first + row for row in range(5)], starts), req_id_to_index=rows)
        scheduler.update_from_output(None, result)
    scheduler.update_from_output(None, SimpleNamespace(logprobs=None, req_id_to_index={}))
    assert seen == [None, None, None], "vLLM would cut them for each request"
    assert collected.taken("a", 2) == [3.0, 13.0]
    assert collected.taken("b", 2) == [1.0, 11.0]
    assert collected.taken("reads", 0) == []
    with pytest.raises(KeyError):
        collected.taken("a", 2)


@pytest.mark.parametrize("starts", [None, [0, 1, 2, 3]])
def test_candidates_are_the_sets_of_the_tokens_that_a_step_kept(starts: list[int] | None) -> None:
    """One request wants candidates, one does not, and one has no token yet."""
    from vllm.v1.outputs import SamplingMaskLists

    masks = SamplingMaskLists(np.array([7, 3, 5, 8, 9, 1], np.int32), np.array([0, 2, 5, 6]), starts)
    kept, seen = {"wants": 1, "does not": 1, "reads": 0}, []

    def update(scheduled: object, result: SimpleNamespace) -> dict[int, SimpleNamespace]:
        seen.append(result.sampling_masks)
        outputs = [SimpleNamespace(request_id=name, new_token_ids=[7] * number) for name, number in kept.items()]
        return {0: SimpleNamespace(outputs=outputs)}

    scheduler = SimpleNamespace(update_from_output=update)
    collected = module("log_probs").ReportedLogProbs(scheduler, has_masks=True)
    for name in kept:
        collected.begin(name, wants_candidates=name != "does not")
    values = np.zeros((3, 1), np.float32)
    for _ in range(2):
        result = SimpleNamespace(
            logprobs=SimpleNamespace(logprobs=values, cu_num_generated_tokens=None),
            sampling_masks=masks,
            req_id_to_index={"does not": 0, "wants": 1, "reads": 2},
        )
        scheduler.update_from_output(None, result)
    assert seen == [None, None], "vLLM would cut them for each request"
    assert [ids.tolist() for ids in collected.taken_candidates("wants", 2)] == [[5, 8, 9]] * 2
    assert collected.taken_candidates("does not", 2) == [] == collected.taken_candidates("reads", 0)
    assert masks.slice_request(1, 1).to_nested_list() == [[5, 8, 9]], "as vLLM cuts them"


class EngineOfRequests:
    """An engine that keeps what it is asked, and whose steps return given outputs."""

    def __init__(self) -> None:
        self.engine_core = self.input_processor = self
        self.batch_queue, self.batch_queue_size = None, 1
        self.processed: list[str] = []
        self.added: list[Any] = []
        self.outputs: list[Any] = []

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def process_inputs(self, request_id: str, prompt: Any, params: Any, **more: Any) -> Any:
        from vllm.v1.engine import EngineCoreRequest

        self.processed.append(request_id)
        ids = prompt["prompt_token_ids"]
        return EngineCoreRequest(request_id, ids, None, params, None, 0.0, None, None, None)

    def preprocess_add_request(self, request: Any) -> tuple[Any, int]:
        from vllm.v1.request import Request as EngineRequest

        return EngineRequest.from_engine_core_request(request, None), 0

    def add_request(self, request: Any, wave: int) -> None:
        self.added.append(request)

    def get_output(self) -> SimpleNamespace:
        outputs, self.outputs = self.outputs, []
        return SimpleNamespace(outputs=outputs)

    def abort_requests(self, request_ids: list[str]) -> None:
        self.added = [request for request in self.added if request.request_id not in request_ids]


def asked(request_id: str, **more: Any) -> Request:
    return Request(
        **{"request_id": request_id, "prompt_ids": [3, 4], "seed": 1, "sampling": Sampling(max_tokens=5)} | more
    )


def scheduled(found: EngineOfRequests) -> Any:
    reported = module("log_probs").ReportedLogProbs(SimpleNamespace(update_from_output=None))
    requests = module("requests").ScheduledRequests
    return requests(found, end_token_ids={7, 2}, adapter=None, reported=reported, counted=None)


def output(request: Any, *, cached: int | None = None, finish_reason: str | None = None) -> SimpleNamespace:
    stats = None if cached is None else SimpleNamespace(num_cached_tokens=cached)
    return SimpleNamespace(request_id=request.request_id, prefill_stats=stats, finish_reason=finish_reason)


def test_requests_that_sample_alike_are_processed_once_and_keep_their_own_prompt_seed_and_salt() -> None:
    found = EngineOfRequests()
    opened = scheduled(found)
    others = [asked("b", prompt_ids=[5], seed=2, salt="v1"), asked("c", sampling=Sampling(max_tokens=6)), asked("d")]
    for request in (asked("a"), *others):
        opened.add(request)
    assert found.processed == ["a", "c", "d"], "only the last result is kept"
    assert [(each.prompt_token_ids, each.sampling_params.seed, each.cache_salt) for each in found.added[:2]] == [
        ([3, 4], 1, None),
        ([5], 2, "v1"),
    ]
    assert [each.max_tokens for each in found.added] == [5, 5, 6, 5]
    assert found.added[0].sampling_params.stop_token_ids == [2, 7]


def test_an_id_that_is_used_again_is_another_one_for_the_engine() -> None:
    found = EngineOfRequests()
    opened = scheduled(found)
    opened.add(asked("a"))
    found.outputs = [output(found.added[0], finish_reason="length")]
    assert [each.request_id for each in opened.step()] == ["a"]
    assert "a" not in opened
    opened.add(asked("a"))
    first, second = found.added
    assert first.request_id != second.request_id
    assert "a" in opened


def test_tokens_are_those_of_the_engines_own_request_and_outputs_of_aborted_ones_are_dropped() -> None:
    found = EngineOfRequests()
    opened = scheduled(found)
    for name in "ab":
        opened.add(asked(name))
        found.added[-1].append_output_token_ids([8, 9])
        opened._reported._of_request[found.added[-1].request_id] += [-0.5, -1.5]
    first, second = found.added
    found.outputs = [output(each, cached=2) for each in (first, second)]
    assert opened.step() == []
    assert opened.num_sampled() == {"a": 2, "b": 2}
    assert [each.request_id for each in opened.abort(["b", "b", "c"])] == ["b"]
    assert found.added == [first]
    # It was put back meanwhile, and computed anew.
    found.outputs = [output(second), output(first, cached=0, finish_reason="stop")]
    (ended,) = opened.step()
    assert not opened
    assert (ended.token_ids, ended.log_probs) == ([8, 9], [-0.5, -1.5])
    assert (ended.num_cached_tokens, ended.finish_reason) == (2, "stop")


def scheduler_of_blocks(*, block_size: int = 16, **more: Any) -> tuple[SimpleNamespace, list[int]]:
    """A scheduler, and the computed tokens of the requests for which it searches slots."""
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    searched: list[int] = []

    def allocate_slots(request: Any, num_new_tokens: int, num_lookahead_tokens: int = 0) -> str:
        searched.append(request.num_computed_tokens)
        return "found"

    manager = FullAttentionManager.__new__(FullAttentionManager)
    manager.block_size = block_size
    cache = SimpleNamespace(
        allocate_slots=allocate_slots,
        empty_kv_cache_blocks="none",
        coordinator=SimpleNamespace(single_type_managers=[manager]),
    )
    return SimpleNamespace(kv_cache_manager=cache, connector=None, num_lookahead_tokens=0, **more), searched


def test_slots_are_searched_for_where_a_block_begins_or_is_filled_and_before_a_request_runs() -> None:
    from vllm.v1.request import RequestStatus

    scheduler, searched = scheduler_of_blocks()
    module("blocks").BlockTails(scheduler)
    running = [SimpleNamespace(num_computed_tokens=number, status=RequestStatus.RUNNING) for number in range(1, 49)]
    found = [scheduler.kv_cache_manager.allocate_slots(request, 1, num_lookahead_tokens=0) for request in running]
    assert searched == [15, 16, 31, 32, 47, 48]
    assert [found.count("none"), found.count("found")] == [42, 6]
    put_back = SimpleNamespace(num_computed_tokens=3, status=RequestStatus.PREEMPTED)
    assert scheduler.kv_cache_manager.allocate_slots(put_back, 1) == "found"
    assert scheduler.kv_cache_manager.allocate_slots(running[2], 13) == "found", "13 tokens after 3 fill the block"
    assert scheduler.kv_cache_manager.allocate_slots(running[2], 12) == "none"


def test_slots_are_always_searched_for_where_blocks_get_free_while_a_request_runs() -> None:
    scheduler, _ = scheduler_of_blocks()
    assert module("blocks").BlockTails.fit(scheduler)
    scheduler.kv_cache_manager.coordinator.single_type_managers.append(SimpleNamespace(block_size=16))
    assert not module("blocks").BlockTails.fit(scheduler), "such as a manager of a sliding window"
    drafting, _ = scheduler_of_blocks()
    drafting.num_lookahead_tokens = 2
    assert not module("blocks").BlockTails.fit(drafting)


def short_sequences(*, num_blocks: int = 9, max_num_seqs: int = 8, max_num_batched_tokens: int = 100) -> Any:
    """Sequences whose next token is always 5, and the ids and blocks of those that each step computes."""
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=32))
    cache = SimpleNamespace(num_blocks=num_blocks)
    runner = SimpleNamespace(attn_groups=[[group]], kv_cache_config=cache)
    found = module("short_sequences").ShortSequences(
        runner, None, end_token_ids={5}, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
    )
    steps: list[dict[str, int]] = []

    def next_tokens(rows: list[Any]) -> list[int]:
        steps.append({each.request_id: each.block for each in rows})
        for each in rows:
            each.num_computed += len(each.new_tokens())
        return [5] * len(rows)

    found._next_tokens = next_tokens
    return found, steps


LONG = Sampling(max_tokens=9, ignore_eos=True)


def test_sequences_that_came_first_begin_as_blocks_slots_and_the_tokens_of_a_step_allow() -> None:
    by_blocks, steps = short_sequences(num_blocks=3)
    by_slots, other_steps = short_sequences(max_num_seqs=2)
    by_tokens, more_steps = short_sequences(max_num_batched_tokens=7)
    for number in range(4):
        for found in (by_blocks, by_slots, by_tokens):
            found.add(asked(f"{number}", prompt_ids=[1, 2, 3], sampling=LONG))
    for _ in range(3):
        for found in (by_blocks, by_slots, by_tokens):
            found.step()
    assert [list(step) for step in steps] == [list(step) for step in other_steps] == [["0", "1"]] * 3
    # Six tokens of two prompts; two tokens and one prompt; three tokens and one prompt.
    assert [list(step) for step in more_steps] == [["0", "1"], ["0", "1", "2"], ["0", "1", "2", "3"]]
    assert by_blocks.queues() == by_slots.queues() == (2, 2)
    assert [each.request_id for each in by_blocks.abort(["1", "3", "none"])] == ["1", "3"]
    by_blocks.step()
    assert steps[-1] == {"0": steps[0]["0"], "2": steps[0]["1"]}, "the block of an aborted sequence is used again"
    assert 0 not in steps[0].values(), "vLLM writes padding to block 0"


def test_a_short_sequence_ends_at_an_end_token_or_at_its_length() -> None:
    found, _ = short_sequences()
    found.add(asked("ends", sampling=Sampling(max_tokens=3)))
    found.add(asked("goes on", sampling=Sampling(max_tokens=3, ignore_eos=True)))
    ended = [[(each.request_id, each.token_ids, each.finish_reason) for each in found.step()] for _ in range(4)]
    assert ended == [[("ends", [5], "stop")], [], [("goes on", [5, 5, 5], "length")], []]
    assert not found


def test_sequences_whose_keys_are_dropped_are_computed_anew_in_their_order() -> None:
    found, steps = short_sequences(max_num_batched_tokens=9)
    for name in ("a", "b", "later"):
        found.add(asked(name, prompt_ids=[1, 2, 3], sampling=LONG))
    found.step()
    found.step()
    found.drop_caches()
    assert found.queues() == (0, 3)
    assert found.num_sampled() == {"a": 2, "b": 2, "later": 2}
    found.step()
    assert list(steps[-1]) == ["a"], "its five tokens, but not those of the second"
    found.step()
    assert list(steps[-1]) == ["a", "b"]


def test_rows_that_share_their_tokens_are_left_out_and_get_the_results_of_the_first() -> None:
    """Requests of 2, 3, 2, 1 and 3 new tokens; the third repeats the first, and the last the second."""
    starts, first = np.array([0, 2, 5, 7, 8, 11]), np.array([0, 1, 0, 3, 1])
    rows = module("shared_prompts").SharedRows(first, np.array([0, 1, 3]), starts)
    assert rows.kept_starts().tolist() == [0, 2, 5, 6]
    assert rows.kept_tokens().tolist() == [0, 1, 2, 3, 4, 7]
    assert rows.expansion().tolist() == [0, 1, 2, 3, 4, 0, 1, 5, 2, 3, 4]


@pytest.mark.parametrize(
    ("computed", "blocks", "expected"),
    [
        ([0, 0, 0], [[1], [2], [3]], [0, 0, 2]),
        ([4, 4, 4], [[1, 5], [1, 6], [2, 7]], [0, 0, 2]),
        ([4, 4, 4], [[1, 5], [2, 6], [2, 7]], [0, 1, 2]),  # the past of the first two differs
        ([3, 3, 3], [[1], [2], [3]], [0, 1, 2]),  # a past that ends inside a block is in no other request's blocks
        ([0, 4, 0], [[1], [2, 6], [3]], [0, 1, 2]),
    ],
)
def test_prompts_are_alike_if_tokens_and_past_are(
    computed: list[int], blocks: list[list[int]], expected: list[int]
) -> None:
    """Three requests with blocks of four tokens; the third has other tokens."""
    ids, starts = np.array([7, 8, 7, 8, 7, 9]), np.array([0, 2, 4, 6])
    tables = [(np.array([each + [0] * (2 - len(each)) for each in blocks]), 4)]
    found = module("shared_prompts").first_alike(ids, starts, np.arange(3), np.array(computed), tables)
    assert found.tolist() == expected


def test_candidates_on_cpu_are_the_finite_logits_of_the_requests_that_want_them(sampling: Any) -> None:
    collected = sampling.CountedSampling(SimpleNamespace(sampler=SimpleNamespace(topk_topp_sampler=SimpleNamespace())))
    for name in ("first", "second", "waits"):
        collected.begin(name, wants_candidates=True)
    collected.begin("wants none")
    no = -torch.inf
    of_both = torch.tensor([[no, 1.0, 2.0], [3.0, no, no], [1.0, 1.0, no]])
    collected._collect_candidates(["first", "wants none", "second"], of_both)
    collected._collect_candidates(["first"], of_both[1:2])
    collected._collect_candidates(["wants none"], of_both[1:2])
    assert [ids.tolist() for ids in collected.taken_candidates("first", 2)] == [[1, 2], [0]]
    assert [ids.tolist() for ids in collected.taken_candidates("second", 1)] == [[0, 1]]
    assert collected.taken_candidates("waits", 0) == [] == collected.taken_candidates("wants none", 3)


def test_a_sampling_mask_that_vllm_cannot_report_on_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = module("engine")
    kept = RolloutConfig(top_k=20, keep_sampling_mask=True)
    monkeypatch.setattr(engine.CountedSampling, "is_available", lambda: False)
    for rollout, device in ((kept, "cuda"), (RolloutConfig(top_k=20), "cpu")):
        engine._check_sampling_mask(rollout, device)
    with pytest.raises(ValueError, match=r"lacks the kernel fused_gumbel_argmax.*Install .*or set rollout.backend=hf"):
        engine._check_sampling_mask(kept, "cpu")


def test_an_engine_on_a_gpu_is_asked_for_the_sampling_mask_only_if_it_is_kept() -> None:
    def arguments(device: str, *, is_kept: bool) -> dict[str, Any]:
        found: dict[str, Any] = module("engine").engine_arguments(
            model_path="",
            model=ModelConfig(),
            rollout=RolloutConfig(top_k=20, keep_sampling_mask=is_kept),
            max_model_len=64,
            device=device,
            seed=0,
        )
        return found

    assert arguments("cuda", is_kept=True) == {**arguments("cuda", is_kept=False), "return_sampling_mask": True}
    assert arguments("cpu", is_kept=True) == arguments("cpu", is_kept=False)


def test_a_models_class_is_checked_without_another_process(internals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.models import ModelRegistry, registry

    def refuse(function: object) -> None:
        raise AssertionError("a process was asked")

    monkeypatch.setattr(registry, "_run_in_subprocess", refuse)
    monkeypatch.setattr(ModelRegistry, "models", dict(ModelRegistry.models))
    internals.inspect_in_process(["Qwen3ForCausalLM", "OfNobodyForCausalLM"])
    assert ModelRegistry.models["Qwen3ForCausalLM"].inspect_model_cls().is_text_generation_model
    assert "OfNobodyForCausalLM" not in ModelRegistry.models


# --- The hash that gives each request and position an independent draw ---


def test_neighbouring_seeds_and_positions_have_their_own_draws(sampling: Any) -> None:
    seeds, positions = (grid.ravel().astype(np.uint64) for grid in np.meshgrid(np.arange(1000), np.arange(1000)))
    assert len(np.unique(sampling.row_seeds(seeds, positions))) == 1_000_000


def test_no_request_repeats_another_one_later(sampling: Any) -> None:
    """The weak point of counters: a seed that equals another seed one position later."""
    positions = np.arange(1000, dtype=np.uint64)
    streams = [sampling.row_seeds(np.full(1000, seed, np.uint64), positions) for seed in (5, 6, 5 + 0x9E3779B97F4A7C15)]
    assert len(np.unique(np.concatenate(streams))) == 3000


def test_every_bit_of_a_draw_is_as_often_one_as_zero(sampling: Any) -> None:
    drawn = sampling.row_seeds(np.arange(10_000, dtype=np.uint64), np.zeros(10_000, np.uint64))
    assert drawn.dtype == np.int64 and (drawn >= 0).all()
    for bit in range(63):
        assert abs(float(((drawn >> bit) & 1).mean()) - 0.5) < 0.025, f"bit {bit}"


def test_all_63_bits_of_a_seed_count(sampling: Any) -> None:
    seeds = np.array([0, *(1 << bit for bit in range(63))], np.uint64)
    assert len(np.unique(sampling.row_seeds(seeds, np.zeros(64, np.uint64)))) == 64


@pytest.mark.parametrize(("free", "is_emptied"), [(10**9, True), (5 * 10**9, False)])
def test_memory_that_torch_caches_is_returned_only_if_a_waking_engine_lacks_it(
    free: int, is_emptied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_module = module("engine")
    asleep = {"weights": 2 * 10**9}
    done: list[str] = []
    monkeypatch.setattr(engine_module, "asleep_bytes", asleep.__getitem__)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 10**11))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: done.append("emptied"))
    found = object.__new__(engine_module.VllmEngine)
    found._device = "cuda"
    found._engine = SimpleNamespace(wake_up=lambda tags: done.extend(tags))
    found._wake("weights")
    assert done == ["emptied"] * is_emptied + ["weights"]
    found._device = "cpu"
    found._wake("weights")
    assert done == ["emptied"] * is_emptied + ["weights"], "an engine on CPU does not sleep"


def test_weights_are_written_in_place_without_gradients(internals: Any) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))

    def load_weights(weights: Any) -> None:
        weight.copy_(dict(weights)["w"])  # which autograd would refuse

    runner = SimpleNamespace(get_model=lambda: SimpleNamespace(load_weights=load_weights))
    worker = SimpleNamespace(worker=SimpleNamespace(model_runner=runner))
    built: Any = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
    before = weight.data_ptr()
    internals.load_in_place(built, iter([("w", torch.ones(2))]))
    assert weight.tolist() == [1, 1] and weight.data_ptr() == before
