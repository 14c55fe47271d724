"""The judge's role, on the engine of plain transformers: what is asked, what becomes of the answer, and whose weights
answer.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests._tiny_model import END_ID, save_model, weights_of
from tests.unit._reward import messages
from verl_like.backends.model_folder import checkpoint_weights, model_folder
from verl_like.config.schema import Config, JudgeConfig, ModelConfig, RewardConfig
from verl_like.context import current
from verl_like.controller.store import StoreCounters
from verl_like.protocol import DataProto, Ragged
from verl_like.reward.scores import Scores
from verl_like.workers.reward_models.judge import JudgeRole, judge_engine
from verl_like.workers.setup import WorkerSetup

TEMPLATE = "{{ prompt }}{{ response }},{{ ground_truth }},{{ extra_info.level }}?"
CHAT = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
DIGIT = r"(\d)"


def save_judge(folder: Path, *, tied: bool, template: str = "", max_shard_size: str = "1GB") -> Path:
    """A model with weights wide enough that it does not repeat one character."""
    save_model(folder, family="qwen3", tied=tied)
    model = AutoModelForCausalLM.from_pretrained(folder)
    weights_of(model, seed=3)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if template:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("judges")
    return {
        "policy": save_model(root / "policy", family="qwen2", tied=True),
        "tied": save_judge(root / "tied", tied=True),
        "untied": save_judge(root / "untied", tied=False, max_shard_size="50KB"),
        "chat": save_judge(root / "chat", tied=True, template=CHAT),
    }


def judge_role(folders: dict[str, Path], name: str, *, rank: int = 0, **fields: Any) -> JudgeRole:
    settings: dict[str, Any] = {
        "template": TEMPLATE,
        "score_pattern": DIGIT,
        "max_score": 9,
        "max_tokens": 16,
        "max_model_len": 64,
    }
    judge = JudgeConfig(path=str(folders[name]), backend="hf", **{**settings, **fields})
    config = Config(model=ModelConfig(path=str(folders["policy"])), reward=RewardConfig(judge=judge))
    setup = WorkerSetup(config=config, rank=rank, world_size=2, device="cpu", run_id="unit", roles=frozenset())
    # The engine of one rank, whatever arguments the role gets.
    alone = replace(judge, tensor_parallel_size=1)
    return JudgeRole(setup, judge_engine(replace(setup, config=replace(config, reward=RewardConfig(judge=alone)))))


def block_of(folders: dict[str, Path], rows: list[tuple[Any, str, Any, dict[str, Any]]]) -> DataProto:
    """Rows of (prompt as the dataset has it, response of one character, ground truth, extra info)."""
    policy = AutoTokenizer.from_pretrained(folders["policy"])
    return DataProto(
        {
            "response_ids": Ragged.from_rows(
                [[*policy(response)["input_ids"], END_ID] for _, response, _, _ in rows], "int32"
            ),
            "prompt_text": ["in the policy's own template"] * len(rows),
            "reward_inputs": [
                {
                    "data_source": "x",
                    "ground_truth": ground_truth,
                    "extra_info": extra,
                    "messages": prompt,
                    "columns": {},
                }
                for prompt, _, ground_truth, extra in rows
            ],
        }
    )


def sums(count: int) -> list[tuple[Any, str, Any, dict[str, Any]]]:
    return [(f"{i}+{i}=", str(i % 10), str(2 * i), {"level": "easy"}) for i in range(count)]


@torch.no_grad()
def greedy(folder: Path, text: str, *, max_tokens: int = 16) -> tuple[str, bool]:
    """Return transformers' answer to this text, and whether it ended with the end token."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(text)["input_ids"]
    start = len(ids)
    while len(ids) < start + max_tokens and END_ID not in ids[start:]:
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tokenizer.decode(ids[start:], skip_special_tokens=True), ids[-1] == END_ID


def judged(role: JudgeRole, block: DataProto) -> Scores:
    current(StoreCounters).take()
    answer = role.judge(block)
    assert answer is not None
    assert current(StoreCounters).take() == block.nbytes
    return answer


@pytest.mark.parametrize("name", ["tied", "untied"])
def test_verdicts_and_scores_are_those_of_the_models_own_weights(folders: dict[str, Path], name: str) -> None:
    rows = sums(8)
    found = judged(judge_role(folders, name), block_of(folders, rows))
    digits = 0
    for row, (prompt, response, ground_truth, extra) in enumerate(rows):
        verdict, _ = greedy(folders[name], f"{prompt}{response},{ground_truth},{extra['level']}?")
        assert found.details[row] == {"judge_verdict": verdict}
        last = re.findall(DIGIT, verdict)[-1:]
        digits += len(last)
        if last:
            assert found.score[row] == pytest.approx(int(last[0]) / 9)
            assert messages(found)[row] == ""
        else:
            assert math.isnan(found.score[row])
    assert 0 < digits < len(rows), "both kinds of verdict are wanted"


def test_a_verdict_without_a_score_says_what_it_was_and_whether_it_was_cut(folders: dict[str, Path]) -> None:
    rows = sums(8)
    found = judged(judge_role(folders, "tied", score_pattern="never (\\d)"), block_of(folders, rows))
    assert np.isnan(found.score).all()
    for row, (prompt, response, ground_truth, extra) in enumerate(rows):
        verdict, has_ended = greedy(folders["tied"], f"{prompt}{response},{ground_truth},{extra['level']}?")
        assert found.details[row] == {"judge_verdict": verdict}
        assert messages(found)[row]
        assert ("truncated at reward.judge.max_tokens=16" in messages(found)[row]) is not has_ended


def test_a_judge_with_a_chat_template_is_asked_as_a_user(folders: dict[str, Path]) -> None:
    found = judged(judge_role(folders, "chat"), block_of(folders, sums(3)))
    expected = [greedy(folders["chat"], f"user:{i}+{i}={i},{2 * i},easy?;a:")[0] for i in range(3)]
    assert [details["judge_verdict"] for details in found.details] == expected


def test_a_prompt_of_several_messages_is_formatted_with_its_roles(folders: dict[str, Path]) -> None:
    chat = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
    found = judged(judge_role(folders, "tied"), block_of(folders, [(chat, "4", 4, {"level": "easy"})]))
    assert found.details[0]["judge_verdict"] == greedy(folders["tied"], "user: 1+1\n\nassistant: 24,4,easy?")[0]


def test_a_question_that_is_too_long_fails_alone(folders: dict[str, Path]) -> None:
    rows = sums(3)
    rows[1] = ("1+" * 30, "2", "4", {"level": "easy"})  # 60 + 1 + 3 of ",4," + 5 of "easy?"
    role = judge_role(folders, "tied")
    found = judged(role, block_of(folders, rows))
    assert (
        "the question to the judge has 69 tokens, expected 1 to 48. Raise reward.judge.max_model_len"
        in messages(found)[1]
    )
    assert math.isnan(found.score[1]) and found.details[1] == {}
    others = judged(role, block_of(folders, [rows[0], rows[2]]))
    np.testing.assert_array_equal(found.score[[0, 2]], others.score)


def test_a_row_that_the_template_cannot_be_filled_with_fails_alone(folders: dict[str, Path]) -> None:
    rows = sums(2)
    rows[0] = ("1+1=", "2", "2", {})
    found = judged(judge_role(folders, "tied"), block_of(folders, rows))
    assert "level" in messages(found)[0]
    assert found.details[0] == {} and found.details[1] != {}


def test_a_sampled_verdict_depends_on_the_question_alone(folders: dict[str, Path]) -> None:
    role = judge_role(folders, "tied", temperature=1.0)
    rows = sums(4)
    first, second = (judged(role, block_of(folders, order)) for order in (rows, [*rows[2:], *rows[:2]]))
    assert first.details[[2, 3, 0, 1]].tolist() == second.details.tolist()
    assert first.details.tolist() != judged(judge_role(folders, "tied"), block_of(folders, rows)).details.tolist()


def test_only_the_first_rank_of_an_engine_speaks(folders: dict[str, Path]) -> None:
    block = block_of(folders, sums(1))
    assert judge_role(folders, "tied", rank=1, tensor_parallel_size=2).judge(block) is None
    assert judge_role(folders, "tied", rank=1).judge(block) is not None


def test_a_pattern_without_a_group_is_refused_before_the_model_loads(folders: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"options are those of reward\.judge.*score_pattern '\\\\d' has no group"):
        judge_role(folders, "tied", score_pattern=r"\d")


# --- the weights ---


def test_files_are_read_tensor_by_tensor_with_tied_weights_under_both_names(folders: dict[str, Path]) -> None:
    stored = load_file(folders["tied"] / "model.safetensors")
    assert "lm_head.weight" not in stored
    folder = model_folder(model_path=str(folders["tied"]), tokenizer_path="", model=ModelConfig())
    weights = dict(checkpoint_weights(str(folders["tied"]), folder, dtype=torch.bfloat16, device=torch.device("cpu")))
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == folder.weight_shapes
    assert all(torch.equal(weights[name], tensor.bfloat16()) for name, tensor in stored.items())
    assert weights["lm_head.weight"] is weights["model.embed_tokens.weight"]


def refused_weights(path: Path) -> None:
    folder = model_folder(model_path=str(path), tokenizer_path="", model=ModelConfig())
    list(checkpoint_weights(str(path), folder, dtype=torch.float32, device=torch.device("cpu")))


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, family="qwen3", tied=True)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no weights in safetensors files"):
        refused_weights(tmp_path)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    save_model(tmp_path, family="qwen3", tied=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(ValueError, match="are quantised"):
        refused_weights(tmp_path)
