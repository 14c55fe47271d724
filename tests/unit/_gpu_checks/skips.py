from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings, Skip


def check(scene: Scene) -> Findings:
    raise Skip("nothing to see here")
