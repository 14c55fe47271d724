"""The family of a processor, from what Linux says about it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from verl_like.machine import processor as module
from verl_like.machine.processor import Processor, described, processor


def cpuinfo(vendor: str, family: int, model: int, name: str) -> str:
    fields = f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\nstepping\t: 2\n"
    return f"processor\t: 0\n{fields}\nprocessor\t: 1\n{fields}"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name", "expected"),
    [
        ("GenuineIntel", 6, 207, "Intel(R) Xeon(R) Processor", "Intel Emerald Rapids"),
        ("GenuineIntel", 6, 143, "Intel(R) Xeon(R) Platinum 8488C", "Intel Sapphire Rapids"),
        ("GenuineIntel", 6, 106, "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "Intel Ice Lake"),
        ("GenuineIntel", 6, 85, "Intel(R) Xeon(R) CPU @ 2.00GHz", "Intel Skylake"),
        ("GenuineIntel", 6, 250, "something new", "Intel family 6 model 250"),
        ("AuthenticAMD", 23, 49, "AMD EPYC 7R32", "AMD Zen 2"),
        ("AuthenticAMD", 25, 1, "AMD EPYC 7R13 Processor", "AMD Zen 3"),
        ("AuthenticAMD", 25, 17, "AMD EPYC 9R14", "AMD Zen 4"),
        ("AuthenticAMD", 25, 97, "AMD Ryzen 9 7950X 16-Core Processor", "AMD Zen 4"),
        ("AuthenticAMD", 25, 160, "AMD EPYC 9754 128-Core Processor", "AMD Zen 4"),
        ("AuthenticAMD", 26, 2, "AMD EPYC 9755 128-Core Processor", "AMD Zen 5"),
        ("HygonGenuine", 24, 1, "Hygon C86", "HygonGenuine family 24 model 1"),
    ],
)
def test_a_family_is_recognised(vendor: str, family: int, model: int, name: str, expected: str) -> None:
    found = described(cpuinfo(vendor, family, model, name))
    assert found == Processor(name, expected)
    assert str(found) == f"{expected} ({name})"


@pytest.mark.parametrize("text", ["", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"])
def test_without_a_maker_it_is_the_architecture(text: str) -> None:
    assert str(described(text)) == platform.machine()


def test_this_machine_has_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor().family
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "absent")
    assert processor() == described("")
