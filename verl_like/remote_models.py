"""Models in folders of remote stores: copied once into a folder of this machine, which stands for the URL then."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from pathlib import Path

from verl_like.remote import Look, Store, is_remote

# Weights in other formats, and what training has left beside them, are never read.
READ = (".json", ".txt", ".model", ".safetensors", ".jinja", ".py", ".tiktoken")


def copied_folder(url: str) -> Path:
    """Where the model at ``url`` lies on this machine, once it was copied."""
    name = re.sub(r"[^\w.-]+", "-", url.rstrip("/").rpartition("/")[2])
    cache = Path(os.environ.get("VERL_LIKE_CACHE", "~/.cache/verl_like")).expanduser()
    return cache / "models" / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}"


def here(path: str, look: Look = lambda: None) -> str:
    """The folder of this machine that has the model at a URL; a folder or a hub name is returned as it is.

    The copy is made once and never looked at again; of several processes that want it one makes it.

    Args:
        look: called now and then; what it raises ends the copy.

    Raises:
        FileNotFoundError: the URL has no model. Else whatever the store's library raises.
    """
    if not is_remote(path):
        return path
    folder = copied_folder(path)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _copy(path, folder, look)
    return str(folder)


def _copy(url: str, folder: Path, look: Look) -> None:
    store = Store(url)
    names = [name for name in store.files() if name.endswith(READ)]
    if "config.json" not in names:
        raise FileNotFoundError(f"{url} has no config.json")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name in names:
        store.get(name, partial / name, look)
    partial.rename(folder)
