"""Generation with plain transformers behind the RolloutEngine protocol."""

import os
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests._tiny_model import END_ID, hf_log_probs, requests, save_model, weights_of
from verl_like.backends.base import OnRunning, Sampling, StaleWeightsError, VersionSpan
from verl_like.backends.hf.engine import sampled
from verl_like.backends.rollout import rollout_engine, rollout_environment
from verl_like.config.schema import ModelConfig, RolloutConfig


def hf_engine(folder, **rollout):
    return rollout_engine(
        "hf",
        model_path=str(folder),
        tokenizer_path="",
        model=ModelConfig(path=str(folder)),
        rollout=RolloutConfig(**rollout),
        max_model_len=64,
        device="cpu",
        seed=1,
        run_id="unit",
    )


def synced(engine, folder, *, seed, version=0, on_running=OnRunning.REFUSE):
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights_of(model, seed=seed)
    engine.begin_sync(version, on_running=on_running)
    engine.load(model.state_dict().items())
    engine.finish_sync()
    return model


def generated(engine, asked):
    engine.submit(asked)
    finished = []
    while engine.has_unfinished():
        finished += engine.step()
    return {done.request_id: done for done in finished}


@pytest.fixture(scope="module", params=[("qwen2", True), ("qwen3", False)], ids=["qwen2 tied", "qwen3 untied"])
def folder(request, tmp_path_factory):
    family, tied = request.param
    return save_model(tmp_path_factory.mktemp(family), family=family, tied=tied)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=12),
        Sampling(max_tokens=12, temperature=0.5),
        Sampling(max_tokens=12, temperature=0),
        Sampling(max_tokens=12, top_k=5),
        Sampling(max_tokens=12, top_p=0.7),
        Sampling(max_tokens=12, temperature=0.8, top_k=20, top_p=0.9),
    ],
    ids=str,
)
def test_log_probs_equal_one_forward_of_the_whole_sequence(folder, sampling):
    engine = hf_engine(folder, max_num_seqs=3)
    model = synced(engine, folder, seed=1)
    asked = requests(5, sampling=sampling)
    finished = generated(engine, asked)
    assert finished.keys() == {request.request_id for request in asked}
    for request in asked:
        done = finished[request.request_id]
        torch.testing.assert_close(
            torch.tensor(done.log_probs), hf_log_probs(model, request, done.response_ids), atol=1e-4, rtol=0
        )


def test_tokens_follow_the_distribution_that_the_log_probs_state():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -9.0])
    sampling = Sampling(max_tokens=1, temperature=0.7, top_k=4, top_p=0.97)
    generator = torch.Generator().manual_seed(0)
    draws = [sampled(logits, sampling, generator) for _ in range(4000)]
    # exp(logits / 0.7) of the first three is 17.41, 4.17, 1.00, and 0.24 for the fourth: before it lies 0.990 > 0.97 of
    # the mass.
    expected = torch.tensor([17.413, 4.173, 1.0]) / (17.413 + 4.173 + 1.0)
    for token in range(3):
        share = sum(drawn.token_id == token for drawn in draws) / len(draws)
        assert abs(share - expected[token]) < 0.025
        stated = {drawn.log_prob for drawn in draws if drawn.token_id == token}
        assert list(stated) == [pytest.approx(expected[token].log().item(), abs=1e-3)]
    assert {drawn.token_id for drawn in draws} == {0, 1, 2}
    assert {tuple(drawn.candidates()) for drawn in draws} == {(0, 1, 2)}


def test_candidates_are_the_tokens_over_which_log_probs_are_normalised(folder):
    engine = hf_engine(folder, max_num_seqs=3)
    model = synced(engine, folder, seed=1)
    sampling = Sampling(max_tokens=12, temperature=0.8, top_k=20, top_p=0.9, returns_candidates=True)
    asked = requests(5, sampling=sampling)
    found = generated(engine, asked)
    for request in asked:
        done = found[request.request_id]
        over_kept = hf_log_probs(model, request, done.response_ids, candidates=done.candidates)
        torch.testing.assert_close(torch.tensor(done.log_probs), over_kept, atol=1e-4, rtol=0)
        assert all(0 < len(ids) <= 20 for ids in done.candidates)
    assert len({len(ids) for done in found.values() for ids in done.candidates}) > 1, "top-p cuts some sets further"
    engine.submit(requests(2, sampling=replace(sampling, ignore_eos=True)))
    engine.step()
    assert [len(done.candidates) for done in engine.abort([request.request_id for request in asked])] == [1, 1]
    plain = generated(engine, requests(5, sampling=replace(sampling, returns_candidates=False)))
    assert all(len(done.candidates) == 0 for done in plain.values())


def test_a_seed_gives_the_same_tokens_whatever_the_wave(folder):
    engine, one_by_one = hf_engine(folder, max_num_seqs=8), hf_engine(folder, max_num_seqs=1)
    synced(engine, folder, seed=2)
    synced(one_by_one, folder, seed=2)
    asked = requests(6)
    together, reverse, alone = generated(engine, asked), generated(engine, asked[::-1]), generated(one_by_one, asked)
    for request_id, done in together.items():
        assert reverse[request_id].response_ids == done.response_ids
        assert alone[request_id].response_ids == done.response_ids


def test_its_usage_counts_running_and_waiting_requests(folder):
    engine = hf_engine(folder, max_num_seqs=4)
    synced(engine, folder, seed=3)
    generated(engine, requests(6))
    assert (engine.usage.running, engine.usage.waiting) == (4, 2)


def test_abort_returns_what_was_generated_and_the_rest_continues(folder):
    engine = hf_engine(folder, max_num_seqs=4)
    synced(engine, folder, seed=3)
    asked = requests(6, sampling=Sampling(max_tokens=10, ignore_eos=True))
    whole = generated(engine, asked)
    engine.submit(asked)
    for _ in range(3):
        assert engine.step() == []
    aborted = {done.request_id: done for done in engine.abort(["r1", "r5", "unknown"])}
    assert aborted.keys() == {"r1", "r5"}
    assert aborted["r1"].response_ids == whole["r1"].response_ids[:3]
    assert aborted["r5"].response_ids == []
    rest = {}
    while engine.has_unfinished():
        rest |= {done.request_id: done for done in engine.step()}
    assert {request_id: done.response_ids for request_id, done in rest.items()} == {
        request_id: done.response_ids for request_id, done in whole.items() if request_id not in aborted
    }


def test_a_response_ends_with_the_end_token(folder):
    engine = hf_engine(folder, max_num_seqs=64)
    synced(engine, folder, seed=4)
    finished = generated(engine, requests(30, sampling=Sampling(max_tokens=30)))
    assert any(done.finish_reason == "stop" for done in finished.values())
    for done in finished.values():
        assert (done.finish_reason == "stop") == (END_ID in done.response_ids)
        assert END_ID not in done.response_ids[:-1]


def test_a_missing_weight_raises_with_its_name_and_leaves_no_version(folder):
    engine = hf_engine(folder)
    weights = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    del weights["lm_head.weight"]
    engine.begin_sync(3)
    engine.load(weights.items())
    with pytest.raises(ValueError, match=r"1 missing: lm_head\.weight"):
        engine.finish_sync()
    assert engine.version == -1
    with pytest.raises(StaleWeightsError):
        engine.submit(requests(1))


def test_version_is_that_of_the_last_finished_sync(folder):
    engine = hf_engine(folder)
    assert engine.version == -1
    synced(engine, folder, seed=5)
    assert engine.version == 0
    engine.begin_sync(1)
    assert engine.version == -1


def test_sleep_needs_a_sync_and_a_wake_before_the_next_submit(folder):
    engine = hf_engine(folder)
    synced(engine, folder, seed=5)
    engine.sleep()
    with pytest.raises(RuntimeError, match="sleeping engine"):
        engine.submit(requests(1))
    synced(engine, folder, seed=5)
    with pytest.raises(RuntimeError, match="sleeping engine"):
        engine.submit(requests(1))
    engine.wake()
    assert len(generated(engine, requests(1))) == 1


def test_tensor_parallel_raises(folder):
    with pytest.raises(ValueError, match="tensor_parallel_size is 2"):
        hf_engine(folder, tensor_parallel_size=2)


def test_building_draws_no_random_numbers(folder):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    hf_engine(folder)
    assert torch.equal(torch.rand(1), expected)


def test_the_users_logging_level_wins(monkeypatch):
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    assert rollout_environment("vllm", device="cpu")["VLLM_LOGGING_LEVEL"] == "WARNING"
    monkeypatch.setitem(os.environ, "VLLM_LOGGING_LEVEL", "DEBUG")
    assert rollout_environment("vllm", device="cuda")["VLLM_LOGGING_LEVEL"] == "DEBUG"


def test_kept_requests_continue_with_the_new_weights_and_compute_nothing_from_the_old(folder):
    engine = hf_engine(folder)
    old = synced(engine, folder, seed=5)
    asked = requests(3, sampling=Sampling(max_tokens=12, ignore_eos=True))
    engine.submit(asked)
    for _ in range(5):
        assert engine.step() == []
    new = synced(engine, folder, seed=6, version=1, on_running=OnRunning.RECOMPUTE)
    done = {}
    while engine.has_unfinished():
        done |= {each.request_id: each for each in engine.step()}
    for request in asked:
        found = done[request.request_id]
        assert found.versions == (VersionSpan(0, 0), VersionSpan(5, 1))
        expected = torch.cat(
            [hf_log_probs(old, request, found.response_ids)[:5], hf_log_probs(new, request, found.response_ids)[5:]]
        )
        torch.testing.assert_close(torch.tensor(found.log_probs), expected, atol=1e-4, rtol=0)


def test_unfinished_requests_are_refused_unless_they_are_kept_and_by_sleep_always(folder):
    engine = hf_engine(folder)
    synced(engine, folder, seed=5)
    engine.submit(requests(1))
    with pytest.raises(RuntimeError, match="begin_sync was called while requests are unfinished"):
        engine.begin_sync(1)
    with pytest.raises(RuntimeError, match="sleep was called while requests are unfinished"):
        engine.sleep()
    engine.begin_sync(1, on_running=OnRunning.RECOMPUTE)
    with pytest.raises(StaleWeightsError, match="step was called during the sync to version 1"):
        engine.step()


def test_kept_requests_do_not_continue_after_a_failed_sync(folder):
    engine = hf_engine(folder)
    synced(engine, folder, seed=5)
    engine.submit(requests(1))
    engine.begin_sync(1, on_running=OnRunning.RECOMPUTE)
    engine.load(iter(()))
    with pytest.raises(ValueError, match="missing"):
        engine.finish_sync()
    with pytest.raises(StaleWeightsError, match="because a sync failed"):
        engine.step()


def test_features_are_refused_by_an_engine_that_reads_token_ids_alone(folder):
    engine = hf_engine(folder)
    synced(engine, folder, seed=5)
    with pytest.raises(ValueError, match=r"Request r0 has the features \['picture'\].*reads only token ids.* Use a"):
        engine.submit([replace(requests(1)[0], features={"picture": 1})])
    engine.submit([replace(requests(1)[0], features={})])
    assert engine.has_unfinished()
