"""Rows of the shape in which the recipes' data sets are published, made here, and a model to read them."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from recipes.arithmetic.prepare import write_all
from recipes.colours.gallery import SHADES, picture
from recipes.colours.model import write_model

Rows = list[dict[str, Any]]
CHAT = (
    "{% if enable_thinking is defined and not enable_thinking %}-{% endif %}"
    "{% for message in messages %}{{ message.role }}: {{ message.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def gsm8k_row(question: str, answer: int) -> dict[str, Any]:
    return {"question": question, "answer": f"It is easy: <<1+1=2>>.\n#### {answer:,}"}


def math_row(problem: str, answer: str) -> dict[str, Any]:
    return {"problem": problem, "level": "Level 3", "type": "Algebra", "solution": rf"So it is $\boxed{{{answer}}}$."}


def geo3k_row(number: int) -> dict[str, Any]:
    content = picture(list(SHADES)[number % len(SHADES)], np.random.default_rng(number))
    return {
        "images": [{"bytes": content, "path": None}],
        "problem": f"<image>Find x, if y is {number}.",
        "answer": rf"\frac {{ {number} }} {{ 2 }}",
    }


def dapo_row(problem: str, answer: str, index: str) -> dict[str, Any]:
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": f"Solve this.\n\n{problem}\n\nWrite Answer: after it.", "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    }


def mbpp_row(task_id: int) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "text": f"Write a function to add {task_id} to a number.",
        "code": f"def add(x):\n    return x + {task_id}",
        "test_list": [f"assert add(0) == {task_id}", f"assert add(1) == {task_id + 1}"],
        "test_setup_code": "",
        "challenge_test_list": [f"assert add(-{task_id}) == 0"],
    }


def ultrafeedback_row(prompt: str) -> dict[str, Any]:
    chosen, rejected = (
        [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}] for answer in ("Yes.", "No.")
    )
    return {"prompt": prompt, "prompt_id": "ab12", "chosen": chosen, "rejected": rejected, "score_chosen": 8.0}


# Of each module that makes data: the files that it fetches, under the names that they have on the hub or elsewhere.
PUBLISHED: dict[str, Callable[[], dict[str, Rows]]] = {
    "recipes.gsm8k.prepare": lambda: {
        "train.jsonl": [gsm8k_row("How many?", 1004), gsm8k_row("How much?", 7)],
        "test.jsonl": [gsm8k_row("And now?", 12)],
    },
    "recipes.math.prepare": lambda: {
        "data/train-00000-of-00001.parquet": [math_row("Halve 1.", r"\frac{1}{2}"), math_row("Double 2.", "4")],
        "test.jsonl": [{**math_row("Double 3.", "6"), "answer": "6", "level": 1, "unique_id": "test/algebra/1.json"}],
    },
    "recipes.math.prepare_dapo": lambda: {
        "data/dapo-math-17k.parquet": [dapo_row(f"{i % 2}+1?", str(i % 2 + 1), f"{i % 2}") for i in range(6)],
        "aime-2024.parquet": [{**dapo_row("7+1?", "8", "0"), "data_source": "math_dapo"}] * 3,
    },
    "recipes.geo3k.prepare": lambda: {
        "data/train-00000-of-00001.parquet": [geo3k_row(2), geo3k_row(3)],
        "data/test-00000-of-00001.parquet": [geo3k_row(5)],
    },
    "recipes.code.prepare": lambda: {
        "full/train-00000-of-00001.parquet": [mbpp_row(601)],
        "full/validation-00000-of-00001.parquet": [mbpp_row(511)],
        "test.jsonl": [mbpp_row(11)],
    },
    "recipes.ultrafeedback.prepare": lambda: PUBLISHED["recipes.reward_model.prepare"](),
    "recipes.reward_model.prepare": lambda: {
        "data/train_prefs-00000-of-00001.parquet": [ultrafeedback_row("Is it?"), ultrafeedback_row("Is it not?")],
        "test.jsonl": [ultrafeedback_row("Was it?")],
    },
}


def write_published(module: str, folder: Path) -> Path:
    """Write the files that a module fetches below ``folder``; returns it."""
    for name, rows in PUBLISHED[module]().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def make_data(prepare_command: str, folder: Path) -> Path:
    """Run a recipe's ``trainer.prepare_command`` on such rows; returns the folder of what it makes."""
    if prepare_command == "make train":
        write_all(folder / "out", seed=0)
        return folder / "out"
    if prepare_command.endswith("/run.sh"):  # makes the data first, and then a warm start
        prepare_command = f"python -m {Path(prepare_command).parent.as_posix().replace('/', '.')}.prepare --out out"
    for command in prepare_command.split("&&"):
        _, _, module, *words = shlex.split(command)
        out = Path(words[words.index("--out") + 1])
        words[words.index("--out") + 1] = str(folder / "out" / (out.name if out.suffix else ""))
        if "--size" in words:
            words[words.index("--size") + 1] = "2"
        if module in PUBLISHED:
            words += ["--source", str(write_published(module, folder / "published"))]
        importlib.import_module(module).main(words)
    data = folder / "out/data"  # next to the model that the command makes
    return data if data.is_dir() else folder / "out"


def save_reader(folder: Path) -> Path:
    """A small model of random weights with a token for each byte, a chat template, and heads that eight ranks share."""
    alphabet = ["<pad>", "<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(alphabet),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=8,
        num_key_value_heads=8,
        head_dim=32,
        max_position_embeddings=65536,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        num_labels=1,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def save_picture_reader(folder: Path) -> Path:
    """Save the small model of the recipe colours for longer prompts; it reads pictures, and most words are unknown."""
    write_model(folder, 0)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 65536
    (folder / "config.json").write_text(json.dumps(config))
    return folder
