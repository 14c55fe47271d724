"""Pictures in requests of agent programs, with a scripted policy: rows, matching, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit._shown_pictures import SHOWN, PictureCodec, model_pictures, part, png, said, url
from tests.unit.test_environments_agent_episode import ADDRESS, MODEL, Playing, learned, refused, text
from tests.unit.test_environments_episode import ROOMY
from verl_like.data.pictures import MAX_PICTURES
from verl_like.environments.agent_episode import AgentEpisode
from verl_like.environments.episode import Budgets, NextTurn
from verl_like.environments.model_requests import RequestRefused, TokensRequest, TurnLimits, read_chat
from verl_like.environments.model_responses import ServedModel
from verl_like.protocol import PICTURES, PROMPT_PICTURES
from verl_like.workers.episode_pictures import response_features

RED, BLUE, WIDE = png(), png(colour="blue"), png(10, 30)  # of 4, 4 and 3 tokens
WIDE_MODEL = ServedModel(name="policy", max_context_tokens=5000, num_tokens=10_000)


class Showing(Playing):
    """A program's episode with a model of pictures."""

    def __init__(self, *, reads: bool = True, budgets: Budgets = ROOMY) -> None:
        super().__init__(model=WIDE_MODEL)
        pictures = model_pictures() if reads else None
        self.episode = AgentEpisode(
            {"messages": [], "columns": {}, "seed": 1},
            PictureCodec(),
            budgets,
            address=ADDRESS,
            model=WIDE_MODEL,
            pictures=pictures,
        )


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [said(each) if isinstance(each, str) else each for each in parts]}


def test_a_program_shows_pictures_and_its_requests_extend_one_row() -> None:
    playing = Showing()
    first = user(part(RED), "what?")
    answer = playing.chat(first, says="red$")
    playing.chat(first, answer, user("and ", part(WIDE)), says="blue$")
    [row] = playing.rows()
    assert text(row.prompt_ids) == "<u>■■■■what?$\n<a>"
    assert text(row.response_ids) == "red$\n<u>and ■■■$\n<a>blue$" and learned(row) == "red$blue$"
    assert response_features(row) == {PICTURES: [WIDE], PROMPT_PICTURES: [RED]}


def test_another_picture_with_as_many_tokens_begins_another_row() -> None:
    playing = Showing()
    for content, says in ((RED, "red$"), (BLUE, "blue$"), (RED, "crimson$")):
        playing.chat(user(part(content)), says=says)
    rows = playing.rows()
    assert [response_features(row)[PROMPT_PICTURES] for row in rows] == [[RED], [BLUE], [RED]]
    assert len({row.leaf for row in rows}) == 3 and sorted(map(learned, rows)) == ["blue$", "crimson$", "red$"]


def test_a_chat_with_another_earlier_picture_does_not_continue_the_turn() -> None:
    playing = Showing()
    answer = playing.chat(user(part(RED)), says="red$")
    playing.chat(user(part(BLUE)), answer, user("sure?"), says="yes$")
    first, second = playing.rows()
    assert response_features(second) == {PICTURES: [], PROMPT_PICTURES: [BLUE]}
    assert learned(first) == "red$" and learned(second) == "yes$"


def test_engines_get_the_pictures_of_the_whole_context() -> None:
    playing = Showing()
    answer = playing.chat(user(part(RED)), says="red$")
    action = playing.ask(user(part(RED)), answer, user(part(WIDE), part(BLUE)))
    assert isinstance(action, NextTurn)
    assert [each.content for each in action.pictures] == [RED, WIDE, BLUE]
    assert action.prompt_ids.count(ord(SHOWN)) == 4 + 3 + 4


REFUSED: dict[str, tuple[Any, str]] = {
    "http": ({"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}, "which is not read"),
    "path": ({"type": "image_url", "image_url": {"url": "/etc/passwd"}}, "which is not read"),
    "damaged": ({"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}, "base64 is damaged"),
    "no picture": ({"type": "image_url", "image_url": {"url": url(b"text")}}, "is not an image"),
    "token": (said("<#>"), "which the model would read as a picture"),
}


@pytest.mark.parametrize(("bad", "message"), REFUSED.values(), ids=REFUSED)
def test_a_bad_picture_is_refused_and_the_episode_continues(bad: Any, message: str) -> None:
    playing = Showing()
    assert message in refused(playing.ask(user(part(RED), bad))).message
    assert playing.chat(user(part(RED)), says="red$")["content"] == "red"


def test_requests_beyond_the_number_of_pictures_are_refused() -> None:
    playing, tiny = Showing(), part(png(10, 10))
    found = refused(playing.ask(user(*[tiny] * (MAX_PICTURES + 1))))
    assert f"the context has {MAX_PICTURES + 1} pictures" in found.message
    assert isinstance(playing.ask(user(*[tiny] * MAX_PICTURES)), NextTurn)


def test_a_model_of_text_refuses_pictures() -> None:
    assert "the policy reads text only" in refused(Showing(reads=False).ask(user(part(RED)))).message


@pytest.mark.parametrize(
    "content",
    [{"type": "image_url"}, {"type": "image_url", "image_url": "x"}, {"type": "image", "image": "x"}, {"type": "file"}],
)
def test_other_parts_are_no_request(content: Any) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": [content]}]}).encode()
    with pytest.raises(RequestRefused, match="parts of the types text and image_url"):
        read_chat(body, ADDRESS.sampling)


def test_ids_with_the_token_of_a_picture_are_refused() -> None:
    playing = Showing()
    asked = TokensRequest(token_ids=[60, ord(SHOWN)], limits=TurnLimits())
    found = refused(playing.episode.requested(1, asked))
    assert "the token of a picture, without the picture" in found.message and found.param == "token_ids"
    assert MODEL.num_tokens <= ord(SHOWN) < WIDE_MODEL.num_tokens


def test_the_text_of_the_token_that_a_policy_writes_is_no_picture() -> None:
    playing = Showing()
    answer = playing.chat(user(part(RED)), says="a<#>b$")
    playing.chat(user(part(RED)), answer, user("more"), says="c$")
    [row] = playing.rows()
    assert response_features(row) == {PICTURES: [], PROMPT_PICTURES: [RED]}
    assert learned(row) == "a<#>b$c$"
