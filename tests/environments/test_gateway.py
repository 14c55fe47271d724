"""Agent programs through the gateway, over HTTP and with the openai package; one character is one token."""

from __future__ import annotations

import asyncio
import json
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import openai
import psutil
import pytest

from tests.environments._serving import MODEL, NEVER, RecordingEngine, Serving, check_rows, serving
from verl_like.environments.episode import Budgets
from verl_like.environments.gateway import Gateway
from verl_like.workers import environment_episodes

pytestmark = pytest.mark.processes
TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = '{"name":"add",  "arguments": {"x": 1}}'  # rendered again it would have other spaces
GUESSES = """
import openai
import openai.resources.chat.completions  # which openai imports at the first request, in each process

async def run(base_url, api_key, prompt, request_kwargs, metadata):
    client = openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0)
    messages = list(prompt)
    for number in range(3):
        found = await client.chat.completions.create(
            model="gpt", messages=messages, extra_body={"return_token_ids": True}, **request_kwargs
        )
        [choice] = found.choices
        assert "".join(map(chr, choice.token_ids)) == choice.message.content + "$"
        assert found.usage.prompt_tokens == len(found.prompt_token_ids)
        messages += [choice.message, {"role": "user", "content": f"no, {number}"}]
    return {"reward": float(len(messages)), "row": metadata["row"]}
"""


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def client_of(served: Serving, row: int = 0, **options: Any) -> openai.OpenAI:
    address = served.addresses[row]
    return openai.OpenAI(base_url=f"{address.base_url}/v1", api_key=address.api_key, max_retries=0, **options)


@pytest.mark.parametrize("num", [4, pytest.param(32, marks=pytest.mark.slow)])
def test_of_programs_at_the_same_time_the_sampled_ids_are_recorded(
    tmp_path: Path, num: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, lambda context: f"{len(context)}", program=GUESSES, num=num) as served:
        samples = served.wait()
        assert [sample.facts["environment_status"] for sample in samples] == ["ok"] * num
        assert {sample.facts["environment_reward"] for sample in samples} == {7.0}
        assert all(sample.facts["num_turns"] == 3 and len(sample.responses) == 1 for sample in samples)
        check_rows(served.engine.turns, samples)
        assert len(served.engine.turns) == 3 * num and served.gateway.usage.num_refused == 0
    assert "no effect" not in caplog.text, "the run's own settings are no others"


def test_tool_calls_streamed_or_not(tmp_path: Path) -> None:
    def say(context: str) -> str:
        return ["(hm)start", CALL, CALL, "done"][context.count("<a>") - 1]

    with serving(tmp_path, say) as served:
        client = client_of(served)
        messages: list[Any] = [user("hi")]
        message = client.chat.completions.create(model="m", messages=messages, tools=TOOLS).choices[0].message
        assert message.content == "start" and message.model_dump()["reasoning_content"] == "hm"
        messages += [message, user("use the tool")]
        found = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        assert found.choices[0].finish_reason == "tool_calls" and found.choices[0].message.content is None
        [call] = found.choices[0].message.tool_calls or []
        assert (
            call.type == "function" and call.function.name == "add" and json.loads(call.function.arguments) == {"x": 1}
        )
        messages += [found.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "1"}]
        with client.chat.completions.stream(
            model="m", messages=messages, tools=TOOLS, logprobs=True, stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()
        [choice] = streamed.choices
        assert choice.finish_reason == "tool_calls" and choice.logprobs is not None and choice.message.tool_calls
        second = choice.message.tool_calls[0]
        assert second.id != call.id and json.loads(second.function.arguments) == {"x": 1}
        assert "".join(each.token for each in choice.logprobs.content or []) == f"{CALL}$"
        assert streamed.usage is not None and streamed.usage.completion_tokens == len(CALL) + 1
        answer = choice.message.model_dump(exclude={"parsed"})
        messages += [answer, {"role": "tool", "tool_call_id": second.id, "content": "2"}]
        chunks = list(
            client.chat.completions.create(
                model="m", messages=messages, tools=TOOLS, stream=True, extra_body={"return_token_ids": True}
            )
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "done"
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert "".join(map(chr, chunks[-1].choices[0].model_dump()["token_ids"])) == "done$"
        [sample] = served.finish(0.5)
        assert len(sample.responses) == 1, "one chat that the template keeps is one row"
        assert sample.facts["num_tool_calls"] == 2 and sample.facts["environment_reward"] == 0.5
        check_rows(served.engine.turns, [sample])


def test_a_sub_agent_runs_at_the_same_time(tmp_path: Path) -> None:
    async def agents(served: Serving) -> None:
        address = served.addresses[0]
        async with openai.AsyncOpenAI(base_url=address.base_url, api_key=address.api_key, max_retries=0) as client:

            async def chat(name: str) -> None:
                messages: list[Any] = [user(name)]
                for number in range(4):
                    found = await client.chat.completions.create(model="m", messages=messages)
                    messages += [found.choices[0].message, user(str(number))]

            await asyncio.gather(chat("main"), chat("sub"), chat("sub"))

    budgets = Budgets(max_turns=12, max_turn_tokens=50, max_tool_tokens=50, max_episode_tokens=500)
    with serving(tmp_path, lambda context: f"{len(context)}", budgets=budgets) as served:
        asyncio.run(agents(served))
        [sample] = served.finish()
        prompts = ["".join(map(chr, response.prompt_ids or [])) for response in sample.responses]
        assert {"<u>main$\n<a>", "<u>sub$\n<a>"} == set(prompts) and sample.facts["num_turns"] == 12
        check_rows(served.engine.turns, [sample])


def test_a_client_that_disconnects_aborts_its_request(tmp_path: Path) -> None:
    with serving(tmp_path, lambda context: "yes") as served:
        with pytest.raises(openai.APITimeoutError):
            client_of(served, timeout=0.5).chat.completions.create(model="m", messages=[user(NEVER)])
        deadline = time.monotonic() + 10
        while not served.engine.aborted and time.monotonic() < deadline:
            time.sleep(0.01)
        assert served.engine.aborted == ["0:0"] and not served.engine.waiting
        assert client_of(served).chat.completions.create(model="m", messages=[user("hi")]).choices
        [sample] = served.finish()
        assert sample.facts["num_turns"] == 1
        check_rows(served.engine.turns, [sample])


def test_requests_in_progress_end_with_their_episode(tmp_path: Path) -> None:
    async def pending(served: Serving) -> int:
        address = served.addresses[0]
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {address.api_key}"}, timeout=30) as client:
            body = {"messages": [user(NEVER)]}
            request = asyncio.create_task(client.post(f"{address.base_url}/v1/chat/completions", json=body))
            while not served.engine.waiting:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(served.finish)
            return (await request).status_code

    with serving(tmp_path, lambda context: "yes") as served:
        assert asyncio.run(pending(served)) == 410
        assert served.engine.aborted == ["0:0"] and served.samples[0].facts["environment_status"] == "ok"
        with pytest.raises(openai.APIStatusError, match="the episode has ended") as ended:
            client_of(served).chat.completions.create(model="m", messages=[user("hi")])
        assert ended.value.status_code == 410


def test_keys_and_junk_are_refused_and_end_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, lambda context: "yes", num=2) as served:
        one, other = served.addresses
        path, keys = "/v1/chat/completions", {"Authorization": f"Bearer {one.api_key}"}
        content = json.dumps({"messages": [user("hi")]}).encode()

        def post(url: str, headers: dict[str, str], body: bytes = content) -> tuple[int, Any]:
            found = httpx.post(url, headers=headers, content=body, timeout=30)
            return found.status_code, found.json()["error"]["code"] if found.is_error else "ok"

        assert post(one.base_url + path, keys) == (200, "ok")
        for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": f"Bearer {other.api_key}"}):
            assert post(one.base_url + path, wrong) == (401, "invalid_api_key")
        base = one.base_url.removesuffix(f"/{one.number}")
        for name in ("99", "x", "-1", "0", "9" * 5000):
            assert post(f"{base}/{name}{path}", keys)[0] in (400, 404), "a URL of 5000 characters may be a bad request"
        assert post(one.base_url + "/v1/embeddings", keys) == (404, "not_found")
        assert post(one.base_url + path, keys, b"{") == (400, "invalid_json")
        assert post(one.base_url + path, keys, b"\xff\xfe\x00") == (400, "invalid_json")
        assert post(one.base_url + path, keys, b" " * 600_000) == (413, "body_too_large")
        halves = json.dumps({"messages": [user("\ud800")]}).encode()
        assert post(one.base_url + path, keys, halves)[0] in (200, 400)
        function = '{"name": "f", "arguments": {"x": ' + "[" * 900 + "]" * 900 + "}}"
        deep = '{"messages": [{"role": "assistant", "tool_calls": [{"function": ' + function + "}]}]}"
        assert post(one.base_url + path, keys, deep.encode())[0] == 400
        with pytest.raises(openai.BadRequestError, match=r"does not support; expected 1\. Leave it out") as refused:
            client_of(served).chat.completions.create(model="m", messages=[user("hi")], n=2)
        assert refused.value.param == "n" and refused.value.type == "invalid_request_error"
        assert [model.id for model in client_of(served).models.list()] == [MODEL.name]
        samples = served.finish()
        assert [sample.facts["environment_status"] for sample in samples] == ["ok", "ok"]


def test_a_budget_that_is_used_up_is_named(tmp_path: Path) -> None:
    budgets = Budgets(max_turns=2, max_turn_tokens=3, max_tool_tokens=50, max_episode_tokens=500)
    with serving(tmp_path, lambda context: "a long answer", budgets=budgets) as served:
        client = client_of(served)
        found = client.chat.completions.create(model="m", messages=[user("hi")], max_completion_tokens=2)
        assert found.choices[0].finish_reason == "length" and found.choices[0].message.content == "a "
        found = client.chat.completions.create(model="m", messages=[user("hi")])
        assert found.choices[0].message.content == "a l"
        with pytest.raises(openai.BadRequestError, match=r"environment\.max_turns") as refused:
            client.chat.completions.create(model="m", messages=[user("hi")])
        assert refused.value.code == "max_turns"
        [sample] = served.finish()
        assert {response.finish_reason for response in sample.responses} == {"max_turns"}


FAILS = """
import os

async def run(base_url, metadata):
    if metadata["row"] == 0:
        raise RuntimeError("it broke")
    if metadata["row"] == 1:
        os._exit(3)
    if metadata["row"] == 2:
        import time
        time.sleep(1000)
"""


def test_a_program_that_fails_ends_its_own_episode(tmp_path: Path) -> None:
    with serving(tmp_path, lambda context: "yes", program=FAILS, num=4, timeout_s=3.0) as served:
        samples = served.wait()
        assert [sample.facts["environment_status"] for sample in samples] == ["error", "crash", "timeout", "ok"]
        assert all(sample.facts["environment_reward"] != sample.facts["environment_reward"] for sample in samples)


def test_a_request_wakes_an_idle_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_episodes, "IDLE_S", 60.0)
    with serving(tmp_path, lambda context: "yes") as served:
        for _ in range(3):
            client_of(served, timeout=20).chat.completions.create(model="m", messages=[user("hi")])
        assert len(served.finish()[0].responses) == 3


def test_ranks_of_one_engine_get_the_requests_that_the_first_rank_takes(tmp_path: Path) -> None:
    values: queue.Queue[Any] = queue.Queue()

    def first(value: Any) -> Any:
        values.put(value)
        return value

    ranks = [SimpleNamespace(shared=first), SimpleNamespace(shared=lambda _: values.get(timeout=20))]
    engine = RecordingEngine(lambda context: "yes")

    def second() -> list[Any]:
        found: list[Any] = []
        episodes = environment_episodes.RunningEnvironments(
            cast("Any", engine), cast("Any", ranks[1]), None, list, call_timeout_s=1.0, episode_timeout_s=1.0
        )
        while episodes.has_unfinished():
            found += episodes.step()
        return found

    with serving(tmp_path, lambda context: "yes", ranks=cast("Any", ranks[0])) as served, ThreadPoolExecutor(1) as pool:
        samples = pool.submit(second)
        client_of(served).chat.completions.create(model="m", messages=[user("hi")])
        with pytest.raises(openai.APITimeoutError):
            client_of(served, timeout=0.5).chat.completions.create(model="m", messages=[user(NEVER)])
        client_of(served).chat.completions.create(model="m", messages=[user("so?")])
        served.finish()
        assert [sample.facts for sample in samples.result(timeout=30)] == [sample.facts for sample in served.samples]
        own, other = ([asked for asked, _ in each.turns] for each in (served.engine, engine))
        assert own == other and len(own) == 2 and engine.aborted == served.engine.aborted == ["0:1"]


def test_other_sampling_settings_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, lambda context: "yes") as served:
        for temperature in (0.0, 0.5, 1.0):
            client_of(served).chat.completions.create(model="m", messages=[user("hi")], temperature=temperature)
        served.finish()
    [message] = [record.message for record in caplog.records if "no effect" in record.message]
    assert "sets temperature in its requests" in message and "temperature=1.0" in message


def test_the_gateway_listens_on_the_loopback_alone() -> None:
    with pytest.raises(ValueError, match=r"cannot connect to; expected the address of one interface\. Use 127"):
        Gateway(MODEL, host="0.0.0.0")
    gateway = Gateway(MODEL)
    gateway.start()
    port = int(gateway.open({}).base_url.rsplit("/", 1)[0].rsplit(":", 1)[1])
    sockets = [each.laddr for each in psutil.Process().net_connections() if each.laddr and each.laddr.port == port]
    gateway.close()
    assert [address.ip for address in sockets] == ["127.0.0.1"]


class Renderer:
    """The methods of a renderer that the client of verifiers calls when it has the ids of the prompt."""

    def get_stop_token_ids(self) -> list[int]:
        return [ord("$"), ord("#")]

    def parse_response(self, ids: list[int], **_: Any) -> Any:
        text = "".join(map(chr, ids))
        return SimpleNamespace(content=text, reasoning_content=None, tool_calls=[], reasoning_complete=True)


def test_the_client_of_verifiers_gets_ids_and_log_probs(tmp_path: Path) -> None:
    client_module = pytest.importorskip("renderers.client", reason="pip install renderers")

    async def turns(served: Serving) -> list[dict[str, Any]]:
        address, found = served.addresses[0], []
        async with openai.AsyncOpenAI(base_url=f"{address.base_url}/v1", api_key=address.api_key) as client:
            ids = [ord(character) for character in "<u>hi$\n<a>"]
            for _ in range(3):
                found.append(
                    await client_module.generate(
                        client=client, renderer=Renderer(), messages=[], model=MODEL.name, prompt_ids=ids
                    )
                )
                ids = [*ids, *found[-1]["completion_ids"], *map(ord, "\n<u>more$\n<a>")]
            with pytest.raises(client_module.OverlongPromptError):
                await client_module.generate(
                    client=client, renderer=Renderer(), messages=[], model=MODEL.name, prompt_ids=[65] * 1001
                )
        return found

    with serving(tmp_path, lambda context: f"{len(context)}") as served:
        found = asyncio.run(turns(served))
        assert [each["content"] for each in found] == ["10$", "26$", "42$"]
        assert found[1]["completion_logprobs"] == pytest.approx(served.engine.turns[1][1].log_probs)
        [sample] = served.finish()
        assert len(sample.responses) == 1 and found[0]["finish_reason"] == "stop"
        check_rows(served.engine.turns, [sample])


def test_tokens_in_and_out_have_vllm_s_form(tmp_path: Path) -> None:
    with serving(tmp_path, lambda context: "yes") as served:
        address = served.addresses[0]
        body = {"token_ids": [60, 97, 62], "sampling_params": {"max_tokens": 3}, "return_token_ids": True}
        keys = {"Authorization": f"Bearer {address.api_key}"}
        found = httpx.post(f"{address.base_url}/inference/v1/generate", json=body, headers=keys, timeout=30).json()
        [choice] = found["choices"]
        assert choice["token_ids"] == [ord(character) for character in "yes"] and choice["finish_reason"] == "length"
        assert [each["token_id"] for each in choice["logprobs"]["content"]] == choice["token_ids"]
        assert found["prompt_token_ids"] == [60, 97, 62] and found["usage"]["total_tokens"] == 6
        check_rows(served.engine.turns, served.finish())
