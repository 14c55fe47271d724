from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings


def check(scene: Scene) -> Findings:
    raise ValueError("found a mouse, expected a cat\nand more")
