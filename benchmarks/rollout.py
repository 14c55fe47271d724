"""Compare the rollout stage with bare vLLM: ``python -m benchmarks.rollout``.

Ours is the stage of a step on the real stack: Ray, two workers of one thread, a seed for each sample, log-probs, blocks
in the store. The baseline is ``vllm.LLM.generate`` on the same prompts, without seeds and log-probs: one engine of two
threads, and two engines of one thread. All alternate. Every response has the same length, so all generate the same
number of tokens. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._machine import print_result
from benchmarks._teams import Job, median_ratio, teams
from benchmarks.update import SIZES, write_model
from verl_like.backends.allocator import allocator_environment
from verl_like.context import current

ROUNDS = 5
PROMPTS, SAMPLES, PROMPT_TOKENS = 32, 8, 16
RESPONSE_TOKENS = {"2M": 320, "30M": 80}  # about five seconds
CACHE_GIB = 1.0
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def prompt_ids(vocabulary: int) -> list[list[int]]:
    ids: list[list[int]] = np.random.default_rng(0).integers(0, vocabulary, (PROMPTS, PROMPT_TOKENS)).tolist()
    return ids


@contextmanager
def staged(rank: int, path: Path, name: str) -> Iterator[Job]:
    """Yield the rollout stage on engines that hold a policy's weights."""
    from benchmarks._prompts import bare_prompts
    from verl_like.config.schema import Config
    from verl_like.runs.launch import Launcher
    from verl_like.training.build import build_workers
    from verl_like.training.generation import generate, put_prompts, train_sampling
    from verl_like.workers.groups import RolloutGroup

    config = Config()
    config.model.path = str(path)
    config.data.max_prompt_length, config.data.max_response_length = PROMPT_TOKENS, RESPONSE_TOKENS[name]
    config.rollout.n, config.rollout.ignore_eos = SAMPLES, True
    config.rollout.kv_cache_memory_gib = CACHE_GIB
    config.cluster.device, config.cluster.workers_per_node, config.cluster.threads_per_worker = "cpu", 2, 1
    config.trainer.output_dir = str(path.parent)
    config.trainer.stall_after_s = 3600  # this contender waits while others run
    prompts = bare_prompts(prompt_ids(SIZES[name].vocabulary))
    with current(Launcher).launched(config, generates=True) as hosts:
        workers = build_workers(hosts, config, roles=frozenset({"actor", "rollout"}))
        workers.wait_built(timeout_s=config.cluster.start_timeout_s)
        rollout = RolloutGroup(workers, config.rollout)
        version = rollout.sync().version
        steps = iter(range(1_000_000))

        def stage(_: Any) -> None:
            batch = generate(
                put_prompts(prompts),
                rollout=rollout,
                begin=None,
                n=SAMPLES,
                sampling=train_sampling(config),
                step=next(steps),
                version=version,
            )
            assert batch.facts["response_tokens"].sum() == num_tokens(name)

        yield stage


@contextmanager
def bare(rank: int, path: Path, name: str, engines: int) -> Iterator[Job]:
    """Yield one of so many engines, with its share of the prompts."""
    os.environ |= {"OMP_NUM_THREADS": str(2 // engines), "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **QUIET}
    from vllm import LLM, SamplingParams

    tokens = PROMPT_TOKENS + RESPONSE_TOKENS[name]
    llm = LLM(
        model=str(path),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=tokens,
        kv_cache_memory_bytes=int(CACHE_GIB * 2**30),
        max_num_seqs=256,
        enforce_eager=True,
    )
    sampling = SamplingParams(
        n=SAMPLES, max_tokens=RESPONSE_TOKENS[name], ignore_eos=True, detokenize=False, temperature=1.0
    )
    prompts: Any = [{"prompt_token_ids": ids} for ids in prompt_ids(SIZES[name].vocabulary)[rank::engines]]

    def generate(_: Any) -> None:
        outputs = llm.generate(prompts, sampling, use_tqdm=False)
        made = sum(len(sample.token_ids) for output in outputs for sample in output.outputs)
        assert made == num_tokens(name) // engines

    yield generate


def num_tokens(name: str) -> int:
    """Return the number of tokens of all responses."""
    return PROMPTS * SAMPLES * RESPONSE_TOKENS[name]


def measure(path: Path, name: str) -> dict[str, Any]:
    contenders: dict[str, tuple[int, Callable[..., Any], tuple[Any, ...]]] = {
        "one engine of two threads": (1, bare, (path, name, 1)),
        "two engines of one thread": (2, bare, (path, name, 2)),
        "own": (1, staged, (path, name)),
    }
    with teams(contenders) as found:
        for team in found.values():
            team.seconds()
        rounds = [{contender: team.seconds() for contender, team in found.items()} for _ in range(ROUNDS)]
    seconds = {contender: median(turn[contender] for turn in rounds) for contender in contenders}
    best = min((contender for contender in contenders if contender != "own"), key=lambda contender: seconds[contender])
    return {
        "fraction_of_bare_vllm": round(median_ratio(rounds, best, "own"), 3),
        "s": round(seconds["own"], 2),
        "tokens_per_s": {contender: round(num_tokens(name) / value) for contender, value in seconds.items()},
        "bare": best,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=RESPONSE_TOKENS, default=list(RESPONSE_TOKENS))
    names = parser.parse_args().sizes
    os.environ |= allocator_environment()  # as in workers
    by_size = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = Path(folder) / name
            write_model(path, SIZES[name])
            by_size[name] = measure(path, name)
            print(json.dumps({name: by_size[name]}), flush=True)
    worst = min(found["fraction_of_bare_vllm"] for found in by_size.values())
    print_result({"fraction_of_bare_vllm": worst, "by_size": by_size})


if __name__ == "__main__":
    main()
