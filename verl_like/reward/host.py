"""ScorerHost: decode blocks on a node of the cluster, score them with its team, and write responses as text."""

from __future__ import annotations

import json
import os
import threading
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.context import current
from verl_like.controller import ray_calls, signals
from verl_like.controller.errors import RunError
from verl_like.controller.remote_batch import Facts, RemoteRows
from verl_like.controller.store import Reply, StoreCounters
from verl_like.disk import writing
from verl_like.protocol import EPISODE_ROW, Array, DataProto, last_rows, samples_of, write_rows
from verl_like.reward.decoding import Decoder
from verl_like.reward.failure_file import FailureFile
from verl_like.reward.failure_limit import Failure, clipped_failure
from verl_like.reward.sample_line import TOKEN_COLUMNS, TURN_COLUMNS, context_of, sample_line, token_values
from verl_like.reward.scorer_messages import Outcome, Sample, scorer_task
from verl_like.reward.scores import Scores, objects
from verl_like.reward.team import ScorerTeam
from verl_like.telemetry import stacks
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger, stage
from verl_like.telemetry.process_log import ProcessLog
from verl_like.telemetry.process_usage import ProcessReport, Reporter

MAX_VOTE_CHARS = 200
SCORERS = "scorer processes, for each sample reward.timeout_s at most"  # a reported wait does not count as a hang
TOKENS_AT_ONCE = 2**19  # of the rows that keep() fetches and writes at once
MAX_TOKENS = 2**16  # of a samples file whose texts and columns are written one by one
MAX_BLOCKS = 2  # scored at once; the others wait in the object store


class ScorerHost:
    """Scores blocks on one node, with the node's share of the scorer processes.

    Args:
        environment: variables of this process and the scorers.
        num_processes: scorer processes on this node; none are started if only a reward model or a judge scores.
        decoder: for the responses.
        failures: folder of the files that failed samples are appended to, limited to ``max_failure_bytes``.
        stage_timeout_s: longest wait of the driver for the scores of a step.
    """

    def __init__(
        self,
        environment: dict[str, str],
        config: RewardConfig,
        num_processes: int,
        decoder: Decoder,
        *,
        failures: str,
        max_failure_bytes: float,
        stage_timeout_s: float,
    ) -> None:
        stacks.listen()
        signals.leave_to_driver()
        os.environ.update(environment)
        current(Heartbeat).start_from_environment(ray_calls.own_node)
        current(ProcessLog).keep_from_environment()
        current(Ledger).rest("wait/driver")
        self._reporter = Reporter()
        decoder.load()
        self._decoder, self._decoder_lock = decoder, threading.Lock()
        task = scorer_task(config)
        self._team, self._refusal = None, ""
        try:
            if task.functions:
                self._team = ScorerTeam(task, num_processes, stage_timeout_s=stage_timeout_s)
        except (ValueError, RuntimeError) as error:  # reported by ready(): Ray would wrap it in stack frames
            self._refusal = str(error)
        self._failures = FailureFile(Path(failures), max_failure_bytes)

    def ready(self) -> None:
        """Return once the functions are loaded.

        Raises:
            RunError: a function cannot be used; the message says why.
        """
        if self._refusal:
            raise RunError(self._refusal)

    def report(self) -> list[ProcessReport]:
        """Return the host's seconds and memory since its last report."""
        return [self._reporter.take()]

    def score(self, block: DataProto) -> Reply:
        """Reply with the :class:`Scores` of the block's rows, or of the last row of each episode."""
        self.ready()
        samples = self._samples(samples_of(block))
        current(StoreCounters).add_fetched(block.nbytes)
        with stage("reward", waits_for=SCORERS):
            outcomes = (
                self._team.score(samples)
                if self._team is not None
                else [Outcome("ok", 0.0, {}, "", 0.0)] * len(samples)
            )
        self._record_failures(samples, outcomes)
        pairs = list(zip(samples, outcomes, strict=True))
        scores = Scores(
            score=np.array([np.nan if o.score is None else o.score for o in outcomes], np.float32),
            failure=objects([_failure(s, o) for s, o in pairs]),
            details=objects([o.details for o in outcomes]),
            answer=np.array(
                [_vote(str(o.details["pred"])) if "pred" in o.details else _fingerprint(s.response) for s, o in pairs]
            ),
            seconds=np.array([o.seconds for o in outcomes], np.float32),
            was_alone=np.array([o.status == "ok" and bool(o.message) for o in outcomes]),
        )
        return Reply(scores, current(StoreCounters).take())

    def dump(self, rows: RemoteRows, facts: Facts, path: str, *, appends: bool, timeout_s: float) -> None:
        """Write these rows as text: one JSON object per line, which is a sample with all rows of its episode."""
        of_tokens = [name for name in TOKEN_COLUMNS if name in rows.columns]
        of_turns = [name for name in TURN_COLUMNS if name in rows.columns]
        columns = ["prompt_text", "prompt_ids", "response_ids", "reward_inputs", *of_tokens, *of_turns]
        table = rows.fetch(columns, timeout_s=timeout_s)
        prompt_ids, tokens = table.ragged("prompt_ids"), self._tokens(table.only([*of_tokens, "response_ids"]))
        turns = {TURN_COLUMNS[name]: table.ragged(name) for name in of_turns}
        is_last = np.isin(np.arange(len(table)), np.arange(len(table))[last_rows(facts)])
        earlier: list[dict[str, Any]] = []
        # A lone surrogate, which UTF-8 cannot encode, becomes its JSON escape.
        mode = "a" if appends else "w"
        with writing(Path(path)), Path(path).open(mode, encoding="utf-8", errors="backslashreplace") as out:
            for i, sample in enumerate(self._samples(table)):
                context = context_of(
                    sample,
                    prompt_ids=prompt_ids[i].tolist(),
                    tokens=next(tokens, None),
                    turns={name: token_values(column[i]) for name, column in turns.items()},
                )
                if not is_last[i]:
                    earlier.append(context)
                    continue
                known = {name: fact[i] for name, fact in facts.items() if name != EPISODE_ROW}
                line = sample_line(sample, known, context, earlier)
                out.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
                earlier = []

    def _tokens(self, table: DataProto) -> Iterator[dict[str, Any]]:
        """Yield the texts and the columns of each row's tokens, until they are ``MAX_TOKENS``."""
        ids = table.ragged("response_ids")
        columns = {name: table.ragged(name) for name in table.columns if name != "response_ids"}
        within = np.cumsum(ids.lengths) <= MAX_TOKENS
        for i in np.flatnonzero(within).tolist():
            with self._decoder_lock:
                texts = self._decoder.token_texts(ids[i].tolist())
            yield {"text": texts, **{name: token_values(column[i]) for name, column in columns.items()}}

    def keep(self, rows: RemoteRows, facts: Facts, folder: str, *, columns: list[str], timeout_s: float) -> None:
        """Write these rows unchanged, some at a time."""
        for some in pieces(facts["prompt_tokens"] + facts["response_tokens"]):
            table = rows.select(some).fetch(columns, timeout_s=timeout_s)
            path = Path(folder) / f"rows_{some[0]:06d}.npz"
            with writing(path):
                write_rows(
                    path,
                    {
                        **{name: fact[some] for name, fact in facts.items()},
                        **{name: table.ragged(name) for name in columns},
                    },
                )

    def _samples(self, table: DataProto) -> list[Sample]:
        response_ids = [np.asarray(ids, np.int32) for ids in table.ragged("response_ids")]
        with self._decoder_lock:  # a tokenizer is not thread-safe
            responses = self._decoder.texts([ids.tolist() for ids in response_ids])
        prompts: Any = table["prompt_text"]
        inputs: Any = table["reward_inputs"]
        return [
            Sample(response=response, prompt=prompt, response_ids=array("i", ids.tobytes()), **row)
            for response, prompt, ids, row in zip(responses, prompts, response_ids, inputs, strict=True)
        ]

    def _record_failures(self, samples: Sequence[Sample], outcomes: Sequence[Outcome]) -> None:
        failed = [(s, o) for s, o in zip(samples, outcomes, strict=True) if o.status != "ok"]
        if failed:
            self._failures.append(failed)


def pieces(tokens: Array) -> list[Array]:
    """Split rows into pieces of about ``TOKENS_AT_ONCE`` tokens; return the positions of the rows of each piece.

    Args:
        tokens: [B] integers, the number of tokens of each row.
    """
    number = np.cumsum(tokens) // TOKENS_AT_ONCE
    return np.split(np.arange(len(tokens)), np.flatnonzero(np.diff(number)) + 1)


def _failure(sample: Sample, outcome: Outcome) -> Failure | None:
    if outcome.status == "ok":
        return None
    return clipped_failure(outcome.status, outcome.message, sample.prompt, sample.response)


def _vote(pred: str) -> str:
    """Return the answer that votes are counted by, shortened: in an array, every text takes the longest one's space."""
    return pred if len(pred) <= MAX_VOTE_CHARS else f"{pred[:MAX_VOTE_CHARS]}... {_fingerprint(pred)}"


def _fingerprint(text: str) -> str:
    """Return a short hash that stands for a response if only equality matters."""
    return blake2b(text.strip().encode("utf-8", "replace"), digest_size=12).hexdigest()
