"""Agent programs: functions that talk to the model through a base URL, as with any provider's API."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from verl_like_environments.calls import called
from verl_like_environments.session import BadReturn, EpisodeRow


class AgentProgram:
    """``async run(base_url, prompt, request_kwargs, metadata)``, of which any part may be left out.

    The function makes its own requests; each is recorded by the gateway behind the URL. It may return a reward, a dict
    with ``reward`` and other numbers, or None.
    """

    name = "an agent program"

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    async def run(
        self, row: EpisodeRow, *, base_url: str, api_key: str, request_kwargs: Mapping[str, Any]
    ) -> float | None:
        """Run one episode, and return its reward, if the program gives one."""
        known = {
            "base_url": base_url,
            "api_key": api_key,
            "prompt": row.messages,
            "messages": row.messages,
            "request_kwargs": dict(request_kwargs),
            "metadata": {**row.columns, "seed": row.seed, "api_key": api_key},
            "row": row.columns,
        }
        parameters = inspect.signature(self._run).parameters.values()
        if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
            passed = known
        else:
            passed = {parameter.name: known[parameter.name] for parameter in parameters if parameter.name in known}
        found = await called(self._run, **passed)
        if isinstance(found, Mapping):
            found = found.get("reward")
        if found is None:
            return None
        if not isinstance(found, int | float):
            raise BadReturn(
                f"the agent program returned a {type(found).__name__}; expected a reward, a dict with one, or None."
            )
        return float(found)
