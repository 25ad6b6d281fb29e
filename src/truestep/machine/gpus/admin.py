# SPDX-License-Identifier: Apache-2.0
"""Settings that need root: persistence and reset, by the very command that an administrator would type."""

import shutil
from collections.abc import Sequence

from truestep.core.errors import OptionError, names_hint
from truestep.core.os_specific import is_administrator
from truestep.machine.gpus.read import GpuReport
from truestep.machine.gpus.records import Gpu


def select_cards_by_name(report: GpuReport, wanted: Sequence[str]) -> list[Gpu]:
    """Return the cards named by number or by the beginning of their UUID; all where none is named."""
    names = [str(card.index) for card in report.gpus] + [card.uuid for card in report.gpus if card.uuid]
    found = []
    for name in wanted:
        same = [card for card in report.gpus if name == str(card.index) or (card.uuid or "").startswith(name)]
        if len(same) != 1 or not name:
            raise OptionError(f"{name!r} names {len(same)} cards. {names_hint(name, names)}")
        found += same
    return found if wanted else list(report.gpus)


def persistence_command(card: Gpu, on: bool) -> list[str]:
    """Return the command that sets a card's persistence mode."""
    return ["nvidia-smi", "-i", card.uuid or str(card.index), "-pm", str(int(on))]


def reset_command(card: Gpu) -> list[str]:
    """Return the command that resets a card."""
    return ["nvidia-smi", "--gpu-reset", "-i", card.uuid or str(card.index)]


def reason_not_to_run_card_command(card: Gpu) -> str | None:
    """Return why a command must not be run on a card now, or None."""
    if not is_administrator():
        return "it needs root: run the command with sudo"
    if card.processes is None:
        why = card.unavailable.get("processes", card.error or "unknown")
        return f"whether a process uses the card can't be told ({why})"
    if card.processes:
        pids = ", ".join(str(process.pid) for process in card.processes)
        return f"the card is in use by process {pids}"
    if shutil.which("nvidia-smi") is None:
        return "nvidia-smi is not on the PATH"
    return None
