"""Compare steps of GRPO with TRL's: ``PYTHONPATH=.peers python -m benchmarks.e2e`` (``make peers``).

Both have the same model, prompts, group size, limits and cores, in float32: 256 rows per step, one update each. Ours is
the real stack with its defaults. TRL generates with transformers, because its vLLM mode fails at the first weight sync
with this vLLM (0.32). It runs in one process of two threads or two of one, with micro-batches of two sizes; the best of
them counts. All alternate. Workloads: lengths as sampled, by a model whose end token comes after about 60 of 256
tokens; responses of 64 tokens each; and 32 rows of 48 with 30 million parameters. Tokens are those of responses. If
lengths are fixed, bare engines alternate too: two of vLLM without seeds and log-probs, and a bare loop of updates
(:mod:`benchmarks._bare_loop`) with its best micro-batch. Their total seconds over those of our step are
``fraction_of_bare_sum``. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks._machine import print_result, use_machine_libraries
from benchmarks._peer_trl import PLAIN, free_port, trl_steps
from benchmarks._teams import Job, Team, teams
from benchmarks.rollout import QUIET
from verl_like.backends.allocator import allocator_environment

ROUNDS = 5
SAMPLES, PROMPT_TOKENS, LR = 8, 12, 1e-6
SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY"  # 64 with three special tokens
MICRO_BATCHES = (512, 1024, 2048)  # tokens; the bare loop uses the best of these
KEYS = {"sampled": "ratio_vs_trl", "fixed": "ratio_vs_trl_fixed", "30m": "ratio_vs_trl_30m"}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, and the responses that a step generates.

    Args:
        tokens: maximum of a response, or exact length if ``is_fixed``.
        micro_batches: rows; TRL uses the best of these.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    prompts: int
    tokens: int
    is_fixed: bool
    micro_batches: tuple[int, ...]


SMALL: dict[str, Any] = {"hidden": 192, "intermediate": 512, "layers": 6, "heads": 6, "prompts": 32}
WORKLOADS = {
    "sampled": Workload(**SMALL, tokens=256, is_fixed=False, micro_batches=(8, 32)),
    "fixed": Workload(**SMALL, tokens=64, is_fixed=True, micro_batches=(16, 64)),
    "30m": Workload(
        hidden=640, intermediate=1792, layers=6, heads=10, prompts=4, tokens=48, is_fixed=True, micro_batches=(4, 16)
    ),
}
SCORER = """
def score(data_source, solution_str, ground_truth, extra_info):
    return (len(solution_str) + solution_str.count("7")) % 7 / 7
"""


def write_model(folder: Path, work: Workload) -> int:
    """Write a Qwen2 with its tokenizer; return its number of parameters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed

    symbols = ("<pad>", "<eos>", "<unk>", *SYMBOLS)
    core = Tokenizer(models.WordLevel({symbol: index for index, symbol in enumerate(symbols)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    core.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    ).save_pretrained(folder)
    config = Qwen2Config(
        vocab_size=len(symbols),
        hidden_size=work.hidden,
        intermediate_size=work.intermediate,
        num_hidden_layers=work.layers,
        num_attention_heads=work.heads,
        num_key_value_heads=work.heads // 2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
        dtype="float32",
    )
    set_seed(0)
    model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    return int(model.num_parameters())


def write_prompts(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [{"prompt": "".join(rng.choice(list(SYMBOLS), PROMPT_TOKENS)), "answer": ""} for _ in range(512)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "scorer.py").write_text(SCORER)


def overrides(folder: Path, work: Workload) -> list[str]:
    """Return the overrides of our run on the model, prompts and scorer in the folder."""
    return [
        "algorithm=grpo",
        f"model.path={folder}/model",
        f"data.train_files=[{folder}/train.jsonl]",
        "data.apply_chat_template=false",
        f"data.train_batch_size={work.prompts}",
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={work.tokens}",
        f"rollout.n={SAMPLES}",
        f"rollout.ignore_eos={str(work.is_fixed).lower()}",
        f"actor.mini_batch_size={work.prompts}",
        f"actor.optim.lr={LR}",
        f"reward.function={folder}/scorer.py:score",
        f"trainer.output_dir={folder}",
    ]


@contextmanager
def own(rank: int, folder: Path, work: Workload) -> Iterator[Job]:
    """Yield a job that runs a step of our trainer and returns its response tokens and the seconds of its stages."""
    from verl_like.algorithms.roles import needs
    from verl_like.checks.rules import check
    from verl_like.config.compose import compose
    from verl_like.data.files import read_rows
    from verl_like.data.loader import PromptLoader
    from verl_like.data.prompts import PromptDataset
    from verl_like.data.templates import load_tokenizer
    from verl_like.runs.folder import RunFolder
    from verl_like.telemetry.loggers import trackers
    from verl_like.training.build import stack
    from verl_like.training.parts import parts_of
    from verl_like.training.ppo import PPOTrainer

    steps = 10_000
    config = compose(
        None,
        [
            *overrides(folder, work),
            "trainer.experiment_name=own",
            "trainer.loggers=[jsonl]",
            "trainer.test_freq=0",
            "trainer.save_freq=0",
            "trainer.stall_after_s=3600",  # this contender waits while others run
            "cluster.workers_per_node=2",  # the default on two cores; the others have no more
            "cluster.threads_per_worker=1",
            f"trainer.total_training_steps={steps}",
        ],
    ).config
    check(config)
    tokenizer = load_tokenizer(config.model.tokenizer)
    prompts = PromptDataset(read_rows(config.data.train_files), config.data, tokenizer)
    loader = PromptLoader(prompts, config.data, seed=0)
    run_folder = RunFolder(config)
    with (
        trackers(config, run_folder.path, total_steps=steps) as tracker,
        stack(
            config, tokenizer, run_folder, roles=needs(config).roles, actor_updates=steps, critic_updates=0
        ) as workers,
    ):
        trainer = PPOTrainer(parts_of(config, workers, run_folder, loader=loader, trackers=tracker))
        trainer.start()
        numbers = iter(range(1, steps))

        def step(_: Any) -> tuple[float, dict[str, float]]:
            metrics = trainer.step(next(numbers))
            times = {name[5:-2]: value for name, value in metrics.items() if name.startswith("time/")}
            return metrics["perf/response_tokens"], times

        yield step


@contextmanager
def trl(rank: int, folder: Path, work: Workload, ranks: int, port: int, micro_batch: int) -> Iterator[Job]:
    """Yield a job that runs a step of TRL's trainer, and returns this rank's response tokens."""
    counted = [0]

    def score(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        counted[0] += sum(map(len, completion_ids))
        return [(len(text) + text.count("7")) % 7 / 7 for text in completions]

    def trainer(callbacks: list[Any]) -> Any:
        from datasets import Dataset
        from transformers import AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
        config = GRPOConfig(
            output_dir=str(folder / f"trl-{port}"),
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=work.prompts * SAMPLES // ranks // micro_batch,
            num_generations=SAMPLES,
            max_completion_length=work.tokens,
            generation_kwargs={"min_new_tokens": work.tokens} if work.is_fixed else None,
            learning_rate=LR,
            **PLAIN,
        )
        return GRPOTrainer(
            model=str(folder / "model"),
            reward_funcs=score,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in rows]),
            processing_class=AutoTokenizer.from_pretrained(folder / "model"),
            callbacks=callbacks,
        )

    with trl_steps(rank, ranks, port, trainer) as step:

        def counted_step(_: Any) -> int:
            counted[0] = 0
            step()
            return counted[0]

        yield counted_step


@contextmanager
def bare_rollout(rank: int, folder: Path, work: Workload) -> Iterator[Job]:
    """Yield one of two engines, with half of the prompts."""
    os.environ |= {"OMP_NUM_THREADS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **QUIET}
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(folder / "model"),
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=PROMPT_TOKENS + work.tokens,
        kv_cache_memory_bytes=2**29,
        max_num_seqs=256,
        enforce_eager=True,
    )
    sampling = SamplingParams(n=SAMPLES, max_tokens=work.tokens, ignore_eos=True, detokenize=False, temperature=1.0)
    ids = np.random.default_rng(0).integers(3, len(SYMBOLS) + 3, (work.prompts, PROMPT_TOKENS)).tolist()[rank::2]
    prompts: Any = [{"prompt_token_ids": row} for row in ids]

    def generate(_: Any) -> None:
        llm.generate(prompts, sampling, use_tqdm=False)

    yield generate


@contextmanager
def bare_updates(rank: int, folder: Path, work: Workload) -> Iterator[Job]:
    """Yield one of two ranks of a DDP loop, with half of the rows; its order is the tokens of a micro-batch."""
    import torch
    import torch.distributed as dist

    from benchmarks._bare_loop import bare_update
    from verl_like.protocol import DataProto, Ragged

    torch.set_num_threads(1)
    use_machine_libraries()
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "bare"), 2), rank=rank, world_size=2)
    rng, num_rows = np.random.default_rng(rank), work.prompts * SAMPLES // 2

    def column(tokens: int, draw: Any, dtype: str) -> Ragged:
        return Ragged.from_rows([draw(tokens) for _ in range(num_rows)], dtype)

    def ids(tokens: int) -> Any:
        return rng.integers(3, len(SYMBOLS) + 3, tokens)

    table = DataProto(
        {
            "prompt_ids": column(PROMPT_TOKENS, ids, "int32"),
            "response_ids": column(work.tokens, ids, "int32"),
            "old_log_probs": column(work.tokens, lambda tokens: -4 - rng.random(tokens), "float32"),
            "advantages": column(work.tokens, rng.standard_normal, "float32"),
        }
    )
    yield bare_update("ddp", folder / "model", table)
    dist.destroy_process_group()


def speed(team: Team) -> tuple[float, Any]:
    """Return the tokens per second of a step, and the answer of the first process."""
    seconds, answers = team.done()
    tokens = sum(each[0] if isinstance(each, tuple) else each for each in answers)
    return tokens / seconds, answers[0]


def measure(folder: Path, work: Workload) -> dict[str, Any]:
    parameters = write_model(folder / "model", work)
    write_prompts(folder)
    contenders: dict[str, Any] = {"own": (1, own, (folder, work))}
    for ranks in (1, 2):
        for rows in work.micro_batches:
            name = f"{ranks} of {2 // ranks} threads, {rows} rows"
            contenders[name] = (ranks, trl, (folder, work, ranks, free_port(), rows))
    peers = [name for name in contenders if name != "own"]
    if work.is_fixed:
        contenders |= {"rollout": (2, bare_rollout, (folder, work)), "update": (2, bare_updates, (folder, work))}
    with teams(contenders) as found:
        for team in found.values():
            team.done(MICRO_BATCHES[0])
        tried = {name: speed(found[name])[0] for name in peers}
        best = max(tried, key=lambda name: tried[name])
        if work.is_fixed:
            seconds = {size: found["update"].seconds(size) for size in MICRO_BATCHES}
            micro_batch = min(seconds, key=lambda size: seconds[size])
        speed(found["own"])
        rounds, bare = [], []
        for _ in range(ROUNDS):
            rounds.append((speed(found["own"]), speed(found[best])[0]))
            if work.is_fixed:
                bare.append((found["rollout"].seconds(), found["update"].seconds(micro_batch)))
    stages = [stages for (_, (_, stages)), _ in rounds]
    extra: dict[str, Any] = {}
    if work.is_fixed:
        sums = [sum(both) / each["step"] for both, each in zip(bare, stages, strict=True)]
        rollout, update = (round(median(seconds), 3) for seconds in zip(*bare, strict=True))
        extra = {"fraction_of_bare_sum": round(median(sums), 3), "bare_s": {"rollout": rollout, "update": update}}
    return {
        **extra,
        "parameters": parameters,
        "own_tokens_per_s": round(median(own_speed for (own_speed, _), _ in rounds)),
        "trl_tokens_per_s": round(median(trl_speed for _, trl_speed in rounds)),
        "ratio": round(median(own_speed / trl_speed for (own_speed, _), trl_speed in rounds), 2),
        "trl": best,
        "trl_tried": {name: round(value) for name, value in tried.items()},
        "stage_s": {name: round(median(each.get(name, 0.0) for each in stages), 3) for name in stages[0]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    names = parser.parse_args().workloads
    os.environ |= allocator_environment()  # as in our workers
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measure(Path(folder), WORKLOADS[name])
        print(json.dumps({name: found[name]}), flush=True)
    first = found[names[0]]
    print_result(
        {
            "own_tokens_per_s": first["own_tokens_per_s"],
            "trl_tokens_per_s": first["trl_tokens_per_s"],
            **{KEYS[name]: each["ratio"] for name, each in found.items()},
            "fraction_of_bare_sum": min(
                (each["fraction_of_bare_sum"] for each in found.values() if "fraction_of_bare_sum" in each),
                default=None,
            ),
            "by_workload": found,
        }
    )


if __name__ == "__main__":
    main()
