"""A model's config.json and tokenizer.json are enough to refuse rows, engines and other models that do not fit."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.unit._weights import NO_WEIGHTS
from verl_like.checks.families import _families
from verl_like.checks.gpus import Gpus
from verl_like.checks.hub_models import check_hub_models
from verl_like.checks.models import CPU_HEAD_SIZES, MODEL_RULES
from verl_like.checks.rules import missing
from verl_like.config.problems import Refused
from verl_like.config.schema import Config

QWEN3 = {
    "model_type": "qwen3",
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "hidden_size": 128,
    "head_dim": 32,
    "vocab_size": 5,
}


def model(folder: Path, tokens: str | None = "abc", **fields: Any) -> str:
    """A model folder with these fields in its config.json and a token for each character."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(QWEN3 | fields))
    (folder / "model.safetensors").write_bytes(NO_WEIGHTS)
    if tokens is not None:
        vocabulary = {token: i for i, token in enumerate(tokens)}
        added = [{"id": len(tokens), "content": "<eos>"}]
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": added}))
    return str(folder)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration whose rows are 24 tokens long, with a model that reads 64."""
    sound = Config()
    sound.model.path = model(tmp_path / "actor")
    sound.data.max_prompt_length, sound.data.max_response_length = 8, 16
    return sound


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that answers."""
    monkeypatch.setattr("verl_like.hub.out_of_reach", lambda: None)


def problems(config: Config, *, num_gpus: int | None = 0) -> list[str]:
    return [problem for rule in MODEL_RULES for problem in rule(config, Gpus(num_gpus))]


def test_a_model_that_fits_passes(config: Config) -> None:
    assert problems(config) == []


# --- kind

BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
VISION = {
    "model_type": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "vision_config": {"a": 1},
}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            VISION,
            "which reads pictures (Qwen2_5_VLForConditionalGeneration, with vision_config in its config.json). Name a "
            "text-only language model, e.g. Qwen/Qwen3-0.6B, or a policy of the types qwen2_5_vl, qwen3_vl, llava.",
        ),
        ({"model_type": "gemma3", "text_config": {}, "vision_config": {"a": 1}}, "which reads pictures (of no stated"),
        ({"model_type": "llava_qwen2", "mm_vision_tower": "clip"}, "which reads pictures ("),
        ({"model_type": "qwen2_audio", "audio_config": {"a": 1}}, "which reads sound ("),
        (BERT, "which is an encoder (BertForMaskedLM) and generates no text, expected a decoder-only model. Name a"),
        ({"model_type": "modernbert"}, "which is an encoder ("),
        ({"model_type": "t5", "is_encoder_decoder": True}, "which is an encoder-decoder model ("),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "which is a clip (CLIPModel), which the installed"),
        (
            {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "a.B"}},
            "(a.B). Set model.trust_remote_code=true.",
        ),
    ],
)
def test_a_model_of_another_kind_is_one_sentence_from_its_config(
    config: Config, tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    config.ref.path = model(tmp_path / "other", **fields)
    (problem,) = problems(config)
    assert problem.startswith(f"ref.path is {tmp_path}/other, ") and expected in problem


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "mistral", "gpt2"])
def test_language_models_of_text_pass(config: Config, tmp_path: Path, kind: str) -> None:
    config.ref.path = model(tmp_path / "other", model_type=kind, architectures=["X"])
    assert problems(config) == []


def test_code_that_comes_with_a_model_is_trusted_where_the_user_says_so(config: Config, tmp_path: Path) -> None:
    config.ref.path = model(tmp_path / "own", model_type="own", auto_map={"AutoModelForCausalLM": "a.B"})
    config.model.trust_remote_code = True
    assert problems(config) == []


def test_a_reward_model_may_not_be_an_encoder_either(config: Config, tmp_path: Path) -> None:
    config.reward.model.path = model(
        tmp_path / "judge", **(BERT | {"architectures": ["BertForSequenceClassification"]})
    )
    (problem,) = problems(config)
    assert (
        problem.startswith("reward.model.path is") and "which is an encoder (BertForSequenceClassification)" in problem
    )
    (tmp_path / "judge/config.json").write_text(
        json.dumps(QWEN3 | {"architectures": ["Qwen3ForSequenceClassification"]})
    )
    assert problems(config) == []


def test_families_are_those_that_transformers_itself_has(tmp_path: Path) -> None:
    from transformers.models.auto import modeling_auto

    for task in ("CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION"):
        assert _families(task) == vars(modeling_auto)[f"MODEL_FOR_{task}_MAPPING_NAMES"].keys()


# --- length


def test_rows_longer_than_the_model_reads_are_refused(config: Config) -> None:
    config.data.max_response_length = 60
    assert problems(config) == [
        f"data.max_prompt_length=8 + data.max_response_length=60 are 68 tokens, but model.path={config.model.path} "
        "reads at most 64 (max_position_embeddings in its config.json). Shorten the rows, e.g. "
        "data.max_response_length=56, or use a model with a longer context."
    ]
    config.data.max_response_length = 56
    assert problems(config) == [], "the remedy works"
    config.data.max_prompt_length = 64
    assert "data.max_prompt_length=32 and data.max_response_length=32, or" in problems(config)[0]


def test_rows_of_a_teacher_that_are_longer_than_the_policy_reads_are_refused(config: Config) -> None:
    config.algorithm.distill_coef, config.algorithm.distill_teacher = 1.0, "self"
    config.data.max_privileged_context_length = 41
    assert problems(config) == [
        "data.max_prompt_length=8 + data.max_privileged_context_length=41 + data.max_response_length=16 are 65 tokens, "
        f"but model.path={config.model.path} reads at most 64 (max_position_embeddings in its config.json). Set "
        "data.max_privileged_context_length=40 or less, or use a model with a longer context."
    ]
    config.data.max_privileged_context_length = 40
    assert problems(config) == [], "the remedy works"
    config.data.max_privileged_context_length, config.algorithm.distill_teacher = 41, "ref"
    assert problems(config) == [], "another teacher sees what the policy sees"


def test_what_overrides_the_models_config_counts(config: Config) -> None:
    config.data.max_response_length = 60
    config.model.override_config = {"max_position_embeddings": 128}
    assert problems(config) == []


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_position_embeddings": 64, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, 128),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, 128),
        ({"max_position_embeddings": 64, "rope_scaling": {"type": "yarn", "factor": 2.0}}, 64),
        ({"max_position_embeddings": 64, "rope_parameters": {"rope_type": "default"}}, 64),
        ({"max_position_embeddings": 64, "rope_scaling": None}, 64),
        ({"max_position_embeddings": None, "n_positions": 32}, 32),
        ({"max_position_embeddings": 256, "seq_length": 32}, 32),
        ({"max_position_embeddings": 64, "model_max_length": 96}, 96),
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 32}}, 32),
    ],
)
def test_the_longest_row_is_the_one_that_vllm_derives(
    config: Config, fields: dict[str, Any], limit: int, tmp_path: Path
) -> None:
    config.model.path = model(tmp_path / "other", **fields)
    config.data.max_response_length = limit - 8
    assert problems(config) == []
    config.data.max_response_length += 1
    assert len(problems(config)) == 1 and f"reads at most {limit} (" in problems(config)[0]


def test_a_model_that_states_no_length_passes(config: Config, tmp_path: Path) -> None:
    config.model.path = model(tmp_path / "other", max_position_embeddings=None)
    config.data.max_response_length = 10**6
    assert problems(config) == []


@pytest.mark.parametrize("section", ["ref", "critic"])
def test_reference_and_critic_must_read_the_rows_too(config: Config, section: str, tmp_path: Path) -> None:
    vars(config)[section].path = model(tmp_path / "short", max_position_embeddings=16)
    (problem,) = problems(config)
    assert f"are 24 tokens, but {section}.path={tmp_path}/short reads at most 16" in problem


def test_a_judge_must_read_its_questions(config: Config) -> None:
    config.reward.judge.path, config.reward.judge.max_model_len = config.model.path, 65
    (problem,) = problems(config)
    assert problem.endswith("Set reward.judge.max_model_len=64 or less.")


@pytest.mark.parametrize("section", ["actor", "ref", "critic"])
def test_ranks_that_share_sequences_divide_the_heads(config: Config, section: str, tmp_path: Path) -> None:
    config.model.path = model(tmp_path / "other", num_attention_heads=6)
    config.cluster.workers_per_node = 4
    vars(config)[section].sequence_parallel_size = 4
    (problem,) = problems(config)
    assert f"{section}.sequence_parallel_size is 4, which does not divide the 6 attention heads of" in problem
    assert problem.endswith(f"Set {section}.sequence_parallel_size=3.")
    vars(config)[section].sequence_parallel_size = 2
    assert problems(config) == []


# --- what would be computed wrongly


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"logits_scaling": 8.0}, "scales its logits (logits_scaling=8.0 in its config.json)"),
        ({"logit_scale": 0.0625}, "scales its logits (logit_scale=0.0625 in its config.json)"),
        ({"quantization_config": {"quant_method": "gptq"}}, "has quantised weights"),
        ({"model_type": "gpt_oss"}, "has attention sinks"),
        ({"attn_logit_softcapping": 50.0}, "caps its attention (attn_logit_softcapping=50.0 in its config.json)"),
    ],
)
def test_a_model_whose_numbers_would_be_wrong_is_refused(
    config: Config, fields: dict[str, Any], reported: str, tmp_path: Path
) -> None:
    config.model.path = model(tmp_path / "other", **fields)
    (problem,) = problems(config)
    assert reported in problem


def test_capped_attention_is_computed_with_padding(config: Config, tmp_path: Path) -> None:
    config.model.path = model(tmp_path / "other", attn_logit_softcapping=50.0, logits_scaling=1.0)
    config.model.remove_padding = False
    assert problems(config) == []


# --- heads


def test_the_head_sizes_are_those_of_the_installed_vllm() -> None:
    backend = pytest.importorskip("vllm.v1.attention.backends.cpu_attn")
    assert list(CPU_HEAD_SIZES) == backend.CPUAttentionBackend.get_supported_head_sizes()


@pytest.mark.parametrize("fields", [{"head_dim": 48}, {"head_dim": None, "hidden_size": 192, "model_type": "llama"}])
def test_a_head_size_that_vllm_on_cpu_lacks_is_refused(config: Config, fields: dict[str, Any], tmp_path: Path) -> None:
    config.model.path = model(tmp_path / "other", **fields)
    (problem,) = problems(config)
    assert problem.startswith(f"the attention heads of model.path={tmp_path}/other have 48 dimensions, but vLLM on CPU")
    assert problem.endswith("Set rollout.backend=hf, or run on a GPU.")
    assert problems(config, num_gpus=1) == []
    config.rollout.backend = "hf"
    assert problems(config) == []


def test_tensor_parallelism_that_does_not_divide_the_heads_is_refused(config: Config) -> None:
    config.rollout.tensor_parallel_size = 3
    (problem,) = problems(config)
    assert problem.startswith("rollout.tensor_parallel_size is 3, which does not divide the 4 attention heads of ")
    assert problem.endswith("Set rollout.tensor_parallel_size=2.")


# --- tokens


def test_a_reference_with_other_tokens_is_refused(config: Config, tmp_path: Path) -> None:
    config.ref.path = model(tmp_path / "ref", tokens="acb")
    (problem,) = problems(config)
    assert problem == (
        f"ref.path is {tmp_path}/ref, to which 2 token ids of the tokenizer {config.model.path} mean other text (1 is "
        "'c' there and 'b' here). Set ref.path to a model with this tokenizer."
    )


def test_the_reference_of_dpo_is_checked_like_that_of_a_run(config: Config, tmp_path: Path) -> None:
    config.dpo.ref_path = model(tmp_path / "ref", tokens="acb")
    (problem,) = problems(config)
    assert problem.startswith(f"dpo.ref_path is {tmp_path}/ref, to which 2 token ids")
    config.dpo.ref_path = str(tmp_path / "nowhere")
    (problem,) = missing(config)
    assert problem.startswith(f"dpo.ref_path is {tmp_path}/nowhere, but there is no such folder")


def test_every_teacher_is_checked_like_a_reference(config: Config, tmp_path: Path) -> None:
    config.ref.teachers = {"math": config.model.path, "code": model(tmp_path / "code", tokens="acb")}
    (problem,) = problems(config)
    assert problem.startswith(f"ref.teachers.code is {tmp_path}/code, to which 2 token ids of the tokenizer")
    assert problem.endswith("Set ref.teachers.code to a model with this tokenizer.")
    config.ref.teachers["code"] = model(tmp_path / "small", vocab_size=3, max_position_embeddings=16)
    short, lacking = problems(config)
    assert f"but ref.teachers.code={tmp_path}/small reads at most 16" in short
    assert lacking.startswith(f"ref.teachers.code is {tmp_path}/small, which has embeddings of 3 tokens")
    config.ref.teachers["code"] = str(tmp_path / "nowhere")
    (problem,) = missing(config)
    assert problem.startswith(f"ref.teachers.code is {tmp_path}/nowhere, but there is no such folder")


def test_the_heads_of_every_teacher_are_divided(config: Config, tmp_path: Path) -> None:
    config.ref.teachers = {"math": config.model.path, "code": model(tmp_path / "code", num_attention_heads=6)}
    config.cluster.workers_per_node = config.ref.sequence_parallel_size = 4
    (problem,) = problems(config)
    assert f"does not divide the 6 attention heads of {tmp_path}/code. Set ref.sequence_parallel_size=3" in problem


def test_a_model_of_the_same_tokens_needs_embeddings_of_all(config: Config, tmp_path: Path) -> None:
    config.ref.path = model(tmp_path / "ref", vocab_size=3)
    (problem,) = problems(config)
    assert problem.startswith(f"ref.path is {tmp_path}/ref, which has embeddings of 3 tokens")


def test_a_critic_without_embeddings_of_all_tokens_is_refused(config: Config, tmp_path: Path) -> None:
    config.critic.path = model(tmp_path / "critic", tokens="ab", vocab_size=3)
    (problem,) = problems(config)
    assert "2 token ids" not in problem and "mean other text (2 is '<eos>' there and 'c' here)" in problem
    (tmp_path / "critic/tokenizer.json").unlink()
    (problem,) = problems(config)
    assert problem.startswith(f"critic.path is {tmp_path}/critic, which has embeddings of 3 tokens (vocab_size in its")
    assert "makes ids up to 3. Set critic.path to" in problem


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(config: Config, tmp_path: Path) -> None:
    config.model.tokenizer_path = model(tmp_path / "tokenizer", tokens="abcdefgh")
    (problem,) = problems(config)
    assert problem.startswith(f"model.path is {config.model.path}, to which 1 token ids of the tokenizer")
    (tmp_path / "actor/tokenizer.json").unlink()
    (problem,) = problems(config)
    assert "has embeddings of 5 tokens" in problem and "makes ids up to 8" in problem


def test_a_token_that_only_the_actor_has_is_no_conflict(config: Config, tmp_path: Path) -> None:
    actor = json.loads((tmp_path / "actor/tokenizer.json").read_text())
    actor["added_tokens"].append({"id": 4, "content": "<pad>"})
    (tmp_path / "actor/tokenizer.json").write_text(json.dumps(actor))
    config.ref.path = model(tmp_path / "ref")
    assert problems(config) == []


# --- files


def test_a_folder_whose_config_is_broken_or_without_weights_is_refused(config: Config, tmp_path: Path) -> None:
    config.ref.path = model(tmp_path / "ref")
    assert missing(config) == []
    (tmp_path / "ref/config.json").write_text("[]")
    (tmp_path / "ref/model.safetensors").unlink()
    assert missing(config) == [
        f"ref.path is {tmp_path}/ref, whose config.json is not a JSON mapping. Copy the model again, or name another.",
        f"ref.path is {tmp_path}/ref, a folder without weights in safetensors files (model*.safetensors). Copy the "
        "model again; to convert weights of another format, load and save them with transformers.",
    ]


def weights(folder: Path, **shapes: list[int]) -> Path:
    """A safetensors file with tensors of zeros in the folder."""
    place, head = 0, {}
    for name, shape in shapes.items():
        end = place + 4 * math.prod(shape)
        head[name.replace("__", ".")] = {"dtype": "F32", "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(head).encode()
    file = folder / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(place))
    return file


def test_a_file_of_weights_that_is_cut_off_is_refused_by_its_length(config: Config) -> None:
    file = weights(Path(config.model.path), model__norm__weight=[128])
    assert missing(config) == []
    whole = file.read_bytes()
    for kept, found in (
        (len(whole) - 1, f"has {len(whole) - 1:,} bytes, but its tensors end at {len(whole):,}"),
        (20, "is cut off after 20 bytes, within its header"),
        (0, "is cut off after 0 bytes, within its header"),
    ):
        file.write_bytes(whole[:kept])
        assert missing(config) == [
            f"model.path is {config.model.path}, whose model.safetensors {found}. Copy the model again."
        ]


@pytest.mark.parametrize("content", [b"PK\x03\x04" + bytes(100), (2).to_bytes(8, "little") + b"[]", b"\x80\x02}q" * 9])
def test_what_is_no_safetensors_file_is_refused(config: Config, content: bytes) -> None:
    (Path(config.model.path) / "model.safetensors").write_bytes(content)
    (problem,) = missing(config)
    assert "whose model.safetensors does not begin as a safetensors file does. Copy the model again." in problem


def test_every_shard_of_an_index_is_checked_and_nothing_else(config: Config) -> None:
    folder = Path(config.model.path)
    weights(folder, a=[2]).rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00001-of-00001.safetensors"}}')
    (folder / "model-old.safetensors").touch()
    assert missing(config) == []
    (folder / "model-00001-of-00001.safetensors").write_bytes(b"")
    (problem,) = missing(config)
    assert "whose model-00001-of-00001.safetensors is cut off" in problem


def test_weights_of_another_model_than_the_config_says_are_refused(config: Config) -> None:
    weights(Path(config.model.path), model__embed_tokens__weight=[5, 128])
    assert missing(config) == []
    weights(Path(config.model.path), model__embed_tokens__weight=[7, 128])
    (problem,) = missing(config)
    assert "model.embed_tokens.weight is [7, 128], and vocab_size and hidden_size are [5, 128]. Copy it" in problem


def test_a_hub_name_is_known_where_the_cache_holds_it(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    config.model.path, config.data.max_response_length = "someone/model", 60
    assert problems(config) == [] and missing(config) == []
    snapshots = tmp_path / "hub/models--someone--model/snapshots"
    snapshots.mkdir(parents=True)
    model(snapshots / "abc123")
    (tmp_path / "hub/models--someone--model/refs").mkdir()
    (tmp_path / "hub/models--someone--model/refs/main").write_text("abc123\n")
    (problem,) = problems(config)
    assert "model.path=someone/model reads at most 64" in problem


@pytest.mark.usefixtures("reached")
def test_a_hub_name_that_cannot_be_reached_is_refused_before_ray_starts(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(name: str, file: str) -> None:
        assert file == "config.json"
        if name == "nobody/nothing":
            raise FileNotFoundError("404 Client Error.\nmore that nobody reads")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    check_hub_models(config)
    config.ref.path, config.critic.path = "nobody/nothing", "someone/model"
    with pytest.raises(Refused) as caught:
        check_hub_models(config)
    assert caught.value.problems == (
        "ref.path is nobody/nothing, but the hub gave no config.json of that name (404 Client Error.). Correct the "
        "name or give a folder; where a model needs permission, run `hf auth login`; where the hub is out of reach, "
        "name a mirror in HF_ENDPOINT.",
    )
    monkeypatch.setenv("VERL_USE_MODELSCOPE", "True")
    with pytest.raises(Refused, match=r"VERL_USE_MODELSCOPE is verl's: `modelscope download` a model, and give the"):
        check_hub_models(config)


@pytest.mark.usefixtures("reached")
def test_what_the_hub_gave_is_held_against_the_rows(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = tmp_path / "hub/models--someone--model"

    def download(name: str, file: str) -> None:
        (cached / "snapshots").mkdir(parents=True)
        (cached / "refs").mkdir()
        (cached / "refs/main").write_text("abc123")
        model(cached / "snapshots/abc123", max_position_embeddings=16)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    config.model.path = "someone/model"
    config.data.train_files = ["train.parquet"]
    with pytest.raises(Refused, match=r"model\.path=someone/model reads at most 16"):
        check_hub_models(config)
