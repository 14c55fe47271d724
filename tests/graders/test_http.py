"""Rewards over HTTP, against a real service: requests, answers, retries, and cancelled calls."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.unit._http_service import HttpService, hang, reply, reset
from verl_like_graders.http import Service, post_json, retry_after_s
from verl_like_graders.remote_http import compute_score

SAMPLE: dict[str, Any] = {
    "data_source": "maths",
    "solution_str": "it is 4",
    "ground_truth": "4",
    "extra_info": {"level": 2},
    "prompt_str": "<user>2+2?",
}


def score(url: str, **options: Any) -> dict[str, Any]:
    return asyncio.run(compute_score(**SAMPLE, url=url, **{"retry_s": 0.01, **options}))


async def within(timeout_s: float, coroutine: Coroutine[Any, Any, Any]) -> str:
    """Return how the call ended, under a deadline as the scorer process sets it."""
    try:
        async with asyncio.timeout(timeout_s):
            await coroutine
    except TimeoutError:
        return "cancelled"
    return "answered"


# --- requests and answers ---


def test_a_sample_is_posted_as_json_and_the_answer_is_its_score_with_details() -> None:
    with HttpService(reply({"score": 0.5, "acc": 1, "why": "close"})) as service:
        assert score(service.url) == {"score": 0.5, "acc": 1, "why": "close"}
    [call] = service.calls
    assert call.payload == {
        "data_source": "maths",
        "prompt": "<user>2+2?",
        "response": "it is 4",
        "ground_truth": "4",
        "extra_info": {"level": 2},
    }
    assert call.headers["Content-Type"] == "application/json"


def test_a_bare_number_is_a_score() -> None:
    with HttpService(reply(-1.5)) as service:
        assert score(service.url) == {"score": -1.5}


def test_a_server_of_openrlhf_is_asked_about_a_batch_of_one() -> None:
    with HttpService(reply({"rewards": [0.75], "extra_logs": {"length": [7], "kind": "maths"}})) as service:
        assert score(service.url, protocol="openrlhf") == {"score": 0.75, "length": 7, "kind": "maths"}
    assert service.calls[0].payload == {"query": ["<user>2+2?it is 4"], "prompts": ["<user>2+2?"], "labels": ["4"]}


@pytest.mark.parametrize("answer", [{"rewards": [1.0, 2.0]}, {"rewards": []}, {"scores": [1.0]}, 1.0])
def test_an_openrlhf_answer_without_exactly_one_reward_is_refused(answer: Any) -> None:
    with HttpService(reply(answer)) as service:
        with pytest.raises(ValueError, match=r'expected \{"rewards": \[number\]\} with one number'):
            score(service.url, protocol="openrlhf")


@pytest.mark.parametrize("answer", [{"score": None}, {"reward": 1.0}, [1.0], "good", {"score": "1.0"}])
def test_an_answer_without_a_score_is_refused(answer: Any) -> None:
    with HttpService(reply(answer if not isinstance(answer, str) else f'"{answer}"')) as service:
        with pytest.raises(ValueError, match=r'/score answered .*; expected \{"score": number\} or a number'):
            score(service.url)


def test_an_answer_that_is_no_json_is_refused_at_once_with_its_beginning() -> None:
    with HttpService(reply("<html>Welcome" + "!" * 500)) as service:
        with pytest.raises(ValueError, match=r"answered 200 with '<html>Welcome!{187}'; expected JSON"):
            score(service.url)
    assert len(service.calls) == 1


def test_nan_in_a_sample_is_named_rather_than_sent() -> None:
    with HttpService(reply(1)) as service:
        with pytest.raises(
            ValueError, match=r"cannot be sent as JSON: .*Remove NaN and infinity from its ground_truth and extra_info"
        ):
            asyncio.run(compute_score(**{**SAMPLE, "extra_info": {"level": float("nan")}}, url=service.url))
    assert service.calls == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "localhost:8000"}, r"url is 'localhost:8000'; expected the address of a service"),
        ({"protocol": "grpc"}, r"protocol is 'grpc'; expected one of verl_like, openrlhf"),
        ({"retry_s": -1}, r"retry_s is -1; expected a number of at least 0"),
        ({"requests_per_s": float("nan")}, r"requests_per_s is nan; expected a number of at least 0"),
        ({"max_retries": 1.5}, r"max_retries is 1\.5 .*expected a whole number"),
        ({"request_timeout_s": 0}, r"request_timeout_s 0; expected .* more than 0 seconds"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(**{"url": "http://127.0.0.1:1/score", **options})


# --- secrets ---


def test_a_header_reads_the_environment_and_no_message_shows_what_it_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SCORER_KEY", "sesame-7")
    options: dict[str, Any] = {"headers": {"Authorization": "Bearer $SCORER_KEY", "X-Price": "$$5"}, "max_retries": 1}
    with HttpService(reply("busy with sesame-7", status=503), reply("not you, sesame-7", status=401)) as service:
        with (
            caplog.at_level(logging.DEBUG),
            pytest.raises(ValueError, match=r"401 with 'not you, \*\*\*'.*Check the key") as caught,
        ):
            score(service.url, **options)
    assert (
        service.calls[0].headers["Authorization"] == "Bearer sesame-7" and service.calls[0].headers["X-Price"] == "$5"
    )
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("verl_like")]
    assert len(logged) == 1 and "sesame" not in logged[0] + str(caught.value)


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ({"error": "bad key sesame-7"}, {}),
        ({"error": {"keys": ["bad", "sesame-7"], "sesame-7": 1}}, {}),
        ({"rewards": "sesame-7"}, {"protocol": "openrlhf"}),
        ("sesame-7", {}),
    ],
)
def test_a_key_that_an_answer_with_status_200_quotes_is_masked(
    answer: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCORER_KEY", "sesame-7")
    with HttpService(reply(answer)) as service:
        with pytest.raises(ValueError, match="answered") as caught:
            score(service.url, headers={"Authorization": "Bearer $SCORER_KEY"}, **options)
    assert "sesame" not in str(caught.value) and "***" in str(caught.value)


def test_what_an_answer_adds_to_a_score_quotes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORER_KEY", "sesame-7")
    with HttpService(reply({"score": 1, "asked_by": "sesame-7"})) as service:
        found = score(service.url, headers={"Authorization": "Bearer $SCORER_KEY"})
    assert found == {"score": 1, "asked_by": "***"}


def test_a_password_in_the_url_is_in_no_message(caplog: pytest.LogCaptureFixture) -> None:
    with HttpService(reply("busy", status=503), reply("no open-sesame here", status=400)) as service:
        url = service.url.replace("://", "://user:open-sesame@")
        with (
            caplog.at_level(logging.DEBUG, logger="verl_like"),
            pytest.raises(ValueError, match="answered 400") as caught,
        ):
            score(url, max_retries=1)
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith("verl_like"))
    assert "user:***@" in str(caught.value) and "user:***@" in logged
    assert "open-sesame" not in logged + str(caught.value)
    with pytest.raises(ValueError, match=r"user:\*\*\*@127") as caught:
        score("http://user:open-sesame@127.0.0.1:1/score", max_retries=0)
    assert "open-sesame" not in str(caught.value)


# --- size ---


@pytest.mark.parametrize("status", [200, pytest.param(400, marks=pytest.mark.slow)])
def test_an_answer_without_an_end_is_refused(status: int) -> None:
    sent = 0

    def flood(handler: Any, payload: Any) -> None:
        nonlocal sent
        handler.send_response(status)
        handler.end_headers()
        try:
            for _ in range(500):
                handler.wfile.write(b"[" * 2**20)
                sent += 1
        except OSError:
            handler.close_connection = True

    with HttpService(flood) as service:
        with pytest.raises(ValueError, match=f"answered {status} with '\\["):
            score(service.url)
    assert sent < 50  # MiB; the limit is 4, and the kernel's buffers take some


def test_an_answer_that_is_nested_too_deeply_is_no_json() -> None:
    with HttpService(reply("[" * 100_000 + "]" * 100_000)) as service:
        with pytest.raises(ValueError, match="expected JSON"):
            score(service.url)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCORER_KEY", raising=False)
    with pytest.raises(
        ValueError, match=r"the header Authorization asks for the environment variable SCORER_KEY, which is not set"
    ):
        score("http://127.0.0.1:1/score", headers={"Authorization": "Bearer ${SCORER_KEY}"})


def test_a_key_with_a_line_break_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORER_KEY", "sesame-7\n")
    with pytest.raises(ValueError, match=r"the header X-Key holds a line break") as caught:
        score("http://127.0.0.1:1/score", headers={"X-Key": "$SCORER_KEY"})
    assert "sesame" not in str(caught.value)


# --- retries ---


def test_a_service_that_fails_twice_is_asked_a_third_time() -> None:
    failure = reply("no worker yet", status=500)
    with HttpService(failure, failure, reply({"score": 1})) as service:
        assert score(service.url) == {"score": 1}
    assert len(service.calls) == 3


@pytest.mark.alone
def test_pauses_grow_between_attempts() -> None:
    failure = reply("", status=503)
    with HttpService(failure, failure, failure, reply(1)) as service:
        score(service.url, retry_s=0.08)
    pauses = [later.at - earlier.at for earlier, later in zip(service.calls, service.calls[1:], strict=False)]
    # 0.08 s, doubled each time, between half and one and a half times as long; an answer takes almost no time.
    assert all(0.5 * mean <= pause <= 1.5 * mean + 0.2 for pause, mean in zip(pauses, (0.08, 0.16, 0.32), strict=True))


@pytest.mark.alone
@pytest.mark.parametrize("status", [408, 429, 502])
def test_retry_after_is_waited_for(status: int) -> None:
    with HttpService(reply("", status=status, headers={"Retry-After": "0.4"}), reply(1)) as service:
        score(service.url)
    first, second = service.calls
    assert 0.4 <= second.at - first.at < 2.0


def test_retry_after_may_be_a_date_and_nonsense_is_no_wait() -> None:
    assert retry_after_s(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)) == pytest.approx(
        30, abs=2
    )
    past = "Wed, 01 Jan 2020 00:00:00 GMT"
    assert [retry_after_s(value) for value in ("7", "-3", "soon", "", "inf", "nan", past)] == [7, 0, 0, 0, 0, 0, 0]


def test_a_connection_that_breaks_off_is_tried_again() -> None:
    with HttpService(reset, reply({"score": 1})) as service:
        assert score(service.url) == {"score": 1}
    assert len(service.calls) == 2


def test_an_attempt_that_takes_too_long_is_given_up_and_repeated() -> None:
    with HttpService(hang, reply({"score": 1})) as service:
        assert score(service.url, request_timeout_s=0.2) == {"score": 1}
    first, second = service.calls
    assert 0.2 <= second.at - first.at + 0.05 < 5  # the service receives the call shortly after its clock starts


def test_a_refusal_is_final_and_shows_the_beginning_of_the_body() -> None:
    with HttpService(reply("no such model: " + "x" * 500, status=404)) as service:
        with pytest.raises(ValueError, match=r"/score answered 404 with 'no such model: x{185}'; expected status 200"):
            score(service.url)
    assert len(service.calls) == 1


def test_a_redirect_says_where_to() -> None:
    with HttpService(reply("", status=307, headers={"Location": "/score/"})) as service:
        with pytest.raises(ValueError, match=r"answered 307 .*Set url to the target: /score/"):
            score(service.url)


def test_a_service_that_keeps_failing_ends_in_an_error_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with HttpService(reply("overloaded", status=503)) as service:
        with pytest.raises(
            ValueError, match=r"answered 503 with 'overloaded' at the last of 3 attempts; expected status 200"
        ):
            score(service.url, max_retries=2)
    assert len(service.calls) == 3
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        f"{service.url} answered 503 with 'overloaded'; such failures are retried, and later ones are not logged"
    ]


def test_a_service_that_is_not_there_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/score"
        with pytest.raises(
            ValueError, match=rf"{url} could not be reached \(ConnectError: .*at the last of 2 attempts"
        ):
            score(url, max_retries=1)


# --- many calls at once ---


def test_calls_run_at_once_up_to_the_callers_bound_over_connections_that_are_kept() -> None:
    async def run(url: str) -> None:
        slots = asyncio.Semaphore(4)

        async def one() -> None:
            async with slots:
                await compute_score(**SAMPLE, url=url)

        await asyncio.gather(*(one() for _ in range(24)))

    with HttpService(reply(1, after_s=0.05)) as service:
        asyncio.run(run(service.url))
    assert len(service.calls) == 24 and service.peak == 4 and service.connections == 4


@pytest.mark.alone
def test_calls_that_never_return_end_at_their_deadline_and_block_no_other() -> None:
    async def run(url: str) -> tuple[list[str], float, dict[str, Any]]:
        started = time.monotonic()
        dead = [within(0.3, compute_score(**SAMPLE, url=url)) for _ in range(8)]
        ends = await asyncio.gather(*dead, within(0.3, compute_score(**SAMPLE, url=other.url)))
        took_s = time.monotonic() - started
        return ends, took_s, await compute_score(**SAMPLE, url=url)

    with HttpService(*[hang] * 8, reply({"score": 1})) as service, HttpService(reply(1)) as other:
        ends, took_s, after = asyncio.run(run(service.url))
    assert ends == ["cancelled"] * 8 + ["answered"] and took_s < 1.5
    assert after == {"score": 1}  # the shared client still works


@pytest.mark.alone
def test_a_deadline_ends_a_pause_between_attempts() -> None:
    async def run(url: str) -> tuple[str, float]:
        started = time.monotonic()
        return await within(0.2, compute_score(**SAMPLE, url=url)), time.monotonic() - started

    with HttpService(reply("", status=429, headers={"Retry-After": "3600"})) as service:
        end, took_s = asyncio.run(run(service.url))
    assert end == "cancelled" and took_s < 1.0


def test_no_more_attempts_start_per_second_than_allowed() -> None:
    async def run(service: Service) -> None:
        await asyncio.gather(*(post_json(service, {}) for _ in range(6)))

    with HttpService(reply("", status=500), reply(1)) as server:
        asyncio.run(run(Service(url=server.url, requests_per_s=20, retry_s=0)))
    times = sorted(call.at for call in server.calls)
    # Six calls and one repetition, 50 ms apart; the service's clock starts later for some of them.
    assert len(times) == 7 and times[-1] - times[0] >= 6 * 0.05 - 0.03


@pytest.mark.alone
def test_calls_cancelled_in_the_queue_leave_the_rate_to_the_others() -> None:
    async def run(service: Service) -> tuple[list[str], float]:
        ends = await asyncio.gather(*(within(0.3, post_json(service, {})) for _ in range(40)))
        started = time.monotonic()
        await post_json(service, {})
        return ends, time.monotonic() - started

    with HttpService(reply(1)) as server:
        ends, waited_s = asyncio.run(run(Service(url=server.url, requests_per_s=10)))
    # 40 calls at 10 a second would take 4 s: after 0.3 s at most 4 are through, and the next waits for one interval
    # only.
    assert 2 <= ends.count("answered") <= 4 and waited_s < 1.0


def test_each_event_loop_has_its_own_client() -> None:
    with HttpService(reply(1)) as service:
        assert [score(service.url)["score"] for _ in range(2)] == [1, 1]
    assert service.connections == 2
