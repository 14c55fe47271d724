"""Measure what ``rollout.on_sync`` costs in exactness: ``python -m benchmarks.on_sync``.

A model of 2.4 million parameters first learns sequences. 64 requests run for 64 tokens; then one AdamW update on random
advantages changes the weights, they are synced, and the requests continue for 64 tokens more. The gap is the difference
between the engine's log-prob of such a token and that of a full forward pass with the new weights; next to it stands
how far the update moved the log-probs of the same tokens. Prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._machine import print_result
from benchmarks.update import SIZES, write_model

REQUESTS, PROMPT, HALF = 64, 16, 64  # HALF: tokens before and after the switch
RATES = (1e-6, 1e-5, 1e-4)
PRETRAINING_STEPS, BATCH, MODULUS = 200, 16, 97
SEED = 0


def sequences(rows: int, tokens: int, seed: int) -> Any:
    """Return [rows, tokens] ids: x -> a x + b, modulo 97, with other a and b in each row and some noise."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    factor, offset, first = torch.randint(1, MODULUS, (3, rows), generator=generator)
    columns = [first]
    for _ in range(tokens - 1):
        columns.append((factor * columns[-1] + offset) % MODULUS)
    found = torch.stack(columns, 1)
    noise = torch.rand(found.shape, generator=generator) < 0.1
    return torch.where(noise, torch.randint(0, MODULUS, found.shape, generator=generator), found)


def pretrained(folder: Path) -> Any:
    """Write a model that has learnt sequences, and return it."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(SEED)
    write_model(folder, SIZES["2M"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(PRETRAINING_STEPS):
        ids = sequences(BATCH, PROMPT + 2 * HALF, seed=step)
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return model.eval()


def log_probs(model: Any, ids: Any) -> Any:
    """Return [rows, tokens - 1] log-probs of the ids after the first."""
    found = model(input_ids=ids).logits[:, :-1].float().log_softmax(-1)
    return found.gather(-1, ids[:, 1:, None])[..., 0]


def updated(model: Any, ids: Any, rate: float) -> Any:
    """Return a copy of the model after one update by these rows, with random advantages."""
    import copy

    import torch

    other = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(other.parameters(), lr=rate, weight_decay=0.0)
    signs = torch.randn(len(ids), generator=torch.Generator().manual_seed(SEED)).sign()
    (-(signs[:, None] * log_probs(other, ids)).mean()).backward()
    optimizer.step()
    return other


class Switched:
    """An engine whose weights change while requests run."""

    def __init__(self, engine: Any, prompts: Any) -> None:
        self._engine, self._prompts, self._version = engine, prompts, -1

    def _sync(self, model: Any, how: Any) -> None:
        self._version += 1
        self._engine.begin_sync(self._version, on_running=how)
        self._engine.load(iter(model.state_dict().items()))
        self._engine.finish_sync()

    def gap(self, old: Any, new: Any, how: Any) -> dict[str, float]:
        """Return the gap after the switch, and how far the update moved the same tokens: mean and largest, in nats."""
        import torch

        from verl_like.backends.base import OnRunning, Request, Sampling

        self._sync(old, OnRunning.REFUSE)
        sampling = Sampling(max_tokens=2 * HALF, ignore_eos=True)
        self._engine.submit(
            [
                Request(request_id=str(row), prompt_ids=prompt, seed=row, sampling=sampling, salt=str(self._version))
                for row, prompt in enumerate(self._prompts.tolist())
            ]
        )
        finished = [sample for _ in range(HALF) for sample in self._engine.step()]
        assert not finished, "a request finished before the switch"
        self._sync(new, how)
        while self._engine.has_unfinished():
            finished += self._engine.step()
        finished.sort(key=lambda sample: int(sample.request_id))
        switch = finished[0].versions[1].start
        ids = torch.cat([self._prompts, torch.tensor([sample.response_ids for sample in finished])], 1)
        after = slice(PROMPT - 1 + switch, None)
        with torch.no_grad():
            of_new, of_old = (log_probs(model, ids)[:, after] for model in (new, old))
        gaps = (torch.tensor([sample.log_probs for sample in finished])[:, switch:] - of_new).abs()
        moved = (of_new - of_old).abs()
        return {
            "gap_mean": float(gaps.mean()),
            "gap_max": float(gaps.max()),
            "moved_mean": float(moved.mean()),
            "moved_max": float(moved.max()),
        }


def main() -> None:
    import torch.distributed as dist

    from verl_like.backends.base import OnRunning
    from verl_like.backends.rollout import rollout_engine
    from verl_like.config.schema import ModelConfig, RolloutConfig

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        model = pretrained(Path(folder))
        rollout = RolloutConfig(max_num_seqs=str(REQUESTS), kv_cache_memory_gib=0.25)
        engine = rollout_engine(
            "vllm",
            model_path=folder,
            tokenizer_path="",
            model=ModelConfig(path=folder),
            rollout=rollout,
            max_model_len=PROMPT + 2 * HALF,
            device="cpu",
            seed=SEED,
            run_id="on-sync",
        )
        prompts = sequences(REQUESTS, PROMPT, seed=PRETRAINING_STEPS)
        trained_on = sequences(REQUESTS, PROMPT + 2 * HALF, seed=PRETRAINING_STEPS + 1)
        switched = Switched(engine, prompts)
        found: dict[str, dict[str, dict[str, float]]] = {}
        for rate in RATES:
            new = updated(model, trained_on, rate)
            found[f"{rate:g}"] = {
                how.name.lower(): switched.gap(model, new, how) for how in (OnRunning.KEEP, OnRunning.RECOMPUTE)
            }
            print(json.dumps({f"{rate:g}": found[f"{rate:g}"]}), flush=True)
        keeps = [of_rate["keep"] for of_rate in found.values()]
        print_result(
            {
                "by_rate": found,
                "keep_gap_over_moved": max(each["gap_mean"] / each["moved_mean"] for each in keeps),
                "recompute_gap_max": max(of_rate["recompute"]["gap_max"] for of_rate in found.values()),
            }
        )
        dist.destroy_process_group()


if __name__ == "__main__":
    from verl_like.backends.rollout import rollout_environment

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        **rollout_environment("vllm", device="cpu", num_threads=2),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    main()
