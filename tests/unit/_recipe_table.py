"""The table of recipes/README.md, and the shapes of the models that it names."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.plan_table import qwen2

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes"
FOLDERS = sorted(page.parent for page in RECIPES.glob("*/README.md"))
FILES = sorted(file for folder in FOLDERS for file in folder.glob("*.yaml"))
NOT_RUN = "Not yet run on this hardware."


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A row: a recipe, with overrides maybe, and what it needs."""

    file: Path
    overrides: tuple[str, ...]
    model: str
    hardware: str
    memory: str  # of the fullest GPU by the plan, and the stage
    status: str

    @property
    def devices(self) -> tuple[int, int, str]:
        """Nodes, GPUs of each, and which: "2 x 8 x H100" is (2, 8, "H100"), and "CPU" is (1, 0, "CPU")."""
        match = re.fullmatch(r"(?:(?:(\d+) x )?(\d+) x )?(\w+)", self.hardware)
        assert match, f"{self.hardware!r} is no hardware; write CPU, 1 x H100, 8 x H100 or 2 x 8 x H100"
        return int(match[1] or 1), int(match[2] or 0), match[3]

    def __str__(self) -> str:
        return " ".join((named(self.file), *self.overrides))


def named(path: Path) -> str:
    """As it is called below recipes/."""
    return str(path.relative_to(RECIPES))


def table() -> list[Listed]:
    """Return all rows."""
    lines = (RECIPES / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    body = rows[rows.index(["recipe", "algorithm", "model", "hardware", "GiB by the plan", "status"]) + 1 :]
    found = []
    for recipe, _, model, hardware, memory, status in body:
        file, *overrides = re.findall(r"`([^`]+)`", recipe)[0].split()
        found.append(
            Listed(
                file=RECIPES / file,
                overrides=tuple(overrides),
                model=model.strip("`"),
                hardware=hardware,
                memory=memory,
                status=status,
            )
        )
    return found


def qwen2_5(
    hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocabulary: int = 152_064
) -> dict[str, Any]:
    """A config.json of Qwen2.5; the small ones tie their embeddings."""
    shape = qwen2(hidden, layers, heads, kv_heads, width, vocabulary, vocabulary < 152_000)
    return shape | {"max_position_embeddings": 32_768}


def qwen3(hidden: int, layers: int, heads: int, width: int, *, tied: bool = True) -> dict[str, Any]:
    """A config.json of Qwen3."""
    shape = qwen2_5(hidden, layers, heads, 8, width, 151_936)
    more = {"head_dim": 128, "tie_word_embeddings": tied, "max_position_embeddings": 40_960}
    return shape | more | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


def qwen2_5_vl(
    hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocabulary: int = 152_064
) -> dict[str, Any]:
    """A config.json of Qwen2.5-VL, in the flat form of the published ones; its vision part keeps its usual sizes."""
    shape = qwen2_5(hidden, layers, heads, kv_heads, width, vocabulary)
    return shape | {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "max_position_embeddings": 128_000,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "image_token_id": 151_655,
        "video_token_id": 151_656,
        "vision_start_token_id": 151_652,
        "vision_end_token_id": 151_653,
        "vision_config": {"model_type": "qwen2_5_vl", "hidden_size": 1280, "out_hidden_size": hidden},
    }


# As their makers publish them. Of Qwen2.5 the longest sequence is that of the instructed ones; the others read more.
SHAPES = {
    "Qwen/Qwen2.5-0.5B-Instruct": qwen2_5(896, 24, 14, 2, 4864, 151_936),
    "Qwen/Qwen2.5-3B-Instruct": qwen2_5(2048, 36, 16, 2, 11_008, 151_936),
    "Qwen/Qwen2.5-7B": qwen2_5(3584, 28, 28, 4, 18_944),
    "Qwen/Qwen2.5-7B-Instruct": qwen2_5(3584, 28, 28, 4, 18_944),
    "Qwen/Qwen2.5-Coder-7B-Instruct": qwen2_5(3584, 28, 28, 4, 18_944),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": qwen2_5(3584, 28, 28, 4, 18_944) | {"max_position_embeddings": 131_072},
    "Qwen/Qwen2.5-VL-3B-Instruct": qwen2_5_vl(2048, 36, 16, 2, 11_008, 151_936),
    "Qwen/Qwen2.5-VL-7B-Instruct": qwen2_5_vl(3584, 28, 28, 4, 18_944),
    "Qwen/Qwen2.5-14B-Instruct": qwen2_5(5120, 48, 40, 8, 13_824),
    "Qwen/Qwen2.5-32B": qwen2_5(5120, 64, 40, 8, 27_648),
    "Qwen/Qwen2.5-32B-Instruct": qwen2_5(5120, 64, 40, 8, 27_648),
    "Qwen/Qwen3-0.6B": qwen3(1024, 28, 16, 3072),
    "Qwen/Qwen3-1.7B": qwen3(2048, 28, 16, 6144),
    "Qwen/Qwen3-4B": qwen3(2560, 36, 32, 9728),
    "Skywork/Skywork-Reward-V2-Qwen3-4B": qwen3(2560, 36, 32, 9728),
    "Qwen/Qwen3-8B": qwen3(4096, 36, 32, 12_288, tied=False),
}


def write_shapes(folder: Path) -> dict[str, str]:
    """Folders with a config.json alone, by the models' names on the hub."""
    found = {}
    for name, shape in SHAPES.items():
        place = folder / name.replace("/", "--")
        place.mkdir()
        (place / "config.json").write_text(json.dumps(shape))
        found[name] = str(place)
    return found
