"""vLLM on CPU behind the RolloutEngine protocol, against plain transformers."""

import os
import uuid
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests._tiny_model import END_ID, VOCAB_SIZE, hf_log_probs, requests, save_model, weights_of
from tests.e2e._engine_process import EngineProcesses
from verl_like.backends.base import Request, Sampling, StaleWeightsError, VersionSpan
from verl_like.backends.lora import Adapters
from verl_like.backends.rollout import rollout_engine
from verl_like.backends.vllm.shared_memory import remove_shared_memory
from verl_like.config.schema import LoraConfig, ModelConfig, RolloutConfig

MAX_MODEL_LEN = 192
SHORT_MODEL_LEN = 128  # a cache block, so that the adapter runs the requests without vLLM's scheduler
KV_GIB = 0.02
LORA_RANK = 6  # vLLM reserves eight
RUN_ID = f"test-{uuid.uuid4().hex[:8]}"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {
        "tied": save_model(root / "qwen2", family="qwen2", tied=True),
        "untied": save_model(root / "qwen3", family="qwen3", tied=False),
    }


def folder_of(folders, name):
    """Return the folder of the model of the engine with this name."""
    return folders["tied" if name in ("tied", "short", "adapter") else "untied"]


class Engines(dict):
    """Engines by name, each started when a test first asks for it."""

    def __init__(self, folders):
        super().__init__()
        self._folders = folders

    def __missing__(self, name):
        self[name] = self._started(name)
        return self[name]

    def _started(self, name):
        options = {"max_model_len": MAX_MODEL_LEN, "run_id": RUN_ID, "kv_cache_memory_gib": KV_GIB}
        if name == "short":
            options |= {"max_model_len": SHORT_MODEL_LEN, "run_id": f"{RUN_ID}-short"}
        if name.startswith("adapter"):
            options |= {"lora": "adapter", "lora_rank": LORA_RANK, "run_id": f"{RUN_ID}-adapter"}
        if name.endswith("tensor parallel"):
            return EngineProcesses(self._folders["untied"], num_ranks=2, tensor_parallel_size=2, **options)
        return EngineProcesses(folder_of(self._folders, name), **options)


@pytest.fixture(scope="module")
def engines(folders):
    started = Engines(folders)
    yield started
    codes = {name: engine.close() for name, engine in started.items()}
    assert codes == {name: [0, 0] if name.endswith("tensor parallel") else [0] for name in started}
    assert [name for name in os.listdir("/dev/shm") if RUN_ID in name] == []


@pytest.fixture
def tied(engines):
    return engines["tied"]


@pytest.fixture
def untied(engines):
    return engines["untied"]


@pytest.fixture(params=["tied", "short"])
def either(request, engines):
    """Return an engine of the same model: one in which vLLM schedules requests, and one in which the adapter does."""
    return engines[request.param]


def synced(engine, folder, *, seed, version=0, on_running="REFUSE"):
    """Return the engine with weights drawn from ``seed``, and a transformers model with the same weights."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights = weights_of(model, seed=seed)
    engine.call("sync", version, weights, on_running)
    return model


def by_id(finished):
    return {done.request_id: done for done in finished}


def test_submit_before_the_first_sync_raises(folders):
    engine = rollout_engine(
        "hf",
        model_path=str(folders["tied"]),
        tokenizer_path="",
        model=ModelConfig(),
        rollout=RolloutConfig(),
        max_model_len=MAX_MODEL_LEN,
        device="cpu",
        seed=1,
        run_id=RUN_ID,
    )
    with pytest.raises(StaleWeightsError, match="never synced"):
        engine.submit(requests(1))


def test_vllm_submit_before_the_first_sync_raises(tied):
    with pytest.raises(StaleWeightsError, match="never synced"):
        tied.call("submit", requests(1))


def test_building_leaves_random_state_and_thread_count_alone(tied):
    torch.manual_seed(123)
    assert tied.call("state_after_building") == {"random": torch.rand(1).item(), "set_num_threads works": True}


@pytest.mark.parametrize("name", ["tied", "untied", "short"])
def test_log_probs_equal_transformers_after_each_sync(engines, folders, name):
    for version, seed in enumerate([11, 12]):
        model = synced(engines[name], folder_of(folders, name), seed=seed, version=version)
        for sampling in (
            Sampling(max_tokens=20),
            Sampling(max_tokens=20, temperature=0.5),
            Sampling(max_tokens=20, top_p=0.8, top_k=10),
        ):
            asked = requests(6, sampling=sampling)
            finished = by_id(engines[name].call("generate", asked))
            assert finished.keys() == {request.request_id for request in asked}
            for request in asked:
                done = finished[request.request_id]
                expected = hf_log_probs(model, request, done.response_ids)
                torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["tied", "short", pytest.param("tensor parallel", marks=pytest.mark.slow)])
def test_candidates_are_the_tokens_over_which_log_probs_are_normalised(engines, folders, name):
    model = synced(engines[name], folder_of(folders, name), seed=14)
    for cut in ({"top_k": 10}, {"top_p": 0.8}, {"top_p": 0.8, "top_k": 10}):
        sampling = Sampling(max_tokens=20, temperature=0.7, **cut)
        reporting = requests(3, sampling=replace(sampling, returns_candidates=True))
        plain = requests(6, sampling=sampling)[3:]
        found = by_id(engines[name].call("generate", [reporting[0], plain[0], *reporting[1:], *plain[1:]]))
        for request in reporting:
            done = found[request.request_id]
            expected = hf_log_probs(model, request, done.response_ids, candidates=done.candidates)
            torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=0)
            torch.testing.assert_close(expected, hf_log_probs(model, request, done.response_ids), atol=1e-4, rtol=0)
        assert all(len(found[request.request_id].candidates) == 0 for request in plain)
    engines[name].call("submit", reporting)
    for _ in range(3):
        engines[name].call("step")
    for done in engines[name].call("abort", [request.request_id for request in reporting]):
        assert len(done.candidates) == len(done.response_ids) > 0


@pytest.mark.parametrize("name", ["tied", "untied", pytest.param("tensor parallel", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["unpacked", "packed", "by loaders"])
def test_weights_are_those_of_vllm_s_own_reload_bit_for_bit(engines, folders, name, way):
    weights = weights_of(AutoModelForCausalLM.from_pretrained(folder_of(folders, name)), seed=13)
    asked = requests(6, sampling=Sampling(max_tokens=20))
    engines[name].call("forget_routes", way)
    found = []
    for version, names in enumerate([list(weights), list(weights), sorted(weights), list(weights)[::-1]]):
        engines[name].call("sync", version, {name: weights[name] for name in names})
        found.append(by_id(engines[name].call("generate", asked)))
        assert all(done.versions == (VersionSpan(0, version),) for done in found[-1].values())
    reloaded = by_id(engines[name].call("generate_from_reloaded", weights, asked))
    assert [{key: replace(done, versions=()) for key, done in of_sync.items()} for of_sync in found] == [
        {key: replace(done, versions=()) for key, done in reloaded.items()}
    ] * 4
    engines[name].call("forget_routes")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "folder"), [("adapter", "tied"), ("adapter, tensor parallel", "untied")])
def test_an_adapter_counts_next_to_the_weights_of_the_model_s_folder(engines, folders, name, folder):
    model = AutoModelForCausalLM.from_pretrained(folders[folder])
    adapters = Adapters(model, LoraConfig(rank=LORA_RANK))
    adapters.initialise(device=torch.device("cpu"), seed=0)
    for version, seed in enumerate([21, 22]):
        numbers = torch.Generator().manual_seed(seed)
        for _, parameter in adapters.parameters():
            parameter.detach().normal_(generator=numbers).mul_(0.3)
        weights = {name: parameter.detach().numpy().copy() for name, parameter in adapters.parameters()}
        engines[name].call("sync", version, weights)
        asked = requests(6, sampling=Sampling(max_tokens=20))
        for done in engines[name].call("generate", asked):
            request = asked[int(done.request_id.removeprefix("r"))]
            expected = hf_log_probs(model, request, done.response_ids)
            torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=0)
            with adapters.switched_off():
                assert (hf_log_probs(model, request, done.response_ids) - expected).abs().max() > 0.01


def test_layers_that_vllm_does_not_pack_keep_what_they_were_filled_with(untied, folders):
    untied.call("forget_routes", "packed")
    model = synced(untied, folders["untied"], seed=14)  # from here on it is known when a layer is full
    untied.call("sync_without_onednn", 1, weights_of(model, seed=15))
    (asked,) = requests(1, sampling=Sampling(max_tokens=20))
    (done,) = untied.call("generate", [asked])
    torch.testing.assert_close(
        torch.tensor(done.log_probs), hf_log_probs(model, asked, done.response_ids), atol=1e-4, rtol=0
    )
    untied.call("forget_routes")


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="the libraries may round differently")
def test_small_layers_are_not_packed(untied, folders):
    untied.call("forget_routes")
    synced(untied, folders["untied"], seed=14)
    num_layers, num_unpacked = untied.call("unpacked_layers")
    assert num_unpacked == num_layers > 0


def test_a_response_ends_with_the_end_token_or_at_its_length(either, folders):
    synced(either, folders["tied"], seed=1)
    finished = either.call("generate", requests(32, sampling=Sampling(max_tokens=30)))
    for done in finished:
        assert (done.finish_reason == "stop") == (done.response_ids[-1] == END_ID)
        assert END_ID not in done.response_ids[:-1]
        assert done.finish_reason == "stop" or len(done.response_ids) == 30
    assert {done.finish_reason for done in finished} == {"stop", "length"}
    ignoring = either.call("generate", requests(32, sampling=Sampling(max_tokens=30, ignore_eos=True)))
    assert {len(done.response_ids) for done in ignoring} == {30}


def test_seeds_decide_the_tokens_whatever_the_order_and_the_batch(either, folders):
    synced(either, folders["tied"], seed=2)
    asked = requests(12, sampling=Sampling(max_tokens=16))
    together = by_id(either.call("generate", asked))
    assert by_id(either.call("generate", asked[::-1])) == together
    assert by_id(either.call("submit_one_per_step", asked)) == together


@pytest.mark.parametrize(
    ("name", "num_tokens", "expected"),
    [
        ("tied", 20, 20),  # the cache has whole blocks of 128 tokens
        ("short", 20, 20),
        ("untied", 150, 150 + 22),  # all but the first sample read 128 tokens from the cache
        pytest.param("tensor parallel", 20, 20, marks=pytest.mark.slow),
    ],
)
def test_a_prompt_is_computed_once_for_all_its_samples(engines, folders, name, num_tokens, expected):
    engine, folder = engines[name], folder_of(folders, name)
    synced(engine, folder, seed=2)
    other, *_ = requests(1, sampling=Sampling(max_tokens=6, ignore_eos=True))
    prompt = [3 + i % 50 for i in range(num_tokens)]
    group = [replace(other, request_id=f"s{seed}", prompt_ids=prompt, seed=seed) for seed in range(7)]
    alone = [done for asked in (*group, other) for done in engine.call("generate", [asked])]
    synced(engine, folder, seed=2, version=1)  # drops the prefix cache
    mixed = [*group[:3], other, *group[3:]]
    together, counts = engine.call("generate_and_count", mixed)
    assert counts == [expected + len(other.prompt_ids), 8, 8, 8, 8, 8]
    assert [(done.response_ids, done.log_probs) for done in map(by_id(together).get, by_id(alone))] == [
        (done.response_ids, done.log_probs) for done in alone
    ]


def test_prompts_that_differ_or_begin_later_are_computed_separately(either, folders):
    synced(either, folders["tied"], seed=2)
    first, second, third = (replace(each, prompt_ids=[5] * 9) for each in requests(3))
    second = replace(second, prompt_ids=[5] * 8 + [6])
    _, counts = either.call("generate_and_count", [first, second])
    assert counts[0] == 18
    either.call("generate", [first], 1)
    _, counts = either.call("generate_and_count", [third, replace(third, request_id="fourth")])
    assert counts[0] == 9 + 1, "one of the two that begin, and a token of the one in progress"


def test_sequences_that_fit_into_a_block_get_the_same_tokens_and_log_probs_without_the_scheduler(engines, folders):
    found = []
    for name in ("tied", "short"):
        synced(engines[name], folders["tied"], seed=2)
        random, greedy, narrow = (
            requests(12, sampling=sampling)
            for sampling in (
                Sampling(max_tokens=20, temperature=0.7),
                Sampling(max_tokens=20, temperature=0),
                Sampling(max_tokens=20, top_k=12, top_p=0.8, ignore_eos=True),
            )
        )
        kinds = {"random": random, "greedy": greedy, "narrow": narrow}
        asked = [
            replace(each, request_id=f"{kind}{i}") for kind, group in kinds.items() for i, each in enumerate(group)
        ]
        found.append(by_id(engines[name].call("generate", asked)))
    assert found[0] == found[1]


def test_sequences_that_fit_into_a_block_wait_for_one_and_never_lose_it(engines, folders):
    engine = engines["short"]
    synced(engine, folders["tied"], seed=4)
    asked = requests(1, sampling=Sampling(max_tokens=40, ignore_eos=True)) * 200
    asked = [replace(each, request_id=f"s{i}", seed=i) for i, each in enumerate(asked)]
    engine.call("usage")
    together = by_id(engine.call("generate", asked))
    usage = engine.call("usage")
    assert 0 < usage.running < 200 and usage.waiting > 0 and usage.preemptions == 0
    for each in asked[::67]:
        assert engine.call("generate", [each]) == [together[each.request_id]]


def test_another_seed_gives_another_sample(either, folders):
    synced(either, folders["tied"], seed=2)
    asked = requests(1, sampling=Sampling(max_tokens=16))[0]
    others = [replace(asked, request_id=f"s{seed}", seed=seed) for seed in (1, 2**31 + 5, 2**62)]
    assert len({tuple(done.response_ids) for done in either.call("generate", others)}) == 3


def test_samples_are_drawn_from_the_model_s_own_distribution(either, folders):
    """Of many seeds at one position, and of one seed at many positions."""
    model = synced(either, folders["tied"], seed=2)
    asked = requests(1, sampling=Sampling(max_tokens=1))[0]
    # Neighbouring seeds, which a poor hash would make alike.
    many = [replace(asked, request_id=f"s{seed}", seed=seed) for seed in range(4000)]
    first = [done.response_ids[0] for done in either.call("generate", many)]
    expected = model(torch.tensor([asked.prompt_ids])).logits[0, -1].softmax(-1)
    assert_drawn_from(first, expected.expand(len(first), -1))

    long = Sampling(max_tokens=SHORT_MODEL_LEN - 4, ignore_eos=True)
    few = [replace(asked, request_id=f"s{seed}", seed=seed, sampling=long) for seed in range(20)]
    tokens, distributions = [], []
    for done in either.call("generate", few):
        ids = torch.tensor([asked.prompt_ids + done.response_ids])
        distributions.append(model(ids).logits[0, len(asked.prompt_ids) - 1 : -1].softmax(-1))
        tokens += done.response_ids
    assert_drawn_from(tokens, torch.cat(distributions))


def assert_drawn_from(tokens, distributions):
    """Check that each token's count is within five standard deviations of the expected one for the rows of [N, V]."""
    expected, variance = distributions.sum(0), (distributions * (1 - distributions)).sum(0)
    counts = torch.bincount(torch.tensor(tokens), minlength=VOCAB_SIZE)
    assert ((counts - expected).abs() <= 5 * variance.sqrt() + 1).all(), (counts, expected)


def test_greedy_and_random_samples_share_a_batch(either, folders):
    model = synced(either, folders["tied"], seed=2)
    random = requests(6, sampling=Sampling(max_tokens=12))
    greedy = [
        replace(asked, request_id=f"g{i}", sampling=Sampling(max_tokens=12, temperature=0))
        for i, asked in enumerate(random)
    ]
    alone = by_id(either.call("generate", random)) | by_id(either.call("generate", greedy))
    together = [asked for pair in zip(random, greedy, strict=True) for asked in pair]
    finished = by_id(either.call("generate", together))
    for asked in together:
        done = finished[asked.request_id]
        assert done.response_ids == alone[asked.request_id].response_ids
        expected = hf_log_probs(model, asked, done.response_ids)
        torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=0)


def test_abort_returns_what_was_generated_and_the_rest_continues(either, folders):
    synced(either, folders["tied"], seed=3)
    asked = requests(8, sampling=Sampling(max_tokens=16, ignore_eos=True))
    whole = by_id(either.call("generate", asked))
    assert either.call("generate", asked, 5) == []
    unwanted = [asked[1].request_id, asked[6].request_id]
    aborted = by_id(either.call("abort", [*unwanted, "never submitted"]))
    assert aborted.keys() == set(unwanted)
    for request_id, done in aborted.items():
        assert done.finish_reason == "abort"
        assert done.response_ids == whole[request_id].response_ids[:5]
        assert done.log_probs == whole[request_id].log_probs[:5]
    rest = by_id(either.call("more_steps"))
    assert rest == {request_id: done for request_id, done in whole.items() if request_id not in unwanted}
    assert not either.call("has_unfinished")


def test_abort_of_a_request_that_has_not_begun_returns_no_tokens(either, folders):
    synced(either, folders["tied"], seed=3)
    either.call("submit", requests(1))
    (aborted,) = either.call("abort", ["r0"])
    assert (aborted.response_ids, aborted.log_probs, aborted.finish_reason) == ([], [], "abort")


def test_a_sync_drops_the_prefix_cache(untied, folders):
    (long,) = requests(1, sampling=Sampling(max_tokens=8, temperature=0))
    long = replace(long, prompt_ids=[3 + i % 50 for i in range(150)])  # longer than a cache block of 128 tokens
    for version, seed in enumerate([21, 22]):
        model = synced(untied, folders["untied"], seed=seed, version=version)
        for cached in (0, 128):  # the second time the prefix comes from the cache
            untied.call("usage")
            (done,) = untied.call("generate", [long])
            assert untied.call("usage").cached_prompt_tokens == cached
            torch.testing.assert_close(
                torch.tensor(done.log_probs), hf_log_probs(model, long, done.response_ids), atol=1e-4, rtol=0
            )


def test_requests_beyond_the_capacity_of_the_cache_are_put_back_and_counted(untied, folders):
    synced(untied, folders["untied"], seed=23)
    asked = [
        replace(request, request_id=f"r{number}", seed=number, prompt_ids=[3 + (number + i) % 50 for i in range(100)])
        for number, request in enumerate(requests(1, sampling=Sampling(max_tokens=60, ignore_eos=True)) * 250)
    ]
    untied.call("usage")
    finished = by_id(untied.call("generate", asked))
    usage = untied.call("usage")
    assert usage.preemptions > 0 and usage.waiting > 0
    assert 100 < usage.running < len(asked)
    for request in asked[:: len(asked) // 5]:
        (alone,) = untied.call("generate", [request])
        assert finished[request.request_id].response_ids == alone.response_ids
    usage = untied.call("usage")
    assert (usage.running, usage.waiting, usage.preemptions) == (1, 0, 0)


@pytest.mark.parametrize(
    ("name", "left_out"), [("tied", "lm_head.weight"), ("untied", "model.layers.1.mlp.up_proj.weight")]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_missing_weight_raises_with_its_name(engines, folders, name, left_out, is_first):
    if is_first:
        engines[name].call("forget_routes")
    weights = weights_of(AutoModelForCausalLM.from_pretrained(folders[name]), seed=4)
    del weights[left_out]
    with pytest.raises(ValueError, match=f"1 missing: {left_out}"):
        engines[name].call("sync", 7, weights)
    with pytest.raises(StaleWeightsError):
        engines[name].call("submit", requests(1))
    for _ in range(2):
        model = synced(engines[name], folders[name], seed=4)
        (done,) = engines[name].call("generate", requests(1))
        torch.testing.assert_close(
            torch.tensor(done.log_probs), hf_log_probs(model, requests(1)[0], done.response_ids), atol=1e-4, rtol=0
        )


def test_unknown_and_misshapen_weights_raise_with_their_names(tied, folders):
    weights = weights_of(AutoModelForCausalLM.from_pretrained(folders["tied"]), seed=4)
    weights["model.layers.9.mlp.up_proj.weight"] = weights["model.norm.weight"]
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1]
    with pytest.raises(
        ValueError,
        match=r"1 unknown: model.layers.9.mlp.up_proj.weight; 1 of the wrong shape: model.norm.weight \(63,\)",
    ):
        tied.call("sync", 7, weights)


def switched(engine, folder, on_running):
    """Sync other weights after five tokens of each request; return the largest differences of the log-probs from those
    of a full forward pass with the weights that sampled them: (before the switch, after it).
    """
    old = synced(engine, folder, seed=5)
    asked = requests(3, sampling=Sampling(max_tokens=12, ignore_eos=True))
    assert engine.call("generate", asked, 5) == []
    new = synced(engine, folder, seed=6, version=1, on_running=on_running)
    before, after = 0.0, 0.0
    for found in engine.call("more_steps"):
        [request] = [each for each in asked if each.request_id == found.request_id]
        assert found.versions == (VersionSpan(0, 0), VersionSpan(5, 1))
        log_probs = torch.tensor(found.log_probs)
        gaps = [(log_probs - hf_log_probs(model, request, found.response_ids)).abs() for model in (old, new)]
        before, after = max(before, float(gaps[0][:5].max())), max(after, float(gaps[1][5:].max()))
    return before, after


def test_requests_that_are_recomputed_continue_as_if_the_new_weights_had_read_their_tokens(either, folders):
    assert max(switched(either, folders["tied"], "RECOMPUTE")) < 1e-5


def test_requests_that_are_kept_continue_with_the_keys_of_the_old_weights(either, folders):
    before, after = switched(either, folders["tied"], "KEEP")
    assert before < 1e-5
    assert after > 1e-3, "two unrelated models must differ if the old keys are still read"


def test_each_token_names_the_weights_that_sampled_it(either, folders):
    """slime issue 2092: the tokens of three versions in one response."""
    synced(either, folders["tied"], seed=5)
    [asked] = requests(1, sampling=Sampling(max_tokens=12, ignore_eos=True))
    assert either.call("generate", [asked], 3) == []
    for version in (1, 2):
        synced(either, folders["tied"], seed=5 + version, version=version, on_running="KEEP")
        assert either.call("more_steps", 4) == []
    [found] = either.call("more_steps")
    assert found.versions == (VersionSpan(0, 0), VersionSpan(3, 1), VersionSpan(7, 2))


def test_requests_of_another_salt_never_read_cached_keys(untied, folders):
    """NeMo-RL issue 4018: a prefix cache that was up to 17 steps old."""
    synced(untied, folders["untied"], seed=8)
    prompt = [3 + k % 50 for k in range(150)]
    short = Sampling(max_tokens=2, ignore_eos=True)
    running = Request(request_id="long", prompt_ids=[5], seed=1, sampling=Sampling(max_tokens=100, ignore_eos=True))
    untied.call("generate", [running], 2)

    def cached(request_id, salt):
        asked = Request(request_id=request_id, prompt_ids=prompt, seed=2, sampling=short, salt=salt)
        return untied.call("generate", [asked], 3)[0].num_cached_tokens

    assert [cached("a", "0"), cached("b", "0")] == [0, 128]
    synced(untied, folders["untied"], seed=9, version=1, on_running="KEEP")
    assert cached("c", "1") == 0, "an episode that starts with the new weights must not read keys of the old ones"
    assert [cached("d", "1"), cached("e", "0")] == [128, 128], "each salt has its own keys"
    untied.call("abort", ["long"])


def test_calls_out_of_order_raise(either, folders):
    synced(either, folders["tied"], seed=5)
    either.call("submit", requests(1))
    with pytest.raises(RuntimeError, match="begin_sync was called while requests are unfinished"):
        either.call("begin_sync", 1)
    with pytest.raises(RuntimeError, match="sleep was called while requests are unfinished"):
        either.call("sleep")
    with pytest.raises(ValueError, match="already in use"):
        either.call("submit", requests(1))
    either.call("abort", ["r0"])
    either.call("begin_sync", 1)
    with pytest.raises(StaleWeightsError, match="during the sync to version 1"):
        either.call("submit", requests(1))
    with pytest.raises(ValueError, match="missing"):
        either.call("finish_sync")


def test_a_woken_engine_refuses_requests_until_it_is_synced(either, folders):
    synced(either, folders["tied"], seed=6)
    either.call("sleep")
    either.call("wake")
    with pytest.raises(StaleWeightsError):
        either.call("submit", requests(1))
    synced(either, folders["tied"], seed=6)
    assert len(either.call("generate", requests(2))) == 2


def test_a_sleeping_engine_refuses_requests_until_it_is_synced_and_awake(either, folders):
    synced(either, folders["tied"], seed=6)
    either.call("sleep")
    with pytest.raises(RuntimeError, match="sleeping engine"):
        either.call("submit", requests(1))
    synced(either, folders["tied"], seed=6, version=3)
    with pytest.raises(RuntimeError, match="sleeping engine"):
        either.call("submit", requests(1))
    with pytest.raises(RuntimeError, match=r"half-awake engine.*wake\(\) first"):
        either.call("sleep")
    either.call("wake")
    assert len(either.call("generate", requests(2))) == 2


@pytest.mark.parametrize(
    ("prompt_ids", "max_tokens", "message"),
    [
        ([3] * 180, 20, "180 prompt tokens and max_tokens=20, but the engine was built for 192"),
        ([], 4, "0 prompt tokens"),
        ([3, VOCAB_SIZE], 4, "the model knows 0 to 63"),
    ],
)
def test_requests_that_cannot_be_served_raise_and_nothing_is_queued(tied, folders, prompt_ids, max_tokens, message):
    synced(tied, folders["tied"], seed=6)
    good, bad = requests(2, sampling=Sampling(max_tokens=max_tokens))
    with pytest.raises(ValueError, match=message):
        tied.call("submit", [good, replace(bad, prompt_ids=prompt_ids)])
    assert not tied.call("has_unfinished")


@pytest.mark.parametrize(
    ("engine_kwargs", "message"),
    [
        ({"max_num_seq": 3}, "did you mean max_num_seqs"),
        ({"max_num_seqs": 3}, "Set rollout.max_num_seqs instead"),
        ({"load_format": "auto"}, "the vLLM backend must set itself"),
        ({"pipeline_parallel_size": 2}, "the vLLM backend must set itself"),
    ],
)
def test_engine_kwargs_that_clash_raise(tied, engine_kwargs, message):
    with pytest.raises(ValueError, match=message):
        tied.call("arguments_with", engine_kwargs)


def test_engine_kwargs_reach_the_engine(tied):
    arguments = tied.call("arguments_with", {"block_size": 96})
    assert arguments["block_size"] == 96


def test_an_engine_on_a_gpu_plans_ahead_and_needs_no_numbers_of_others_gpus(tied):
    alone, shared = (tied.call("arguments_with", {}, "cuda", ranks) for ranks in (1, 2))
    assert alone["async_scheduling"] and not alone["disable_custom_all_reduce"]
    assert shared["async_scheduling"] and shared["disable_custom_all_reduce"]
    assert not tied.call("arguments_with", {}, "cpu", 1)["async_scheduling"]
    assert not tied.call("arguments_with", {"async_scheduling": False}, "cuda", 1)["async_scheduling"]


def test_what_was_planned_ahead_is_finished_before_memory_goes(tied):
    assert [tied.call("drained", num) for num in (0, 1, 2)] == [0, 1, 2]


def test_greedy_tokens_equal_those_of_the_hf_engine(untied, folders):
    model = synced(untied, folders["untied"], seed=8)
    asked = requests(6, sampling=Sampling(max_tokens=24, temperature=0))
    plain = rollout_engine(
        "hf",
        model_path=str(folders["untied"]),
        tokenizer_path="",
        model=ModelConfig(),
        rollout=RolloutConfig(),
        max_model_len=MAX_MODEL_LEN,
        device="cpu",
        seed=1,
        run_id=RUN_ID,
    )
    plain.begin_sync(0)
    plain.load(model.state_dict().items())
    plain.finish_sync()
    plain.submit(asked)
    expected = []
    while plain.has_unfinished():
        expected += plain.step()
    finished = by_id(untied.call("generate", asked))
    for done in expected:
        assert finished[done.request_id].response_ids == done.response_ids
        assert finished[done.request_id].finish_reason == done.finish_reason
        torch.testing.assert_close(
            torch.tensor(finished[done.request_id].log_probs), torch.tensor(done.log_probs), atol=1e-4, rtol=0
        )


@pytest.mark.slow
def test_tensor_parallel_gives_the_tokens_of_one_rank(engines, folders):
    for version, seed in enumerate([31, 32]):
        for name in ("untied", "tensor parallel"):
            synced(engines[name], folders["untied"], seed=seed, version=version)
        asked = requests(8, sampling=Sampling(max_tokens=24, temperature=0)) + [
            replace(request, request_id=f"sampled {request.request_id}")
            for request in requests(8, sampling=Sampling(max_tokens=24))
        ]
        expected = by_id(engines["untied"].call("generate", asked))
        finished = by_id(engines["tensor parallel"].call("generate", asked))
        for request_id, done in expected.items():
            assert finished[request_id].response_ids == done.response_ids
            torch.testing.assert_close(
                torch.tensor(finished[request_id].log_probs), torch.tensor(done.log_probs), atol=1e-4, rtol=0
            )


@pytest.mark.slow
def test_tensor_parallel_engines_stay_in_step_through_aborts(engines, folders):
    engine = engines["tensor parallel"]
    synced(engine, folders["untied"], seed=33)
    asked = requests(8, sampling=Sampling(max_tokens=16, ignore_eos=True))
    whole = by_id(engine.call("generate", asked))
    engine.call("generate", asked, 4)
    (aborted,) = engine.call("abort", ["r2"])
    assert aborted.response_ids == whole["r2"].response_ids[:4]
    assert by_id(engine.call("more_steps")) == {
        request_id: done for request_id, done in whole.items() if request_id != "r2"
    }


def test_an_engine_does_not_grow_with_every_new_number_of_tokens(untied, folders):
    synced(untied, folders["untied"], seed=34)
    asked = requests(180, sampling=Sampling(max_tokens=1))  # of 3 to 182 tokens
    # Without the limit oneDNN keeps about 2 MiB for each number of rows, in five matrix products.
    assert untied.call("growth_one_by_one", asked, 80) < 30


@pytest.mark.slow
def test_shared_memory_of_a_running_engine_carries_the_run_id_and_has_no_name_left(engines):
    mapped = engines["tensor parallel"].call("mapped_shared_memory")
    assert mapped and all(name.startswith(f"verl_like-{RUN_ID}-") for name in mapped), mapped
    assert [name for name in os.listdir("/dev/shm") if RUN_ID in name] == []


@pytest.mark.slow
def test_the_segment_of_a_check_of_the_nodes_of_a_group_carries_the_run_id_too(engines):
    names = engines["tensor parallel"].call("segments_of_a_check_of_nodes", RUN_ID)
    assert names and all(name.startswith(f"verl_like-{RUN_ID}-") for name in names), names


def test_no_triton_kernel_is_overlooked(tied):
    num_replaced, held = tied.call("kernels_of_triton")
    assert num_replaced > 0
    assert held == []


def test_an_engine_on_cpu_generates_without_the_compiler_of_pytorch(tied, folders):
    synced(tied, folders["tied"], seed=5)
    tied.call("generate", requests(3, sampling=Sampling(max_tokens=4, top_p=0.8, top_k=10)))
    assert tied.call("state_of_the_compiler") == {"is loaded": False, "compiles": True}


def test_remove_shared_memory_removes_what_the_run_left_and_nothing_else():
    run_id = uuid.uuid4().hex
    ours, other = f"/dev/shm/verl_like-{run_id}-tp:0-0-1_0", f"/dev/shm/verl_like-{run_id}x-tp:0-0-1_0"
    for path in (ours, other):
        with open(path, "w") as segment:
            segment.write("left by a killed process")
    try:
        assert remove_shared_memory(run_id) == [os.path.basename(ours)]
        assert not os.path.exists(ours) and os.path.exists(other)
    finally:
        os.unlink(other)


def test_a_run_id_that_is_no_file_name_raises():
    with pytest.raises(ValueError, match="run id 'a/b'"):
        remove_shared_memory("a/b")
