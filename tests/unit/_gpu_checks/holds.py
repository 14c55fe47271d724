from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings


def check(scene: Scene) -> Findings:
    found = Findings()
    found.add("wake_s", 0.25, at_most=1.0)
    return found
