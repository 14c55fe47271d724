from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings


def check(scene: Scene) -> Findings:
    found = Findings()
    found.add("mfu", 0.1, at_least=0.3)
    return found
