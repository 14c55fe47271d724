"""Import large libraries with the garbage collector off: it would traverse their objects repeatedly."""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_like.machine.packages import TORCHVISION_FOLDER

# vLLM depends on these. Models of pictures need torchvision, for its functions that resize; text models need none.
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
# The compiled operators that torchvision describes when it is imported without its library (0.28); no model calls them.
_OPERATORS = ("nms", "qnms")


@contextmanager
def importing() -> Iterator[None]:
    """Turn the garbage collector off inside the block and exclude the objects made there from later collections.

    Packages that cannot be loaded together with torch are hidden first.

    A worker imports torch, transformers and vLLM in 4.3 instead of 6.2 s. Each later full collection, of which vLLM
    makes five while it starts, takes no time instead of 0.3 s (torch 2.13, vLLM 0.32, one core). Unreachable cycles
    that other threads make meanwhile are never freed.

    Raises:
        ImportError: an import failed; a package that was built for another torch may raise any exception.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        leave_out_unloadable()
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(".")
        raise ImportError(f"a package cannot be loaded: {reason}. Run `verl-like doctor`") from error
    finally:
        gc.freeze()
        if is_collecting:
            gc.enable()


def leave_out_unloadable() -> None:
    """Hide companions of torch that cannot be loaded from other libraries; call this before transformers is imported.

    pip may install torchvision or torchaudio in another build than torch's, and torchcodec without FFmpeg.
    transformers and vLLM check only whether they are installed, and then fail to import (5.19, 0.32).
    """
    folder = Path(sys.prefix) / TORCHVISION_FOLDER
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None and folder.is_dir():
        sys.meta_path.append(_Finder(str(folder)))
    for name in COMPANIONS:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or isinstance(spec.loader, _Loader):
            continue
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (another build may raise anything; the doctor reports it)
            for part in [module for module in sys.modules if module.partition(".")[0] == name]:
                del sys.modules[part]
            sys.modules[name] = None  # type: ignore[assignment]  # an import and find_spec find no module


class _Loader(SourceFileLoader):
    """Imports torchvision after its operators have been declared."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["_declared"] = declared_operators(Path(self.path).parent)  # as long as the module lives
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds torchvision in a folder; an entry of ``sys.path`` would be passed on to other programs."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, [self._folder]) if fullname == "torchvision" else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        """Return the package's metadata, from which libraries read its version."""
        if context.path != sys.path:  # somebody asks about another folder
            return ()
        return PathFinder.find_distributions(DistributionFinder.Context(name=context.name, path=[self._folder]))


def declared_operators(folder: Path) -> object:
    """Declare the operators of the torchvision in this folder, so that its other parts can be imported.

    The package index has only a build for CUDA, whose library a CPU build of torch cannot load. torchvision then fails
    when it describes its operators.

    Returns:
        An object that keeps the declarations; None if the library loads and has declared them.
    """
    import torch

    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
            return None
    except OSError:
        pass
    declared = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _OPERATORS:
        declared.define(f"{name}(Tensor values) -> Tensor")  # type: ignore[no-untyped-call]
    return declared


@atexit.register
def _thaw() -> None:
    """Unfreeze the objects at exit: triton reports frozen objects as leaked, in thirty lines.

    Only if triton is loaded, because the collection takes a second or two.
    """
    if "triton" in sys.modules:
        gc.unfreeze()
