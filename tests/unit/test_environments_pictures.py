"""Pictures in episodes: tokens, masks and features by hand, and hostile ones, which end the episode as junk."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from tests.unit._shown_pictures import MAX_PIXELS, SHOWN, PictureCodec, model_pictures, part, png, said, url
from tests.unit.test_environments_episode import ROOMY, Scripted, ended, observation
from verl_like.data.pictures import MAX_PICTURES
from verl_like.environments.episode import (
    Budgets,
    EnvironmentEpisode,
    EpisodeEnd,
    NextTurn,
    ParsedTurn,
    SampledTurn,
    contained,
)
from verl_like.environments.history import History
from verl_like.environments.pictures import ModelPictures
from verl_like.environments.shown import message_lines
from verl_like.environments.tree import EpisodeTree
from verl_like.protocol import PICTURES, PROMPT_PICTURES
from verl_like.workers.episode_pictures import features_of, no_response, response_features, with_pictures

RED, BLUE, WIDE = png(), png(colour="blue"), png(10, 30)  # of 4, 4 and 3 tokens


class Shown(Scripted):
    """An episode of a model of pictures; ``pictures=None`` for one of text."""

    def __init__(
        self,
        *,
        forgets: bool = False,
        budgets: Budgets = ROOMY,
        history: History = "auto",
        pictures: ModelPictures | None = None,
        reads: bool = True,
    ) -> None:
        super().__init__()
        self.codec = PictureCodec(forgets=forgets)
        found = (pictures or model_pictures()) if reads else None
        row = {"messages": [], "columns": {}, "seed": 1}
        self.episode = EnvironmentEpisode(row, self.codec, budgets, history=history, pictures=found)


def showing(*parts: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    """Return an observation whose message has these parts."""
    found = observation(**fields)
    found["messages"] = [{"role": role, "content": [said(each) if isinstance(each, str) else each for each in parts]}]
    return found


DONE = observation(is_done=True, reward=1.0)


def test_a_picture_between_turns_takes_its_tokens_and_none_is_learned_from() -> None:
    scripted = Shown()
    first = showing(part(RED), "colour?", tools=[])
    end = ended(scripted.play(first, "r$", showing("and ", part(WIDE), "?", part(BLUE)), "b$", DONE, 1.0))
    assert scripted.contexts() == ["<u>■■■■colour?$\n<a>", "<u>■■■■colour?$\n<a>r$\n<u>and ■■■?■■■■$\n<a>"]
    [row] = end.tree.rows()
    assert "".join(map(chr, row.response_ids)) == "r$\n<u>and ■■■?■■■■$\n<a>b$"
    assert "".join(map(chr, row.response_ids[row.response_mask])) == "r$b$"
    assert response_features(row) == {PICTURES: [WIDE, BLUE], PROMPT_PICTURES: [RED]}
    assert [features_of(turn) for turn in scripted.samples] == [{PICTURES: [RED]}, {PICTURES: [RED, WIDE, BLUE]}]
    assert end.num_turns == 2 and end.failure is None


def test_turns_without_pictures_have_no_features() -> None:
    scripted = Shown()
    end = ended(scripted.play(observation("hi", tools=[]), "a$", DONE, 1.0))
    assert [features_of(turn) for turn in scripted.samples] == [None]
    assert response_features(next(end.tree.rows())) == {PICTURES: [], PROMPT_PICTURES: []}


def test_an_episode_without_a_token_has_the_pictures_of_the_data_set() -> None:
    assert no_response({PICTURES: [RED]}) == {PICTURES: [], PROMPT_PICTURES: [RED]}
    assert no_response({}) == {PICTURES: [], PROMPT_PICTURES: []}


def test_messages_show_a_picture_without_its_content() -> None:
    end = ended(Shown().play(showing(part(WIDE), "what?", tools=[]), "a$", DONE, 1.0))
    [prompt, turn] = end.tree.messages(1)
    assert message_lines(prompt) == ["[user]", "  [picture 10 x 30]what?"] and turn["content"] == "a"
    assert set(prompt["content"][0]) == {"type", "height", "width", "digest"}


def test_a_rewritten_history_starts_a_row_with_all_of_its_pictures() -> None:
    scripted = Shown(forgets=True)
    end = ended(scripted.play(showing(part(RED), tools=[]), "(so)a$", showing(part(BLUE)), "b$", DONE, 1.0))
    rows = list(end.tree.rows())
    assert ["".join(map(chr, row.response_ids)) for row in rows] == ["(so)a$", "a$\n<u>■■■■$\n<a>b$"]
    assert [response_features(row)[PICTURES] for row in rows] == [[], [BLUE]]
    assert [response_features(row)[PROMPT_PICTURES] for row in rows] == [[RED], [RED]]


def test_the_text_of_the_token_that_a_policy_writes_is_no_picture() -> None:
    for forgets in (False, True):  # appended, and rendered again
        scripted = Shown(forgets=forgets)
        end = ended(scripted.play(showing(part(RED), tools=[]), "(so)a<#>b$", showing(part(WIDE)), "b$", DONE, 1.0))
        assert end.failure is None
        row = list(end.tree.rows())[-1]
        assert response_features(row) == {PICTURES: [WIDE], PROMPT_PICTURES: [RED]}
        assert "".join(map(chr, row.response_ids)).startswith("a< #>b$" if forgets else "(so)a<#>b$")


def test_a_malformed_call_with_the_text_of_the_token_is_answered() -> None:
    scripted = Shown()
    scripted.codec.parse = lambda text, tools: _problem(text)  # type: ignore[method-assign]
    assert isinstance(scripted.play(observation("hi", tools=[]), "{<#>$"), NextTurn)


def _problem(text: str) -> ParsedTurn:
    return ParsedTurn(message={"role": "assistant", "content": text}, problem=f"{text} is no call")


def test_the_limit_of_a_tool_cuts_texts_and_no_picture() -> None:
    scripted = Shown(budgets=Budgets(max_turns=9, max_turn_tokens=9, max_tool_tokens=3, max_episode_tokens=500))
    long = showing("ab", part(RED), "cdef", part(WIDE), "g", role="tool")
    scripted.play(observation("hi", tools=[]), "a$", long)
    action = scripted.episode.tree
    ids = action.context(len(action.nodes) - 1)
    cut = "... [{} more tokens were left out]"
    assert f"<t>ab■■■■c{cut.format(3)}■■■{cut.format(1)}$" in "".join(map(chr, ids))


def test_pictures_count_as_tokens_of_the_episode() -> None:
    for most, is_over in ((20, True), (40, False)):
        budgets = Budgets(max_turns=9, max_turn_tokens=9, max_tool_tokens=99, max_episode_tokens=most)
        scripted = Shown(budgets=budgets)
        action = scripted.play(observation("hi", tools=[]), "a$", showing(part(RED), part(RED), part(RED)))
        assert isinstance(action, NextTurn) != is_over


def test_a_first_prompt_is_as_long_as_its_pictures() -> None:
    budgets = replace(ROOMY, max_prompt_tokens=len("<u>■■■■$\n<a>") - 1)
    end = junk(Shown(budgets=budgets), showing(part(RED), tools=[]))
    assert "the first prompt has 12 tokens" in end


def junk(scripted: Scripted, *script: Any) -> str:
    """Return why an episode has ended as junk."""
    action = scripted.episode.begin()
    for each in script:
        if isinstance(action, NextTurn):
            action = _sampled(scripted, each)
        else:
            action = contained(scripted.episode, lambda each=each: scripted.episode.answered(each, None))
    assert isinstance(action, EpisodeEnd) and action.failure is not None and action.failure.reason == "junk", action
    return action.failure.text


def _sampled(scripted: Scripted, text: str) -> Any:
    ids = [ord(each) for each in text]
    found = SampledTurn(token_ids=ids, log_probs=[0.0] * len(ids), finish_reason="stop", version=1)
    return contained(scripted.episode, lambda: scripted.episode.sampled(found))


def image(value: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": value}}


LARGE = png(101, 100)
HOSTILE: dict[str, tuple[Any, str]] = {
    "path": (image("/etc/passwd"), "'/etc/passwd', which is not read; expected the content"),
    "file": (image("file:///etc/passwd"), "which is not read"),
    "http": (image("http://169.254.169.254/latest"), "which is not read"),
    "store": (image("s3://bucket/key.png"), "which is not read"),
    "number": (image(7), "of the type int, which is not read"),
    "nothing": ({"type": "image"}, "of the type NoneType, which is not read"),
    "no base64": (image("data:image/png,abc"), "without base64"),
    "damaged base64": (image("data:image/png;base64,%%%"), "base64 is damaged"),
    "empty": (image("data:image/png;base64,"), "is not an image"),
    "text": (image(url(b"<svg onload=x>")), "is not an image"),
    "cut": (part(png(100, 100)[:-60]), "cannot be decoded"),
    "too many pixels": (part(LARGE), f"data.max_image_pixels is {MAX_PIXELS}"),
    "narrow": (part(png(1, 300)), "sides of a ratio up to 200"),
    "token": (said("a <#> b"), "the text <#>, which the model would read as a picture"),
    "video": ({"type": "video", "video": "data:video/mp4;base64,AAAA"}, "a part of the type 'video'"),
    "another picture of the same part": ({"type": "text", "text": "a", "digest": "b", "image": "x"}, ""),
}


@pytest.mark.parametrize(("bad", "message"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("at", ["reset", "step"])
def test_a_hostile_picture_ends_its_episode(bad: dict[str, Any], message: str, at: str) -> None:
    shown = showing(part(RED), bad, tools=[])
    if not message:  # harmless
        assert isinstance(Shown().play(shown), NextTurn)
        return
    script = [shown] if at == "reset" else [observation("hi", tools=[]), "a$", shown]
    assert message in junk(Shown(), *script)


def test_a_bomb_is_refused_by_its_header() -> None:
    header = bytearray(png(1, 1))
    header[16:24] = (2**15).to_bytes(4, "big") * 2  # width and height
    header[29:33] = crc32(header[12:29]).to_bytes(4, "big")
    assert "has far more pixels than data.max_image_pixels" in junk(Shown(), showing(part(bytes(header)), tools=[]))


def test_a_template_that_drops_a_picture_ends_the_episode() -> None:
    scripted = Shown()
    scripted.codec.drops_pictures = True
    assert f"0 tokens <#> (id {ord(SHOWN)}), but 1 pictures" in junk(scripted, showing(part(RED), tools=[]))


def test_a_template_that_ends_with_a_picture_ends_the_episode() -> None:
    scripted = Shown()
    scripted.codec.ends_with_picture = True
    assert "ends a context with <#>" in junk(scripted, showing(part(RED), tools=[]))


def test_one_picture_too_many_ends_the_episode() -> None:
    budgets = Budgets(max_turns=99, max_turn_tokens=9, max_tool_tokens=9, max_episode_tokens=9999)
    tiny = part(png(10, 10))
    assert isinstance(Shown(budgets=budgets).play(showing(*[tiny] * MAX_PICTURES, tools=[])), NextTurn)
    script = [showing(*[tiny] * MAX_PICTURES, tools=[]), "a$", showing(tiny)]
    assert f"the context has {MAX_PICTURES + 1} pictures; expected at most" in junk(Shown(budgets=budgets), *script)


def test_a_model_of_text_gets_no_picture() -> None:
    assert "the policy reads text only" in junk(Shown(reads=False), showing(part(RED), tools=[]))


def test_any_answer_ends_the_episode_or_continues_it() -> None:
    """Drive episodes with answers drawn from pieces of pictures, texts, numbers and nested values."""
    numbers = random.Random(0)
    pieces: list[Any] = [
        RED.hex(),
        url(RED),
        url(RED)[:60],
        "<#>",
        "",
        None,
        3,
        [],
        {},
        "data:",
        "data:,",
        "image",
        "text",
    ]
    keys = ["type", "text", "image", "image_url", "url", "digest", "height", "role", "content"]

    def value(depth: int) -> Any:
        if depth == 0 or numbers.random() < 0.4:
            return numbers.choice(pieces)
        if numbers.random() < 0.3:
            return [value(depth - 1) for _ in range(numbers.randrange(3))]
        return {numbers.choice(keys): value(depth - 1) for _ in range(numbers.randrange(4))}

    ends = {"junk": 0, "continues": 0}
    for _ in range(2000):
        kind = numbers.choice(["image", "image_url", "text"])
        bad = {"type": kind, kind: value(2), **({numbers.choice(keys[1:]): value(2)} if numbers.random() < 0.3 else {})}
        scripted = Shown()
        action: Any = scripted.play(observation("hi", tools=[]), "a$")
        answer = showing(part(RED), bad)
        action = contained(scripted.episode, lambda: scripted.episode.answered(answer, None))  # noqa: B023
        if isinstance(action, EpisodeEnd):
            assert action.failure is not None and action.failure.reason == "junk"
            ends["junk"] += 1
        else:
            assert isinstance(action, NextTurn)
            tokens = sum(each.num_tokens for each in action.pictures)
            assert action.prompt_ids.count(ord(SHOWN)) == tokens, "engine and trainer would read other pictures"
            ends["continues"] += 1
    assert min(ends.values()) > 100, ends


def test_contexts_with_equal_ids_and_other_pictures_are_different() -> None:
    model, tree = model_pictures(), EpisodeTree()
    red, blue = model.read(RED), model.read(BLUE)
    root = tree.add(-1, [{"role": "user", "content": "a"}], [1, 7, 7, 7, 7], [red])
    assert tree.shared([1, 7, 7, 7, 7, 2], [red]) == (root, 5)
    assert tree.shared([1, 7, 7, 7, 7, 2], [blue]) == (-1, 0)
    other = tree.place([{"role": "user", "content": "a"}], [1, 7, 7, 7, 7], [blue])
    assert other != root and tree.pictures(other) == (blue,)
    assert tree.place([{"role": "user", "content": "a"}], [1, 7, 7, 7, 7], [blue]) == other


def test_a_picture_is_decoded_once_while_it_is_held() -> None:
    model = model_pictures()
    first = model.read(RED)
    assert model.read(bytes(bytearray(RED))) is first and model.read(BLUE) is not first


def test_an_environment_gets_the_pictures_of_its_prompt() -> None:
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "image"}, said("a"), {"type": "image"}]},
    ]
    found: list[Mapping[str, Any]] = list(with_pictures(chat, [RED, BLUE]))
    assert found == [chat[0], {"role": "user", "content": [part(RED), said("a"), part(BLUE)]}]
