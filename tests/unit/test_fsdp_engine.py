"""The training engine: what it computes does not depend on ranks, micro-batches, layout or sharding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import AutoModel, AutoModelForCausalLM

from tests.unit._fsdp_ranks import (
    ADVANTAGES_OF,
    SCENARIOS,
    EveryRow,
    PolicyLoss,
    ValueLoss,
    build_engine,
    build_learner,
    make_rows,
    run_ranks,
    tiny_model,
    weights_of,
    write_models,
)
from tests.unit._rank_processes import join_ranks, leave_ranks
from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.backends.fsdp.models import VALUE_HEAD_FILE
from verl_like.backends.fsdp.offload import HostCopies
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import ActorConfig, Config, FsdpConfig, ModelConfig, TrainerConfig
from verl_like.protocol import DataProto, Ragged
from verl_like.workers import hybrid
from verl_like.workers.actor import ActorRole
from verl_like.workers.setup import WorkerSetup


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("fsdp"))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def alone(work: Path) -> dict[str, Any]:
    """Run every scenario on one rank."""
    return {name: SCENARIOS[name](work) for name in ("updates", "save", "export", "skips")}


@pytest.fixture(scope="module")
def two_ranks(work: Path, alone: dict[str, Any]) -> list[dict[str, Any]]:
    """Run every scenario on two ranks; loading a checkpoint of another number of ranks needs the one of one rank."""
    return run_ranks(
        ["updates", "save", "load_own", "load_other", "load_weights", "export", "weights", "skips"],
        world_size=2,
        work=work,
    )


def assert_same_run(found: dict[str, Any], expected: dict[str, Any], *, atol: float = 1e-6) -> None:
    for one, other in zip(found["metrics"], expected["metrics"], strict=True):
        assert one == pytest.approx(other, abs=atol, rel=1e-5)
    assert found["weights"].keys() == expected["weights"].keys()
    for name, weight in found["weights"].items():
        torch.testing.assert_close(
            weight, expected["weights"][name], atol=atol, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
        )


def reference_log_probs(model: torch.nn.Module, rows: DataProto, temperature: float) -> tuple[Tensor, Tensor]:
    """[K] log-probs and entropies, one row at a time through the plain model."""
    log_probs, entropies = [], []
    for prompt, response in zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True):
        ids = torch.from_numpy(np.concatenate([prompt, response]).astype(np.int64))
        steps = torch.log_softmax(model(ids[None]).logits[0].float() / temperature, -1)[len(prompt) - 1 : -1]
        log_probs.append(steps.gather(-1, ids[len(prompt) :, None])[:, 0])
        entropies.append(-(steps.exp() * steps).sum(-1))
    return torch.cat(log_probs), torch.cat(entropies)


@pytest.mark.parametrize("name", ["qwen2", "llama", "qwen3-tied"])
@pytest.mark.parametrize("remove_padding", [True, False])
def test_forward_log_probs_equal_the_plain_model(work: Path, name: str, remove_padding: bool) -> None:
    rows = make_rows(9)
    engine = build_engine(
        work / name, is_frozen=True, max_tokens=25, model={"remove_padding": remove_padding}, log_prob_chunk_mib=1
    )
    found = engine.forward_log_probs(rows, temperature=0.7, entropy=True, sum_pi_squared=True)
    with torch.no_grad():
        log_probs, entropy = reference_log_probs(AutoModelForCausalLM.from_pretrained(work / name), rows, 0.7)
    np.testing.assert_allclose(found["log_probs"], log_probs, atol=1e-5)
    np.testing.assert_allclose(found["entropy"], entropy, atol=1e-5)
    assert np.all((found["sum_pi_squared"] >= 1 / 64 - 1e-6) & (found["sum_pi_squared"] <= 1))


def test_first_update_has_the_gradient_of_the_plain_model(work: Path) -> None:
    rows = make_rows(seed=1)
    plain = AutoModelForCausalLM.from_pretrained(work / "qwen2")
    log_probs, entropy = reference_log_probs(plain, rows, 0.8)
    mask, advantages = (torch.from_numpy(rows.ragged(name).values) for name in ("response_mask", "advantages"))
    loss = -((log_probs * advantages + 0.1 * entropy) * mask).sum() / mask.sum()
    loss.backward()
    grad_norm = math.sqrt(sum(p.grad.double().square().sum().item() for p in plain.parameters()))
    metrics = build_learner(work / "qwen2", max_tokens=25).update(rows, PolicyLoss())
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-6)
    assert metrics["grad_norm"] == pytest.approx(grad_norm, rel=1e-5)
    assert metrics["lr"] == pytest.approx(0.5e-2)  # the one warm-up update
    assert metrics["skipped_updates"] == 0


@pytest.mark.parametrize(
    "setting", ["uneven", "padded", "gradient_checkpointing", "layer_groups", "layer_groups_checkpointed"]
)
def test_micro_batches_layout_and_sharding_do_not_change_updates(alone: dict[str, Any], setting: str) -> None:
    assert_same_run(alone["updates"][setting], alone["updates"]["plain"])


@pytest.mark.processes
@pytest.mark.parametrize(
    "setting",
    [
        "plain",
        "uneven",
        "no_rows_on_one_rank",
        "no_columns_on_one_rank",
        "padded",
        "gradient_checkpointing",
        "layer_groups",
        "layer_groups_checkpointed",
    ],
)
def test_rank_count_does_not_change_policy_updates(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]], setting: str
) -> None:
    for rank in two_ranks:
        assert_same_run(rank["updates"][setting], alone["updates"]["plain"])


@pytest.mark.processes
@pytest.mark.parametrize("setting", ["value", "value_uneven"])
def test_rank_count_does_not_change_value_updates(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]], setting: str
) -> None:
    for rank in two_ranks:
        assert_same_run(rank["updates"][setting], alone["updates"]["value"])


@pytest.mark.processes
def test_forward_after_updates_is_the_same_on_two_ranks(alone: dict[str, Any], two_ranks: list[dict[str, Any]]) -> None:
    rows = make_rows()
    lengths = rows.ragged("response_ids").lengths
    whole = Ragged.from_lengths(alone["updates"]["plain"]["forward"], lengths)
    for rank, results in enumerate(two_ranks):
        own = whole.take(np.arange(len(rows))[rank::2]).values
        np.testing.assert_allclose(results["updates"]["plain"]["forward"], own, atol=1e-5)


def test_gradient_checkpointing_runs_each_layer_again_in_backward(work: Path) -> None:
    calls = {}
    for gradient_checkpointing in ("false", "1", "true", "5"):
        learner = build_learner(work / "qwen2", model={"gradient_checkpointing": gradient_checkpointing})
        with torch.profiler.profile() as profile:
            learner.update(make_rows(seed=1), PolicyLoss())
        calls[gradient_checkpointing] = sum(
            event.count for event in profile.key_averages() if event.key == "aten::silu"
        )
    assert calls == {"false": 2, "1": 3, "true": 4, "5": 4}  # one per layer


def test_updates_change_the_weights_and_lower_the_loss(work: Path) -> None:
    learner = build_learner(work / "qwen2")
    before = weights_of(learner.engine)
    losses = [learner.update(make_rows(seed=1), PolicyLoss())["loss"] for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    assert all(not torch.equal(before[name], weight) for name, weight in weights_of(learner.engine).items())


def test_value_model_starts_at_zero_and_learns_the_returns(work: Path) -> None:
    rows = make_rows(seed=1)
    learner = build_learner(work / "llama", kind="value", max_tokens=30)
    assert np.all(learner.engine.forward_values(rows) == 0)
    losses = [learner.update(rows, ValueLoss())["loss"] for _ in range(8)]
    assert losses[-1] < 0.7 * losses[0]
    assert np.std(learner.engine.forward_values(rows)) > 0.1


def test_values_belong_to_the_position_before_the_token(work: Path) -> None:
    rows = make_rows(5)
    learner = build_learner(work / "llama", kind="value")
    learner.update(rows, ValueLoss())
    other_tokens = Ragged(rows.ragged("response_ids").values.copy(), rows.ragged("response_ids").offsets)
    last = other_tokens.offsets[1:] - 1
    other_tokens.values[last] = (other_tokens.values[last] + 1) % 64
    changed = DataProto({**rows.columns, "response_ids": other_tokens})
    # The last token of a response is chosen after its value was estimated, so it cannot move it.
    np.testing.assert_array_equal(learner.engine.forward_values(changed), learner.engine.forward_values(rows))


def test_rows_without_a_response_are_left_out(work: Path) -> None:
    rows = make_rows(4)
    aligned = ("response_ids", "response_mask", "advantages", "returns")
    silent = DataProto(
        {
            "prompt_ids": Ragged.from_rows([[1, 2]], "int32"),
            **{name: Ragged.from_rows([[]], str(rows.ragged(name).dtype)) for name in aligned},
            "uid": ["silent"],
        }
    )
    mixed = DataProto.concat([rows.select_idxs([0, 1]), silent, rows.select_idxs([2, 3])])
    found, expected = (
        build_engine(work / "qwen2").forward_log_probs(table, temperature=1.0)["log_probs"] for table in (mixed, rows)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)
    one = build_learner(work / "qwen2").update(mixed, PolicyLoss())
    assert one == pytest.approx(build_learner(work / "qwen2").update(rows, PolicyLoss()), abs=1e-6)


def test_an_empty_table_gives_empty_results(work: Path) -> None:
    engine = build_engine(work / "qwen2")
    assert engine.forward_log_probs(DataProto(), temperature=1.0)["log_probs"].shape == (0,)


class NanLoss(EveryRow):
    needs_entropy = False

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        return LossOutput(loss=outputs["log_probs"].sum() * float("nan"), metrics={"loss": torch.tensor(1.0)})


def test_a_gradient_that_is_not_finite_leaves_weights_and_schedule_alone(work: Path) -> None:
    learner = build_learner(work / "qwen2")
    before = weights_of(learner.engine)
    metrics = learner.update(make_rows(), NanLoss())
    assert metrics["skipped_updates"] == 1
    assert math.isnan(metrics["grad_norm"])
    assert all(torch.equal(before[name], weight) for name, weight in weights_of(learner.engine).items())
    fresh = build_learner(work / "qwen2").update(make_rows(seed=1), PolicyLoss())
    assert learner.update(make_rows(seed=1), PolicyLoss()) == pytest.approx(fresh)


def test_nothing_to_learn_from_skips_the_update(work: Path) -> None:
    rows = make_rows(3)
    rows.columns["response_mask"] = Ragged(
        np.zeros_like(rows.ragged("response_mask").values), rows.ragged("response_mask").offsets
    )
    learner = build_learner(work / "qwen2")
    before = weights_of(learner.engine)
    assert learner.update(rows, PolicyLoss())["skipped_updates"] == 1
    assert all(torch.equal(before[name], weight) for name, weight in weights_of(learner.engine).items())


@pytest.mark.processes
@pytest.mark.parametrize("number", range(len(ADVANTAGES_OF)))
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_leaving_out_rows_without_advantage_changes_no_update(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]], num_ranks: int, number: int
) -> None:
    expected = alone["skips"][False][number]
    is_silent = not any(map(ADVANTAGES_OF[number], range(12)))
    for results in [alone] if num_ranks == 1 else two_ranks:
        for skip, reports in results["skips"].items():
            found = reports[number]
            # A mini-batch that ran no row has no loss to report; what the engine says of every update is there all the
            # same.
            names = {"grad_norm", "lr", "skipped_updates"} | (
                set() if skip and is_silent else {"actor/loss", "actor/policy_loss"}
            )
            assert names <= found["metrics"].keys()
            assert_same_run(
                *(
                    {"metrics": [{name: report["metrics"][name] for name in names}], "weights": report["weights"]}
                    for report in (found, expected)
                )
            )


@pytest.mark.processes
def test_rows_without_advantage_are_not_run_where_they_are_left_out(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]]
) -> None:
    runs = {skip: [report["rows_run"] for report in reports] for skip, reports in alone["skips"].items()}
    assert runs == {False: [12] * 4, True: [6, 0, 11, 12]}
    assert [[report["rows_run"] for report in rank["skips"][True]] for rank in two_ranks] == [
        [6, 0, 6, 6],
        [0, 0, 5, 6],
    ]


@pytest.mark.processes
def test_a_mini_batch_in_which_no_row_moves_the_weights_is_still_an_update(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]]
) -> None:
    """The optimiser gets gradients of zero: moments decay, weight decay applies, and the schedule continues."""
    for results in (alone, *two_ranks):
        before, silent, after = results["skips"][True][:3]
        assert silent["metrics"]["grad_norm"] == 0
        assert silent["metrics"]["skipped_updates"] == 0
        assert all(not torch.equal(before["weights"][name], weight) for name, weight in silent["weights"].items())
        assert after["metrics"]["lr"] < silent["metrics"]["lr"]


def test_bfloat16_keeps_float32_masters_and_stays_close(work: Path) -> None:
    rows = make_rows(seed=1)
    learner = build_learner(work / "qwen2", fsdp=FsdpConfig(param_dtype="bfloat16"))
    found = learner.update(rows, PolicyLoss())
    exact = build_learner(work / "qwen2").update(rows, PolicyLoss())
    assert found["loss"] != exact["loss"]
    assert found["loss"] == pytest.approx(exact["loss"], abs=0.05)
    assert found["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.1)
    assert all(p.dtype == torch.float32 for p in learner.engine.module.parameters())


def test_logits_in_float32_bring_bfloat16_closer_to_float32(work: Path) -> None:
    """Actor or reference; the model's own rounding stays."""
    rows, half = make_rows(40, longest=30), FsdpConfig(param_dtype="bfloat16")

    def log_probs(**settings: Any) -> np.ndarray:
        engine = build_engine(work / "qwen2", is_frozen=True, **settings)
        return engine.forward_log_probs(rows, temperature=1.0)["log_probs"]

    exact = log_probs()
    rounded, kept = (log_probs(fsdp=half, model={"float32_logits": is_kept}) for is_kept in (False, True))
    assert np.abs(kept - exact).mean() < np.abs(rounded - exact).mean()


@pytest.mark.slow
@pytest.mark.processes
def test_compiled_and_eager_updates_are_equal_and_the_switch_changes_what_runs(work: Path) -> None:
    rows = make_rows(seed=1)
    results = {}
    for use_torch_compile in (False, True):
        learner = build_learner(work / "qwen2", use_torch_compile=use_torch_compile, log_prob_chunk_mib=1)
        graphs_before = counters["stats"]["unique_graphs"]
        assert learner.engine.warm_up(300.0, entropy=True) is use_torch_compile
        with torch.profiler.profile() as profile:
            metrics = learner.update(rows, PolicyLoss())
        regions = [event.key for event in profile.key_averages() if "Torch-Compiled Region" in event.key]
        assert bool(regions) is use_torch_compile
        for num_rows in (1, 3, 8):
            learner.engine.forward_log_probs(make_rows(num_rows), temperature=1.0 / num_rows, entropy=True)
        # One graph without gradients and one with, for every length and temperature.
        assert counters["stats"]["unique_graphs"] - graphs_before == (2 if use_torch_compile else 0)
        results[use_torch_compile] = {"metrics": [metrics], "weights": weights_of(learner.engine)}
    assert_same_run(results[True], results[False], atol=1e-5)


@pytest.mark.processes
def test_a_missed_compile_deadline_falls_back_to_eager(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    learner = build_learner(work / "qwen2", use_torch_compile=True)
    assert learner.engine.warm_up(0.0) is False
    assert "took longer than 0 s" in caplog.text
    assert learner.update(make_rows(seed=1), PolicyLoss())["skipped_updates"] == 0


@pytest.mark.processes
def test_a_failed_compilation_falls_back_to_eager(
    work: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    engine = build_engine(work / "qwen2", use_torch_compile=True)
    assert engine.warm_up(120.0) is False
    assert "compiling the log-prob function failed" in caplog.text


@pytest.mark.processes
@pytest.mark.parametrize("scenario", ["load_own", "load_other"])
def test_loading_at_two_ranks_continues_the_run(
    alone: dict[str, Any], two_ranks: list[dict[str, Any]], scenario: str
) -> None:
    for rank, results in enumerate(two_ranks):
        resumed = results[scenario]
        if scenario == "load_own":
            saved = results["save"]
            assert resumed["metrics"] == saved["metrics"], f"rank {rank}"
            assert all(torch.equal(resumed["weights"][name], weight) for name, weight in saved["weights"].items())
            assert torch.equal(resumed["draw"], saved["draw"])
        else:
            assert_same_run(
                {**resumed, "metrics": [resumed["metrics"]]}, {**alone["save"], "metrics": [alone["save"]["metrics"]]}
            )


def test_loading_at_one_rank_continues_bit_for_bit(work: Path, alone: dict[str, Any]) -> None:
    resumed = SCENARIOS["load_own"](work)
    assert resumed["metrics"] == alone["save"]["metrics"]
    assert all(torch.equal(resumed["weights"][name], weight) for name, weight in alone["save"]["weights"].items())
    assert torch.equal(resumed["draw"], alone["save"]["draw"])


@pytest.mark.processes
def test_one_rank_loads_what_two_ranks_saved(work: Path, two_ranks: list[dict[str, Any]]) -> None:
    resumed, saved = SCENARIOS["load_other"](work), two_ranks[0]["save"]
    assert_same_run({**resumed, "metrics": [resumed["metrics"]]}, {**saved, "metrics": [saved["metrics"]]})


@pytest.mark.processes
def test_an_engine_that_does_not_learn_reads_the_weights_and_nothing_else(
    work: Path, alone: dict[str, Any], two_ranks: list[dict[str, Any]]
) -> None:
    torch.manual_seed(5)
    draw = torch.rand(3)
    for results in (SCENARIOS["load_weights"](work), *(rank["load_weights"] for rank in two_ranks)):
        for saved_by, run in ((1, alone), (2, two_ranks[0])):
            found, saved = results[f"weights-{saved_by}"], run["save"]["saved"]
            assert found.keys() == saved.keys()
            assert all(torch.equal(weight, saved[name]) for name, weight in found.items())
            assert torch.equal(results[f"draw-{saved_by}"], draw), "random states are the learner's"


@pytest.mark.parametrize("build", [build_engine, build_learner])
def test_loading_an_empty_folder_says_so(work: Path, tmp_path: Path, build: Callable[[Path], Any]) -> None:
    with pytest.raises(ValueError, match=r"holds no engine checkpoint.*trainer\.resume"):
        build(work / "qwen2").load(tmp_path)


def actor(work: Path, *, updates: int) -> ActorRole:
    config = Config(
        model=ModelConfig(path=str(work / "qwen2")),
        actor=ActorConfig(use_torch_compile=updates == 0),
        trainer=TrainerConfig(output_dir=str(work)),
    )
    setup = WorkerSetup(
        config=config,
        rank=0,
        world_size=1,
        device="cpu",
        run_id="unit",
        roles=frozenset({"actor"}),
        actor_updates=updates,
    )
    role: ActorRole = hybrid.build_roles(setup)["ActorRole"]
    return role


def test_an_actor_without_updates_to_make_has_weights_alone_and_exports_what_one_that_learns_exports(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hybrid, "join_process_group", lambda setup: None)  # this process has joined one
    monkeypatch.setenv("VERL_LIKE_CACHE", str(tmp_path / "cache"))
    learning = actor(work, updates=10)
    learning._learning().update(make_rows(seed=1), PolicyLoss())
    learning.save(str(tmp_path / "checkpoint"))
    learning.export(str(tmp_path / "expected"))
    idle = actor(work, updates=0)  # and nothing is compiled, though its configuration asks for it
    assert not idle._is_compiled
    idle.load(str(tmp_path / "checkpoint"), version=7)
    idle.export(str(tmp_path / "found"))
    assert idle.version == 7
    assert all(
        torch.equal(weight, weights_of(idle.engine)[name]) for name, weight in weights_of(learning.engine).items()
    )
    files = sorted(path.name for path in (tmp_path / "expected").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "found").iterdir())
    assert all(
        (tmp_path / "found" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes() for name in files
    )
    with pytest.raises(AssertionError, match="built with actor_updates=0, so it cannot be trained"):
        idle.save(str(tmp_path / "never"))


@pytest.mark.processes
@pytest.mark.parametrize("world_size", [1, 2])
def test_exported_folder_loads_in_transformers_with_the_same_logits(
    work: Path, alone: dict[str, Any], two_ranks: list[dict[str, Any]], world_size: int
) -> None:
    weights = alone["export"]["weights"] if world_size == 1 else two_ranks[0]["export"]["weights"]
    expected = tiny_model("qwen3", tied=True)
    expected.load_state_dict(weights)
    found = AutoModelForCausalLM.from_pretrained(work / f"export-{world_size}")
    ids = torch.randint(0, 64, (2, 7))
    assert torch.equal(found(ids).logits, expected(ids).logits)
    assert found.lm_head.weight is found.model.embed_tokens.weight
    assert not list(work.glob(".export-*"))


def test_exporting_a_critic_keeps_body_and_head(work: Path, tmp_path: Path) -> None:
    learner = build_learner(work / "llama", kind="value")
    learner.update(make_rows(seed=1), ValueLoss())
    learner.engine.export(tmp_path / "critic")
    learner.engine.export(tmp_path / "critic")  # replaces the older one
    assert (tmp_path / "critic" / VALUE_HEAD_FILE).is_file()
    AutoModel.from_pretrained(tmp_path / "critic")
    rows = make_rows(3)
    np.testing.assert_array_equal(
        build_engine(tmp_path / "critic", kind="value").forward_values(rows), learner.engine.forward_values(rows)
    )
    assert [path.name for path in tmp_path.iterdir()] == ["critic"]


def test_temperature_of_updates_is_the_engines(work: Path) -> None:
    losses = {
        t: build_learner(work / "qwen2", temperature=t).update(make_rows(seed=1), PolicyLoss())["loss"]
        for t in (0.5, 1.0)
    }
    assert abs(losses[0.5] - losses[1.0]) > 1e-3


@pytest.mark.processes
@pytest.mark.parametrize("name", ["qwen2", "qwen3-tied"])
def test_two_ranks_stream_the_models_weights_in_few_gathers(
    work: Path, two_ranks: list[dict[str, Any]], name: str
) -> None:
    expected = AutoModelForCausalLM.from_pretrained(work / name).state_dict()
    for results in two_ranks:
        for bucket_mib in (0.001, 0.01, 64):
            streamed = results["weights"][name, bucket_mib]["weights"]
            assert streamed.keys() == expected.keys()
            assert all(torch.equal(weight, expected[key]) for key, weight in streamed.items())
            assert all(weight.untyped_storage().nbytes() == weight.nbytes for weight in streamed.values())
        tables = [results["weights"][name, bucket_mib]["tables"] for bucket_mib in (64, 0.01, 0.001)]
        assert tables[0] == 1 < tables[1] < len(expected) < tables[2], "some tensors come in parts"


def test_moments_that_leave_the_accelerator_and_come_back_are_the_same(work: Path) -> None:
    rows, norms = make_rows(), {}
    for leaves in (True, False):
        learner = build_learner(work / "qwen2")
        found = norms[leaves] = [learner.update(rows, PolicyLoss())["grad_norm"]]
        copies = HostCopies(learner.engine.device)
        for _ in range(2):
            before = addresses(learner)
            if leaves:
                copies.move_out(learner.optimizer)
                assert len(copies.buffers) == len(before)
                assert addresses(learner) == [buffer.data_ptr() for buffer in copies.buffers]
                copies.move_in(learner.optimizer)
            found.append(learner.update(rows, PolicyLoss())["grad_norm"])
    assert norms[True] == norms[False]


def addresses(learner: FsdpLearner) -> list[int]:
    """Of the moments, as the optimiser holds them."""
    with torch.no_grad():
        values = [value for state in learner.optimizer.state.values() for value in state.values() if value.ndim]
        return [local_shard(value).data_ptr() for value in values]
