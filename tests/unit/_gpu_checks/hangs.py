import subprocess
import time

from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings


def check(scene: Scene) -> Findings:
    """With a child that does not listen."""
    child = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    (scene.of("hangs") / "child").write_text(str(child.pid))
    time.sleep(600)
    raise AssertionError("unreachable")
