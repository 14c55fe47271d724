"""Reward from an HTTP service: each sample is posted to it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from verl_like_graders.http import Service, post_json
from verl_like_graders.masking import masked_text

PROTOCOLS = ("verl_like", "openrlhf")


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    prompt_str: str,
    url: str,
    protocol: str = "verl_like",
    headers: Mapping[str, str] | None = None,
    requests_per_s: float = 0.0,
    max_retries: int = 3,
    retry_s: float = 0.5,
    request_timeout_s: float = 30.0,
) -> dict[str, Any]:
    """Return the score in the service's answer.

    With ``protocol="verl_like"`` it receives ``{"data_source", "prompt", "response", "ground_truth", "extra_info"}``
    and answers with a number, or with ``{"score": number}`` and any other values to log.

    With ``protocol="openrlhf"`` a server written for OpenRLHF's ``remote_rm_url`` receives one-element lists
    ``{"query": [prompt + response], "prompts": [prompt], "labels": [ground_truth]}`` and answers
    ``{"rewards": [number]}``, optionally with ``extra_logs``. Its query ends with the response's text, without the end
    token that OpenRLHF leaves there.

    Args:
        prompt_str: the prompt as the chat template rendered it.
        headers, requests_per_s, max_retries, retry_s, request_timeout_s: see :class:`verl_like_graders.http.Service`.

    Returns:
        ``score`` and the answer's other entries.

    Raises:
        ValueError: the service cannot be reached, refuses, or returns an invalid answer.
    """
    service = Service(
        url=url,
        headers=headers or {},
        requests_per_s=requests_per_s,
        max_retries=max_retries,
        retry_s=retry_s,
        request_timeout_s=request_timeout_s,
    )
    if protocol == "openrlhf":
        sent = {"query": [prompt_str + solution_str], "prompts": [prompt_str], "labels": [ground_truth]}
        return _openrlhf_result(await post_json(service, sent), url)
    if protocol != "verl_like":
        raise ValueError(f"protocol is {protocol!r}; expected one of {', '.join(PROTOCOLS)}.")
    return _result(
        await post_json(
            service,
            {
                "data_source": data_source,
                "prompt": prompt_str,
                "response": solution_str,
                "ground_truth": ground_truth,
                "extra_info": extra_info,
            },
        ),
        url,
    )


def _result(answer: Any, url: str) -> dict[str, Any]:
    if isinstance(answer, Real):
        return {"score": answer}
    if not isinstance(answer, dict) or not isinstance(answer.get("score"), Real):
        raise ValueError(
            f'{masked_text(url)} answered {answer!r:.200}; expected {{"score": number}} or a number. Correct the '
            "service, or set protocol."
        )
    return answer


def _openrlhf_result(answer: Any, url: str) -> dict[str, Any]:
    rewards = _only(answer.get("rewards")) if isinstance(answer, dict) else None
    if not isinstance(rewards, Real):
        raise ValueError(
            f'{masked_text(url)} answered {answer!r:.200}; expected {{"rewards": [number]}} with one number, as it was '
            "asked about one response. Correct the service, or set protocol."
        )
    logs = answer.get("extra_logs")
    return {
        **{name: _only(value) for name, value in (logs if isinstance(logs, dict) else {}).items()},
        "score": rewards,
    }


def _only(value: Any) -> Any:
    """Return the item of a list of one, and any other value unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
