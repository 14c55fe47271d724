"""Models in folders of remote stores: copied once into a folder of this machine, which stands for the URL then."""

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

# Weights in other formats, and what training has left beside them, are never read.
READ = (".json", ".txt", ".model", ".safetensors", ".jinja", ".py", ".tiktoken")
_WEIGHTS = "model*.safetensors"
_INDEX = "model.safetensors.index.json"
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")  # a folder with one of these has a tokenizer


def copied_folder(url: str) -> Path:
    """Where the model at ``url``, or the tokenizer without a model, lies on this machine, once it was copied."""
    model = _model_folder(url)
    return model if model.is_dir() or not _tokenizer_folder(url).is_dir() else _tokenizer_folder(url)


def here(path: str, check: Check = lambda: None) -> str:
    """The folder of this machine that has the model at a URL; a folder or a hub name is returned as it is.

    The copy is made once and never looked at again; of several processes that want it one makes it. Of a URL without a
    whole model the tokenizer is copied, into a folder of its own, so that a model which comes later is seen.

    Args:
        check: called now and then; what it raises ends the copy.

    Raises:
        FileNotFoundError: the URL has neither a whole model nor a tokenizer. Else whatever the store's library raises.
    """
    if not is_remote(path):
        return path
    folder = _model_folder(path)
    if not _is_whole(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_whole(folder):
                folder = _copied(path, check)
    return str(folder)


def lacking_at(url: str) -> str | None:
    """What a model's store lacks of its weights, as :func:`lacking_weights`, known without copying them.

    Raises:
        FileNotFoundError: the URL has no ``config.json``. Else whatever the store's library raises.
    """
    if _is_whole(_model_folder(url)):
        return None
    remote = RemoteFolder(url)
    names = remote.files()
    if "config.json" not in names:
        raise FileNotFoundError(f"{url} has no config.json")
    return lacking_weights(names, remote.read)


def lacking_weights(names: Iterable[str], read: Callable[[str], bytes | None]) -> str | None:
    """What a model's folder lacks of its weights, and what to do, to follow "a folder without"; None where it is whole.

    Args:
        names: the folder's files.
        read: gives the content of one of them.
    """
    there = set(names)
    if "model.safetensors" in there:
        return None
    if _INDEX in there:
        return _lacking_shards(_shards(read(_INDEX)), there)
    if any(fnmatch(name, _WEIGHTS) and "/" not in name for name in there):
        return None
    return (
        f"weights in safetensors files ({_WEIGHTS}). Copy the model again; weights in another format are converted by "
        f"loading and saving them with transformers."
    )


def lacking_in(folder: Path) -> str | None:
    """What a folder of this machine lacks of a model's weights, as :func:`lacking_weights`."""
    names = [path.name for path in folder.iterdir() if path.is_file()]
    return lacking_weights(names, lambda name: (folder / name).read_bytes())


def weights_in(folder: Path) -> list[Path]:
    """The files that a model's weights are read from: those of its index, else all of the usual name."""
    if (folder / _INDEX).is_file():  # beside it there may be the same weights in another format
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
    """The files that an index of weights names; empty for one of another form."""
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


def _is_whole(folder: Path) -> bool:
    return folder.is_dir() and lacking_in(folder) is None


def _copied(url: str, check: Check) -> Path:
    """The folder into which the model, or else the tokenizer, was copied."""
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
    shutil.rmtree(_model_folder(url), ignore_errors=True)  # what is there is not whole
    partial.rename(folder)
    return folder
