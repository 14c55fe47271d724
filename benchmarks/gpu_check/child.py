"""Run one rank of a check: ``python -m benchmarks.gpu_check.child PACKAGE NAME RANK SCENE``.

Calls the function ``check`` of the file with that name and writes its findings.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict

from benchmarks.gpu_check.play import IS_WORKER, outcome_of
from benchmarks.gpu_check.scene import scene_from_json
from benchmarks.gpu_check.verdict import Findings, Skip


def main() -> None:
    package, name, rank, words = sys.argv[1:]
    scene = scene_from_json(words)
    file = importlib.import_module(f"{package}.{name}")
    group: AbstractContextManager[None] = nullcontext()
    if IS_WORKER in os.environ:
        from benchmarks.gpu_check.policies import process_group

        group = process_group(scene, name)
    findings, skipped, error = Findings(), "", ""
    try:
        with group:
            findings = file.check(scene)
    except Skip as skip:
        skipped = str(skip)
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised).strip().partition(chr(10))[0]}"
        raise
    finally:
        report = {**asdict(findings), "skipped": skipped, "error": error}
        outcome_of(scene.of(name), int(rank)).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
