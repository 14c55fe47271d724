"""The recipes' data and model: what they hold, and that validation does not leak into training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForCausalLM

from recipes.arithmetic import model as arithmetic_model
from recipes.arithmetic import prepare as arithmetic
from recipes.code import prepare as code
from recipes.geo3k import prepare as geo3k
from recipes.gsm8k import prepare as gsm8k
from recipes.hints import prepare as hints
from recipes.math import prepare as maths
from recipes.math import prepare_dapo as dapo
from recipes.reward_model import prepare as ultrafeedback
from tests.unit._published_rows import write_published
from verl_like.config.compose import compose
from verl_like.config.schema import DataConfig
from verl_like.data import reasoning_gym
from verl_like.data.files import read_rows
from verl_like.data.prompts import PromptDataset
from verl_like.data.templates import load_tokenizer
from verl_like.reward.resolve import resolve
from verl_like.training.sft_rows import sft_rows

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"
PUBLISHED = {"question": "How many?", "answer": "2+2 = <<2+2=4>>4\n#### 1,004"}


@pytest.fixture(scope="module")
def arithmetic_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arithmetic")
    arithmetic.main(["--out", str(folder)])
    return folder


def columns(path: Path) -> dict[str, list[str]]:
    return pq.read_table(path).to_pydict()


def test_problems_split_into_250_for_validation_and_the_rest() -> None:
    train, validation = arithmetic.split_pairs(0)
    assert len(validation) == 250 and len(train) == 2250
    assert sorted(train + validation) == [(a, b) for a in range(50) for b in range(50)]


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_no_validation_problem_is_trained_on_even_mirrored(seed: int) -> None:
    train, validation = arithmetic.split_pairs(seed)
    assert len(validation) == 250
    assert not set(train) & {(b, a) for a, b in validation}
    assert not set(train) & set(validation)


def test_the_files_are_true_sums_and_equal_in_every_run(arithmetic_folder: Path, tmp_path: Path) -> None:
    arithmetic.main(["--out", str(tmp_path)])
    for name in ("train", "val", "sft"):
        assert columns(tmp_path / f"{name}.parquet") == columns(arithmetic_folder / f"{name}.parquet")
    for name in ("train", "val"):
        table = columns(arithmetic_folder / f"{name}.parquet")
        assert set(table["data_source"]) == {"arithmetic"}
        for prompt, answer in zip(table["prompt"], table["answer"], strict=True):
            a, b = prompt.removesuffix("=").split("+")
            assert int(answer) == int(a) + int(b)


def test_supervised_rows_hold_training_problems_only_and_are_wrong_by_a_little(arithmetic_folder: Path) -> None:
    train = set(columns(arithmetic_folder / "train.parquet")["prompt"])
    table = columns(arithmetic_folder / "sft.parquet")
    assert set(table["prompt"]) == train
    misses = [
        int(answer) - sum(map(int, prompt[:-1].split("+")))
        for prompt, answer in zip(table["prompt"], table["answer"], strict=True)
    ]
    assert set(misses) == {0, *arithmetic.NEAR_MISSES}
    wrong = sum(miss != 0 for miss in misses) / len(misses)
    assert wrong == pytest.approx(arithmetic.WRONG_FRAC, abs=0.01)
    assert min(int(answer) for answer in table["answer"]) >= 0


def test_labelled_rows_hold_both_labels_and_each_says_whether_the_answer_is_correct(arithmetic_folder: Path) -> None:
    for split, problems in (("labelled", "train"), ("val_labelled", "val")):
        table = columns(arithmetic_folder / f"{split}.parquet")
        assert set(table["prompt"]) == set(columns(arithmetic_folder / f"{problems}.parquet")["prompt"])
        correct = [
            int(answer) == sum(map(int, prompt[:-1].split("+")))
            for prompt, answer in zip(table["prompt"], table["completion"], strict=True)
        ]
        assert table["label"] == correct
        assert sum(correct) / len(correct) == pytest.approx(1 - arithmetic.WRONG_FRAC, abs=0.03)


def test_the_arithmetic_model_is_small_reproducible_and_loads(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    arithmetic_model.main(["--out", str(tmp_path / "a")])
    arithmetic_model.main(["--out", str(tmp_path / "b")])
    arithmetic_model.main(["--out", str(tmp_path / "c"), "--seed", "1"])
    assert torch.equal(before, torch.random.get_rng_state()), "making a model must not move the caller's random state"
    one, same, other = (AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in "abc")
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert (
        50_000 < sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(tmp_path / "a").parameters()) < 5_000_000
    )


def test_the_arithmetic_tokenizer_writes_what_the_reward_reads(tmp_path: Path, arithmetic_folder: Path) -> None:
    arithmetic_model.write_model(tmp_path, seed=0)
    tokenizer = load_tokenizer(str(tmp_path))
    data = DataConfig(apply_chat_template=False, max_prompt_length=6, max_response_length=4)
    for prompt in PromptDataset(read_rows([str(arithmetic_folder / "val.parquet")]), data, tokenizer):
        assert tokenizer.decode(prompt.prompt_ids) == prompt.text
        response = tokenizer.decode(
            [*tokenizer(prompt.ground_truth)["input_ids"], tokenizer.eos_token_id], skip_special_tokens=True
        )
        result = resolve("", prompt.data_source)("arithmetic", response, prompt.ground_truth, prompt.extra_info)
        assert result["score"] == 1.0
    table, _ = sft_rows(read_rows([str(arithmetic_folder / "sft.parquet")]), data, tokenizer)
    assert len(table) == 2250 * arithmetic.SFT_PASSES


def published(folder: Path) -> Path:
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps(PUBLISHED) + "\n")
    return folder


def test_gsm8k_rows_follow_the_schema_of_verl(tmp_path: Path) -> None:
    gsm8k.main(["--source", str(published(tmp_path)), "--out", str(tmp_path / "out")])
    row = pq.read_table(tmp_path / "out/test.parquet").to_pylist()[0]
    assert row["data_source"] == "openai/gsm8k" and row["reward_model"] == {"style": "rule", "ground_truth": "1004"}
    assert row["prompt"][0]["role"] == "user" and row["prompt"][0]["content"].startswith("How many? Let's think")
    assert row["extra_info"] == {"split": "test", "index": 0, **PUBLISHED}
    assert pq.read_table(tmp_path / "out/train.parquet").to_pylist()[0]["extra_info"]["split"] == "train"


def test_gsm8k_without_mark_is_refused(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "?", "answer": "no mark"}) + "\n")
    with pytest.raises(ValueError, match=r"row 0 of .*test\.jsonl has an answer without '#### N'"):
        gsm8k.write_all(str(tmp_path), tmp_path / "out")


def test_gsm8k_offline_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit):
        gsm8k.main(["--source", "nobody/no-such-data", "--out", str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert "--source is nobody/no-such-data, which is no folder here" in message
    assert "the published one is openai/gsm8k" in message and "give a folder with train.jsonl" in message


def test_a_folder_without_the_file_is_refused_with_the_names_it_may_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"contains none of main/train-00000-of-00001\.parquet, .*, train\.jsonl"):
        gsm8k.write_all(str(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_split_without_rows_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    published(tmp_path)
    (tmp_path / "test.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="the split test has no rows"):
        gsm8k.write_all(str(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_limit_keeps_the_first_rows(tmp_path: Path) -> None:
    source = write_published("recipes.gsm8k.prepare", tmp_path)
    gsm8k.main(["--source", str(source), "--out", str(tmp_path / "out"), "--limit", "1"])
    assert pq.read_table(tmp_path / "out/train.parquet").num_rows == 1


@pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not next to this checkout")
def test_the_published_gsm8k_converts_whole_and_its_own_answers_score_one(tmp_path: Path) -> None:
    assert gsm8k.write_all(str(GSM8K), tmp_path) == {"train": 7473, "test": 1319}
    for row in pq.read_table(tmp_path / "test.parquet").to_pylist():
        score = resolve("", row["data_source"])
        truth = row["reward_model"]["ground_truth"]
        assert score(row["data_source"], row["extra_info"]["answer"], truth, {})["score"] == 1.0
        assert score(row["data_source"], f"#### {int(truth) + 1}", truth, {})["score"] == 0.0


def rows_of(module: ModuleType, folder: Path, split: str = "train") -> list[dict[str, Any]]:
    """Return the rows that a module makes of rows in the published form."""
    source = write_published(module.__name__, folder / "published")
    module.main(["--source", str(source), "--out", str(folder / "out")])
    return pq.read_table(folder / f"out/{split}.parquet").to_pylist()


def test_the_ground_truth_of_math_is_what_its_solution_boxes(tmp_path: Path) -> None:
    first, _ = rows_of(maths, tmp_path)
    assert first["reward_model"] == {"style": "rule", "ground_truth": r"\frac{1}{2}"}
    assert first["prompt"][0]["content"] == f"Halve 1.\n\n{maths.INSTRUCTION}"
    [held_out] = pq.read_table(tmp_path / "out/test.parquet").to_pylist()
    assert (first["data_source"], held_out["data_source"]) == (
        "DigitalLearningGmbH/MATH-lighteval",
        "HuggingFaceH4/MATH-500",
    )
    score = resolve("", first["data_source"])
    assert score(first["data_source"], r"So \boxed{0.5}", first["reward_model"]["ground_truth"], {})["score"] == 1.0


def test_a_solution_of_math_without_a_box_is_refused(tmp_path: Path) -> None:
    source = write_published("recipes.math.prepare", tmp_path)
    (source / "test.jsonl").write_text(json.dumps({"problem": "?", "solution": "It is 4."}) + "\n")
    with pytest.raises(SystemExit) as ended:
        maths.main(["--source", str(source), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2


def test_a_problem_of_geometry3k_keeps_its_picture_and_its_answer(tmp_path: Path) -> None:
    first, second = rows_of(geo3k, tmp_path)
    [image] = first["images"]
    assert image["bytes"].startswith(b"\x89PNG") and image != second["images"][0]
    assert first["prompt"] == [{"role": "user", "content": f"<image>Find x, if y is 2.\n\n{geo3k.INSTRUCTION}"}]
    score, truth = resolve("", first["data_source"]), first["reward_model"]["ground_truth"]
    assert score(first["data_source"], r"So \boxed{1}", truth, {})["score"] == 1.0
    assert score(first["data_source"], r"So \boxed{2}", truth, {})["score"] == 0.0


def test_a_problem_of_geometry3k_without_its_picture_is_refused(tmp_path: Path) -> None:
    source = write_published("recipes.geo3k.prepare", tmp_path)
    row: dict[str, Any] = {"problem": "<image>Find x.", "answer": "1", "images": []}
    pq.write_table(pa.Table.from_pylist([row]), source / "data/test-00000-of-00001.parquet")
    with pytest.raises(ValueError, match=r"row 0 of .* has no pictures in images; expected its diagram"):
        list(geo3k.splits(str(source))["test"])


def test_the_form_that_geometry3k_rewards_has_reasoning_and_then_a_box() -> None:
    kwargs = compose("recipes/geo3k/grpo.yaml", []).config.reward.functions["form"]["kwargs"]
    score = resolve("format")
    scores = {
        r"<think>x is half.</think> \boxed{1}": 1.0,
        "<think>a\nb</think>\n\\boxed{1}.": 1.0,
        r"\boxed{1}": 0.0,
        "<think>x</think> 1": 0.0,
        r"<think>\boxed{1}": 0.0,
        r"<think>a</think><think>b</think>\boxed{1}": 0.0,
    }
    assert {response: score("", response, "1", {}, **kwargs) for response in scores} == scores


def test_each_problem_of_dapo_is_kept_once_and_answers_without_a_box_are_read(tmp_path: Path) -> None:
    rows = rows_of(dapo, tmp_path)
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["1", "2"]
    assert [row["extra_info"]["index"] for row in rows] == [0, 1]
    [held_out] = pq.read_table(tmp_path / "out/test.parquet").to_pylist()
    assert (rows[0]["data_source"], held_out["data_source"]) == ("math_dapo", "aime")
    score = resolve("", "aime")
    assert score("aime", "I add.\nAnswer: 8", held_out["reward_model"]["ground_truth"], {})["score"] == 1.0
    assert score("aime", "I add.\nAnswer: 9", held_out["reward_model"]["ground_truth"], {})["score"] == 0.0


def test_a_row_of_dapo_without_a_ground_truth_is_refused(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": "?"}], "reward_model": {"style": "rule"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=r"row 0 of .*rows\.jsonl has the ground truth None"):
        list(dapo.rows(tmp_path / "rows.jsonl", "train"))


@pytest.mark.processes
def test_a_program_that_passes_the_shown_test_alone_earns_nothing(tmp_path: Path) -> None:
    first, second = rows_of(code, tmp_path)
    assert "assert add(0) == 601" in first["prompt"][0]["content"]
    assert "assert add(1)" not in first["prompt"][0]["content"]
    assert second["extra_info"]["split"] == "validation", "that split is trained on too"
    score, truth = resolve("code"), first["reward_model"]["ground_truth"]
    for body, expected in (("return x + 601", 1.0), ("return 601", 0.0)):
        response = f"```python\ndef add(x):\n    {body}\n```"
        result = score(first["data_source"], response, truth, {})
        assert (result["score"], result["num_tests"]) == (expected, 3.0)


def test_a_problem_of_mbpp_without_tests_is_refused(tmp_path: Path) -> None:
    source = write_published("recipes.code.prepare", tmp_path)
    (source / "test.jsonl").write_text(json.dumps({"text": "Write.", "test_list": []}) + "\n")
    with pytest.raises(ValueError, match=r"row 0 of .*test\.jsonl has no tests in test_list"):
        list(code.splits(str(source))["test"])


def test_of_ultrafeedback_the_prompts_are_kept(tmp_path: Path) -> None:
    first, _ = rows_of(ultrafeedback, tmp_path)
    assert first["prompt"] == [{"role": "user", "content": "Is it?"}] and "reward_model" not in first
    (tmp_path / "published/test.jsonl").write_text(json.dumps({"prompt": " "}) + "\n")
    with pytest.raises(ValueError, match=r"has the prompt ' '; expected text"):
        list(ultrafeedback.splits(str(tmp_path / "published"))["test"])


def test_without_reasoning_gym_the_line_that_installs_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "verl_like_graders.reasoning_gym", raising=False)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)  # as where it is not installed
    with pytest.raises(SystemExit) as ended:
        reasoning_gym.main(["--task", "chain_sum", "--out", str(tmp_path / "train.parquet")])
    assert ended.value.code == 2
    assert "pip install 'verl-like[reasoning-gym]'" in capsys.readouterr().err


def test_hints_are_right_and_the_answers_without_them_are_not(tmp_path: Path) -> None:
    hints.main(["--out", str(tmp_path)])
    rows = columns(tmp_path / "data/sft.parquet")
    right: dict[bool, list[bool]] = {True: [], False: []}
    for prompt, answer in zip(rows["prompt"], rows["answer"], strict=True):
        *hint, problem = prompt.removesuffix("=").split("=")
        a, b = problem.split("+")
        right[bool(hint)].append(int(answer) == int(a) + int(b))
        assert hint in ([], [str(int(a) + int(b))])
    assert len(right[True]) == len(right[False]) and all(right[True])
    assert sum(right[False]) / len(right[False]) == pytest.approx(0.4, abs=0.01)
    train, validation = (columns(tmp_path / f"data/{name}.parquet") for name in ("train", "val"))
    assert train["privileged_context"] == train["answer"] and "privileged_context" not in validation
    assert not set(train["prompt"]) & set(validation["prompt"])
