"""RewardPool: scorer processes that score blocks while the rollout still runs."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import ray

from verl_like.config.schema import RewardConfig
from verl_like.protocol import Array, DataProto
from verl_like.reward.sandbox import Outcome, ScorerProcess
from verl_like.single_controller.remote_batch import BlockRef, Facts, RemoteBatch, RemoteRows
from verl_like.single_controller.store import STORE
from verl_like.single_controller.wait import wait

SAMPLE_FACTS = ("uid", "sample", "score", "reward_status", "reward_seconds", "finish_reason", "response_tokens")  # beside each dumped text


class ScorerHost:
    """Decodes blocks and has their samples scored in a child process that can be killed."""

    def __init__(self, config: RewardConfig, tokenizer_path: str, trust_remote_code: bool, failures_path: str) -> None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        from verl_like.data.templates import load_tokenizer

        self._tokenizer = load_tokenizer(tokenizer_path, trust_remote_code)
        self._child = ScorerProcess(config.function, config.function_kwargs, config.timeout_s)
        self._failures_path = Path(failures_path)

    def ready(self) -> None:
        """Answers once the tokenizer and the function are loaded."""

    def score(self, block: DataProto) -> tuple[Facts, int]:
        """Facts of the block's rows: ``score`` (NaN where scoring failed), its status, the answer that votes, details; and the
        bytes that were read."""
        responses = self._texts(block)
        inputs: Any = block["reward_inputs"]
        outcomes = list(self._child.score_many([{**row, "solution_str": text} for row, text in zip(inputs, responses, strict=True)]))
        self._record_failures(block, responses, outcomes)
        details = np.empty(len(outcomes), object)
        details[:] = [o.details for o in outcomes]
        return {
            "score": np.array([np.nan if o.score is None else o.score for o in outcomes], np.float32),
            "reward_status": np.array([o.status for o in outcomes]),
            "reward_seconds": np.array([o.seconds for o in outcomes], np.float32),
            "answer": np.array([str(o.details.get("pred", _fingerprint(text))) for o, text in zip(outcomes, responses, strict=True)]),
            "details": details,
        }, block.nbytes

    def dump(self, rows: RemoteRows, facts: Facts, path: str, timeout_s: float) -> None:
        """Write these rows as text, one JSON object a line."""
        table = rows.fetch(["prompt_text", "response_ids", "reward_inputs"], timeout_s=timeout_s)
        prompts: Any = table["prompt_text"]
        inputs: Any = table["reward_inputs"]
        with Path(path).open("w") as out:
            for i, text in enumerate(self._texts(table)):
                known = {name: fact[i].item() for name, fact in facts.items()}
                row = {"prompt": prompts[i], "response": text, **inputs[i], **known}
                # NaN is no JSON: a failed sample's score is null, and its status says why.
                row |= {"score": None} if np.isnan(known.get("score", 0.0)) else {}
                out.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    def _texts(self, table: DataProto) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode([ids.tolist() for ids in table.ragged("response_ids")], skip_special_tokens=True)
        return texts

    def _record_failures(self, block: DataProto, responses: list[str], outcomes: list[Outcome]) -> None:
        failed = [i for i, o in enumerate(outcomes) if o.status != "ok"]
        if failed:
            prompts: Any = block["prompt_text"]
            with self._failures_path.open("a") as out:
                for i in failed:
                    out.write(json.dumps({"prompt": prompts[i], "response": responses[i], **asdict(outcomes[i])}, default=str) + "\n")


def _fingerprint(text: str) -> str:
    """A few characters that stand for a response where only equality matters."""
    return hashlib.blake2b(text.strip().encode("utf-8", "replace"), digest_size=12).hexdigest()


# Not a decorator: Ray would pickle the class by value; a plain class travels by reference.
Scorer = ray.remote(num_cpus=0, max_restarts=0)(ScorerHost)


class RewardPool:
    """Deals blocks to ``reward.num_workers`` scorers in turn and gathers the facts.

    Args:
        failures_path: jsonl that failed samples are appended to, with prompt, response and reason.
        env: environment of the scorers.
        timeout_s: deadline of :meth:`collect` beyond the samples' own deadlines.
    """

    def __init__(
        self, config: RewardConfig, *, tokenizer_path: str, trust_remote_code: bool, failures_path: Path, env: dict[str, str],
        timeout_s: float,
    ) -> None:
        start = Scorer.options(runtime_env={"env_vars": env})
        self._scorers = [
            start.remote(config, tokenizer_path, trust_remote_code, str(failures_path)) for _ in range(config.num_workers)
        ]
        self._timeout_s = timeout_s
        self._submitted: list[ray.ObjectRef] = []

    def wait_ready(self, *, timeout_s: float) -> None:
        """Return when every scorer has loaded its function; raises what went wrong where one could not."""
        wait({s.ready.remote(): f"scorer {i}" for i, s in enumerate(self._scorers)}, stage="reward_start", timeout_s=timeout_s,
             interruptible=True)

    def submit(self, block: BlockRef) -> None:
        """Have a block scored; returns at once."""
        scorer = self._scorers[len(self._submitted) % len(self._scorers)]
        self._submitted.append(scorer.score.remote(block))

    def collect(self) -> Facts:
        """Facts of all rows submitted since the last call, in the order of submission."""
        names = {ref: f"scorer {i % len(self._scorers)}" for i, ref in enumerate(self._submitted)}
        self._submitted = []
        answers = wait(names, stage="reward", timeout_s=self._timeout_s, interruptible=True)
        STORE.fetched_bytes += sum(num_bytes for _, num_bytes in answers)
        return {name: np.concatenate([facts[name] for facts, _ in answers]) for name in answers[0][0]}

    def forget(self) -> None:
        """Drop what was submitted (an abandoned step)."""
        self._submitted = []

    def dump(self, batch: RemoteBatch, rows: Array, path: Path) -> None:
        """Write these rows of the batch as text; a scorer fetches and decodes them, not the driver."""
        chosen = batch.select(rows)
        facts = {name: chosen.facts[name] for name in SAMPLE_FACTS if name in chosen.facts}
        ref = self._scorers[0].dump.remote(chosen.partition([np.arange(len(chosen))])[0], facts, str(path), self._timeout_s)
        wait({ref: "scorer 0"}, stage="samples", timeout_s=self._timeout_s)

    def shut_down(self) -> None:
        """End every scorer now, whatever it is busy with; its children die with it."""
        for scorer in self._scorers:
            ray.kill(scorer)
