"""The reward model: its scores are those of transformers' classifier, and its role reads what the classifier was
trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerBase,
)

from tests._tiny_model import END_ID, VOCAB_SIZE, save_model
from tests.unit._fsdp_ranks import build_engine
from tests.unit._rank_processes import join_ranks, leave_ranks, on_ranks
from tests.unit._reward import messages as messages_of
from verl_like.config.schema import (
    Config,
    DataConfig,
    FsdpConfig,
    ModelConfig,
    OptimConfig,
    RewardConfig,
    RewardModelConfig,
)
from verl_like.context import current
from verl_like.controller.store import StoreCounters
from verl_like.protocol import DataProto, Ragged
from verl_like.workers.reward_models.classifier import RewardModelRole, reward_model_engine
from verl_like.workers.reward_models.inputs import ScoreInputs
from verl_like.workers.setup import WorkerSetup

LENGTHS = (1, 2, 40, 3, 17, 40, 8, 5, 29)
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.role[0] }}:{{ m.content }};{% endfor %}"
)


def save_classifier(
    folder: Path, family: str, *, num_labels: int = 1, template: str = "", bias: float | None = None
) -> Path:
    """A classifier with wide random weights and a tokenizer of single characters; with a bias its head has one."""
    save_model(folder, family=family, tied=False)
    torch.manual_seed(5)
    model = AutoModelForSequenceClassification.from_config(
        AutoConfig.from_pretrained(folder, num_labels=num_labels, dtype="float32")
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder)
    if template:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("classifiers")
    return {
        "policy": save_model(root / "policy", family="qwen2", tied=True),
        "qwen2": save_classifier(root / "qwen2", "qwen2"),
        "qwen3": save_classifier(root / "qwen3", "qwen3"),
        "chat": save_classifier(root / "chat", "qwen3", template=TEMPLATE),
        "two labels": save_classifier(root / "two", "qwen2", num_labels=2),
    }


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


def sequences() -> list[list[int]]:
    """Without the padding token, 0."""
    rng = np.random.default_rng(0)
    return [rng.integers(1, VOCAB_SIZE, length).tolist() for length in LENGTHS]


def whole(ids: list[list[int]]) -> DataProto:
    return DataProto(
        {"prompt_ids": Ragged.from_rows(ids, "int32"), "response_ids": Ragged.from_rows([[9]] * len(ids), "int32")}
    )


@torch.no_grad()
def reference(folder: Path, ids: list[list[int]]) -> list[float]:
    """Return transformers' results, one sequence at a time."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)
    return [model(torch.tensor([row])).logits.item() for row in ids]


# --- the engine ---


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
@pytest.mark.parametrize("remove_padding", [True, False])
@pytest.mark.parametrize("max_tokens", [50, 10_000])
def test_scores_equal_transformers_classifier(
    folders: dict[str, Path], name: str, remove_padding: bool, max_tokens: int
) -> None:
    engine = build_engine(
        folders[name],
        kind="classifier",
        is_frozen=True,
        max_tokens=max_tokens,
        model={"remove_padding": remove_padding},
    )
    expected = reference(folders[name], sequences())
    assert np.std(expected) > 0.1, "scores that hardly differ would show no mistake"
    np.testing.assert_allclose(engine.forward_values(whole(sequences())), expected, atol=1e-5, rtol=0)


def test_a_bias_of_the_head_counts(folders: dict[str, Path]) -> None:
    engine = build_engine(folders["qwen2"], kind="classifier", is_frozen=True)
    without = engine.forward_values(whole(sequences()))
    head = engine.module.value_head
    head.bias = torch.nn.Parameter(torch.tensor([2.5]), requires_grad=False)
    np.testing.assert_allclose(engine.forward_values(whole(sequences())), without + 2.5, atol=1e-6)


@pytest.mark.parametrize("shard_size", ["all", "1"])
def test_a_reward_model_learns_nothing_and_keeps_its_weights_in_the_dtype_of_the_forward_pass(
    folders: dict[str, Path], shard_size: str
) -> None:
    fsdp = FsdpConfig(param_dtype="bfloat16", shard_size=shard_size)
    engine = build_engine(folders["qwen2"], kind="classifier", is_frozen=True, fsdp=fsdp)
    with pytest.raises(AssertionError, match="a frozen model has no float32 master weights to update"):
        engine.learner(OptimConfig(), total_updates=1, max_response_tokens=1)
    assert all(p.dtype == torch.bfloat16 and not p.requires_grad for p in engine.module.parameters())
    np.testing.assert_allclose(
        engine.forward_values(whole(sequences())), reference(folders["qwen2"], sequences()), atol=0.3
    )


@pytest.mark.processes
def test_two_ranks_with_uneven_rows_give_the_scores_of_transformers(folders: dict[str, Path]) -> None:
    """Give the first rank all rows except one, then all, then none."""
    shares = on_ranks(scores_of_shares, folders["qwen3"], world_size=2)
    expected = reference(folders["qwen3"], sequences())
    for first, second in zip(*shares, strict=True):
        np.testing.assert_allclose(np.concatenate([first, second]), expected, atol=1e-5, rtol=0)
    assert [[len(scores) for scores in share] for share in shares] == [[8, 9, 0], [1, 0, 9]]


def scores_of_shares(folder: Path) -> list[np.ndarray]:
    engine = build_engine(folder, kind="classifier", is_frozen=True, max_tokens=50)
    ids = sequences()
    shares = [ids[:cut] if dist.get_rank() == 0 else ids[cut:] for cut in (8, 9, 0)]
    return [engine.forward_values(whole(share)) for share in shares]


@pytest.mark.parametrize(
    ("name", "message"),
    [("two labels", r"has 2 labels, expected the one of a reward model.*num_labels=1"), ("policy", r"has 2 labels")],
)
def test_a_model_with_another_number_of_labels_is_refused(folders: dict[str, Path], name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_engine(folders[name], kind="classifier", is_frozen=True)


def test_a_language_model_that_claims_one_label_has_no_head(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"lack 1 tensors.*score\.weight"):
        build_engine(
            folders["policy"], kind="classifier", is_frozen=True, model={"override_config": {"id2label": {0: "score"}}}
        )


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    config = BertConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=64, num_labels=1
    )
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"ends in dropout \(Dropout\), classifier \(Linear\), expected one linear layer called score"
    ):
        build_engine(tmp_path, kind="classifier", is_frozen=True)


# --- the role ---


def config_of(
    folders: dict[str, Path], name: str, *, apply_chat_template: bool = False, max_length: int = 64
) -> Config:
    return Config(
        model=ModelConfig(path=str(folders["policy"])),
        data=DataConfig(apply_chat_template=apply_chat_template),
        reward=RewardConfig(model=RewardModelConfig(path=str(folders[name]), max_length=max_length)),
    )


def table_of(folders: dict[str, Path], rows: list[tuple[Any, str, str]], *, ends: bool = True) -> DataProto:
    """Rows of (messages, prompt text, response text); responses end with the end token."""
    policy = AutoTokenizer.from_pretrained(folders["policy"])
    return DataProto(
        {
            "prompt_ids": Ragged.from_rows([policy(text)["input_ids"] for _, text, _ in rows], "int32"),
            "response_ids": Ragged.from_rows(
                [policy(text)["input_ids"] + [END_ID] * ends for _, _, text in rows], "int32"
            ),
            "prompt_text": [text for _, text, _ in rows],
            "reward_inputs": [
                {"data_source": "x", "ground_truth": "4", "extra_info": {}, "messages": messages, "columns": {}}
                for messages, _, _ in rows
            ],
        }
    )


def spelled(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return "".join(tokenizer.convert_ids_to_tokens(ids))


def read(
    folders: dict[str, Path], name: str, rows: list[tuple[Any, str, str]], *, ends: bool = True, **fields: Any
) -> list[tuple[str, str]]:
    """(what the reward model is given, spelled out; message) for each row."""
    ids, messages = ScoreInputs(config_of(folders, name, **fields)).read(table_of(folders, rows, ends=ends))
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    return [(spelled(tokenizer, row), message) for row, message in zip(ids, messages, strict=True)]


CHAT = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}, {"role": "user", "content": "2+2"}]


def test_a_chat_is_rendered_by_the_reward_models_own_template(folders: dict[str, Path]) -> None:
    rows = [(CHAT, "policy's rendering", "4"), ("3+3", "policy's rendering", "6")]
    found = read(folders, "chat", rows, apply_chat_template=True)
    assert found == [("u:1+1;a:2;u:2+2;a:4;", ""), ("u:3+3;a:6;", "")]


def test_without_a_template_the_policys_ids_are_read_as_they_are(folders: dict[str, Path]) -> None:
    assert read(folders, "qwen3", [("2+2=", "2+2=", "4")]) == [("2+2=4<end>", "")]
    assert read(folders, "qwen3", [("2+2=", "2+2=", "4")], ends=False) == [("2+2=4", "")]
    # Plain prompts stay plain, whatever template there is.
    assert read(folders, "chat", [("2+2=", "2+2=", "4")]) == [("2+2=4<end>", "")]


@pytest.fixture(scope="module")
def other_vocabulary(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier whose tokens 3 and 4 ("0" and "1") changed places."""
    folder = save_classifier(tmp_path_factory.mktemp("other"), "qwen2")
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"0": 3', '"0": SWAP').replace('"1": 4', '"1": 3').replace("SWAP", "4"))
    return {**folders, "other": folder}


def test_a_model_with_another_vocabulary_reads_the_same_text(other_vocabulary: dict[str, Path]) -> None:
    rows = [("1+0=", "1+0=", "1")]
    assert read(other_vocabulary, "other", rows) == [("1+0=1<end>", "")], (
        "and its own end token where the response ended"
    )
    assert read(other_vocabulary, "other", rows, ends=False) == [("1+0=1", "")]
    own, policys = (
        ScoreInputs(config_of(other_vocabulary, name)).read(table_of(other_vocabulary, rows))[0]
        for name in ("other", "qwen2")
    )
    assert own != policys


def test_a_long_sequence_loses_its_beginning(folders: dict[str, Path]) -> None:
    assert read(folders, "qwen3", [("123456789=", "123456789=", "42")], max_length=6) == [("89=42<end>", "")]


def test_padding_at_the_end_is_not_what_is_scored(folders: dict[str, Path]) -> None:
    """As in transformers, which looks for the last token that is none; many models have one token for both padding and
    end.
    """
    table = table_of(folders, [("2+2=", "2+2=", "4")], ends=False)
    padded = DataProto({**table.columns, "response_ids": Ragged.from_rows([[7, 0, 0]], "int32")})
    ids, _ = ScoreInputs(config_of(folders, "qwen3")).read(padded)
    assert ids == [[*table.ragged("prompt_ids")[0].tolist(), 7]]
    assert reference(folders["qwen3"], [[*ids[0], 0, 0]]) == pytest.approx(reference(folders["qwen3"], ids), abs=1e-6)


def role(folders: dict[str, Path], name: str, **fields: Any) -> RewardModelRole:
    setup = WorkerSetup(
        config=config_of(folders, name, **fields),
        rank=0,
        world_size=1,
        device="cpu",
        run_id="unit",
        roles=frozenset({"reward_model"}),
    )
    return RewardModelRole(setup, reward_model_engine(setup))


def test_a_block_has_the_scores_of_transformers_and_counts_its_bytes(folders: dict[str, Path]) -> None:
    rows = [("2+2=", "2+2=", "4"), ("1+2+3+4=", "1+2+3+4=", "10"), ("7=", "7=", "")]
    block = table_of(folders, rows)
    current(StoreCounters).take()
    found = role(folders, "qwen3").scores_of_block(block)
    assert found is not None
    ids = [
        [*prompt, *response]
        for prompt, response in zip(block.ragged("prompt_ids"), block.ragged("response_ids"), strict=True)
    ]
    np.testing.assert_allclose(found.score, reference(folders["qwen3"], ids), atol=1e-5)
    assert messages_of(found) == [""] * 3
    assert current(StoreCounters).take() == block.nbytes


def test_a_rank_without_a_block_has_nothing_to_say(folders: dict[str, Path]) -> None:
    assert role(folders, "qwen3").scores_of_block(None) is None


def test_a_row_that_the_template_refuses_has_no_score_and_the_others_keep_their_scores(
    folders: dict[str, Path],
) -> None:
    refused = [{"role": "system", "content": "x"}, {"role": "user", "content": "2+2"}]
    rows = [(CHAT, "", "4"), (refused, "", "4"), (CHAT, "", "4")]
    scores = role(folders, "chat", apply_chat_template=True).scores_of_block(table_of(folders, rows))
    assert np.isnan(scores.score).tolist() == [False, True, False]
    assert scores.score[0] == scores.score[2]
    assert messages_of(scores) == ["", "the reward model's chat template refused the prompt: no system", ""]


def test_an_empty_row_has_no_score(folders: dict[str, Path]) -> None:
    scores = role(folders, "qwen3").scores_of_block(table_of(folders, [("", "", "")], ends=False))
    assert np.isnan(scores.score[0])
    assert "gives no tokens for prompt and response" in messages_of(scores)[0]


def test_a_score_that_is_not_finite_is_none(folders: dict[str, Path]) -> None:
    broken = role(folders, "qwen3")
    with torch.no_grad():
        broken._engine.module.value_head.weight.fill_(float("inf"))
    scores = broken.scores_of_block(table_of(folders, [("2+2=", "2+2=", "4")]))
    assert np.isnan(scores.score[0])
    assert messages_of(scores)[0].startswith("the model gave the score ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: setattr(config.reward.model, "path", config.model.path), r"reward\.model\.path=.*has 2 labels"),
        (
            lambda config: setattr(config.reward.model, "max_length", 513),
            r"reward\.model\.max_length is 513.*has 512 positions",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_the_reward_models_words(
    folders: dict[str, Path], change: Callable[[Config], None], message: str
) -> None:
    config = config_of(folders, "qwen3")
    change(config)
    setup = WorkerSetup(
        config=config, rank=0, world_size=1, device="cpu", run_id="unit", roles=frozenset({"reward_model"})
    )
    with pytest.raises(ValueError, match=message):
        RewardModelRole(setup, reward_model_engine(setup))


def test_a_reward_model_without_a_tokenizer_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    AutoModelForSequenceClassification.from_pretrained(folders["qwen3"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"reward\.model\.path is .*which has no tokenizer"):
        ScoreInputs(config_of({**folders, "bare": tmp_path}, "bare"))
