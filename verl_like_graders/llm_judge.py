"""Reward from a language model at an OpenAI-compatible endpoint (vLLM, SGLang, a provider)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_graders.http import Service, post_json
from verl_like_graders.judging import check_judging, conversation, judge_prompt, judged_score
from verl_like_graders.masking import masked_text

VERDICT_CHARS = 500  # of the end of the verdict, which contains the score, are kept


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    messages: Any,
    url: str,
    model: str,
    api_key_env: str = "",
    template: str = "",
    score_pattern: str = "",
    max_score: float = 10.0,
    max_tokens: int = 512,
    temperature: float = 0.0,
    extra_body: Mapping[str, Any] | None = None,
    requests_per_s: float = 0.0,
    max_retries: int = 3,
    retry_s: float = 0.5,
    request_timeout_s: float = 120.0,
) -> dict[str, float | str]:
    """Return the judge's score as a fraction of ``max_score``.

    :mod:`verl_like_graders.judging` describes the judge's prompt and how reliable its score is. A verdict takes
    seconds: raise the time limit of samples (``reward.timeout_s``), and send the judge requests in parallel
    (``reward.max_concurrency``).

    Args:
        messages: the prompt as in the row.
        url: the base URL without ``/chat/completions``, e.g. ``http://127.0.0.1:8000/v1``.
        api_key_env: name of the environment variable that holds the key; empty sends none.
        template, score_pattern: see :func:`judge_prompt` and :func:`judged_score`; the built-in ones if empty.
        max_tokens: maximum length of the verdict, reasoning included.
        extra_body: more fields of the request, e.g. ``{chat_template_kwargs: {enable_thinking: false}}``.
        requests_per_s, max_retries, retry_s, request_timeout_s: see :class:`verl_like_graders.http.Service`.

    Returns:
        ``score`` and the end of the ``verdict``.

    Raises:
        ValueError: the judge cannot be reached, refuses, or returns no score.
    """
    check_judging(template, pattern=score_pattern, max_score=max_score)
    question = judge_prompt(
        template, prompt=conversation(messages), response=solution_str, ground_truth=ground_truth, extra_info=extra_info
    )
    headers = {"Authorization": f"Bearer ${{{api_key_env}}}"} if api_key_env else {}
    service = Service(
        url=f"{url.rstrip('/')}/chat/completions",
        headers=headers,
        requests_per_s=requests_per_s,
        max_retries=max_retries,
        retry_s=retry_s,
        request_timeout_s=request_timeout_s,
    )
    answer = await post_json(
        service,
        {
            "model": model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": max_tokens,
            "temperature": temperature,
            **(extra_body or {}),
        },
    )
    verdict = _verdict(answer, service.url)
    score = judged_score(verdict, pattern=score_pattern, max_score=max_score)
    return {"score": score, "verdict": verdict[-VERDICT_CHARS:]}


def _verdict(answer: Any, url: str) -> str:
    try:
        choice = answer["choices"][0]
        verdict = choice["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise ValueError(
            f"{masked_text(url)} answered {answer!r:.200}; expected a chat completion with choices[0].message.content. "
            "Check that url ends before /chat/completions."
        ) from None
    if not isinstance(verdict, str):
        raise ValueError(
            f"the judge answered {verdict!r} (finish_reason {choice.get('finish_reason')!r}); expected text. A "
            "reasoning model needs more max_tokens."
        )
    return verdict
