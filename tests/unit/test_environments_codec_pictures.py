"""The chat templates of models of pictures in episodes, as their authors publish them."""

from __future__ import annotations

from typing import Any

import pytest

from recipes.colours.model import word_tokenizer
from tests.unit._shown_pictures import part, png, said
from tests.unit.test_environments_episode import ROOMY, observation
from tests.unit.test_environments_pictures import showing
from verl_like.config.schema import DataConfig
from verl_like.data.templates import Renderer
from verl_like.environments.codec import ModelCodec, chat_template
from verl_like.environments.episode import EnvironmentEpisode, EpisodeEnd, NextTurn, SampledTurn
from verl_like.environments.parser_choice import AutoParser
from verl_like.environments.pictures import ModelPictures

# llava-hf/llava-1.5-7b-hf, chat_template.json
LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}{# Render all text next #}{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% else %}{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ content['text'] + ' '}}{% endgeneration %}{% endfor %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
# Qwen/Qwen2.5-VL-7B-Instruct, chat_template.json
QWEN25_VL = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}{{ message['content'] }}"
    "<|im_end|>\n{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' or 'image' in "
    "content or 'image_url' in content %}{% set image_count.value = image_count.value + 1 %}{% if add_vision_id %}"
    "Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>{% elif "
    "content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "LLaVA": (
        LLAVA,
        "<image>",
        "USER: <image>\nWhat ? ASSISTANT:",
        " USER: again ASSISTANT:",  # the template writes a space after a turn
        " USER: <image>\nASSISTANT:",
    ),
    "Qwen2.5-VL": (
        QWEN25_VL,
        "<|image_pad|>",
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What ?<|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n",
        "\n<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n",
    ),
}


class Recorded(ModelCodec):
    """Records texts; each is one token, and each picture in it another."""

    token = ""

    def encode(self, text: str) -> list[int]:
        self.texts = [*getattr(self, "texts", []), text]
        return [5] * text.count(self.token) + [100 + len(self.texts)]

    def decode(self, token_ids: Any) -> str:
        return "red" + ("<|im_end|>" if 2 in list(token_ids) else "")


class Tokens:
    token_id = 5

    def __init__(self, token: str) -> None:
        self.token = token

    def count(self, height: int, width: int) -> int:
        return 3


@pytest.mark.parametrize(("template", "token", "first", "text", "picture"), TEMPLATES.values(), ids=TEMPLATES)
def test_texts_and_pictures_follow_turns_as_the_template_writes_them(
    template: str, token: str, first: str, text: str, picture: str
) -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = template
    parser = AutoParser(tokenizer, {}, tool_parser="auto", reasoning_parser="auto", others=_none)
    codec = Recorded(tokenizer, end_ids=[2], parser=parser, template_kwargs={})
    codec.token = token
    row: dict[str, Any] = {"messages": [], "columns": {}, "seed": 1}
    episode = EnvironmentEpisode(row, codec, ROOMY, pictures=ModelPictures(Tokens(token), max_pixels=10_000))
    episode.begin()
    action: Any = episode.answered(showing(part(png()), "What ?", tools=[]), None)
    for number, answer in enumerate([observation("again"), showing(part(png(colour="blue")))]):
        assert isinstance(action, NextTurn) and action.prompt_ids.count(5) == 3
        sampled = SampledTurn(token_ids=[17, 2], log_probs=[0.0] * 2, finish_reason="stop", version=1, turn=number)
        episode.sampled(sampled)
        action = episode.answered(answer, None)
        assert not isinstance(action, EpisodeEnd), action
    assert codec.texts == [first, text, picture]
    assert isinstance(action, NextTurn) and action.prompt_ids.count(5) == 6 and len(action.pictures) == 2


def _none() -> Any:
    raise ValueError("no other parsers")


def test_contents_are_parts_only_where_a_template_drops_strings() -> None:
    tokenizer = word_tokenizer()
    chat = [{"role": "user", "content": "hi"}, {"role": "user", "content": [said("ho")]}]
    assert chat_template(tokenizer, [], {})(chat, add_generation_prompt=False) == "hiho"
    tokenizer.chat_template = LLAVA
    assert chat_template(tokenizer, [], {})(chat, add_generation_prompt=False) == "USER: hi USER: ho "
    assert Renderer(DataConfig(), tokenizer).text([{"role": "system", "content": "be brief"}, *chat[:1]]) == (
        "be brief USER: hi ASSISTANT:"
    )
