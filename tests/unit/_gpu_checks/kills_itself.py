import os
import signal

from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings


def check(scene: Scene) -> Findings:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")
