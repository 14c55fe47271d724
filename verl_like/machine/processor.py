"""The processor of this machine: its model, and a family of models with equal speed per clock."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# (family, first model, last model) -> name, as the makers number them.
_AMD = {
    (23, 0x00, 0x2F): "Zen",
    (23, 0x30, 0xFF): "Zen 2",
    (25, 0x10, 0x1F): "Zen 4",
    (25, 0x60, 0x7F): "Zen 4",
    (25, 0xA0, 0xAF): "Zen 4",
    (25, 0x00, 0xFF): "Zen 3",
    (26, 0x00, 0xFF): "Zen 5",
}
_INTEL = {
    (6, 79, 79): "Broadwell",
    (6, 85, 85): "Skylake",  # and Cascade Lake, which differs only in its stepping
    (6, 106, 108): "Ice Lake",
    (6, 143, 143): "Sapphire Rapids",
    (6, 173, 174): "Granite Rapids",
    (6, 207, 207): "Emerald Rapids",
}
_MAKERS = {"AuthenticAMD": ("AMD", _AMD), "GenuineIntel": ("Intel", _INTEL)}


@dataclass(frozen=True, slots=True)
class Processor:
    """A model of processors.

    Args:
        name: as the system names it. Virtual machines often hide it: ``Intel(R) Xeon(R) Processor``.
        family: such as ``AMD Zen 4``. An unknown one is described by the maker's numbers.
    """

    name: str
    family: str

    def __str__(self) -> str:
        return self.family if self.name == self.family else f"{self.family} ({self.name})"


def processor() -> Processor:
    """Return the processor of this machine."""
    return described(CPUINFO.read_text() if CPUINFO.is_file() else "")


def described(cpuinfo: str) -> Processor:
    """Return the first processor of ``/proc/cpuinfo``; without a maker in it, the architecture, such as aarch64."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    numbers = [fields.get(key, "") for key in ("cpu family", "model")]
    if "vendor_id" not in fields or not all(number.isdecimal() for number in numbers):
        return Processor(platform.machine(), platform.machine())
    vendor, (family, model) = fields["vendor_id"], map(int, numbers)
    maker, known = _MAKERS.get(vendor, (vendor, {}))
    names = [name for (of, first, last), name in known.items() if of == family and first <= model <= last]
    found = f"{maker} {names[0] if names else f'family {family} model {model}'}"
    return Processor(fields.get("model name", found), found)
