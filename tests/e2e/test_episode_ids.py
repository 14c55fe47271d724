"""The ids of an episode with tools, from a policy that always writes the same call, against ids made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from tests.e2e.conftest import SHARED_DATA, train
from tests.e2e.test_forks import rows_of

QWEN3 = SHARED_DATA / "tokenizers/qwen3"
pytestmark = [
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(not QWEN3.is_dir(), reason="the tokenizer of Qwen3 is not there"),
]
# No token appears twice, so that a token determines its successor. The template renders the call with other spaces.
TURN = ["<tool_call>", '{"', "name", '":"', "add", '","', "arguments", '":{"', "a", '":', "1", ',"', "b", '"', ":", "2"]
TURN += ["}}", "</tool_call>", "<|im_end|>"]
TOOLS = '''
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one.
        b: another.
    """
    return a + b
'''
NUM_TURNS = 3


def scripted_model(folder: Path) -> list[int]:
    """Write a model that writes TURN after each line break, with a probability of nearly 1; return the turn's ids."""
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    turn = [token for piece in TURN for token in tokenizer.encode(piece)]
    assert len(set(turn)) == len(turn) == len(TURN)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    [line_break] = tokenizer.encode("\n")
    with torch.no_grad():
        [layer] = model.model.layers
        for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight, model.lm_head.weight):
            weight.zero_()  # the hidden state is the embedding of the last token
        for position, (token, following) in enumerate(zip([line_break, *turn], turn, strict=False)):
            model.model.embed_tokens.weight[token] = torch.eye(config.hidden_size)[position]
            model.lm_head.weight[following, position] = 8.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return turn


def test_a_scripted_episode_has_the_ids_that_are_made_by_hand(tmp_path: Path) -> None:
    turn = scripted_model(tmp_path / "model")
    (tmp_path / "tools.py").write_text(TOOLS)
    rows = [{"prompt": [{"role": "user", "content": f"What is 1 + 2, number {n}?"}], "answer": "3"} for n in range(2)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text("def one(completions, **columns):\n    return [1.0 for _ in completions]\n")
    run = train(
        tmp_path,
        tmp_path / "out",
        "rollout=hf",
        f"data.train_files=[{tmp_path}/train.jsonl]",
        "data.train_batch_size=2",
        "data.apply_chat_template=true",
        "data.max_prompt_length=400",
        "data.max_response_length=160",
        f"environment.tools={tmp_path}/tools.py",
        f"environment.max_turns={NUM_TURNS}",
        # The template writes calls with spaces, and an empty thought into a turn only while it is the last, so that
        # "auto" takes the history of this turn for rewritten.
        "environment.history=append",
        f"reward.function={tmp_path}/reward.py:one",
        "actor.mini_batch_size=2",
        "rollout.n=2",
        "cluster.workers_per_node=1",
        "trainer.total_training_steps=1",
        "trainer.num_samples_to_save=-1",
    )
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    separator = tokenizer.encode(
        "\n<|im_start|>user\n<tool_response>\n3\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    between = (turn + separator) * (NUM_TURNS - 1)
    columns = rows_of(run, 1)
    assert columns["episode_row"] == [0] * 4
    for row in range(4):
        prompt = tokenizer.decode(columns["prompt_ids"][row])
        assert prompt.startswith("<|im_start|>system\n# Tools\n") and '"name": "add"' in prompt
        number = str(columns["uid"][row])[-1]
        assert prompt.endswith(f"<|im_start|>user\nWhat is 1 + 2, number {number}?<|im_end|>\n<|im_start|>assistant\n")
        assert columns["response_ids"][row].tolist() == between + turn
        sampled, inserted = [True] * len(turn), [False] * len(separator)
        assert columns["response_mask"][row].tolist() == (sampled + inserted) * (NUM_TURNS - 1) + sampled
    for line in (run.folder / "samples/step_1.jsonl").read_text().splitlines():
        sample = json.loads(line)
        assert (sample["environment_status"], sample["num_turns"], sample["finish_reason"]) == ("ok", 3, "max_turns")
        assert sample["num_tool_calls"] == NUM_TURNS and sample["num_tool_errors"] == 0
        roles = [message["role"] for message in sample["episode"]["completion"]]
        assert roles == ["assistant", "tool"] * (NUM_TURNS - 1) + ["assistant"]
