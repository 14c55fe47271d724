"""A tokenizer of a script, as a folder that workers load."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

from verl_like.disk import writing
from verl_like.trl.rewards import Pretrained


def tokenizer_path(tokenizer: Any, folder: Path) -> str:
    """Return the folder or hub name of a tokenizer; write an object below ``folder``, named after its content.

    Raises:
        ValueError: it is neither a name nor a tokenizer.
    """
    if isinstance(tokenizer, (str, Path)):
        return str(tokenizer)
    if not isinstance(tokenizer, Pretrained):
        raise ValueError(
            f"processing_class is a {type(tokenizer).__name__}; expected a tokenizer of transformers, or its folder or "
            "hub name."
        )
    with TemporaryDirectory() as temporary:
        tokenizer.save_pretrained(temporary)
        digest = sha256()
        for file in sorted(Path(temporary).rglob("*")):
            digest.update(file.name.encode() + (file.read_bytes() if file.is_file() else b""))
        target = folder / f"tokenizer-{digest.hexdigest()[:12]}"
        if not target.is_dir():
            with writing(target, option="processing_class"):
                copytree(temporary, target)
    return str(target)
