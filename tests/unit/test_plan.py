"""Plans: what models cost, what is changed where they do not fit, and what a user is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from verl_like.checks.gpus import Gpus
from verl_like.cli import main
from verl_like.config.compose import compose
from verl_like.config.problems import Refused
from verl_like.config.schema import Config, FsdpConfig, ModelConfig
from verl_like.plan import check
from verl_like.plan.advice import advice
from verl_like.plan.devices import DEVICES, GIB, Device, named
from verl_like.plan.faster import Faster, faster, faster_split
from verl_like.plan.location import location_on
from verl_like.plan.passes import Rows, rows_of
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.shape import model_shape
from verl_like.plan.stages import Location, roles_of
from verl_like.plan.tables import text

ROOT = Path(__file__).parents[2]
QWEN2_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
QWEN3_30B_A3B = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of 7.6 billion parameters, of which only config.json is there."""
    return written(tmp_path / "7b", QWEN2_7B)


def written(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config_for(folder: Path) -> Config:
    config = Config()
    config.model.path = str(folder)
    config.data.max_prompt_length, config.data.max_response_length = 1024, 4096
    return config


def h100s(ranks: int) -> Location:
    return Location(device=named("H100"), ranks=ranks, ranks_per_node=min(ranks, 8))


def test_parameters_are_those_that_their_makers_state(folder: Path, tmp_path: Path) -> None:
    shape = model_shape(str(folder), ModelConfig(path=str(folder)))
    assert shape.num_parameters == 7_615_616_512  # Qwen2.5-7B
    assert shape.num_parameters == shape.num_root_parameters + 28 * shape.num_layer_parameters
    assert shape.num_active_layer_parameters == shape.num_layer_parameters
    critic = model_shape(str(folder), ModelConfig(path=str(folder)), has_logits=False)
    assert critic.num_parameters == shape.num_parameters - 152064 * 3584
    assert critic.vocab_size == 0
    mixture = written(tmp_path / "moe", QWEN3_30B_A3B)
    of_experts = model_shape(str(mixture), ModelConfig(path=str(mixture)))
    assert of_experts.num_parameters == pytest.approx(30.5e9, rel=0.01)
    active = of_experts.num_root_parameters + 48 * of_experts.num_active_layer_parameters
    assert active == pytest.approx(3.3e9, rel=0.03)
    assert of_experts.intermediate_size == 8 * 768


@pytest.mark.parametrize(
    ("family", "width", "active"),
    [
        ("GPT2", 4 * 768, 1.0),
        ("OPT", 3072, 1.0),
        ("Phi3", 8192, 1.0),
        ("Mixtral", 2 * 14336, 0.27),
        ("DeepseekV3", 8 * 2048, 0.05),
    ],
)
def test_families_that_call_things_otherwise_are_understood(
    family: str, width: int, active: float, tmp_path: Path
) -> None:
    getattr(transformers, f"{family}Config")().save_pretrained(tmp_path)
    shape = model_shape(str(tmp_path), ModelConfig(path=str(tmp_path)))
    assert shape.intermediate_size == width
    assert shape.num_active_layer_parameters / shape.num_layer_parameters == pytest.approx(active, abs=0.02)
    assert shape.num_layers * shape.num_layer_parameters < 1.1 * shape.num_parameters
    assert shape.flops_per_token(0) < 2.1 * shape.num_parameters


def test_a_rank_holds_its_part_of_weights_and_optimiser(folder: Path) -> None:
    config = config_for(folder)
    shapes = shapes_of(config)
    for ranks in (8, 64):
        parts = plan_of(config, shapes, h100s(ranks)).stages["update_actor"]
        assert parts["actor weights"] == 4 * shapes["actor"].num_parameters / ranks
        assert parts["actor optimiser"] == 8 * shapes["actor"].num_parameters / ranks


def test_a_model_on_the_host_has_nothing_on_the_gpu_but_what_is_gathered(folder: Path) -> None:
    config, usual = config_for(folder), config_for(folder)
    config.actor.fsdp.cpu_offload = True
    for each in (config, usual):
        each.model.gradient_checkpointing = "true"  # not as many layers as the memory of each allows
        each.rollout.gpu_memory_utilization = "0.5"
    shapes = shapes_of(config)
    plan, plain = (plan_of(each, shapes, h100s(8)) for each in (config, usual))
    of_rank = shapes["actor"].num_parameters / 8
    assert not [
        part for parts in plan.stages.values() for part in parts if part in ("actor weights", "actor optimiser")
    ]
    assert plan.host["offloaded"] == pytest.approx(8 * 16 * of_rank)
    assert plain.bytes_in("rollout") - plan.bytes_in("rollout") == pytest.approx(12 * of_rank)
    assert plain.bytes_in("update_actor") - plan.bytes_in("update_actor") == pytest.approx(16 * of_rank)
    assert plan.seconds["update_actor"] > plain.seconds["update_actor"]


def test_as_few_layers_are_recomputed_as_the_memory_of_a_gpu_needs(folder: Path) -> None:
    config = config_for(folder)
    shapes = shapes_of(config)

    def planned(ranks: int, setting: str = "auto", tokens: int = 16_384) -> RunPlan:
        config.model.gradient_checkpointing = setting
        config.actor.max_tokens_per_micro_batch = str(tokens)
        return plan_of(config, shapes, h100s(ranks))

    auto, everything = planned(8), planned(8, "true")
    count = int(auto.config.model.gradient_checkpointing)
    assert 0 < count < 28
    assert auto.bytes_in("update_actor") <= 0.85 * auto.location.device.memory_gib * GIB
    assert planned(8, str(count - 1)).bytes_in("update_actor") > 0.85 * auto.location.device.memory_gib * GIB
    assert auto.seconds["update_actor"] < everything.seconds["update_actor"]
    assert planned(8, tokens=5_120).config.model.gradient_checkpointing == "0", "a pass of 5,120 tokens fits without"
    assert planned(1).config.model.gradient_checkpointing == "28", "what does not fit recomputes all"
    assert planned(8, "true").config.model.gradient_checkpointing == "true"
    assert f"layers recomputed in backward: {count} of 28" in text(auto, advice(config, shapes, h100s(8)))


def test_every_role_and_stage_of_the_run_is_planned(folder: Path) -> None:
    config = config_for(folder)
    config.algorithm.adv_estimator = "gae"
    config.actor.kl_loss_coef = 0.1
    config.model.gradient_checkpointing, config.rollout.gpu_memory_utilization = "true", "0.5"
    plan = plan_of(config, shapes_of(config), h100s(8))
    assert set(plan.shapes) == {"actor", "ref", "critic"}
    assert set(plan.stages) | {"switch", "driver"} == set(plan.seconds)
    assert {"ref_log_probs", "values", "update_critic", "update_actor", "rollout", "sync"} <= set(plan.stages)
    assert all(value > 0 for value in plan.seconds.values())
    assert all(value >= 0 for parts in plan.stages.values() for value in parts.values())
    # AdamW keeps twice the weights; offloaded, they are there for the optimiser's step alone.
    config.actor.optim.offload = True
    offloaded = plan_of(config, shapes_of(config), h100s(8))
    moments = 8 * plan.shapes["actor"].num_parameters / 8
    assert plan.bytes_in("rollout") - offloaded.bytes_in("rollout") == pytest.approx(moments)
    assert plan.bytes_in("update_actor") - offloaded.bytes_in("update_actor") == pytest.approx(moments)
    assert offloaded.host["offloaded"] == pytest.approx(8 * moments)


def test_processes_of_environments_are_planned_in_host_memory(folder: Path) -> None:
    config = config_for(folder)
    assert "environments" not in plan_of(config, shapes_of(config), h100s(8)).host
    config.environment.path = "game.py:Game"
    config.rollout.tensor_parallel_size, config.environment.max_processes = 2, 10
    of_processes = plan_of(config, shapes_of(config), h100s(8)).host["environments"]
    assert of_processes == 4 * (50 + 10 * 5) * 2**20


def test_engines_that_get_adapters_alone_sleep_in_host_memory(folder: Path) -> None:
    config = config_for(folder)
    config.model.lora.rank = 8
    assert "sleeping engines" not in plan_of(config, shapes_of(config), h100s(8)).host
    config.rollout.lora = "adapter"
    plan = plan_of(config, shapes_of(config), h100s(8))
    weights = 2 * plan.shapes["actor"].num_parameters
    assert 8 * weights < plan.host["sleeping engines"] < 2 * 8 * weights, "locked memory is rounded up"
    config.cluster.placement = {"trainer": 4.0, "rollout": 4.0}
    assert "sleeping engines" not in plan_of(config, shapes_of(config), h100s(8)).host


def test_copies_for_a_checkpoint_are_planned_in_host_memory_unless_it_is_waited_for(folder: Path) -> None:
    config = config_for(folder)
    config.algorithm.adv_estimator = "gae"
    plan = plan_of(config, shapes_of(config), h100s(8))
    learning = [plan.shapes[name].num_parameters for name in ("actor", "critic")]
    assert plan.cut_roles >= {"actor", "critic"}
    assert plan.host["copies for a checkpoint"] == pytest.approx(12 * sum(learning)) == plan.disk["a checkpoint"]
    paired = replace(config, actor=replace(config.actor, fsdp=FsdpConfig(shard_size="2")))
    copied = plan_of(paired, shapes_of(paired), h100s(8)).host["copies for a checkpoint"]
    assert copied == pytest.approx(12 * (4 * learning[0] + learning[1])), "each rank copies what it has"
    config.trainer.async_save = False
    assert "copies for a checkpoint" not in plan_of(config, shapes_of(config), h100s(8)).host


def test_the_engine_gets_its_share_of_the_gpu(folder: Path) -> None:
    config = config_for(folder)
    config.rollout.gpu_memory_utilization = "0.5"
    plan = plan_of(config, shapes_of(config), h100s(8))
    learner = plan.stages["rollout"]["actor weights"] + plan.stages["rollout"]["actor optimiser"]
    assert plan.bytes_in("rollout") - learner == pytest.approx(0.5 * 79.6 * GIB)
    # Two for keys and values, at two bytes, in 28 layers of four heads of 128.
    assert plan.cache_tokens == pytest.approx(plan.stages["rollout"]["KV cache"] / (2 * 2 * 28 * 4 * 128))


def test_a_plan_that_fits_needs_no_change(folder: Path) -> None:
    config = config_for(folder)
    found = advice(config, shapes_of(config), h100s(8))
    assert found.plan.fits
    assert not found.changes


def test_changes_are_applied_in_sequence_until_it_fits(folder: Path) -> None:
    config = config_for(folder)
    config.actor.kl_loss_coef, config.rollout.gpu_memory_utilization = 0.1, "0.5"
    place = Location(device=DEVICES["A100"], ranks=2, ranks_per_node=2)
    assert not plan_of(config, shapes_of(config), place).fits
    found = advice(config, shapes_of(config), place)
    names = [change.override.partition("=")[0] for change in found.changes]
    assert {"rollout.gpu_memory_utilization", "actor.max_tokens_per_micro_batch"} <= set(names), names
    assert all(change.after < change.before for change in found.changes)
    assert len(set(names)) == len(names)
    assert found.plan.fits, names
    assert config.rollout.gpu_memory_utilization == "0.5", "the user's own is left alone"


def test_more_gpus_take_less_time(folder: Path) -> None:
    config = config_for(folder)
    # With fewer rows, shared prompts or shards on all nodes, collectives between nodes take longer than the work.
    config.model.share_prompts, config.actor.fsdp.shard_size = False, "8"
    config.data.train_batch_size = config.actor.mini_batch_size = 512
    shapes = shapes_of(config)
    few, many = (plan_of(config, shapes, h100s(ranks)).seconds for ranks in (8, 64))
    assert all(many[stage] < few[stage] for stage in ("rollout", "update_actor"))
    assert many["update_actor"] == pytest.approx(few["update_actor"] / 8, rel=0.2)


def test_an_update_uses_a_share_of_what_gpus_can(folder: Path) -> None:
    config = config_for(folder)
    shapes = shapes_of(config)
    plan = plan_of(config, shapes, h100s(8))
    found = plan.update_utilization(tokens=1e6, row_tokens=2000, seconds=14.5)
    assert found == pytest.approx(6 * 7.0e9 * 1e6 / (14.5 * 8 * 989e12), rel=0.08), "7 of 7.6 billion are multiplied"
    assert found > plan.update_utilization(tokens=1e6, row_tokens=0, seconds=14.5)
    on_cpu = replace(plan, location=replace(plan.location, device=replace(plan.location.device, kind="cpu")))
    assert on_cpu.update_utilization(tokens=1e6, row_tokens=2000, seconds=14.5) is None


def test_shared_prompts_take_less_time(folder: Path) -> None:
    config = config_for(folder)
    config.data.max_prompt_length = config.data.max_response_length = 1024
    shapes = shapes_of(config)
    plans = {}
    for share in (True, False):
        config.model.share_prompts = share
        plans[share] = plan_of(config, shapes, h100s(8))
    tokens = {share: rows_of_actor(plan).tokens for share, plan in plans.items()}
    of_tokens = (512 + 1024 / config.rollout.n) / (512 + 1024)  # half-long responses
    assert tokens[True] / tokens[False] == pytest.approx(of_tokens, rel=0.01)
    ratio = plans[True].seconds["update_actor"] / plans[False].seconds["update_actor"]
    assert of_tokens < ratio < 1.05 * of_tokens, "passes have a part that does not depend on tokens"


def rows_of_actor(plan: RunPlan) -> Rows:
    role = roles_of(plan.config, plan.shapes, plan.location)[0]
    return rows_of(plan.config, role, plan.response_tokens, epochs=1, mini_batch_size=plan.config.actor.mini_batch_size)


def test_the_command_shows_what_fits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"model.path={folder}", "data.max_response_length=4096", "cluster.workers_per_node=8"]
    assert main(["plan", "--device", "H100", *words, "actor.max_tokens_per_micro_batch=16384"]) == 0
    shown = capsys.readouterr().out
    assert "8 workers, H100, 79.6 GiB each" in shown
    assert "actor: 7.6B parameters in 28 layers" in shown
    assert "It fits: the peak is" in shown


def test_the_command_shows_what_to_change(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--device", "4090", f"model.path={folder}"]) == 1
    shown = capsys.readouterr().out
    assert "It does not fit: update_actor takes" in shown
    assert "actor.optim.offload=true" in shown
    assert "more or larger accelerators are needed" in shown


def test_the_gsm8k_recipe_fits_the_card_that_its_page_names(tmp_path: Path) -> None:
    qwen3 = {
        **QWEN2_7B,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    model = written(tmp_path / "qwen3-0.6b", qwen3)
    config = compose(str(ROOT / "recipes/gsm8k/grpo.yaml"), [f"model.path={model}"]).config
    place = Location(device=DEVICES["4090"], ranks=1, ranks_per_node=1)
    plan = plan_of(config, shapes_of(config), place)
    assert plan.shapes["actor"].num_parameters == 596_049_920  # as its makers state
    assert plan.fullest == "rollout"
    assert f"{plan.peak_bytes / GIB:.1f} GiB at most" in (ROOT / "recipes/gsm8k/README.md").read_text()
    assert plan.fits


def test_an_unknown_device_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--device", "B300", f"model.path={folder}"]) == 2
    assert "'B300' is not in the table of devices, expected one of H100, H200" in capsys.readouterr().err


def test_a_missing_model_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", f"model.path={tmp_path / 'nothing'}"]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_a_cluster_elsewhere_needs_its_devices_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"model.path={folder}", "cluster.address=10.0.0.1:6379"]
    assert main(["plan", *words]) == 2
    assert "Name them, e.g. --device H100" in capsys.readouterr().err
    assert main(["plan", "--device", "H200", "cluster.workers_per_node=8", *words]) == 0


def test_nodes_of_other_devices_are_planned_without_a_cluster(folder: Path) -> None:
    words = [f"model.path={folder}", "cluster.num_nodes=2", "cluster.workers_per_node=8"]
    assert main(["plan", "--device", "H100", *words]) == 0
    assert main(["plan", *words]) == 2


@pytest.mark.parametrize("gib", [8.0, 20.0])
def test_a_run_that_cannot_fit_is_refused_before_it_starts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, gib: float
) -> None:
    device = Device(name="small", memory_gib=gib, tflops=1, memory_gb_s=1, host_gb_s=1, peer_gb_s=1)
    monkeypatch.setattr(
        check, "location_of", lambda config, is_timed: Location(device=device, ranks=8, ranks_per_node=8)
    )
    with pytest.raises(Refused, match=rf"needs .* GiB for .*actor weights 3.5.* but each GPU has {gib:.1f}. Change: "):
        check.check_memory(config_for(folder))


def test_a_gpu_that_the_table_lacks_has_memory_but_no_seconds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verl_like.plan.location.gpus_here", lambda: Gpus(8))
    monkeypatch.setattr("verl_like.plan.command.gpus_here", lambda: Gpus(8))
    monkeypatch.setattr("verl_like.plan.location.smallest_gpu", lambda: ("NVIDIA B300", 288 * GIB))
    assert main(["plan", f"model.path={folder}"]) == 0
    shown = capsys.readouterr().out
    assert "8 workers, NVIDIA B300, 288.0 GiB each" in shown
    assert "a step: unknown" in shown
    assert "nan" not in shown


def test_a_run_that_hardly_fits_is_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(folder)
    place = location_on(config, "H100")
    place = Location(device=place.device, ranks=8, ranks_per_node=8)
    config.rollout.gpu_memory_utilization = "0.85"
    monkeypatch.setattr(check, "location_of", lambda config, is_timed: place)
    assert check.check_memory(config) is not None
    assert "stage rollout is estimated to need" in caplog.text
    assert "rollout.gpu_memory_utilization=0." in caplog.text


def test_routers_without_biases_are_found_before_workers_start(tmp_path: Path) -> None:
    for name, made in (("plain", "Qwen3MoeConfig"), ("biased", "DeepseekV3Config")):
        sizes = {
            "hidden_size": 64,
            "num_hidden_layers": 2,
            "intermediate_size": 64,
            "moe_intermediate_size": 64,
            "num_attention_heads": 4,
        }
        getattr(transformers, made)(**sizes, vocab_size=64, first_k_dense_replace=0).save_pretrained(tmp_path / name)
        config = config_for(tmp_path / name)
        config.cluster.device, config.cluster.workers_per_node, config.actor.router_bias_rate = "cpu", 1, 0.01
        if name == "biased":
            assert check.check_memory(config) is not None
        else:
            with pytest.raises(Refused, match=r"plain has no routers that choose with a bias\. Name such a model"):
                check.check_memory(config)


def test_the_memory_of_a_cpu_run_is_that_of_the_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_for(folder)
    config.cluster.device, config.cluster.workers_per_node = "cpu", 2
    monkeypatch.setattr("verl_like.plan.location.memory_gib", lambda: 24.0)
    with pytest.raises(Refused, match=r"each of 2 workers on this machine has 12\.0"):
        check.check_memory(config)


def test_more_processes_than_a_machine_without_gpus_holds_do_not_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(folder)
    config.cluster.device, config.cluster.workers_per_node = "cpu", 8
    monkeypatch.setattr("verl_like.plan.location.memory_gib", lambda: 1400.0)
    plan = check.check_memory(config)
    assert plan is not None and plan.fits_host and "processes of the run" not in caplog.text
    needed = sum(plan.host.values()) / GIB
    monkeypatch.setattr("verl_like.plan.location.memory_gib", lambda: 0.99 * needed)
    plan = check.check_memory(config)
    assert plan is not None and not plan.fits
    assert f"need {needed:.1f} GiB, but this machine has {0.99 * needed:.1f}. Lower cluster.workers" in caplog.text


def test_an_engine_without_capacity_for_a_sequence_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    # A share of 12 GiB, of which weights take 14.
    words = ["--device", "H100", f"model.path={folder}", "cluster.workers_per_node=8"]
    assert main(["plan", *words, "rollout.gpu_memory_utilization=0.15"]) == 1
    shown = capsys.readouterr().out
    assert "the engine's cache holds 0 tokens" in shown
    assert "Raise rollout.gpu_memory_utilization" in shown
    assert "It fits" not in shown
    config = config_for(folder)
    config.rollout.gpu_memory_utilization = "0.15"
    monkeypatch.setattr(check, "location_of", lambda config, is_timed: h100s(8))
    assert check.check_memory(config) is not None
    assert "holds 0 tokens, but one sequence may have 5,120" in caplog.text
    caplog.clear()
    config.rollout.backend = "hf"  # whose cache grows
    check.check_memory(config)
    assert "one sequence may have" not in caplog.text


def test_no_change_takes_the_cache_from_the_engine(folder: Path) -> None:
    found = advice(
        config_for(folder), shapes_of(config_for(folder)), Location(device=DEVICES["4090"], ranks=8, ranks_per_node=8)
    )
    assert "rollout.gpu_memory_utilization" not in {change.override.partition("=")[0] for change in found.changes}


def test_gpus_whose_driver_does_not_report_their_memory_have_no_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("verl_like.plan.location.gpus_here", lambda: Gpus(8))
    monkeypatch.setattr("verl_like.plan.location.smallest_gpu", lambda: None)
    assert check.check_memory(config_for(folder)) is None
    assert main(["plan", f"model.path={folder}"]) == 2
    assert "the GPU driver does not report them. Name them" in capsys.readouterr().err


@pytest.mark.parametrize("tokens", ["0", "-5", "100000"])
def test_a_mean_that_responses_cannot_have_is_refused(
    folder: Path, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--device", "H100", f"--response-tokens={tokens}", f"model.path={folder}"]) == 2
    assert "expected a number above 0, at most data.max_response_length" in capsys.readouterr().err


def test_the_policys_overrides_are_not_the_reward_models(folder: Path, tmp_path: Path) -> None:
    config = config_for(folder)
    config.model.override_config = {"num_hidden_layers": 4}
    config.reward.model.path = str(written(tmp_path / "reward", QWEN2_7B))
    shapes = shapes_of(config)
    assert (shapes["actor"].num_layers, shapes["reward model"].num_layers) == (4, 28)


def test_separate_engines_take_no_memory_of_the_trainer_and_a_step_takes_as_long_as_its_slower_pool(
    folder: Path,
) -> None:
    words = [f"model.path={folder}", "cluster.placement={trainer: 4, rollout: 4}"]
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)
    shared, placed, overlapping = (
        plan_of(config, shapes_of(config), location)
        for config in (
            compose(None, words[:1]).config,
            compose(None, words).config,
            compose(None, [*words, "trainer=async"]).config,
        )
    )
    assert "KV cache" in placed.stages["rollout"] and "actor weights" not in placed.stages["rollout"]
    assert "engine weights" not in placed.stages["sync"] and "engine weights" in shared.stages["sync"]
    assert placed.stages["update_actor"]["actor weights"] == pytest.approx(
        2 * shared.stages["update_actor"]["actor weights"], rel=0.01
    ), "four ranks hold what eight did"
    learning = sum(placed.seconds.values()) - placed.seconds["rollout"]
    assert placed.step_s == pytest.approx(learning + placed.seconds["rollout"])
    assert overlapping.step_s == pytest.approx(max(learning, placed.seconds["rollout"]))


def test_a_critic_in_separate_workers_takes_no_memory_of_the_trainer_and_is_sharded_over_its_own(folder: Path) -> None:
    words = [f"model.path={folder}", "algorithm=ppo", "actor.kl_loss_coef=0.1"]
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)
    shared, placed = (
        plan_of(config, shapes_of(config), location)
        for config in (
            compose(None, words).config,
            compose(None, [*words, "cluster.placement={trainer: 4, ref: 2, critic: 2}"]).config,
        )
    )
    assert not [part for part in placed.stages["update_actor"] if part.startswith(("critic", "ref"))]
    assert "critic optimiser" in shared.stages["update_actor"]
    assert not [part for part in placed.stages["update_critic"] if part.startswith(("actor", "ref", "engine"))]
    for model, stage, ranks in (
        ("actor", "update_actor", 4),
        ("critic", "update_critic", 2),
        ("ref", "ref_log_probs", 2),
    ):
        assert placed.stages[stage][f"{model} weights"] == pytest.approx(
            8 / ranks * shared.stages[stage][f"{model} weights"], rel=0.01
        )
    assert placed.seconds["values"] > 3 * shared.seconds["values"], "two workers do what eight did"


def test_teachers_run_one_after_another_each_on_its_share_of_the_rows(folder: Path) -> None:
    """With offload one is on the accelerator at a time; two names share the first model."""
    words = [f"model.path={folder}", "algorithm=distill"]
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)
    other = written(folder.parent / "other", {**QWEN2_7B, "num_hidden_layers": 14})
    several = f"ref.teachers={{math: {folder}, code: {other}, logic: {folder}}}"
    alone, kept, offloaded = (
        plan_of(config, shapes_of(config), location)
        for config in (
            compose(None, [*words, f"ref.path={folder}"]).config,
            compose(None, [*words, several]).config,
            compose(None, [*words, several, "ref.fsdp.offload_params=true"]).config,
        )
    )
    assert set(kept.shapes) == {"actor", "teacher math, logic", "teacher code"}
    weights = {name: f"{name} weights" for name in ("teacher math, logic", "teacher code")}
    for stage in ("rollout", "update_actor"):
        found = [kept.stages[stage][each] for each in weights.values()]
        assert found == pytest.approx([alone.stages[stage]["ref weights"] * share for share in (1, 0.57)], rel=0.01)
        assert not offloaded.stages[stage].keys() & set(weights.values())
    for name, each in weights.items():
        assert offloaded.stages[f"log-probs of {name}"].keys() & set(weights.values()) == {each}
    assert "ref_log_probs" not in kept.stages
    seconds = kept.seconds["log-probs of teacher math, logic"]
    assert seconds == pytest.approx(alone.seconds["ref_log_probs"] / 2, rel=0.2)
    assert offloaded.host["offloaded"] > 1.5 * 2 * alone.shapes["ref"].num_parameters
    taught = compose(None, [*words, several, "algorithm.distill_loss=jsd", "ref.fsdp.offload_params=true"]).config
    updates = plan_of(taught, shapes_of(taught), location)
    assert "log-probs of teacher code" not in updates.stages
    assert updates.stages["update_actor"].keys() >= set(weights.values())
    assert "teacher code: 4." in text(kept, advice(kept.config, kept.shapes, location))


def test_a_faster_split_is_proposed_and_none_if_the_runs_own_is_as_good(folder: Path) -> None:
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)

    def found(placement: str) -> tuple[Faster | None, float]:
        config = compose(None, [f"model.path={folder}", "trainer=async", f"cluster.placement={placement}"]).config
        shapes = shapes_of(config)
        plan = plan_of(config, shapes, location)
        return faster_split(config, shapes, location, plan), plan.step_s

    splits = {rollout: found(f"{{trainer: {8 - rollout}, rollout: {rollout}}}") for rollout in (1, 7)}
    proposed = [split for split, _ in splits.values() if split is not None]
    assert proposed, "one of the extremes must be worse than a split between them"
    best = proposed[0]
    assert all(split is None or split == best for split, _ in splits.values())
    assert best.step_s < max(step_s for _, step_s in splits.values())
    assert found(best.override.partition("=")[2]) == (None, best.step_s)


def test_without_a_placement_no_split_is_proposed(folder: Path) -> None:
    config = compose(None, [f"model.path={folder}"]).config
    location = Location(device=named("H100"), ranks=8, ranks_per_node=8)
    assert faster_split(config, shapes_of(config), location, plan_of(config, shapes_of(config), location)) is None


def test_shards_within_a_node_are_proposed_where_links_between_nodes_are_slow(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_for(folder)

    def found(device: Device, ranks: int) -> list[Faster]:
        location, shapes = Location(device=device, ranks=ranks, ranks_per_node=8), shapes_of(config)
        return faster(config, shapes, location, plan_of(config, shapes, location))

    slow = replace(named("H100"), node_gb_s=5.0)
    [change] = found(slow, 64)
    assert change.override == "actor.fsdp.shard_size=8"
    assert found(slow, 8) == [], "there is one node"
    assert found(replace(slow, node_gb_s=450.0), 64) == []
    assert found(replace(slow, memory_gib=17.0), 64) == [], "shards of eight ranks do not fit"
    before = plan_of(config, shapes_of(config), Location(device=slow, ranks=64, ranks_per_node=8)).step_s
    config.actor.fsdp.shard_size = "8"
    after = plan_of(config, shapes_of(config), Location(device=slow, ranks=64, ranks_per_node=8)).step_s
    assert after == change.step_s < 0.95 * before
    assert found(slow, 64) == [], "it is set"
    words = ["--device", "H100", f"model.path={folder}", "cluster.workers_per_node=8", "cluster.num_nodes=8"]
    assert main(["plan", *words]) == 0
    assert "faster: actor.fsdp.shard_size=8 (" in capsys.readouterr().out


def test_a_teacher_that_is_a_version_of_the_policy_is_in_the_plan(folder: Path) -> None:
    config = config_for(folder)
    config.algorithm.distill_coef, config.ref.path = 1.0, str(folder)
    plans, stages = {}, {}
    for teacher in ("ref", "base", "ema", "self"):
        config.algorithm.distill_teacher, config.data.max_privileged_context_length = teacher, 3072
        config.ref.path = str(folder) if teacher == "ref" else ""
        plans[teacher] = plan_of(config, shapes_of(config), h100s(8))
        stages[teacher] = plans[teacher].stages["ref_log_probs"]
    assert "ref" not in plans["self"].step.roles and "ref" in plans["base"].step.roles
    # Prompts of four times the length take longer.
    seconds = {teacher: plan.seconds["ref_log_probs"] for teacher, plan in plans.items()}
    assert seconds["ref"] < seconds["base"] and seconds["base"] == pytest.approx(seconds["ema"], rel=0.2)
    # An average has float32 weights: 4 bytes instead of 2 for each of 7.6 billion parameters on 8 ranks.
    names = [name for name, size in stages["ema"].items() if size > 1.9 * stages["base"].get(name, 0.0) > 0]
    difference = sum(stages["ema"][name] - stages["base"][name] for name in names)
    assert difference == pytest.approx(2 * 7_615_616_512 / 8, rel=0.01)
    batch = {teacher: plan.host["a batch"] for teacher, plan in plans.items()}
    assert batch["base"] > batch["ref"] and batch["base"] == batch["self"]
    config.algorithm.distill_loss = "jsd"
    assert plan_of(config, shapes_of(config), h100s(8)).step.roles == {"actor"}
