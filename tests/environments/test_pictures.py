"""Pictures that users' code returns, in every form and contract, through the processes of a run."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.environments._processes import playing
from tests.unit._shown_pictures import model_pictures, part, png
from verl_like.environments.answers import checked_observation
from verl_like.environments.pictures import EpisodePictures
from verl_like.environments.processes import CallFailure
from verl_like.environments.tool_results import read_messages

pytestmark = pytest.mark.processes

HEAD = """
import base64, io
from PIL import Image

def image(mode="RGB"):
    return Image.new("RGB", (30, 20), (250, 0, 0)).convert(mode)

def content():
    file = io.BytesIO()
    image().save(file, "PNG")
    return file.getvalue()

def url():
    return "data:image/png;base64," + base64.b64encode(content()).decode()
"""
TOOL = '''
class Part:
    def __init__(self, **fields):
        vars(self).update(fields)

class Gallery:
    def reset(self, **row):
        return None

    def show(self):
        """Show it."""
        return {}
'''
NOTE = {"type": "text", "text": "seen"}
# What a tool returns -> the parts between pictures, None for one.
RETURNED: dict[str, tuple[str, list[Any]]] = {
    "image": ("image()", [None]),
    "grey": ("image('L')", [None]),
    "transparent": ("image('RGBA')", [None]),
    "palette": ("image('P')", [None]),
    "cmyk": ("image('CMYK')", [None]),
    "list of images": ("[image(), image()]", [None, None]),
    "texts and images": ("['seen', image()]", [NOTE, None]),
    "parts": ("[{'type': 'text', 'text': 'seen'}, {'type': 'image', 'image': image()}]", [NOTE, None]),
    "bytes": ("[{'type': 'image', 'image': content()}]", [None]),
    "bytes of datasets": ("[{'type': 'image', 'bytes': content()}]", [None]),
    "data url": ("[{'type': 'image', 'image': url()}]", [None]),
    "openai": ("[{'type': 'image_url', 'image_url': {'url': url()}}]", [None]),
    "mcp": ("[{'type': 'image', 'data': url().split(',')[1], 'mimeType': 'image/png'}]", [None]),
    "mcp result": (
        "Part(content=[Part(type='text', text='seen'), "
        "Part(type='image', data=url().split(',')[1], mimeType='image/png')], isError=False)",
        [NOTE, None],
    ),
    "mcp dict": ("{'content': [Part(type='image', data=url().split(',')[1], mimeType='image/png')]}", [None]),
}


def read(found: Any) -> list[Any]:
    """Return the parts of the only message, with None for a picture of 20 x 30 red pixels."""
    assert not isinstance(found, CallFailure), found
    pictures = EpisodePictures(model_pictures())
    [message] = read_messages(checked_observation(found).messages, pictures)
    for each in pictures.of([message]):
        pixels = Image.open(io.BytesIO(each.content)).convert("RGB")
        red, green, blue = pixels.getpixel((3, 3))  # type: ignore[misc]
        assert pixels.size == (30, 20) and red > 60 and abs(green - blue) < 30
    return [None if each["type"] == "image" else each for each in message["content"]]


@pytest.mark.parametrize(("returned", "expected"), RETURNED.values(), ids=RETURNED)
def test_a_tool_returns_a_picture(tmp_path: Path, returned: str, expected: list[Any]) -> None:
    with playing(tmp_path, HEAD + TOOL.format(returned), "Gallery") as found:
        process, _ = found.reset()
        assert read(found.step(process, calls=(("show", {}),))) == expected


@pytest.mark.parametrize(
    "returned",
    ["[{'type': 'image', 'src': 'a.png'}]", "[{'type': 'image', 'url': 'http://a/b.png'}]", "{'type': 'image'}", "[]"],
)
def test_json_about_pictures_stays_text(tmp_path: Path, returned: str) -> None:
    with playing(tmp_path, HEAD + TOOL.format(returned), "Gallery") as found:
        process, _ = found.reset()
        [message] = found.step(process, calls=(("show", {}),))["messages"]
        assert isinstance(message["content"], str) and message["content"][0] in "[{"


def test_a_part_that_cannot_be_passed_on_is_the_tools_error(tmp_path: Path) -> None:
    with playing(tmp_path, HEAD + TOOL.format("[image(), {'type': 'video'}]"), "Gallery") as found:
        process, _ = found.reset()
        answer = found.step(process, calls=(("show", {}),))
        assert answer["num_tool_errors"] == 1 and "a video next to a picture" in answer["messages"][0]["content"]


VERL = (
    HEAD
    + """
from verl.tools.function_tool import function_tool
from verl.tools.schemas import ToolResponse

@function_tool
def show(many: bool):
    \"\"\"Show it.\"\"\"
    return ToolResponse(text="seen", image=[image(), content()] if many else image()), 0.5, {}
"""
)


@pytest.mark.parametrize("many", [True, False])
def test_a_tool_of_verl_returns_pictures_before_its_text(tmp_path: Path, many: bool) -> None:
    with playing(tmp_path, VERL) as found:
        process, _ = found.reset()
        answer = found.step(process, calls=(("show", {"many": many}),))
        assert read(answer) == [*[None] * (1 + many), NOTE] and answer["reward"] == 0.5


STEPS: dict[str, tuple[str, list[Any]]] = {
    "this project": ("return image(), 0.0, False", [None]),
    "parts": ("return ['seen', image()], 0.0, False", [NOTE, None]),
    "messages": ("return [{'role': 'user', 'content': [image(), 'seen']}], 0.0, False", [None, NOTE]),
    "gymnasium": ("return image(), 0.0, False, False, {}", [None]),
    "gem": ("return image(), 0.0, False, False, {'suffix': 'Next:'}", [None, {"type": "text", "text": "\nNext:"}]),
    "skyrl": (
        "return dict(observations=[{'role': 'user', 'content': [image()]}], reward=0.0, done=False, metadata={})",
        [None],
    ),
}


GAME = """
class Game:
    def reset(self, **row):
        return {}

    def step(self, text):
        {}
"""


@pytest.mark.parametrize(("step", "expected"), STEPS.values(), ids=STEPS)
def test_a_step_shows_a_picture(tmp_path: Path, step: str, expected: list[Any]) -> None:
    source = HEAD + GAME.format("image()", step)
    with playing(tmp_path, source, "Game") as found:
        process, first = found.reset()
        assert read(first) == [None]
        assert read(found.step(process, "red")) == expected


KEEPS = """
class Keeps:
    def reset(self, prompt, **row):
        self.prompt = prompt
        return {}

    def step(self, text):
        return "no", 0.0, True
"""
TRL = """
class Tools:
    def reset(self, **row):
        return {}

    def show(self):
        '''Show it.'''
        return ""
"""
OPENRLHF = """
class Agent:
    async def reset(self, states, **kwargs):
        return {{"observation": states["observation"] + "!"}}

    async def step(self, states, **kwargs):
        return {{"rewards": 0, "scores": 0, "done": True, "environment_feedback": ""}}
"""
RED = png(20, 30)
ASKED = [part(RED), {"type": "text", "text": "What?"}]
PROMPTS: dict[str, tuple[str, str, list[Any]]] = {
    "as it is": (KEEPS.format("None"), "Keeps", ASKED),
    "another": (KEEPS.format("prompt"), "Keeps", ASKED),
    "text is added": (TRL.format("'Look.'"), "Tools", [*ASKED, {"type": "text", "text": "Look."}]),
    "a picture is added": (TRL.format("image()"), "Tools", [*ASKED, None]),
    "openrlhf": (OPENRLHF.format(), "Agent", [ASKED[0], {"type": "text", "text": "What?!"}]),
}


@pytest.mark.parametrize(("source", "name", "expected"), PROMPTS.values(), ids=PROMPTS)
def test_a_prompt_keeps_its_pictures(tmp_path: Path, source: str, name: str, expected: list[Any]) -> None:
    with playing(tmp_path, HEAD + source, name) as found:
        process = found.processes.open()
        row = {"messages": [{"role": "user", "content": ASKED}], "columns": {}, "seed": 1}
        answer = found.ask(process, {"do": "reset", "row": row})
        assert not isinstance(answer, CallFailure), answer
        [message] = answer["messages"]
        for each, wanted in zip(message["content"], expected, strict=True):
            assert each == wanted or (wanted is None and each["type"] == "image_url")


def test_a_picture_of_another_interpreter_needs_no_package_of_ours(tmp_path: Path) -> None:
    encoded = base64.b64encode(RED).decode()
    part_of_mcp = f'[{{"type": "image", "data": "{encoded}", "mimeType": "image/png"}}]'
    source = GAME.format(part_of_mcp, "return '', 0.0, True")
    with playing(tmp_path, source, "Game", python="/usr/bin/python3") as found:
        _, first = found.reset()
        assert first["messages"][0]["content"] == [part(RED)]


HOSTILE = ["'/etc/passwd'", "'http://a/b.png'", "b'no picture'", "'data:image/png;base64,%'"]


@pytest.mark.parametrize("value", HOSTILE)
def test_what_the_training_process_refuses_arrives_as_it_is(tmp_path: Path, value: str) -> None:
    returned = f"[{{'type': 'image', 'image': {value}}}]"
    with playing(tmp_path, HEAD + TOOL.format(returned), "Gallery") as found:
        process, _ = found.reset()
        answer = found.step(process, calls=(("show", {}),))
        with pytest.raises(ValueError, match=r"a message has the picture|a picture of a message"):
            read(answer)
