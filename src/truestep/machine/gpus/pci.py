# SPDX-License-Identifier: Apache-2.0
"""The graphics cards on the PCI bus as the kernel lists them: seen without any driver."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_CLASSES = ("0x0300", "0x0302", "0x1200")  # VGA, 3D controller, processing accelerator


@dataclass(frozen=True, kw_only=True)
class PciCard:
    """A card on the bus; `driver` is the kernel module that serves it."""

    bus_id: str
    vendor: str
    device: str
    driver: str | None


def read_cards() -> tuple[PciCard, ...]:
    """Return the graphics cards of the known makers, in bus order."""
    found = []
    with suppress(OSError):
        for device in sorted(Path("/sys/bus/pci/devices").iterdir()):
            with suppress(OSError):
                vendor = _VENDORS.get(_text(device / "vendor"))
                if vendor and _text(device / "class").startswith(_CLASSES):
                    link = device / "driver"
                    driver = link.resolve().name if link.exists() else None
                    number = _text(device / "device")
                    found.append(PciCard(bus_id=device.name, vendor=vendor, device=number, driver=driver))
    return tuple(found)


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip()
