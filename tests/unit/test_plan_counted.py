"""The planned memory of passes, compared with what torch counts: mixtures of experts, and models of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks._allocated import allocated, sent_states_held
from tests.families.models import FAMILIES, SHAPE
from tests.families.pictures import PICTURE_FAMILIES
from tests.unit._fsdp_picture_ranks import picture
from tests.unit._fsdp_ranks import PolicyLoss, build_engine
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from verl_like.backends.fsdp.engine import recomputed_layers
from verl_like.backends.pictures import PictureReader
from verl_like.checks.experts import EXPERTS as NUMBERS_OF_EXPERTS
from verl_like.config.schema import FsdpConfig, LoraConfig, ModelConfig, OptimConfig
from verl_like.plan.memory import Sharded
from verl_like.plan.one_pass import Pass
from verl_like.plan.shape import model_shape
from verl_like.protocol import PICTURES, DataProto, Ragged

MAX_ERROR = 0.12
EXPERTS = ("Qwen3-MoE", "Mixtral", "OLMoE", "DeepSeek-V3")
NUM_ROWS, PROMPT_TOKENS, RESPONSE_TOKENS = 8, 64, 96
BUDGET_MIB = 16
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}


def write(folder: Path, family: str, *, chooses_all: bool = False) -> None:
    """Write a model of the family, wide enough that its activations are larger than what every pass has.

    Args:
        chooses_all: whether a token of a mixture is computed by all experts.
    """
    torch.manual_seed(0)
    if family in EXPERTS:
        from transformers import AutoModelForCausalLM

        shape = {**SHAPE, **WIDE, "max_position_embeddings": 1024, "initializer_range": 0.02}
        config = FAMILIES[family].config(**shape, vocab_size=512, eos_token_id=1, pad_token_id=0, dtype="float32")
        if chooses_all:
            config.num_experts_per_tok = max(getattr(config, name, 0) for name in NUMBERS_OF_EXPERTS)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    else:
        PICTURE_FAMILIES[family].write(folder)


def rows(folder: Path, family: str, *, pictures: int = 1) -> tuple[DataProto, int]:
    """Return rows of one length, and the tokens of a picture."""
    numbers = np.random.default_rng(0)
    known = ModelConfig(path=str(folder))
    prompts, features, each = [], [], 0
    if family in EXPERTS:
        prompts = [numbers.integers(3, 512, PROMPT_TOKENS).tolist() for _ in range(NUM_ROWS)]
    else:
        of_family = PICTURE_FAMILIES[family]
        reader, size = PictureReader(str(folder), model=known), of_family.sizes[-1]
        each = reader.count(*size)
        for row in range(NUM_ROWS):
            ids = [2, *[reader.token_id] * each] * pictures
            prompts.append([*ids, *[2] * (PROMPT_TOKENS - len(ids))])
            features.append({PICTURES: [picture(10 * row + number, size) for number in range(pictures)]})
    responses = Ragged.from_rows([numbers.integers(10, 16, RESPONSE_TOKENS).tolist() for _ in range(NUM_ROWS)], "int32")
    size_of = NUM_ROWS * RESPONSE_TOKENS
    columns: dict[str, Any] = {
        "prompt_ids": Ragged.from_rows(prompts, "int32"),
        "response_ids": responses,
        "response_mask": Ragged(np.ones(size_of, bool), responses.offsets),
        "advantages": Ragged(numbers.normal(size=size_of).astype(np.float32), responses.offsets),
        "uid": [str(index) for index in range(NUM_ROWS)],
    }
    return DataProto(columns | ({"features": features} if features else {})), each


def measured(folder: Path, family: str, case: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return {pass: (planned, counted)} bytes on this rank."""
    ranks = torch.distributed.get_world_size()
    fsdp = FsdpConfig(shard_size=case["shard_size"], expert_parallel=case.get("expert_parallel", False))
    # no adapters on experts, which are no linear layers
    lora = LoraConfig(rank=case.get("lora_rank", 0), targets=["q_proj", "o_proj"])
    model = {
        "gradient_checkpointing": case.get("checkpointing", "false"),
        "lora": lora,
        "freeze_vision": case.get("freeze_vision", False),
        "remove_padding": case.get("remove_padding", True),
    }
    passes = case.get("passes", 1)
    pictures = case.get("pictures", 1)
    table, each = rows(folder, family, pictures=pictures)
    tokens = NUM_ROWS * (PROMPT_TOKENS + RESPONSE_TOKENS) // passes
    engine = build_engine(folder, max_tokens=tokens, model=model, fsdp=fsdp, log_prob_chunk_mib=BUDGET_MIB)
    learner = engine.learner(OptimConfig(), total_updates=10, max_response_tokens=RESPONSE_TOKENS)
    learner.update(table, PolicyLoss())
    shape = model_shape(str(folder), ModelConfig(path=str(folder), **model))
    sharded = Sharded(
        shape=shape,
        ranks=ranks,
        itemsize=4,
        is_gpu=False,
        fsdp=fsdp,
        is_cut=fsdp.shard_size == "all",
        has_adapters=lora.rank > 0,
    )
    parts = len(shape.vision_parts)
    recomputed = recomputed_layers(str(model["gradient_checkpointing"]), engine.device, shape.num_layers + parts)
    run = Pass(
        count=passes,
        tokens=tokens,
        response_tokens=NUM_ROWS * RESPONSE_TOKENS // passes,
        logits_budget=BUDGET_MIB * 2**20,
        learns=True,
        recomputed=max(recomputed - parts, 0),
        recomputed_vision=min(recomputed, parts),
        pictures=NUM_ROWS // passes * pictures * (each > 0),
        picture_tokens=each,
    )
    with sent_states_held():
        update = allocated(lambda: learner.update(table, PolicyLoss()))
        forward = allocated(lambda: engine.forward_log_probs(table, temperature=1.0))
    return {
        "update": (sum(sharded.update(run).values()), update),
        "forward": (sum(sharded.forward(run).values()), forward),
    }


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "several-passes": {"passes": 4},
    "recomputed": {"checkpointing": "true"},
    "recomputed-passes": {"checkpointing": "true", "passes": 4},
    "adapters": {"lora_rank": 8},
    "adapters-recomputed": {"lora_rank": 8, "checkpointing": "true"},
    "padded": {"remove_padding": False},
}
OF_PICTURES: dict[str, dict[str, Any]] = {
    "frozen": {"freeze_vision": True},
    "frozen-recomputed": {"freeze_vision": True, "checkpointing": "true"},
    "two-pictures": {"pictures": 2},
}
# Small models are replicas on each rank unless the configuration says otherwise.
ALL = [
    (family, name, shard_size)
    for family in (*EXPERTS, *PICTURE_FAMILIES)
    for name in (CASES if family in EXPERTS else CASES | OF_PICTURES)
    for shard_size in ("all", "1")
]
QUICK = {
    ("Qwen3-MoE", "plain", "all"),
    ("Mixtral", "several-passes", "all"),
    ("DeepSeek-V3", "recomputed", "1"),
    ("Qwen2.5-VL", "plain", "1"),
    ("Qwen3-VL", "frozen-recomputed", "all"),
    ("LLaVA", "adapters", "1"),
}


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of models that exist already."""
    return {}


@pytest.mark.parametrize(
    ("family", "case", "shard_size"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow) for each in ALL],
)
def test_the_peaks_of_passes_are_those_that_torch_counts(
    family: str, case: str, shard_size: str, folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    if family not in folders:
        folders[family] = tmp_path_factory.mktemp(family)
        write(folders[family], family)
    found = measured(folders[family], family, (CASES | OF_PICTURES)[case] | {"shard_size": shard_size})
    for name, (planned, counted) in found.items():
        assert planned == pytest.approx(counted, rel=MAX_ERROR), name


TWO_RANKS = [
    *[(family, "plain", size) for family in ("Qwen3-MoE", *PICTURE_FAMILIES) for size in ("all", "1")],
    *[(family, "several-passes", "all") for family in EXPERTS],
    ("OLMoE", "recomputed-passes", "all"),
]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("family", "case", "shard_size"),
    [
        pytest.param(*each, marks=() if each == ("Qwen2.5-VL", "plain", "all") else pytest.mark.nightly)
        for each in TWO_RANKS
    ],
)
def test_the_peaks_of_two_ranks_are_those_that_torch_counts(
    family: str, case: str, shard_size: str, tmp_path: Path
) -> None:
    write(tmp_path, family)
    for of_rank in on_ranks(measured, tmp_path, family, CASES[case] | {"shard_size": shard_size}, world_size=2):
        for name, (planned, counted) in of_rank.items():
            assert planned == pytest.approx(counted, rel=MAX_ERROR), name


ON_THEIR_RANKS = [
    *[("Qwen3-MoE", name) for name in CASES if name != "padded"],
    *[("Mixtral", "several-passes"), ("OLMoE", "recomputed-passes"), ("DeepSeek-V3", "recomputed")],
]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("family", "case"),
    [
        pytest.param(*each, marks=() if each == ("Qwen3-MoE", "plain") else pytest.mark.nightly)
        for each in ON_THEIR_RANKS
    ],
)
def test_the_peaks_with_experts_on_their_ranks_are_those_that_torch_counts(
    family: str, case: str, tmp_path: Path
) -> None:
    """Every token chooses every expert, so that all ranks get as many tokens, as a plan assumes."""
    write(tmp_path, family, chooses_all=True)
    parallel = {"shard_size": "all", "expert_parallel": True}
    for of_rank in on_ranks(measured, tmp_path, family, CASES[case] | parallel, world_size=2):
        for name, (planned, counted) in of_rank.items():
            assert planned == pytest.approx(counted, rel=MAX_ERROR), name
