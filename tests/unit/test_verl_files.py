"""Files and reward functions as verl's users have them: read, scored and refused as they are."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit._reward import sample
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.reward.functions import Scoring
from verl_like.reward.resolve import resolve
from verl_like.reward.specs import FunctionSpec

QUESTION = "Natalia sold 48 clips in April and half as many in May. How many together?"


def row(data_source: str, truth: Any, *, style: str = "rule", **extra: Any) -> dict[str, Any]:
    """As the scripts of verl's examples/data_preprocess write it."""
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": f"{QUESTION} Let's think step by step."}],
        "ability": "math",
        "reward_model": {"style": style, "ground_truth": truth},
        "extra_info": {"split": "train", "index": 0, **extra},
    }


def with_tools() -> dict[str, Any]:
    """Of the script for several turns with tools."""
    tools = {"calc_gsm8k_reward": {"create_kwargs": {"ground_truth": "72"}}}
    made = row(
        "openai/gsm8k",
        "72",
        need_tools_kwargs=True,
        tools_kwargs=tools,
        interaction_kwargs={"query": QUESTION, "ground_truth": "72"},
    )
    system = {"role": "system", "content": "You may use the `calc_gsm8k_reward` tool."}
    return {**made, "agent_name": "tool_agent", "prompt": [system, *made["prompt"]]}


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "gsm8k": (row("openai/gsm8k", "72", answer="48 + 24 = 72 #### 72", question=QUESTION), "So it is\n#### 72"),
    "math": (row("DigitalLearningGmbH/MATH-lighteval", r"\frac12"), r"It is $\boxed{0.5}$."),
    "numina": (row("numina_cn_k12", "72"), r"\boxed{72}"),
    "dapo": (row("math_dapo", "72", style="rule-lighteval/MATH_v2"), "Answer: $72$"),
    "aime": (row("aime2024", "72"), r"\boxed{72}"),
    "code": (
        row("codecontests", '{"inputs": ["3\\n"], "outputs": ["6\\n"]}'),
        "```python\nprint(2 * int(input()))\n```",
    ),
    "tools": (with_tools(), "#### 72"),
}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    """One token per character; its template writes out the messages."""
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"
    return tokenizer


def prompts_of(rows: Sequence[dict[str, Any]], folder: Path, tokenizer: PreTrainedTokenizerBase) -> Sequence[Prompt]:
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "train.parquet")
    return PromptDataset(read_rows([str(folder / "train.parquet")]), DataConfig(max_prompt_length=1024), tokenizer)


@pytest.mark.processes
@pytest.mark.parametrize("name", list(FILES))
def test_a_file_of_verls_is_read_and_its_data_source_grades_it(
    name: str, tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    made, right = FILES[name]
    [prompt] = prompts_of([made], tmp_path, tokenizer)
    assert prompt.data_source == made["data_source"] and prompt.ground_truth == made["reward_model"]["ground_truth"]
    assert prompt.extra_info == made["extra_info"] and prompt.messages == made["prompt"]
    assert prompt.text == "".join(f"{m['role']}:{m['content']}" for m in made["prompt"])
    arguments = {
        "data_source": prompt.data_source,
        "ground_truth": prompt.ground_truth,
        "extra_info": prompt.extra_info,
    }
    grade = resolve("", prompt.data_source)
    scores = [grade(solution_str=response, **arguments)["score"] for response in (right, "I do not know.")]
    assert scores == [1.0, 0.0]


def test_a_ground_truth_may_be_any_value_that_parquet_holds(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    ground_truths: list[Any] = [{"target": ["Paris", "paris"]}, {"target": ["Rome"]}]
    prompts = prompts_of([row("searchR1_nq", truth) for truth in ground_truths], tmp_path, tokenizer)
    assert [prompt.ground_truth for prompt in prompts] == ground_truths
    with pytest.raises(ValueError, match=r"no reward function is known for data_source 'searchR1_nq'.*Set reward"):
        resolve("", "searchR1_nq")


def test_rows_for_tools_are_warned_of_and_others_are_not(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        prompts_of([FILES["gsm8k"][0]], tmp_path, tokenizer)
        assert not caplog.records
        prompts_of([with_tools(), with_tools()], tmp_path, tokenizer)
    [record] = caplog.records
    assert record.getMessage().startswith(
        "2 of 2 rows require tools (extra_info.need_tools_kwargs), which only environment.tools"
    )


@pytest.mark.parametrize("column", ["images", "videos", "audios"])
def test_rows_with_pictures_video_or_sound_are_refused_and_empty_columns_are_not(
    column: str, tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    made = row("hiyouga/geometry3k", "3")
    filled = [{**made, column: [{"bytes": b"\x89PNG", "path": None}]}]
    with pytest.raises(ValueError, match=rf"row 0 of .*train.parquet has {column}, which belong to its prompt"):
        prompts_of(filled, tmp_path, tokenizer)
    for nothing in ([], None):
        assert len(prompts_of([{**made, column: nothing}], tmp_path, tokenizer)) == 1


# --- reward functions, as a run calls them

REWARDS = """
import asyncio

def v061(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth and extra_info["num_turns"] == 2)

def v07(data_source, solution_str, ground_truth, extra_info, alpha, **kwargs):
    assert data_source == "s" and kwargs["response_length"] == 2
    return {"score": alpha * (solution_str == ground_truth), "acc": solution_str == ground_truth, "pred": solution_str,
            "why": None, "parts": [1, 2]}

async def v09(data_source, solution_str, ground_truth, extra_info, **kwargs):
    await asyncio.sleep(0)
    return {"score": float(solution_str == ground_truth), "extra_info/turns": extra_info["num_turns"]}

def batch(data_sources, solution_strs, ground_truths, extra_infos, alpha=1.0):
    assert len(data_sources) == len(extra_infos)
    return [{"score": alpha * (s == t), "length": len(s)} for s, t in zip(solution_strs, ground_truths)]

async def async_batch(data_sources, solution_strs, ground_truths, extra_infos, **kwargs):
    await asyncio.sleep(0)
    return [float(s == t) for s, t in zip(solution_strs, ground_truths)]

class Grader:
    def __call__(self, data_source, solution_str, ground_truth, extra_info=None):
        return int(solution_str == ground_truth)

instance = Grader()

def served(data_source, solution_str, ground_truth, extra_info, reward_router_address=None, **kwargs):
    return float(reward_router_address is None and solution_str == ground_truth)

def prime(data_source, solution_str, ground_truth, extra_info=None):
    return solution_str == ground_truth, "format"
"""
KWARGS: dict[str, dict[str, Any]] = {"v07": {"alpha": 2.0}, "batch": {"alpha": 2.0}}


def outcomes(folder: Path, name: str) -> list[Any]:
    (folder / "reward.py").write_text(REWARDS)
    specs = [FunctionSpec("", f"{folder}/reward.py:{name}", KWARGS.get(name, {}))]
    scoring = Scoring(specs, max_concurrency=2, timeout_s=5)
    return [outcome for _, outcome in sorted(scoring.outcomes([sample("42"), sample("43")]), key=lambda pair: pair[0])]


@pytest.mark.parametrize("name", [n for n in re.findall(r"^(?:async )?def (\w+)", REWARDS, re.M) if n != "prime"])
def test_a_reward_function_of_verls_gives_scores(name: str, tmp_path: Path) -> None:
    assert [outcome.score for outcome in outcomes(tmp_path, name)] == [KWARGS.get(name, {}).get("alpha", 1.0), 0.0]


def test_a_callable_object_is_a_reward_function_too(tmp_path: Path) -> None:
    assert [outcome.score for outcome in outcomes(tmp_path, "instance")] == [1.0, 0.0]


def test_values_that_a_function_returns_with_its_score_are_kept(tmp_path: Path) -> None:
    first, _ = outcomes(tmp_path, "v07")
    assert first.details == {"acc": 1.0, "pred": "42", "why": "None", "parts": "[1, 2]"}
    first, _ = outcomes(tmp_path, "v09")
    assert first.details == {"extra_info_turns": 2.0}


def test_a_tuple_which_only_verls_prime_manager_takes_is_refused_by_what_it_is(tmp_path: Path) -> None:
    first, _ = outcomes(tmp_path, "prime")
    assert first.status == "error" and "returned (True, 'format') (tuple) where it must be a number" in first.message
