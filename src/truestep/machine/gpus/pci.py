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


def read_cards(root: Path = Path("/sys/bus/pci/devices")) -> tuple[PciCard, ...]:
    """Return the graphics cards of the known makers, in bus order."""
    found = []
    with suppress(OSError):
        for device in sorted(root.iterdir()):
            with suppress(OSError):
                vendor = _VENDORS.get(_text(device / "vendor"))
                if vendor and _text(device / "class").startswith(_CLASSES):
                    found.append(_card(device, vendor))
    return tuple(found)


def _card(device: Path, vendor: str) -> PciCard:
    driver = device / "driver"
    return PciCard(
        bus_id=device.name,
        vendor=vendor,
        device=_text(device / "device"),
        driver=driver.resolve().name if driver.exists() else None,
    )


def _text(path: Path) -> str:
    return path.read_text("utf-8").strip()
