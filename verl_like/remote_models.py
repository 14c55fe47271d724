"""Copy models from remote stores once into a local folder, which is then used for the URL."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

from verl_like.call_threads import Check
from verl_like.remote import RemoteFolder, is_remote

# Suffixes of the files to copy; weights in other formats and files of training are never read.
READ = (".json", ".txt", ".model", ".safetensors", ".jinja", ".py", ".tiktoken")
_WEIGHTS = "model*.safetensors"
_INDEX = "model.safetensors.index.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")  # a folder with one of these has a tokenizer


def copied_folder(url: str) -> Path:
    """Return the local folder of the model at ``url``, or of its tokenizer if only that was copied."""
    model = _model_folder(url)
    return model if model.is_dir() or not _tokenizer_folder(url).is_dir() else _tokenizer_folder(url)


def local_path(path: str, check: Check = lambda: None) -> str:
    """Return the local folder with the model at a URL, copying it if needed; other paths are returned unchanged.

    The copy is made once, by one of the processes that request it, and is not compared with the store later. If the URL
    has no complete model, its tokenizer is copied into a separate folder, so that a model added later is found.

    Args:
        check: called periodically; an exception that it raises ends the copy.

    Raises:
        FileNotFoundError: the URL has neither a complete model nor a tokenizer. The store's library may raise others.
    """
    if not is_remote(path):
        return path
    folder = _model_folder(path)
    if not _is_complete(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(folder):
                folder = _copied(path, check)
    return str(folder)


def lacking_at(url: str) -> str | None:
    """Return which weights are missing at a URL, as :func:`lacking_weights`, without copying any.

    Raises:
        FileNotFoundError: the URL has no ``config.json``. The store's library may raise others.
    """
    if _is_complete(_model_folder(url)):
        return None
    remote = RemoteFolder(url)
    names = remote.files()
    if "config.json" not in names:
        raise FileNotFoundError(f"{url} has no config.json")
    return lacking_weights(names, remote.read)


def lacking_weights(names: Iterable[str], read: Callable[[str], bytes | None]) -> str | None:
    """Return which weights a model's folder lacks and the remedy, the end of "a folder without"; None if complete.

    Args:
        names: the folder's files.
        read: returns the content of a file.
    """
    there = set(names)
    if "model.safetensors" in there:
        return None
    if _INDEX in there:
        return _lacking_shards(_shards(read(_INDEX)), there)
    if any(fnmatch(name, _WEIGHTS) and "/" not in name for name in there):
        return None
    return (
        f"weights in safetensors files ({_WEIGHTS}). Copy the model again; to convert weights of another format, load "
        f"and save them with transformers."
    )


def lacking_in(folder: Path) -> str | None:
    """Return which weights a local folder lacks, as :func:`lacking_weights`."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return lacking_weights(names, lambda name: (folder / name).read_bytes())


def weights_in(folder: Path) -> list[Path]:
    """Return the files of a model's weights: those of its index, else all files of the usual name."""
    if (folder / _INDEX).is_file():  # the folder may also have the same weights in another format
        return sorted(folder / name for name in _shards((folder / _INDEX).read_bytes()))
    return sorted(folder.glob(_WEIGHTS))


def _lacking_shards(shards: set[str], there: set[str]) -> str | None:
    absent = sorted(shards - there)
    if not shards:
        return f"a {_INDEX} that names its shards (weight_map). Copy the model again."
    if absent:
        return f"{len(absent)} of the {len(shards)} shards that its {_INDEX} names ({absent[0]}). Copy the model again."
    return None


def _shards(index: bytes | None) -> set[str]:
    """Return the files that an index of weights names; empty if its content is invalid."""
    try:
        return set(json.loads(index or b"")["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _model_folder(url: str) -> Path:
    name = re.sub(r"[^\w.-]+", "-", url.rstrip("/").rpartition("/")[2])
    cache = Path(os.environ.get("VERL_LIKE_CACHE", "~/.cache/verl_like")).expanduser()
    return cache / "models" / f"{name}-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:12]}"


def _tokenizer_folder(url: str) -> Path:
    model = _model_folder(url)
    return model.with_name(f"{model.name}-tokenizer")


def _is_complete(folder: Path) -> bool:
    return folder.is_dir() and lacking_in(folder) is None


def _copied(url: str, check: Check) -> Path:
    """Copy the model, or else the tokenizer; return the folder."""
    remote = RemoteFolder(url)
    names = [name for name in remote.files() if name.endswith(READ)]
    lacking = lacking_weights(names, remote.read) if "config.json" in names else None
    if "config.json" in names and lacking is None:
        folder = _model_folder(url)
    elif any(name in names for name in _TOKENIZER):
        folder, names = _tokenizer_folder(url), [name for name in names if not name.endswith(".safetensors")]
        if folder.is_dir():
            return folder
    else:
        raise FileNotFoundError(f"{url} has no {lacking or 'config.json'}")
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    remote.get({name: partial / name for name in names}, check)
    shutil.rmtree(_model_folder(url), ignore_errors=True)  # an incomplete copy
    partial.rename(folder)
    return folder
