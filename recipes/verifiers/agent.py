"""The agent program of the recipe: one episode of a verifiers taskset, in an interpreter that has verifiers 0.4.

Its harness makes requests to ``base_url``, where the token ids and log-probs are recorded. ``RENDERER_MODEL`` names the
tokenizer with which verifiers renders chats; it must be the model that is trained.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import verifiers.v1 as vf  # type: ignore[import-not-found]

MODEL = os.environ.get("RENDERER_MODEL", "Qwen/Qwen3-1.7B")
NUM_TASKS = 4200


class ProductData(vf.TaskData):
    """A product to compute."""

    product: int


class ProductTask(vf.Task[ProductData]):
    """Is rewarded for the product as the last word of the reply."""

    @vf.reward
    async def is_right(self, trace: vf.Trace) -> float:
        words = str(trace.last_reply).replace(",", "").split()
        return float(bool(words) and words[-1].strip(".*$") == str(self.data.product))


class Products(vf.Taskset[ProductTask, vf.TasksetConfig]):
    """Products of numbers of two digits; the number of a task decides its factors."""

    def load(self) -> Iterator[ProductTask]:
        for number in range(NUM_TASKS):
            a, b = 11 + number % 70, 11 + number // 70
            text = f"What is {a} x {b}? Think step by step, and end with the product alone."
            yield ProductTask(ProductData(idx=number, prompt=text, product=a * b), self.config.task)


TASKS = list(Products(vf.TasksetConfig(id="products")))


async def run(base_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any]) -> float:
    """Run the task whose number is in the row, and return its reward."""
    os.environ["POLICY_API_KEY"] = metadata["api_key"]  # a process runs one episode at a time
    client = vf.TrainClientConfig(base_url=base_url, api_key_var="POLICY_API_KEY", renderer_model_name=MODEL)
    agent = vf.Agent(
        vf.AgentConfig(
            harness={"id": "null"},
            runtime=vf.SubprocessConfig(),
            model="policy",
            client=client,
            sampling=vf.SamplingConfig(**request_kwargs),
        )
    )
    trace = await agent.run(TASKS[metadata["number"]])
    if not trace.ok:
        raise RuntimeError(trace.errors[-1].message)
    return float(trace.reward)
