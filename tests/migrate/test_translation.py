"""The translation of settings of verl, EasyR1 and OpenRLHF."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.checks.cluster import only_on_gpus
from verl_like.checks.rules import contradictions
from verl_like.cli import main
from verl_like.config.compose import compose, read
from verl_like.config.foreign_command import read_command, write_recipe
from verl_like.config.options import option_at
from verl_like_migrate.migration import Migration, migrate, translated
from verl_like_migrate.peers import PEERS
from verl_like_migrate.programs import run_of
from verl_like_migrate.settings import read_words
from verl_like_migrate.tables import KINDS, table
from verl_like_migrate.translation import CONVERTERS, CRITIC_ESTIMATORS, Translation, translate

HERE = Path(".")
A = "actor_rollout_ref.actor"
R = "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"


def of_verl(*words: str) -> Translation:
    return translated("verl", read_words("verl", words, folder=HERE))


def of_openrlhf(line: str) -> Translation:
    return translated("openrlhf", read_words("openrlhf", line.split(), folder=HERE))


def of_easyr1(*words: str) -> Translation:
    return translated("easyr1", read_words("easyr1", words, folder=HERE))


@pytest.mark.parametrize("peer", PEERS)
def test_what_a_table_names_is_here(peer: str) -> None:
    known = table(peer)
    entries = [*known.exact.values(), *known.patterns]
    renamed = [entry for entry in entries if entry.kind == "renamed"]
    assert [entry for entry in renamed if option_at(entry.to) is None] == []
    assert {entry.to for entry in entries if entry.kind == "converted"} == set(CONVERTERS[peer])
    assert {entry.kind for entry in entries} == set(KINDS)
    named = [*known.defaults, *(key for keys in known.aliases.values() for key in keys)]
    assert [key for key in named if known.entry(key) is None and option_at(key) is None] == []


def test_critics_exist_where_an_estimator_reads_values() -> None:
    assert {name for name, entry in ADVANTAGES.items() if "values" in entry.needs} == set(CRITIC_ESTIMATORS)


@pytest.mark.parametrize("peer", PEERS)
def test_its_defaults_alone_are_a_configuration_here(peer: str) -> None:
    found = translate(table(peer), {})
    assert not found.lines and not found.settings and not found.problems
    words = [
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in found.defaults.items()
    ]
    config = compose(None, [word.replace("True", "true").replace("False", "false") for word in words]).config
    assert config.data.train_batch_size == {"verl": 1024, "easyr1": 512, "openrlhf": 1024}[peer]


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["data.train_files=a.parquet"], {"data.train_files": ["a.parquet"]}),
        (["data.train_files=['a.parquet','b.parquet']"], {"data.train_files": ["a.parquet", "b.parquet"]}),
        (
            ["trainer.rollout_data_dir=/tmp/rollouts", "trainer.log_val_generations=4"],
            {"trainer.num_samples_to_save": -1},
        ),
        (["trainer.log_val_generations=4"], {"trainer.num_samples_to_save": 4}),
        (["trainer.log_val_generations=0"], {}),
        (["trainer.max_actor_ckpt_to_keep=null"], {"trainer.max_checkpoints": 0}),
        (
            [f"{A}.ppo_micro_batch_size=64", f"{A}.ulysses_sequence_parallel_size=2", "trainer.nnodes=2"],
            {
                "actor.max_tokens_per_micro_batch": str(64 * 2 // 16 * 1024),
                "actor.sequence_parallel_size": 2,
                "cluster.num_nodes": 2,
            },
        ),
        (
            [f"{A}.ppo_micro_batch_size=2", "critic.ppo_micro_batch_size_per_gpu=2"],
            {"actor.max_tokens_per_micro_batch": "1024", "critic.max_tokens_per_micro_batch": "2048"},
        ),
        (
            ["data.train_max_samples=1000", "data.val_max_samples=null"],
            {"data.train_max_samples": 1000, "data.val_max_samples": -1},
        ),
        ([f"{A}.optim.lr=1e-6"], {"actor.optim.lr": 1e-6}),
        (
            ["+data.apply_chat_template_kwargs.enable_thinking=False"],
            {"data.chat_template_kwargs.enable_thinking": False},
        ),
        (["trainer.save_freq=-1", "trainer.total_training_steps=null"], {"trainer.save_freq": 0}),
        (["trainer.logger=['console','file','wandb']"], {"trainer.loggers": ["console", "jsonl", "wandb"]}),
        (["trainer.logger=console"], {"trainer.loggers": ["console"]}),
        (["trainer.logger=['swanlab','trackio']"], {"trainer.loggers": ["swanlab", "trackio"]}),
        (["algorithm.adv_estimator=grpo_vectorized"], {"algorithm.adv_estimator": "grpo"}),
        ([f"{A}.policy_loss.loss_mode=vanilla"], {"actor.policy_loss": "ppo"}),
        ([f"{A}.kl_loss_type=low_var_kl"], {"actor.kl_loss_type": "k3"}),
        ([f"{A}.use_kl_loss=True"], {"actor.kl_loss_coef": 0.001}),
        ([f"{A}.use_kl_loss=True", f"{A}.kl_loss_coef=0.1"], {"actor.kl_loss_coef": 0.1}),
        ([f"{A}.use_kl_loss=False", f"{A}.kl_loss_coef=0.1"], {"actor.kl_loss_coef": 0.0}),
        (["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.kl_coef=0.2"], {"algorithm.kl_coef": 0.2}),
        (
            ["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.type=adaptive"],
            {"algorithm.kl_coef": 0.001, "algorithm.kl_target": 0.1, "algorithm.kl_horizon": 10000},
        ),
        (["data.filter_overlong_prompts=True"], {"data.overlong_prompts": "drop"}),
        (["data.truncation=left"], {"data.overlong_prompts": "truncate"}),
        ([f"{A}.clip_ratio=0.3"], {"actor.clip_ratio_low": 0.3, "actor.clip_ratio_high": 0.3}),
        (
            [f"{A}.clip_ratio=0.3", f"{A}.clip_ratio_high=0.28"],
            {"actor.clip_ratio_low": 0.3, "actor.clip_ratio_high": 0.28},
        ),
        ([f"{A}.fsdp_config.fsdp_size=-1"], {"actor.fsdp.shard_size": "all"}),
        ([f"{A}.fsdp_config.fsdp_size=8"], {"actor.fsdp.shard_size": "8"}),
        ([f"{A}.optim.betas=[0.9,0.95]"], {"actor.optim.beta1": 0.9, "actor.optim.beta2": 0.95}),
        # a step has 1024 / 256 updates
        ([f"{A}.optim.lr_warmup_steps=10"], {"actor.optim.warmup_steps": 40}),
        ([f"{A}.optim.lr_warmup_steps_ratio=0.1"], {"actor.optim.warmup_frac": 0.1}),
        # 40 rows of 512 + 512 tokens
        ([f"{A}.ppo_micro_batch_size_per_gpu=40"], {"actor.max_tokens_per_micro_batch": "40960"}),
        (
            [f"{A}.use_dynamic_bsz=True", f"{A}.ppo_max_token_len_per_gpu=24000"],
            {"actor.max_tokens_per_micro_batch": "24000", "ref.max_tokens_per_micro_batch": "24000"},
        ),
        (
            ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.target_modules=all-linear"],
            {"model.lora.rank": 8, "model.lora.targets": ["all-linear"]},
        ),
        (["actor_rollout_ref.model.enable_gradient_checkpointing=True"], {"model.gradient_checkpointing": "true"}),
        ([f"{R}.val_kwargs.do_sample=True", f"{R}.val_kwargs.temperature=0.6"], {"rollout.val.temperature": 0.6}),
        ([f"{R}.val_kwargs.n=16"], {"rollout.val.temperature": 0.0, "rollout.val.n": 1}),
        (
            [f"{R}.val_kwargs.n=16", f"{R}.val_kwargs.do_sample=True", f"{R}.val_kwargs.temperature=1.0"],
            {"rollout.val.temperature": 1.0, "rollout.val.n": 16},
        ),
        (["trainer.test_freq=False"], {"trainer.test_freq": 0}),
        (["trainer.experiment_name=grpo/Qwen3-8B"], {"trainer.experiment_name": "grpo_Qwen3-8B"}),
        (["ray_kwargs.ray_init.object_store_memory=2147483648"], {"cluster.object_store_memory_gib": 2.0}),
        ([f"{A}.use_gpg_loss=True"], {"actor.policy_loss": "gpg"}),
        ([f"{R}.engine_kwargs.vllm.swap_space=4"], {"rollout.engine_kwargs.swap_space": 4}),
        ([f"{R}.name=sglang"], {"rollout.backend": "vllm"}),
        (["custom_reward_function.path=r.py"], {"reward.function": "r.py:compute_score"}),
        (
            ["reward.custom_reward_function.path=r.py", "reward.custom_reward_function.name=f"],
            {"reward.function": "r.py:f"},
        ),
        (["custom_reward_function.path=file:///a/r.py"], {"reward.function": "/a/r.py:compute_score"}),
        (["+custom_reward_function.reward_kwargs.alpha=0.5"], {"reward.function_kwargs.alpha": 0.5}),
        (["+reward.custom_reward_function.reward_kwargs={alpha:0.5}"], {"reward.function_kwargs.alpha": 0.5}),
        (
            ["reward_model.reward_manager=batch", "+reward_model.reward_kwargs.alpha=0.5"],
            {"reward.function_kwargs.alpha": 0.5},
        ),
        (
            [
                "data.max_response_length=64",
                "+reward.reward_kwargs.max_resp_len=${data.max_response_length}",
                "+reward.reward_kwargs.overlong_buffer_cfg.enable=False",
            ],
            {"data.max_response_length": 64, "algorithm.overlong_buffer_len": 0},
        ),
        (["reward.reward_manager.name=rate_limited", "+reward.max_concurrent=4"], {"reward.max_concurrency": 4}),
        (["reward_model.enable=True", "reward_model.model.path=rm"], {"reward.model.path": "rm"}),
        (
            [
                "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True",
                "+reward_model.reward_kwargs.overlong_buffer_cfg.len=64",
            ],
            {"algorithm.overlong_buffer_len": 64, "algorithm.overlong_penalty_factor": 1.0},
        ),
        (["trainer.default_local_dir=ckpts/p/gsm8k"], {"trainer.output_dir": "ckpts/p"}),
        (
            ["trainer.default_local_dir=ckpts", "trainer.experiment_name=x"],
            {"trainer.output_dir": "ckpts", "trainer.experiment_name": "x"},
        ),
        (["trainer.default_hdfs_dir=hdfs://name:9000/p/gsm8k"], {"trainer.remote_dir": "hdfs://name:9000/p"}),
        (["trainer.default_hdfs_dir=/p/runs"], {"trainer.remote_dir": "hdfs:///p/runs"}),
        (["trainer.default_hdfs_dir=null"], {"trainer.remote_dir": ""}),
        (["trainer.resume_mode=disable"], {"trainer.resume": "never"}),
        (["trainer.resume_mode=resume_path", "trainer.resume_from_path=a/b"], {"trainer.resume": "a/b"}),
        (["algorithm.use_pf_ppo=True", "+algorithm.pf_ppo.reweight_method=max_min"], {"algorithm.pf_ppo": "max_min"}),
        (
            ["+algorithm.filter_groups.enable=True", "+algorithm.filter_groups.max_num_gen_batches=0"],
            {"algorithm.filter_groups": True},
        ),
        (
            ["data.max_prompt_length=8", f"{A}.ppo_mini_batch_size=${{data.max_prompt_length}}"],
            {"data.max_prompt_length": 8, "actor.mini_batch_size": 8},
        ),
        (["reward.timeout_s=20"], {"reward.timeout_s": 20}),
        ([f"{A}.optim.lr=1e-5", "actor.optim.lr=1e-4"], {"actor.optim.lr": 1e-4}),
    ],
)
def test_settings_of_verl(words: list[str], ours: dict[str, Any]) -> None:
    found = of_verl(*words)
    assert {name: value for name, value in found.settings.items() if name in ours} == ours
    others = {"ref.max_tokens_per_micro_batch", "critic.max_tokens_per_micro_batch"}
    assert set(found.settings) - set(ours) <= others and not found.problems


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["rollout_correction.rollout_is=token"], {"level": "token"}),
        (
            ["rollout_correction.rollout_is=sequence", "rollout_correction.rollout_is_threshold=5"],
            {"level": "sequence", "upper": 5.0},
        ),
        # verl 0.9: IcePop
        (
            ["rollout_correction.rollout_is=token", "rollout_correction.rollout_is_threshold=0.5_4.0"],
            {"level": "token", "mode": "mask", "lower": 0.5, "upper": 4.0},
        ),
        # verl 0.6.1: the lower bound is the inverse of the upper one, which also bounds the weights
        (
            ["rollout_correction.rollout_rs=geometric", "rollout_correction.rollout_rs_threshold=1.25"],
            {"level": "off", "rejection": "geometric", "rejection_upper": 1.25, "rejection_lower": 0.8},
        ),
        (
            ["rollout_correction.rollout_rs=sequence", "rollout_correction.rollout_is_threshold=4.0"],
            {"level": "off", "upper": 4.0, "rejection": "sequence", "rejection_upper": 4.0, "rejection_lower": 0.25},
        ),
        (
            [
                "rollout_correction.rollout_rs=token",
                "rollout_correction.rollout_rs_threshold=2",
                "rollout_correction.rollout_rs_threshold_lower=0.1",
            ],
            {"level": "off", "rejection": "token", "rejection_upper": 2.0, "rejection_lower": 0.1},
        ),
        # verl 0.7 bounds the inverse of the ratio
        (
            ["rollout_correction.rollout_rs=seq_mean_k1", "rollout_correction.rollout_rs_threshold=0.8_2.0"],
            {"level": "off", "rejection": "geometric", "rejection_upper": 1.25, "rejection_lower": 0.5},
        ),
        # verl 0.6.0, where the threshold alone only measures
        (["rollout_is_threshold=2.0"], {"level": "off"}),
        (
            ["rollout_is=True", "rollout_is_threshold=4.0", "rollout_is_mode=mask"],
            {"level": "token", "mode": "mask", "upper": 4.0, "lower": 0.25, "veto_threshold": 1e-4},
        ),
    ],
)
def test_corrections_of_verls_versions(words: list[str], ours: dict[str, Any]) -> None:
    found = of_verl(*(f"algorithm.{word}" for word in words))
    settings = {**found.defaults, **found.settings}
    made = {name: value for name, value in settings.items() if name.startswith(CORRECTION)}
    assert made == {f"{CORRECTION}.{name}": value for name, value in ours.items()} and not found.problems


def test_a_cap_from_before_verls_corrections_is_one() -> None:
    made = of_verl(f"{A}.tis_imp_ratio_cap=10.0").settings
    assert (made[f"{CORRECTION}.level"], made[f"{CORRECTION}.upper"]) == ("token", 10.0)
    assert of_verl(f"{A}.tis_imp_ratio_cap=-1").settings[f"{CORRECTION}.level"] == "off"


def test_what_a_script_leaves_out_is_as_in_verl() -> None:
    found = of_verl("algorithm.adv_estimator=grpo")
    assert found.defaults["actor.clip_ratio_dual"] == 3.0 and found.defaults["rollout.val.temperature"] == 0.0
    assert found.defaults["trainer.total_epochs"] == 30 and "actor.epochs" not in found.defaults
    assert "data.train_batch_size" not in of_verl("data.train_batch_size=8").defaults
    assert "rollout.n" not in of_verl(f"{R}.n=8").defaults


def test_a_critic_has_the_actors_mini_batches_and_is_left_out_where_there_is_none() -> None:
    assert of_verl(f"{A}.ppo_mini_batch_size=64").defaults["critic.mini_batch_size"] == 64
    assert "critic.mini_batch_size" not in of_verl(f"{A}.ppo_mini_batch_size=32").defaults, "which is ours too"
    found = of_verl("algorithm.adv_estimator=grpo", "critic.optim.lr=1e-5", f"{A}.ppo_mini_batch_size=64")
    assert not [name for name in (*found.defaults, *found.settings) if name.startswith("critic.")]
    assert [line.kind for line in found.lines if line.key == "critic.optim.lr"] == ["without effect"]


@pytest.mark.parametrize(
    ("word", "reported"),
    [
        (f"{R}.multi_turn.enable=True", "verl_like trains on single-turn responses"),
        ("data.custom_cls.path=x.py", "data.custom_dataset=path.py:name is called with each entry"),
        (f"{A}.strategy=megatron", "FSDP is the only strategy"),
        (f"{A}.ppo_mini_bacth_size=3", f"Did you mean {A}.ppo_mini_batch_size?"),
        ("algorithm.rollout_correction.loss_type=reinforce", "Choose the loss in actor.policy_loss"),
        ("reward_model.reward_manager=mine", "name the scoring function in custom_reward_function.path"),
        ("reward.reward_manager.source=importlib", "name the scoring function in custom_reward_function.path"),
        ("custom_reward_function.path=pkg://my.rewards", "write the path of its .py file"),
        ("reward.reward_kwargs.max_resp_len=64", "full penalty applies at data.max_response_length=512"),
        ("data.audio_key=sounds", "write the files without such rows"),
        ("data.mm_processor_kwargs.max_pixels=9", "Set it in the model's preprocessor_config.json"),
        ("reward.max_rpm=60", "remote_http has requests_per_s"),
    ],
)
def test_unavailable_settings_are_reported_with_a_replacement(word: str, reported: str) -> None:
    [problem] = of_verl(word).problems
    assert problem.startswith(word.partition("=")[0]) and reported in problem


@pytest.mark.parametrize(
    "word",
    [
        f"{R}.multi_turn.enable=False",
        f"{A}.strategy=fsdp2",
        f"{A}.profiler.enable=False",
        *(f"reward_model.reward_manager={name}" for name in ("naive", "dapo", "batch", "prime")),
        "reward.reward_manager.name=remote",
        "data.audio_key=audios",
        "data.mm_processor_kwargs={}",
        "data.return_multi_modal_inputs=True",
        f"{R}.engine_kwargs.vllm.disable_mm_preprocessor_cache=True",
    ],
)
def test_what_asks_for_nothing_passes(word: str) -> None:
    found = of_verl(word)
    assert [line.kind for line in found.lines] == ["without effect"] and not found.problems


def test_two_settings_of_one_option_are_reported() -> None:
    found = of_verl(f"{A}.grad_clip=1.0", f"{A}.optim.clip_grad=0.5")
    [problem] = found.problems
    assert "sets actor.optim.max_grad_norm=1.0, but actor_rollout_ref.actor.optim.clip_grad sets 0.5" in problem
    assert not of_verl(f"{A}.grad_clip=1.0", f"{A}.optim.clip_grad=1.0").problems


@pytest.mark.parametrize(
    "words",
    [
        [f"{A}.ppo_micro_batch_size_per_gpu=many"],
        [f"{A}.optim.betas=[0.9]"],
        ["algorithm.kl_ctrl=null", "algorithm.use_kl_in_reward=True"],
        ["reward_model.overlong_buffer.enable=True"],
        [f"{A}.ppo_mini_batch_size=0", f"{A}.optim.lr_warmup_steps=3"],
    ],
)
def test_a_value_that_cannot_be_converted_is_reported(words: list[str]) -> None:
    assert any("its value cannot be read" in problem for problem in of_verl(*words).problems)


def test_an_empty_value_that_others_follow_from_is_named() -> None:
    found = of_verl("trainer.nnodes=", f"{A}.ppo_micro_batch_size_per_gpu=8")
    assert f"{A}.ppo_micro_batch_size_per_gpu=8: trainer.nnodes is empty; set it." in found.empty
    assert not found.problems


def test_with_adapters_the_reference_has_no_settings_and_without_them_they_have_none() -> None:
    ref = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
    with_adapters = of_verl("actor_rollout_ref.model.lora_rank=8", f"{A}.use_kl_loss=True", f"{ref}=4")
    assert not [name for name in with_adapters.settings if name.startswith("ref.")]
    assert "ref.max_tokens_per_micro_batch" in of_verl(f"{A}.use_kl_loss=True", f"{ref}=4").settings
    [alpha] = of_verl("actor_rollout_ref.model.lora_alpha=0").lines
    assert (alpha.kind, alpha.why) == ("without effect", "the run has no adapters")


def test_keys_that_are_taken_away_leave_their_default_too() -> None:
    assert "actor.clip_ratio_dual" in of_verl().defaults
    assert "actor.clip_ratio_dual" not in of_verl(f"~{A}.clip_ratio_c").defaults


def test_options_of_hydra_say_nothing_about_a_run_but_which_trainer_it_is() -> None:
    given = read_words(
        "verl", ["--config-path=x", "--config-name", "ppo_trainer", "hydra.run.dir=y", "data.seed=1"], folder=HERE
    )
    assert given.values == {"data.seed": 1} and len(given.notes) == 2
    assert given.notes[0] == "x/ppo_trainer.yaml: the table of verl's defaults is used instead of this file."
    given = read_words("verl", ["--config-path=nowhere", "--config-name=mine", "data.seed=1"], folder=HERE)
    found = translated("verl", given)
    assert found.problems[0].startswith("--config-name=nowhere/mine.yaml: this file is neither in the working folder")
    assert found.settings == {"trainer.seed": 1}
    with pytest.raises(ValueError, match=r"selects another training backend"):
        read_words("verl", ["--config-name=ppo_megatron_trainer.yaml"], folder=HERE)


def test_a_custom_configuration_is_read_before_the_command(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "mine.yaml").write_text(
        "hydra: {searchpath: [x]}\ndefaults: [ppo_trainer, _self_]\ndata: {train_batch_size: 64, seed: 7}\n"
    )
    words = ["data.seed=8", f"--config-path={tmp_path}/config", "--config-name=mine"]
    for found in (words, ["--config-path", "./config", "-cn", "mine.yaml", "data.seed=8"]):
        given = read_words("verl", found, folder=tmp_path)
        assert given.values == {"data.train_batch_size": 64, "data.seed": 8} and not given.notes


def test_a_reference_to_an_unset_value_is_reported() -> None:
    with pytest.raises(ValueError, match=r"refers to another setting that is not set.*Write the value instead"):
        of_verl("data.max_prompt_length=${foo.bar}")


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("--pretrain Qwen/Qwen3-0.6B", {"model.path": "Qwen/Qwen3-0.6B"}),
        ("--actor.model_name_or_path m --actor.adam.lr 5e-7", {"model.path": "m", "actor.optim.lr": 5e-7}),
        ("--rollout_batch_size 64 --n_samples_per_prompt 8", {"data.train_batch_size": 64, "rollout.n": 8}),
        (
            "--train_batch_size 128 --n_samples_per_prompt 8",
            {"actor.mini_batch_size": 16, "critic.mini_batch_size": 16, "rollout.n": 8},
        ),
        ("--advantage_estimator group_norm", {"algorithm.adv_estimator": "grpo"}),
        ("--advantage_estimator reinforce", {"algorithm.adv_estimator": "reinforce_plus_plus"}),
        ("--advantage_estimator group_norm --no_advantage_std_norm", {"algorithm.divide_by_std": None}),
        # flags before 0.11 apply to actor and critic
        (
            "--advantage_estimator gae --l2 0.1 --lr_warmup_ratio 0.2 --max_norm 2.0 --max_epochs 2",
            {
                "actor.optim.weight_decay": 0.1,
                "critic.optim.weight_decay": 0.1,
                "critic.optim.warmup_frac": 0.2,
                "critic.optim.max_grad_norm": 2.0,
                "actor.epochs": 2,
                "critic.epochs": 2,
            },
        ),
        ("--policy_loss_type gspo", {"actor.policy_loss": "gspo", "actor.loss_aggregation": "seq-mean-token-mean"}),
        ("--prompt_max_len 100", {"data.max_prompt_length": 100, "data.max_response_length": 1024}),
        ("--generate_max_len 4096", {"data.max_prompt_length": 1024, "data.max_response_length": 4096}),
        # 1,024 prompts of 12 responses are split into parts: 8 or 16 prompts are closest to 128 responses
        ("--train_batch_size 128 --n_samples_per_prompt 12", {"actor.mini_batch_size": 8}),
        ("--eval_steps 10", {"trainer.test_freq": None}),
        ("--eval_steps 10 --eval_dataset v.jsonl", {"trainer.test_freq": 10}),
        ("--reward_pretrain r --remote_rm_url http://h:1/r", {"reward.model.path": None}),
        (
            "--algo.advantage.is_correction_level token",
            {f"{CORRECTION}.mode": "mask", f"{CORRECTION}.lower": 0.5, f"{CORRECTION}.upper": 5.0},
        ),
        (
            "--algo.advantage.is_correction_level seq --algo.advantage.is_correction_threshold 0.9 1.1",
            {
                f"{CORRECTION}.level": "token",
                f"{CORRECTION}.rejection": "geometric",
                f"{CORRECTION}.rejection_lower": 0.9,
                f"{CORRECTION}.rejection_upper": 1.1,
            },
        ),
        (
            "--enable_vllm_is_correction --vllm_is_truncated_threshold 0.5 4.0",
            {f"{CORRECTION}.level": "token", f"{CORRECTION}.mode": "truncate", f"{CORRECTION}.upper": 4.0},
        ),
        ("--advantage_estimator dr_grpo", {"algorithm.adv_estimator": "grpo", "algorithm.divide_by_std": False}),
        ("--eps_clip_low_high 0.2 0.3", {"actor.clip_ratio_low": 0.2, "actor.clip_ratio_high": 0.3}),
        (
            "--prompt_max_len 100 --generate_max_len 200",
            {"data.max_prompt_length": 100, "data.max_response_length": 200},
        ),
        (
            "--data.max_len 300 --rollout.max_new_tokens 200",
            {"data.max_prompt_length": 100, "data.max_response_length": 200},
        ),
        (
            "--init_kl_coef 0.1 --use_kl_loss --kl_estimator k3",
            {"actor.kl_loss_coef": 0.1, "actor.kl_loss_type": "k3", "algorithm.kl_coef": 0.0},
        ),
        (
            "--remote_rm_url http://h:1/r",
            {
                "reward.function": "remote_http",
                "reward.function_kwargs": {"url": "http://h:1/r", "protocol": "openrlhf"},
            },
        ),
        (
            "--prompt_data a.jsonl,b.jsonl --input_key q",
            {"data.train_files": ["a.jsonl", "b.jsonl"], "data.prompt_key": "q"},
        ),
        (
            "--prompt_data a.jsonl,b.jsonl --prompt_data_probs 0.7,0.3",
            {"data.train_files": ["a.jsonl", "b.jsonl"], "data.train_weights": [0.7, 0.3]},
        ),
        (
            "--prompt_data a/b,c.parquet --prompt_split validation --eval_dataset d/e",
            {"data.train_files": ["hf:a/b:validation", "c.parquet"], "data.val_files": ["hf:d/e:train"]},
        ),
        ("--max_samples 500", {"data.train_max_samples": 500, "data.val_max_samples": 500}),
        ("--data.max_samples 100000000", {"data.train_max_samples": -1}),
        (
            "--gradient_checkpointing --packing_samples --zero_stage 3",
            {"model.gradient_checkpointing": "true", "model.remove_padding": True},
        ),
        ("--reward_clip_range -10 10", {"algorithm.reward_clip": 10.0}),
        ("--wandb_run_name 0711_1 --use_wandb key", {"trainer.experiment_name": "0711_1"}),
        ("--wandb_run_name on", {"trainer.experiment_name": "on"}),
        ("--actor_learning_rate 5e-7", {"actor.optim.lr": 5e-7}),
        ("--input_template Q:{}", {"data.format_prompt": "Q:{{ content }}"}),
        ("--input_template Q:{} --apply_chat_template", {"data.format_prompt": None}),
        ("--advantage_estimator gae --reward_pretrain r", {"reward.model.path": "r", "critic.path": "r"}),
        (
            "--advantage_estimator gae --reward_pretrain r --critic_pretrain c",
            {"reward.model.path": "r", "critic.path": "c"},
        ),
        ("--advantage_estimator rloo --reward_pretrain r", {"reward.model.path": "r", "critic.path": None}),
    ],
)
def test_flags_of_openrlhf(line: str, ours: dict[str, Any]) -> None:
    found = of_openrlhf(line)
    assert {name: found.settings.get(name) for name in ours} == ours and not found.problems


def test_our_own_options_may_stand_among_flags() -> None:
    found = of_openrlhf("--packing_samples reward.timeout_s=20 --seed 3 rollout.n=2")
    assert found.settings["model.remove_padding"] is True
    assert (found.settings["reward.timeout_s"], found.settings["rollout.n"]) == (20, 2)
    with pytest.raises(ValueError, match="foo comes before the first flag"):
        of_openrlhf("foo --seed 3")


@pytest.mark.parametrize(
    "words",
    [
        ["trainer.resume_mode=foo"],
        ["data.truncation=foo"],
        [f"{A}.use_kl_loss=maybe"],
        ["algorithm.use_kl_in_reward=True", "algorithm.kl_ctrl.type=foo"],
    ],
)
def test_values_unknown_to_verl_are_reported(words: list[str]) -> None:
    assert of_verl(*words).problems


@pytest.mark.parametrize("option", ["--cfg=job", "--info", "-m", "--multirun"])
def test_options_by_which_no_run_starts_are_refused(option: str) -> None:
    with pytest.raises(ValueError, match="that starts no run, or several"):
        read_words("verl", ["data.seed=1", option], folder=HERE)


def test_files_that_are_not_yaml_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    for words in (["config=bad.yaml"], ["worker.rollout.n=[1"]):
        with pytest.raises(ValueError, match="cannot be read as YAML"):
            read_words("easyr1", words, folder=tmp_path)


def test_a_flag_with_a_template_is_one_text() -> None:
    words = ["--input_template", "User: {}\nAssistant: "]
    found = translated("openrlhf", read_words("openrlhf", words, folder=HERE))
    assert found.settings["data.format_prompt"] == "User: {{ content }}\nAssistant: "


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("--input_template User: {} Assistant:", "it has several words; quote it as one"),
        ("--input_key problem target", "data.prompt_key is a single text: quote its words as one"),
        ("--reward_pretrain a,b", "it names several models; verl_like uses one"),
        ("--remote_rm_url http://a,http://b", "it names several; verl_like calls one function or server"),
    ],
)
def test_openrlhf_lists_with_several_values_are_reported(line: str, reported: str) -> None:
    [problem] = of_openrlhf(line).problems
    assert reported in problem


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["data.rollout_batch_size=64"], {"data.train_batch_size": 64}),
        (
            ["data.train_files=hiyouga/math12k@train", "data.val_files=val.parquet@test"],
            {"data.train_files": ["hf:hiyouga/math12k:train"], "data.val_files": ["val.parquet"]},
        ),
        (["worker.actor.global_batch_size=32"], {"actor.mini_batch_size": 32}),
        (["algorithm.disable_kl=true"], {"algorithm.kl_coef": 0.0, "actor.kl_loss_coef": 0.0}),
        (
            ["algorithm.use_kl_loss=true", "algorithm.kl_penalty=low_var_kl", "algorithm.kl_coef=0.01"],
            {"actor.kl_loss_coef": 0.01, "actor.kl_loss_type": "k3", "algorithm.kl_coef": 0.0},
        ),
        (["worker.reward.reward_function=r.py:compute_score"], {"reward.function": "r.py:compute_score"}),
        (["trainer.val_freq=5", "trainer.save_limit=-1"], {"trainer.test_freq": 5, "trainer.max_checkpoints": 0}),
        (["worker.critic.loss_avg_mode=seq"], {"actor.loss_aggregation": None}),
        (["worker.actor.micro_batch_size_per_device_for_update=2"], {"actor.max_tokens_per_micro_batch": "2048"}),
        (["data.val_batch_size=-1"], {"data.val_batch_size": None}),
        (["trainer.total_episodes=2"], {"trainer.total_epochs": 2}),
        (["worker.actor.optim.strategy=adamw_bf16"], {}),
        (["worker.actor.model.lora.rank=16"], {"model.lora.rank": 16}),
        (["data.mini_rollout_batch_size=1536", "trainer.max_try_make_batch=10"], {"algorithm.max_num_gen_batches": 30}),
        (
            ["worker.ref.fsdp.enable_cpu_offload=true", "worker.ref.offload.offload_params=true"],
            {"ref.fsdp.cpu_offload": True, "ref.fsdp.offload_params": None},
        ),
        (["worker.rollout.val_override_config.temperature=0.5"], {"rollout.val.temperature": 0.5}),
    ],
)
def test_settings_of_easyr1(words: list[str], ours: dict[str, Any]) -> None:
    found = of_easyr1(*words)
    assert {name: found.settings.get(name) for name in ours} == ours and not found.problems


def test_easyr1_corrects_nothing_and_scales_adapters_by_its_own_default() -> None:
    found = of_easyr1("worker.actor.model.lora.rank=16", "algorithm.adv_estimator=gae")
    assert found.defaults[f"{CORRECTION}.level"] == "off" and found.defaults["model.lora.alpha"] == 64
    assert found.defaults["critic.optim.weight_decay"] == 0.01


def test_an_estimator_that_only_centres_is_reported() -> None:
    problems = of_openrlhf("--advantage_estimator gae --no_advantage_std_norm").problems
    assert problems and "OpenRLHF centres gae without dividing it" in problems[0]


def test_easyr1_reads_its_file_and_then_the_command(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("data: {rollout_batch_size: 64, seed: 7}\nworker: {rollout: {n: 4}}\n")
    given = read_words("easyr1", ["config=config.yaml", "data.seed=8"], folder=tmp_path)
    assert given.values == {"data.rollout_batch_size": 64, "data.seed": 8, "worker.rollout.n": 4}
    [problem] = translated("easyr1", read_words("easyr1", ["config=other.yaml"], folder=tmp_path)).problems
    assert problem.startswith("config=other.yaml: this file is neither in the working folder")


def words_of(command: list[str], peer: str) -> list[str] | None:
    run = run_of(command, peer)
    return None if run is None else run.words


def test_a_command_is_known_by_its_program() -> None:
    assert words_of(["python3", "-u", "-m", "verl.trainer.main_ppo", "a=1"], "verl") == ["a=1"]
    assert words_of(["python", "recipe/dapo/main_dapo.py", "a=1"], "verl") == ["a=1"]
    assert words_of(
        ["ray", "job", "submit", "--", "python3", "-m", "openrlhf.cli.train_ppo_ray", "--x"], "openrlhf"
    ) == ["--x"]
    assert words_of(["python3", "-m", "fork.recipe.dapo.src.main_dapo", "a=1"], "verl") == ["a=1"]
    assert words_of(["python3", "-m", "verl.trainer.main_ppo"], "easyr1") is None
    assert words_of(["deepspeed", "--module", "openrlhf.cli.train_ppo", "--x"], "openrlhf") == ["--x"]
    assert words_of(["./main_ppo.py", "a=1"], "verl") == ["a=1"]
    assert words_of(["python3", "-m", "verl.trainer.main", "a=1"], "easyr1") == ["a=1"]


@pytest.mark.parametrize(
    "command",
    [
        ["pkill", "-f", "verl.trainer.main_ppo"],
        ["sudo", "pkill", "-9", "-f", "main_ppo"],
        ["grep", "main_ppo"],
        ["echo", "python3", "-m", "verl.trainer.main_ppo", "a=1"],
        ["cp", "-r", "verl/trainer/main_ppo.py", "backup"],
        ["nano", "verl/trainer/main_ppo.py"],
    ],
)
def test_a_command_that_only_speaks_of_the_program_is_another(command: list[str]) -> None:
    assert words_of(command, "verl") is None


def test_the_run_is_the_command_that_says_something(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "pkill -f verl.trainer.main_ppo\npython3 -m verl.trainer.main_ppo\n"
        'srun bash -c "ray start --head; python3 -m verl.trainer.main_ppo data.seed=3"\n'
    )
    found = migrate("verl", tmp_path / "run.sh", [], environment={})
    assert found.translation.settings == {"trainer.seed": 3}
    assert not [note for note in found.notes if "runs; this is the first" in note]


@pytest.mark.parametrize(
    ("peer", "line", "ours"),
    [
        ("verl", "data.seed=3 +trainer.mine=1 trainer.total_epochs=2 data.shuffle=False", {"trainer.seed": 3}),
        ("easyr1", "data.seed=3 worker.rollout.n=4 trainer.total_epochs=2", {"rollout.n": 4}),
        ("openrlhf", "--seed 3 --pretrain m --n_samples_per_prompt 4", {"rollout.n": 4}),
    ],
)
def test_a_custom_program_is_recognised_by_its_arguments(
    peer: str, line: str, ours: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(
        f"python3 -m my.prepare --seed 1\nCUDA_VISIBLE_DEVICES=0 torchrun --nnodes=1 -m my.train {line}\n"
    )
    found = migrate(peer, tmp_path / "run.sh", [], environment={})
    assert ours.items() <= found.translation.settings.items()
    assert found.notes == [
        f"torchrun --nnodes=1 -m my.train is not a program of {peer}: only its settings are read, as {peer}'s."
    ]


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ('if [ "$NODE_RANK" -eq 0 ]; then RUN; fi', "NODE_RANK is not set; the rank of the first node, 0, is assumed"),
        ("JOB=$(ray job submit -- RUN | grep id)", "is not executed"),
        ('words="trainer.experiment_name=x_$(date) RUN"\nenv $words', "$(date) is not executed"),
    ],
)
def test_a_run_is_found_wherever_a_script_starts_it(script: str, note: str, tmp_path: Path) -> None:
    run = "python3 -m verl.trainer.main_ppo data.seed=3"
    (tmp_path / "run.sh").write_text(script.replace("RUN", run))
    found = migrate("verl", tmp_path / "run.sh", [], environment={})
    assert found.translation.settings == {"trainer.seed": 3}
    assert any(note in each for each in found.notes)


def test_a_script_is_read_beyond_an_exit_for_missing_arguments(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        'case "$1" in a) n=1 ;; *) echo "give a" ; exit 2 ;; esac\npython3 -m verl.trainer.main_ppo data.seed=3\n'
    )
    found = migrate("verl", tmp_path / "run.sh", [], environment={})
    assert found.translation.settings == {"trainer.seed": 3}
    assert "line 1: exit is ignored: the checks before it are assumed to succeed" in found.notes
    assert not [note for note in migrate("verl", tmp_path / "run.sh", ["a"], environment={}).notes if "exit" in note]


SCRIPT = """set -x
MODEL=${MODEL:-some/model}
n=4
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files=$HOME/train.parquet \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.rollout.n=$n \\
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((n * 1024)) \\
    actor_rollout_ref.actor.use_dynamic_bsz=True \\
    trainer.experiment_name=mine "$@"
"""


@pytest.fixture
def migrated(tmp_path: Path) -> Migration:
    (tmp_path / "run.sh").write_text(SCRIPT)
    return migrate("verl", tmp_path / "run.sh", ["trainer.total_epochs=2"], environment={"HOME": "/home/me"})


def test_a_script_becomes_a_recipe_that_says_where_each_line_is_from(migrated: Migration, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(migrated.recipe())
    config = compose(str(recipe), []).config
    assert config.data.train_files == ["/home/me/train.parquet"] and config.model.path == "some/model"
    assert (config.rollout.n, config.trainer.total_epochs, config.actor.max_tokens_per_micro_batch) == (4, 2, "4096")
    [line] = [line for line in migrated.recipe().splitlines() if line.strip().startswith("path:")]
    assert line.endswith("# actor_rollout_ref.model.path")
    assert "# verl's default" in migrated.recipe()
    assert "| `actor_rollout_ref.rollout.n=4` | `rollout.n=4` |" in migrated.table()


def test_the_result_of_several_settings_is_reported_for_the_most_similar_one() -> None:
    words = [f"{A}.ppo_micro_batch_size_per_gpu=2", f"{A}.use_dynamic_bsz=False", "algorithm.adv_estimator=gae"]
    lines = {line.key: line for line in of_verl(*words, "critic.ppo_micro_batch_size_per_gpu=4").lines}
    assert lines["critic.ppo_micro_batch_size_per_gpu"].settings == {"critic.max_tokens_per_micro_batch": "4096"}
    assert "actor.max_tokens_per_micro_batch" in lines[f"{A}.ppo_micro_batch_size_per_gpu"].settings
    assert lines[f"{A}.use_dynamic_bsz"].settings == {}
    assert lines[f"{A}.use_dynamic_bsz"].why.startswith("goes into actor.max_tokens_per_micro_batch, ")


def test_a_recipe_that_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT)
    out = tmp_path / "mine.yaml"
    assert main(["migrate", "--from", "verl", "--out", str(out), str(tmp_path / "run.sh")]) == 0
    assert f"Run:    verl-like train {out}" in capsys.readouterr().out
    assert main(["migrate", "--from", "verl", "--out", str(out), str(tmp_path / "run.sh")]) == 0, "the same again"
    out.write_text("mine: now")
    assert main(["migrate", "--from", "verl", "--out", str(out), str(tmp_path / "run.sh")]) == 2
    assert "exists with other content" in capsys.readouterr().err
    assert out.read_text() == "mine: now"


def test_a_recipe_of_a_yaml_file_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("data: {seed: 3}\n")
    assert main(["migrate", "--from", "verl", "run.yaml"]) == 0
    assert compose("run.verl_like.yaml", []).config.trainer.seed == 3


def test_a_folder_is_no_name_of_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT)
    assert main(["migrate", "--from", "verl", "--out", str(tmp_path), str(tmp_path / "run.sh")]) == 2
    assert "which is a folder; expected the name of a YAML file" in capsys.readouterr().err


def test_settings_known_only_by_running_a_command_are_noted() -> None:
    given = read_words("verl", ["$(cat options.txt)", "data.seed=1"], folder=HERE)
    assert given.values == {"data.seed": 1}
    assert given.notes == ["$(cat options.txt): its output would be settings; write these settings instead."]


def test_a_recipe_without_unavailable_settings_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_text("actor_rollout_ref: {rollout: {n: 3, multi_turn: {enable: true}}}\n")
    out = tmp_path / "mine.yaml"
    assert main(["migrate", "--from", "verl", "--out", str(out), str(tmp_path / "run.yaml")]) == 1
    assert out.read_text().startswith("# Unsupported: actor_rollout_ref.rollout.multi_turn.enable=true")
    assert compose(str(out), []).config.rollout.n == 3


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("echo hello", "starts no known program of verl"),
        ("python3 -m other.program a=1", "starts no known program"),
        (
            "source run_of_mine.sh",
            r"starts no known program .* Note on this script: line 1: source run_of_mine.sh is not read",
        ),
    ],
)
def test_a_script_that_starts_another_program_is_reported(tmp_path: Path, text: str, reported: str) -> None:
    (tmp_path / "run.sh").write_text(text)
    with pytest.raises(ValueError, match=reported):
        migrate("verl", tmp_path / "run.sh", [], environment={})
    with pytest.raises(ValueError, match="found no file"):
        migrate("verl", tmp_path / "other.sh", [], environment={})


def test_a_verl_command_is_a_configuration_and_all_errors_are_reported_together() -> None:
    words = ["algorithm.adv_estimator=grpo", f"{R}.n=0", f"{R}.multi_turn.enable=True", "trainer.n_gpus_per_node=1"]
    composed, problems = read_command("verl", words)
    assert len(problems) == 2 and "multi_turn" in problems[0]
    assert "rollout.n is 0 (verl's actor_rollout_ref.rollout.n), but must be a number above 0." in problems[1]
    assert composed.config.actor.clip_ratio_dual == 3.0
    assert composed.origins["actor.clip_ratio_dual"] == "verl's default"
    assert not [text for text in contradictions(composed.config, num_devices=2) if "critic" in text]


def test_what_only_gpus_have_is_left_out_where_there_is_none() -> None:
    words = [f"{A}.fsdp_config.optimizer_offload=True", "trainer.n_gpus_per_node=8", "cluster.device=cpu"]
    composed, problems = read_command("verl", words, only_on_gpus=only_on_gpus)
    assert not problems
    assert (composed.config.actor.optim.offload, composed.config.cluster.workers_per_node) == (False, 0)
    composed, _ = read_command("verl", [*words, "cluster.workers_per_node=2"], only_on_gpus=only_on_gpus)
    assert composed.config.cluster.workers_per_node == 2, "one of our options is meant"
    assert read_command("verl", words)[0].config.cluster.workers_per_node == 8


def test_the_same_command_starts_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--from", "verl", "--config-name=ppo_trainer", "data.train_files=missing.parquet"]) == 2
    assert "data.train_files holds missing.parquet, which does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [f"{A}.fsdp_config.optimizer_offload=True", "trainer.n_gpus_per_node=8", "trainer.nnodes=2"],
        ["trainer.n_gpus_per_node=4", f"{A}.fsdp_config.param_offload=True", "algorithm.adv_estimator=grpo"],
        ["trainer.n_gpus_per_node=4", "cluster.workers_per_node=2"],
        ["algorithm.adv_estimator=grpo"],
    ],
)
def test_a_recipe_and_the_same_command_agree_where_there_is_no_gpu(words: list[str], tmp_path: Path) -> None:
    words = [*words, "cluster.device=cpu", "data.train_files=train.parquet"]
    script, recipe = tmp_path / "run.sh", tmp_path / "mine.yaml"
    script.write_text(f"python3 -m verl.trainer.main_ppo {' '.join(words)}")
    text, status = write_recipe("verl", script, [], out=recipe, only_on_gpus=only_on_gpus)
    assert status == 0
    assert compose(str(recipe), []).config == read_command("verl", words, only_on_gpus=only_on_gpus)[0].config
    # verl's defaults assume GPUs; options of verl_like in a command are kept.
    assert ("dropped, because this machine has no GPU: " in text) == ("cluster.workers_per_node=2" not in words)


def test_an_empty_variable_leaves_a_question_and_no_refusal(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo trainer.nnodes=$NODES data.train_batch_size=$BATCH "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.model.path=$MODEL"
    )
    found = migrate("verl", script, [], environment={})
    assert found.translation.problems == []
    recipe = found.recipe()
    assert "# Check: data.train_batch_size=: it is empty; set data.train_batch_size=...\n" in recipe
    assert "# Check: line 1: NODES is not set; an empty value is assumed\n" in recipe
    assert "train_batch_size: ''" not in recipe and "Unsupported" not in recipe
    (tmp_path / "run.yaml").write_text(recipe)
    compose(str(tmp_path / "run.yaml"), [])


def test_an_empty_value_on_the_command_line_is_refused() -> None:
    _, problems = read_command("verl", ["data.train_batch_size="])
    assert problems == ["data.train_batch_size=: it is empty; set data.train_batch_size=..."]


@pytest.mark.parametrize(
    ("peer", "line", "reported"),
    [
        ("verl", "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_files=a model.path=b c.d=e",
         "verl's fsdp_sft_trainer, whose settings are not read: use `verl-like sft"),
        ("verl", "torchrun -m verl.trainer.sft_trainer data.train_files=a data.val_files=b data.max_length=1",
         "verl's sft_trainer, .*`verl-like sft"),
        ("verl", "python3 -m verl.trainer.main_generation trainer.nnodes=1 data.path=a rollout.n=4 model.path=b",
         "verl's main_generation, .*`verl-like generate"),
        ("verl", "python3 -m verl.trainer.main_eval data.path=a", "verl's main_eval, .*`verl-like rescore"),
        ("verl", "python -m verl.model_merger merge --backend fsdp", "verl's model_merger, .*`verl-like export"),
        ("openrlhf", "deepspeed --module openrlhf.cli.train_kto --max_len 2048", "train_kto, .*`verl-like dpo"),
    ],
)  # fmt: skip
def test_a_program_for_another_task_is_named(peer: str, line: str, reported: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(line)
    with pytest.raises(ValueError, match=reported):
        migrate(peer, tmp_path / "run.sh", [], environment={})


def test_a_script_that_also_trains_supervised_is_read_for_its_run(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "torchrun -m verl.trainer.fsdp_sft_trainer data.train_files=a data.max_length=1 trainer.total_epochs=1\n"
        "python3 -m verl.trainer.main_ppo data.seed=3"
    )
    assert migrate("verl", tmp_path / "run.sh", [], environment={}).translation.settings == {"trainer.seed": 3}


def test_the_budget_of_log_probs_is_the_actors_if_it_has_none() -> None:
    longest = ["data.max_prompt_length=100", "data.max_response_length=100"]
    ours = "actor.max_tokens_per_micro_batch"
    assert of_verl(f"{R}.log_prob_micro_batch_size_per_gpu=4", *longest).settings[ours] == "800"
    assert (
        of_verl(f"{R}.log_prob_use_dynamic_bsz=True", f"{R}.log_prob_max_token_len_per_gpu=4096", *longest).settings[
            ours
        ]
        == "4096"
    )
    both = of_verl(f"{R}.log_prob_micro_batch_size_per_gpu=4", f"{A}.ppo_micro_batch_size_per_gpu=2", *longest)
    assert both.settings[ours] == "400"


@pytest.mark.parametrize(
    ("word", "ours"),
    [
        ("learning_rate=1e-5", "write actor.optim.lr=1e-05."),
        ("num_generations=4", "write rollout.n=4."),
        ("max_completion_length=64", "write data.max_response_length=64."),
        ("beta=0.04", "write actor.kl_loss_coef=0.04."),
        ("epsilon=0.2", "write actor.clip_ratio_low and actor.clip_ratio_high."),
        ("per_device_train_batch_size=8", "write data.train_batch_size, and actor.mini_batch_size"),
        ("lr_scheduler_type=constant_with_warmup", "write actor.optim.schedule=constant."),
        ("attn_implementation=flash_attention_2", "write model.attention=flash."),
        ("trainer.num_train_epochs=3", "write trainer.total_epochs=3."),
        ("use_vllm=true", "has no effect in verl_like: vLLM runs within the workers"),
    ],
)
def test_a_name_of_trl_is_refused_with_what_to_write(word: str, ours: str) -> None:
    _, problems = read(None, [word])
    assert len(problems) == 1
    assert "it is trl's name" in problems[0] and ours in problems[0]


def test_what_the_table_of_trl_names_is_here() -> None:
    entries = table("trl").exact.values()
    assert len(entries) > 80
    assert [entry.to for entry in entries if entry.kind == "renamed" and option_at(entry.to) is None] == []
    assert [entry.pattern for entry in entries if option_at(entry.pattern) is not None] == []


def test_the_page_on_trl_says_what_the_table_says() -> None:
    page = (Path(__file__).parents[2] / "docs/from_trl.md").read_text()
    named = set(re.findall(r"`([a-z_0-9]+)`", page))
    known = table("trl").exact
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    of_peer = [name for row in rows for name in re.findall(r"`([a-z_0-9]+)", row.split("|")[1])]
    # Sampling settings, and arguments of TRL's trainer and of its loop of tools, which are no keys of its commands.
    others = ("temperature", "top_p", "top_k", "tools", "environment_factory", "max_tool_calling_iterations")
    assert [name for name in of_peer if name not in known and name not in others] == []
    ours = [name for row in rows for name in re.findall(r"`([a-z_]+\.[a-z_.0-9]+)", row.split("|")[2])]
    assert ours and [name for name in ours if option_at(name) is None and "NAME" not in name] == []
    assert {"learning_rate", "beta", "epsilon"} <= named


def test_distillation_is_named_with_its_options_and_why_a_divergence_is_over_the_vocabulary() -> None:
    [problem] = of_verl("distillation.enabled=true").problems
    assert "Set algorithm.distill_coef and name the teacher in ref.path." in problem
    assert "under a reverse KL over a teacher's top-k tokens" in problem
    assert of_verl("distillation.enabled=false").problems == []


@pytest.mark.parametrize(("mode", "expected"), [("R3", True), ("disabled", False)])
def test_replay_of_the_engines_experts_is_an_option_here(mode: str, expected: bool) -> None:
    found = of_verl(f"{A}.router_replay.mode={mode}", f"{R}.enable_rollout_routing_replay={str(expected).lower()}")
    assert found.settings["rollout.router_replay"] is expected
