# SPDX-License-Identifier: Apache-2.0
"""What is shown of a card: each column's title, unit, range, meaning and look, in one place.

The table and the legend are both made of this, so that neither can say what the other does not.
"""

from collections.abc import Callable
from dataclasses import dataclass

from truestep.core.text_formatting import bytes_text
from truestep.machine.gpus.records import Gpu

UNKNOWN = "-"
WARM_DEGREES, HOT_DEGREES = 25, 10  # below the temperature at which the card slows down
SLOWDOWN_CELSIUS = 90  # where the card does not say
_MODES = {
    "default": "shared",
    "exclusive_process": "excl.",
    "exclusive_thread": "excl.",
    "prohibited": "none",
}
STYLES = ("green", "yellow", "bold red")


@dataclass(frozen=True)
class CardColumn:
    """A column of the table and its line of the legend."""

    head: str  # title | fields in the JSON document | unit | range
    meaning: str
    text: Callable[[Gpu], str]
    style: Callable[[Gpu], str] = lambda _: ""
    right: bool = True

    @property
    def heads(self) -> list[str]:
        """Return title, fields, unit and range; "" for what it has not."""
        return [part.strip() for part in self.head.split("|")]


def _format_with_unit(value: float | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def card_load_style(value: float | None, moderate: float, heavy: float) -> str:
    """Return the style of a value: calm, moderate or heavy."""
    return "" if value is None else STYLES[(value >= moderate) + (value >= heavy)]


def memory_percent(used: int | None, total: int | None) -> float | None:
    """Return how much of the memory is in use, 0 to 100."""
    return 100 * used / total if used is not None and total else None


def card_memory_text(used: int | None, total: int | None) -> str:
    """Return memory in use of all, with the unit once: "20 / 140 GiB"."""
    if used is None or total is None:
        return UNKNOWN
    # The unit once where both have the same; a nearly empty card's use is in MiB.
    unit = bytes_text(total).rpartition(" ")[2]
    return f"{bytes_text(used).removesuffix(f' {unit}')} / {bytes_text(total)}"


def _temperature_style(card: Gpu) -> str:
    if card.temperature_celsius is None:
        return ""
    slowdown = card.temperature_slowdown_celsius or SLOWDOWN_CELSIUS
    return card_load_style(card.temperature_celsius, slowdown - WARM_DEGREES, slowdown - HOT_DEGREES)


def _power_text(card: Gpu) -> str:
    if card.power_watts is None:
        return UNKNOWN
    limit = f" / {card.power_limit_watts:.0f}" if card.power_limit_watts else ""
    return f"{card.power_watts:.0f}{limit} W"


def card_bus_text(bus_id: str | None) -> str:
    """Return a bus id as the kernel writes it: NVML's has a domain of eight digits, mostly zeros."""
    return bus_id.lower().removeprefix("0000") if bus_id else UNKNOWN


def _on_off_column(title: str, field: str, meaning: str, *, also: str = "") -> CardColumn:
    words = {True: "on", False: "off", None: UNKNOWN}
    head = f"{title} | {field}{also} | | on, off"
    return CardColumn(head, meaning, lambda card: words[getattr(card, field)], right=False)


INDEX = CardColumn(
    "# | index | | 0 to number of cards - 1",
    "The card's number in bus order. CUDA numbers cards by speed instead, unless "
    "CUDA_DEVICE_ORDER=PCI_BUS_ID: name cards by UUID where it matters.",
    lambda card: str(card.index),
)
NAME = CardColumn(
    "Name | name | |",
    "The product name.",
    lambda card: (card.name or UNKNOWN).removeprefix("NVIDIA "),
    right=False,
)
MEMORY = CardColumn(
    "Memory | memory_used_bytes, memory_total_bytes | GiB | 0 to the card's memory",
    "Memory that is allotted, of all there is. It stays allotted while nothing computes: torch "
    "keeps what it once took. It says whether your model fits, not whether the card works.",
    lambda card: card_memory_text(card.memory_used_bytes, card.memory_total_bytes),
    style=lambda card: card_load_style(
        memory_percent(card.memory_used_bytes, card.memory_total_bytes), 10, 80
    ),
)
UTILIZATION = CardColumn(
    "Util | utilization_percent | % | 0 to 100",
    "The part of the last sampling period (1/6 s to 1 s) in which at least one kernel ran. 100 % can "
    "be one small kernel after another on a mostly idle card; 0 % beside full memory is a job that waits.",
    lambda card: _format_with_unit(card.utilization_percent, "%"),
    style=lambda card: card_load_style(card.utilization_percent, 10, 75),
)
TEMPERATURE = CardColumn(
    "Temp | temperature_celsius | °C | about 25 to 90",
    "Of the chip. At temperature_slowdown_celsius the card lowers its clock.",
    lambda card: _format_with_unit(card.temperature_celsius, "°C"),
    style=_temperature_style,
)
FAN = CardColumn(
    "Fan | fan_percent | % | 0 to 100, at times above",
    "The fan's intended speed. Cards cooled by the server's own fans have none.",
    lambda card: _format_with_unit(card.fan_percent, "%"),
)
POWER = CardColumn(
    "Power | power_watts, power_limit_watts | W | 0 to the limit",
    "Drawn now, of the limit in force. At the limit the card lowers its clock.",
    _power_text,
)
STATE = CardColumn(
    "State | performance_state | | P0 (fastest) to P15 (idle)",
    "The clock level that the card chose for its load.",
    lambda card: UNKNOWN if card.performance_state is None else f"P{card.performance_state}",
)
UUID = CardColumn(
    "UUID | uuid | |",
    "The card's own name: the same in every container, order and restart. CUDA_VISIBLE_DEVICES takes it.",
    lambda card: card.uuid or UNKNOWN,
    right=False,
)
BUS = CardColumn(
    "Bus | bus_id | | domain:bus:device.function",
    "The slot, as lspci shows it.",
    lambda card: card_bus_text(card.bus_id),
    right=False,
)
PERSISTENCE = _on_off_column(
    "Pers",
    "persistence",
    "On: the driver stays loaded while nobody uses the card, which saves seconds at each start.",
)
DISPLAY = _on_off_column(
    "Disp", "display_active", "On: a desktop is drawn on it, which takes memory and time."
)
ECC = CardColumn(
    "ECC | ecc_enabled, ecc_uncorrected_errors | errors | 0 and up; off",
    "Memory errors since the last reset that could not be corrected. Above 0: reset the card "
    "before you trust it.",
    lambda card: "off" if card.ecc_enabled is False else _format_with_unit(card.ecc_uncorrected_errors),
    style=lambda card: "bold red" if card.ecc_uncorrected_errors else "",
)
MODE = CardColumn(
    "Mode | compute_mode | | shared, excl., none",
    "How many processes may compute: any number, one, or none.",
    lambda card: _MODES.get(card.compute_mode or "", card.compute_mode or UNKNOWN),
    style=lambda card: "bold yellow" if card.compute_mode == "prohibited" else "",
    right=False,
)
MIG = _on_off_column(
    "MIG",
    "mig_enabled",
    "On: the card is split into instances; CUDA sees one of them, by its own UUID.",
    also=", mig_instances",
)
LOAD = (INDEX, NAME, MEMORY, UTILIZATION, TEMPERATURE, FAN, POWER, STATE, ECC)
IDENTITY = (UUID, BUS, PERSISTENCE, DISPLAY, MODE, MIG)
