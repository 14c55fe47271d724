"""The judge: a language model in a separate engine that gives a verdict on each response."""

from __future__ import annotations

import hashlib
from typing import Any

import jinja2
import torch

from verl_like.backends.base import Finished, Request, RolloutEngine, Sampling
from verl_like.backends.model_folder import checkpoint_weights, model_folder
from verl_like.backends.rollout import rollout_engine
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.context import current
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.store import StoreCounters
from verl_like.data.templates import load_tokenizer
from verl_like.protocol import DataProto, samples_of
from verl_like.reward.scores import Scores
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.workers.reward_models.inputs import decoded, scoring_tokenizer
from verl_like.workers.setup import WorkerSetup, join_process_group, with_local_models
from verl_like_graders.judging import check_judging, conversation, judge_prompt, judged_score

STEP_TOKENS = 8192  # of one engine step; on CPU a whole sequence must also fit
VERDICT_CHARS = 500  # kept from a verdict's end, which contains the score


def build_roles(setup: WorkerSetup) -> dict[str, Any]:
    """Build the single role of a judge's worker."""
    setup = with_local_models(setup)
    join_process_group(setup)
    return {"JudgeRole": JudgeRole(setup, judge_engine(setup))}


def judge_engine(setup: WorkerSetup) -> RolloutEngine:
    """Return an engine that holds the judge's weights and is ready to generate.

    Raises:
        ValueError: for a model that the engine cannot run.
    """
    config, judge = setup.config, setup.config.reward.judge
    scoring_tokenizer(judge.path, trust_remote_code=config.model.trust_remote_code, option="reward.judge.path")
    model = ModelConfig(path=judge.path, trust_remote_code=config.model.trust_remote_code)
    rollout = RolloutConfig(
        backend=judge.backend,
        tensor_parallel_size=judge.tensor_parallel_size,
        gpu_memory_utilization=str(judge.gpu_memory_utilization),
        kv_cache_memory_gib=judge.kv_cache_memory_gib,
        max_num_batched_tokens=max(judge.max_model_len, STEP_TOKENS),
    )
    try:
        check_judging(judge.template, pattern=judge.score_pattern, max_score=judge.max_score)
        engine = rollout_engine(
            judge.backend,
            model_path=judge.path,
            tokenizer_path="",
            model=model,
            rollout=rollout,
            max_model_len=judge.max_model_len,
            # Engines of one run share names of shared memory, and the rollout's ranks have the same numbers.
            device=setup.device,
            seed=config.trainer.seed,
            run_id=f"{setup.run_id}-judge",
        )
        folder = model_folder(model_path=judge.path, tokenizer_path="", model=model)
        dtype = torch.float32 if setup.device == "cpu" else torch.bfloat16
        engine.begin_sync(0)
        engine.load(checkpoint_weights(judge.path, folder, dtype=dtype, device=torch.device(setup.device)))
        engine.finish_sync()
    except ValueError as error:  # its message names options of the policy's engine
        raise ValueError(
            f"the judge reward.judge.path={judge.path} cannot be used (its options are those of reward.judge, not of "
            f"rollout): {error}"
        ) from error
    engine.wake()
    return engine


class JudgeRole:
    """Rates responses with this rank's engine; ranks that share an engine get the same blocks."""

    def __init__(self, setup: WorkerSetup, engine: RolloutEngine) -> None:
        config = setup.config
        self._judge, self._engine = config.reward.judge, engine
        self._seed = config.trainer.seed
        self._is_first_rank = setup.rank % self._judge.tensor_parallel_size == 0
        self._policy_tokenizer = load_tokenizer(config.model.tokenizer, config.model.trust_remote_code)
        self._tokenizer = scoring_tokenizer(
            self._judge.path, trust_remote_code=config.model.trust_remote_code, option="reward.judge.path"
        )
        self._sampling = Sampling(max_tokens=self._judge.max_tokens, temperature=self._judge.temperature)

    @dispatch(Dispatch.BROADCAST)
    def judge(self, block: DataProto) -> Scores | None:
        """Return scores of a block's samples, with the end of each ``judge_verdict``; None on an engine's other
        ranks.
        """
        current(StoreCounters).add_fetched(block.nbytes)
        block = samples_of(block)
        scores = [float("nan")] * len(block)
        messages = [""] * len(block)
        details: list[dict[str, float | str]] = [{} for _ in range(len(block))]
        questions: dict[int, list[int]] = {}
        for row, text in enumerate(decoded(self._policy_tokenizer, block)):
            try:
                questions[row] = self._question(block, row, text)
            except (ValueError, jinja2.TemplateError) as error:
                messages[row] = str(error)
        for row, verdict in self._verdicts(questions).items():
            text = self._tokenizer.decode(verdict.response_ids, skip_special_tokens=True)
            details[row] = {"judge_verdict": text[-VERDICT_CHARS:]}
            try:
                scores[row] = judged_score(text, pattern=self._judge.score_pattern, max_score=self._judge.max_score)
            except ValueError as error:
                was_cut = (
                    f" It was truncated at reward.judge.max_tokens={self._judge.max_tokens}."
                    if verdict.finish_reason == "length"
                    else ""
                )
                messages[row] = f"{error}{was_cut}"
        return Scores.of_model(scores, messages, details) if self._is_first_rank else None

    def _question(self, block: DataProto, row: int, response: str) -> list[int]:
        """Return the ids of the judge's prompt about a row.

        Raises:
            ValueError: if the template cannot be filled, or the question is too long.
            jinja2.TemplateError: from the judge's own chat template.
        """
        inputs: Any = block["reward_inputs"]
        text = judge_prompt(
            self._judge.template,
            prompt=conversation(inputs[row]["messages"]),
            response=response,
            ground_truth=inputs[row]["ground_truth"],
            extra_info=inputs[row]["extra_info"],
        )
        if self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
            )
        ids: list[int] = self._tokenizer(text, add_special_tokens=not self._tokenizer.chat_template, verbose=False)[
            "input_ids"
        ]
        most = self._judge.max_model_len - self._judge.max_tokens
        if not 0 < len(ids) <= most:
            raise ValueError(
                f"the question to the judge has {len(ids)} tokens, expected 1 to {most}. Raise "
                "reward.judge.max_model_len, or shorten reward.judge.template."
            )
        return ids

    def _verdicts(self, questions: dict[int, list[int]]) -> dict[int, Finished]:
        self._engine.submit(
            [
                Request(request_id=str(row), prompt_ids=ids, sampling=self._sampling, seed=_seed(self._seed, ids))
                for row, ids in questions.items()
            ]
        )
        verdicts: dict[int, Finished] = {}
        while self._engine.has_unfinished():
            current(Heartbeat).tick()
            verdicts |= {int(done.request_id): done for done in self._engine.step()}
        return verdicts


def _seed(run_seed: int, question: list[int]) -> int:
    """Hash the question to 63 bits, so that equal questions get equal verdicts."""
    digest = hashlib.blake2b(f"{run_seed}/{question}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
