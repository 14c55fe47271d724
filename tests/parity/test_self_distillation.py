"""Prompts of a teacher that sees more, and its average with the policy, compared with TRL 1.16's SDFTTrainer."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from recipes.arithmetic.model import character_tokenizer
from tests.unit.test_data_prompts import CHAT_TEMPLATE
from verl_like.backends.fsdp.frozen import FrozenWeights
from verl_like.config.schema import AlgorithmConfig, DataConfig
from verl_like.data.files import read_rows
from verl_like.data.prompts import PromptDataset


@pytest.fixture(scope="module")
def trl_sdft() -> ModuleType:
    return pytest.importorskip("trl.experimental.sdft.sdft_trainer", reason="trl is not installed: make peers")


@pytest.mark.parametrize(
    "prompt",
    [
        "1+1=",
        [{"role": "user", "content": "1+1="}],
        [{"role": "system", "content": "7"}, {"role": "user", "content": "2="}],
    ],
)
def test_the_teachers_prompt_is_that_of_trl(trl_sdft: ModuleType, prompt: Any) -> None:
    from trl.experimental.sdft import SDFTConfig

    template = SDFTConfig.__dataclass_fields__["teacher_prompt_template"].default
    builder = trl_sdft.DemonstrationTeacherContextBuilder(
        SimpleNamespace(args=SimpleNamespace(teacher_prompt_template=template))
    )
    composed = builder._compose_teacher_prompt(prompt, "12")
    tokenizer = character_tokenizer()
    tokenizer.add_tokens(["\n"])
    tokenizer.chat_template = CHAT_TEMPLATE
    is_chat = isinstance(prompt, list)
    text = tokenizer.apply_chat_template(composed, tokenize=False, add_generation_prompt=True) if is_chat else composed
    expected = tokenizer(text, add_special_tokens=not is_chat)["input_ids"]
    rows = read_rows(["x"], lambda _: [{"prompt": prompt, "answer": "2", "privileged_context": "12"}])
    [ours] = PromptDataset(rows, DataConfig(apply_chat_template=is_chat), tokenizer, has_privileged_teacher=True)
    assert ours.teacher_prompt_ids is not None and ours.teacher_prompt_ids.tolist() == expected


def test_the_average_and_its_default_are_those_of_trl(trl_sdft: ModuleType) -> None:
    from trl.experimental.sdft import SDFTConfig
    from trl.experimental.sdpo import SDPOConfig
    from trl.trainer.callbacks import SyncRefModelCallback

    rate = AlgorithmConfig().distill_ema
    for config in (SDFTConfig, SDPOConfig):
        assert config.__dataclass_fields__["teacher_update_rate"].default == rate
    torch.manual_seed(0)
    policy, theirs, ours = (nn.Linear(5, 3) for _ in range(3))
    ours.load_state_dict(theirs.state_dict())
    average = FrozenWeights(ours, torch.device("cpu"), timeout_s=60)
    for _ in range(3):
        SyncRefModelCallback._sync_target_model(policy, theirs, rate)
        average.copy(policy.state_dict().items(), weight=rate)
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, atol=1e-7, rtol=1e-6)
