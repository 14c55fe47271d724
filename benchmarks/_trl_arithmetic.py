"""TRL's GRPO trainer on the arithmetic recipe, as a command of one rank; :mod:`benchmarks.time_to_score` starts it.

It takes model, prompts, reward, group size, learning rate and schedule from the recipe. TRL's vLLM mode dies at its
first weight sync with this vLLM on CPU, so it generates with transformers. Rank 0 prints one JSON object: the seconds
from the start of the command to the first step, those of each step, and the held-out scores by step. Seconds exclude
validation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

from benchmarks._peer_trl import PLAIN
from benchmarks._recipe import RECIPE


def callback(score: Callable[[], float], *, begun: float, every: int, target: float) -> Any:
    """Return a callback that times the steps, and ends the run at the first validation that reaches the target.

    Args:
        score: validates; called by all ranks.
        begun: Unix time at which the command was given.
        every: number of steps between validations.
    """
    from transformers import TrainerCallback

    class Timing(TrainerCallback):
        def __init__(self) -> None:
            self.start_s = self.since = 0.0
            self.step_s: list[float] = []
            self.scores: dict[int, float] = {}

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if not self.since:
                self.since = time.time()
                self.start_s = self.since - begun

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.step_s.append(time.time() - self.since)
            step = len(self.step_s)
            if step % every == 0:
                self.scores[step] = score()
                control.should_training_stop = self.scores[step] >= target
            self.since = time.time()

    return Timing()


def held_out(model: Any, tokenizer: Any, rows: list[dict[str, str]], samples: int, max_tokens: int) -> float:
    """Return the fraction of correct responses among samples of temperature 1, drawn by this rank."""
    import torch

    inputs = tokenizer([row["prompt"] for row in rows], return_tensors="pt", padding=True, padding_side="left")
    was_training = model.training
    model.eval()
    with torch.no_grad():
        found = model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            do_sample=True,
            top_k=0,
            num_return_sequences=samples,
            max_new_tokens=max_tokens,
            pad_token_id=tokenizer.pad_token_id,
        )
    model.train(was_training)
    texts = tokenizer.batch_decode(found[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    answers = [row["answer"] for row in rows for _ in range(samples)]
    return sum(text == answer for text, answer in zip(texts, answers, strict=True)) / len(answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--begun", type=float, required=True, help="Unix time of the command")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--target", type=float, required=True, help="held-out score that ends the run")
    parser.add_argument("--every", type=int, required=True, help="steps between validations")
    parser.add_argument("--out", required=True, help="folder for TRL's files")
    words = parser.parse_args()

    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from verl_like.config.compose import compose
    from verl_like.data.files import read_rows

    recipe = compose(RECIPE, []).config
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    tokenizer = AutoTokenizer.from_pretrained(recipe.model.path)
    train, val = (
        [{name: row.values[name] for name in ("prompt", "answer")} for row in read_rows(files)]
        for files in (recipe.data.train_files, recipe.data.val_files)
    )

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [float(text == truth) for text, truth in zip(completions, answer, strict=True)]

    def score() -> float:
        model = trainer.accelerator.unwrap_model(trainer.model)
        own = held_out(model, tokenizer, val[rank::ranks], recipe.rollout.val.n, recipe.data.max_response_length)
        return float(trainer.accelerator.gather(torch.tensor([own])).mean())

    timing = callback(score, begun=words.begun, every=words.every, target=words.target)
    config = {
        **PLAIN,
        "seed": words.seed,
        "max_steps": recipe.trainer.total_training_steps,
        "output_dir": words.out,
        "per_device_train_batch_size": recipe.data.train_batch_size * recipe.rollout.n // ranks,
        "num_generations": recipe.rollout.n,
        "max_completion_length": recipe.data.max_response_length,
        "learning_rate": recipe.actor.optim.lr,
        "lr_scheduler_type": recipe.actor.optim.schedule,
        "warmup_steps": recipe.actor.optim.warmup_steps,
    }
    trainer = GRPOTrainer(
        model=recipe.model.path,
        reward_funcs=reward,
        args=GRPOConfig(**config),
        train_dataset=Dataset.from_list(train),
        processing_class=tokenizer,
        callbacks=[timing],
    )
    trainer.train()
    if rank == 0:
        print(json.dumps({"start_s": timing.start_s, "step_s": timing.step_s, "scores": timing.scores}))


if __name__ == "__main__":
    main()
