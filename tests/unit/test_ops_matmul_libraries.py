"""The choice of a library for each class of matrix products: measured once, and kept."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from pathlib import Path

import pytest
import torch

from verl_like.ops import matmul_libraries
from verl_like.ops.matmul_libraries import (
    CLASSES,
    MatmulLibraries,
    Product,
    ShapeClass,
    class_name,
    described,
    faster_by_onednn,
    has_onednn,
    kept,
    layer_classes,
    machine_libraries,
    measured_seconds,
    recorded,
)

NAME = "forward pass 384x384x384"


class Clock:
    """Seconds of products by PyTorch and by oneDNN: oneDNN takes ``ratio`` of PyTorch's time."""

    def __init__(self, ratio: float) -> None:
        self.ratio, self.asked = ratio, 0

    def __call__(self, shape: ShapeClass) -> tuple[float, float]:
        self.asked += 1
        return 1e-4, 1e-4 * self.ratio


@pytest.mark.parametrize(
    ("ratio", "is_chosen"), [(0.43, True), (0.89, True), (0.91, False), (1.0, False), (2.5, False)]
)
def test_onednn_is_chosen_where_it_saves_a_tenth(ratio: float, is_chosen: bool) -> None:
    expected = {str(shape) for shape in CLASSES} if is_chosen else set()
    assert faster_by_onednn(Clock(ratio)).onednn == expected


def test_products_are_chosen_apart() -> None:
    """As on processors where oneDNN is faster forward, slower in weight gradients, and slower for small products."""

    def seconds(shape: ShapeClass) -> tuple[float, float]:
        own = shape.rows * shape.columns * shape.inner / 46e9
        ratio = 1.2 if shape.product is Product.WEIGHT_GRADIENT else 0.84
        return own, own * ratio + 17e-6

    found = faster_by_onednn(seconds).onednn
    assert "forward pass 384x384x384" in found and "input gradient 384x384x384" in found
    assert "weight gradient 384x384x384" not in found and "forward pass 32x32x32" not in found
    assert described(MatmulLibraries(found)).endswith("0 of 27 shapes of the weight gradient")


def test_a_size_belongs_to_the_nearest_class_by_ratio() -> None:
    assert class_name(Product.FORWARD, 63, 65, 100_000) == "forward pass 32x128x384"
    assert class_name(Product.FORWARD, 1, 221, 222) == "forward pass 32x128x384"


def test_the_gradients_of_a_layer_have_the_shapes_of_their_products() -> None:
    assert layer_classes(1000, 384, 32) == (
        "forward pass 384x384x32",
        "input gradient 384x32x384",
        "weight gradient 384x32x384",
    )


@pytest.mark.skipif(not has_onednn(), reason="this PyTorch has no oneDNN")
@pytest.mark.parametrize("product", Product)
def test_both_libraries_are_timed(product: Product) -> None:
    own, onednn = measured_seconds(ShapeClass(product, 32, 32, 128))
    assert 0 < own < 1 and 0 < onednn < 1


@pytest.fixture
def with_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_libraries, "has_onednn", lambda: True)


@pytest.mark.usefixtures("with_onednn")
def test_a_machine_measures_once_with_one_thread(tmp_path: Path) -> None:
    threads = []

    def fast(shape: ShapeClass) -> tuple[float, float]:
        threads.append(torch.get_num_threads())
        return 1.0, 0.5

    before, slow = torch.get_num_threads(), Clock(2.0)
    found = machine_libraries(folder=tmp_path, seconds=fast)
    assert found.onednn and machine_libraries(folder=tmp_path, seconds=slow).onednn == found.onednn
    assert set(threads) == {1} and torch.get_num_threads() == before and slow.asked == 0


def test_a_library_that_won_by_a_disturbance_is_not_chosen() -> None:
    asked: Counter[ShapeClass] = Counter()

    def seconds(shape: ShapeClass) -> tuple[float, float]:
        asked[shape] += 1
        return 1.0, 0.5 if asked[shape] < 3 or shape == CLASSES[0] else 1.0

    assert faster_by_onednn(seconds).onednn == {str(CLASSES[0])}


@pytest.mark.usefixtures("with_onednn")
def test_the_choice_is_kept_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_LIKE_CACHE", str(tmp_path))
    machine_libraries(seconds=Clock(0.5))
    [file] = (tmp_path / "matmul").iterdir()
    assert json.loads(file.read_text())["torch"] == torch.__version__


def test_without_onednn_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_libraries, "has_onednn", lambda: False)
    clock = Clock(0.5)
    assert not machine_libraries(folder=tmp_path, seconds=clock).onednn and clock.asked == 0


@pytest.mark.usefixtures("with_onednn")
def test_a_damaged_choice_of_the_machine_is_measured_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    machine_libraries(folder=tmp_path, seconds=Clock(2.0))
    [file] = tmp_path.iterdir()
    file.write_text("{")
    assert machine_libraries(folder=tmp_path, seconds=Clock(0.5)).onednn
    assert "is damaged" in caplog.text and recorded(file).onednn


def test_of_two_choices_made_at_the_same_time_the_first_holds(tmp_path: Path) -> None:
    first = kept(MatmulLibraries([NAME]), tmp_path / "made" / "matmul.json")
    second = kept(MatmulLibraries(), tmp_path / "made" / "matmul.json")
    assert first.onednn == second.onednn == {NAME}
    assert [file.name for file in (tmp_path / "made").iterdir()] == ["matmul.json"]


def test_a_file_system_without_hard_links_keeps_the_choice_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(source: Path, target: Path) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuses)
    assert kept(MatmulLibraries([NAME]), tmp_path / "matmul.json").onednn == {NAME}
    assert recorded(tmp_path / "matmul.json").onednn == {NAME}


def test_an_unwritable_folder_only_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert kept(MatmulLibraries([NAME]), tmp_path / "file" / "matmul.json").onednn == {NAME}
    assert "is not kept, and may differ next time" in caplog.text


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("", r"matmul\.json is damaged \(JSONDecodeError.*expected the classes.*remove it"),
        ("[]", r"matmul\.json is damaged \(TypeError.*expected the classes.*remove it"),
        ("{}", r"matmul\.json is damaged \(KeyError.*expected the classes.*remove it"),
        ('{"onednn": ["forward pass 1x2x3"]}', r"names 'forward pass 1x2x3', expected.*Use the version.*or remove it"),
    ],
)
def test_a_record_that_cannot_be_used_says_so(tmp_path: Path, content: str, found: str) -> None:
    (tmp_path / "matmul.json").write_text(content)
    with pytest.raises(ValueError, match=found):
        recorded(tmp_path / "matmul.json")
