"""The environment and the agent program of ``benchmarks.agent_overlap``."""

from __future__ import annotations

import asyncio
import json
import urllib.request


class SlowTool:
    """An environment whose answers take a given time."""

    async def reset(self, num_turns: int, latency_s: float, answer: str) -> None:
        self._left, self._latency_s, self._answer = num_turns, latency_s, answer

    async def step(self, text: str) -> tuple[str, float, bool]:
        await asyncio.sleep(self._latency_s)
        self._left -= 1
        return f"{self._left} turns are left. {self._answer}", 0.0, self._left == 0


async def run(base_url: str, prompt: list[dict[str, str]], metadata: dict[str, str]) -> float:
    """Ask for so many turns, each with the whole chat."""
    for _ in range(int(metadata["num_turns"])):
        reply = await asyncio.to_thread(_reply, base_url, metadata["api_key"], prompt)
        prompt = [*prompt, reply, {"role": "user", "content": metadata["answer"]}]
    return 1.0


def _reply(base_url: str, api_key: str, messages: list[dict[str, str]]) -> dict[str, str]:
    request = urllib.request.Request(
        f"{base_url}/v1/chat/completions",
        data=json.dumps({"model": "policy", "messages": messages}).encode(),
        headers={"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as response:
        found: dict[str, str] = json.load(response)["choices"][0]["message"]
    return found
