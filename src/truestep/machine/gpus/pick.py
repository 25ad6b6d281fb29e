# SPDX-License-Identifier: Apache-2.0
"""Pick cards and claim them; wait for them where asked."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from truestep.machine.gpus.claims import CardClaims
from truestep.machine.gpus.nvml import keep_nvml_started
from truestep.machine.gpus.read import GpuReport, read_gpus
from truestep.machine.gpus.records import Gpu
from truestep.machine.gpus.select import (
    CardCandidate,
    CardChoice,
    CardConditions,
    card_candidates,
    card_rejections,
    choose_cards,
)


@dataclass(frozen=True, kw_only=True)
class CardWaitingLimits:
    """How long to wait, how long a card must have met the conditions, and how often to look."""

    wait_seconds: float = 0.0
    steady_seconds: float = 0.0
    every_seconds: float = 2.0


class CardWaiter:
    """Looks at the cards again and again until enough of them meet the conditions."""

    def __init__(
        self,
        wanted: CardConditions,
        claims: CardClaims,
        *,
        read: Callable[[], GpuReport] = read_gpus,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.wanted, self.claims, self.read = wanted, claims, read
        self.environment = environment
        self.steady_since: dict[str, float] = {}

    def pick(self, take: Callable[[str], object], patience: CardWaitingLimits) -> CardChoice:
        """Return the choice, after `take` was called with each chosen UUID under the machine's lock.

        Where the conditions are not met in time, nothing is taken and the choice says why.
        """
        # Who asks for a steady card waits at least as long as it takes to see one.
        end = time.monotonic() + max(patience.wait_seconds, patience.steady_seconds)
        with keep_nvml_started():
            while True:
                choice = self._try_to_take_cards(take, patience.steady_seconds)
                left = end - time.monotonic()
                if choice.met or choice.error or left <= 0:
                    return choice
                time.sleep(min(patience.every_seconds, left))

    def _try_to_take_cards(self, take: Callable[[str], object], steady_seconds: float) -> CardChoice:
        with self.claims.selection_lock():
            # Read under the lock: a card that somebody took meanwhile must not be chosen by what it was before.
            report = self.read()
            if not report.gpus:
                return CardChoice(wanted=self.wanted, error=report.error or "there is no card")
            visible = self.environment.get("CUDA_VISIBLE_DEVICES")
            cards = card_candidates(report.gpus, visible_uuids(visible, report.gpus))
            if not cards:
                return CardChoice(wanted=self.wanted, error=_no_visible_card_message(visible))
            choice = choose_cards(
                self._block_cards_not_yet_steady(cards, steady_seconds),
                self.wanted,
                self._claimed_card_holders(cards),
            )
            for uuid in choice.uuids:
                take(uuid)
            return replace(choice, warnings=_device_order_warning(report, visible))

    def _claimed_card_holders(self, cards: tuple[CardCandidate, ...]) -> dict[str, str]:
        holders = {card.uuid: self.claims.holder(card.uuid) for card in cards}
        return {uuid: holder for uuid, holder in holders.items() if holder}

    def _block_cards_not_yet_steady(
        self, cards: tuple[CardCandidate, ...], steady_seconds: float
    ) -> tuple[CardCandidate, ...]:
        """Block the cards that have not met the conditions for long enough."""
        if not steady_seconds:
            return cards
        now = time.monotonic()
        meets = {one.candidate.uuid for one in card_rejections(cards, self.wanted, {}) if not one.reasons}
        self.steady_since = {uuid: self.steady_since.get(uuid, now) for uuid in meets}
        settled = []
        for card in cards:
            so_far = now - self.steady_since.get(card.uuid, now)
            early = card.uuid in meets and so_far < steady_seconds
            why = f"has met the conditions for {so_far:.1f} s of {steady_seconds:g} s"
            settled.append(replace(card, blocked=why) if early else card)
        return tuple(settled)


def _no_visible_card_message(visible: str | None) -> str:
    if visible is None:
        return "no card has a UUID to name it by"
    return f"CUDA_VISIBLE_DEVICES is {visible!r}, which admits none of this machine's cards"


def _device_order_warning(report: GpuReport, visible: str | None) -> tuple[str, ...]:
    """Say so where the numbers of CUDA_VISIBLE_DEVICES may mean other cards than the bus order."""
    by_number = visible is not None and any(part.strip().isdigit() for part in visible.split(","))
    mixed = len({card.name for card in report.gpus}) > 1
    if by_number and mixed and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        how = "names cards by number, read here in bus order; on this machine of different cards CUDA counts"
        return (f"CUDA_VISIBLE_DEVICES={visible} {how} otherwise unless CUDA_DEVICE_ORDER=PCI_BUS_ID",)
    return ()


def parse_visible_devices(variable: str) -> list[str]:
    """Return the entries that count, in order.

    As in CUDA: reading stops at the first entry that is no device ("", "-1", "abc"), trailing letters of a
    number are ignored ("1gpu2" is 1), and a device named twice leaves none at all.
    """
    entries: list[str] = []
    for raw in variable.split(","):
        entry = raw.strip()
        if not entry.startswith(("GPU-", "MIG-")):
            digits = entry[: len(entry) - len(entry.lstrip("0123456789"))]
            if not digits:
                break
            entry = str(int(digits))
        if entry in entries:
            return []
        entries.append(entry)
    return entries


def visible_uuids(variable: str | None, cards: Sequence[Gpu]) -> set[str] | None:
    """Return the UUIDs of cards and MIG instances that the variable admits; None is no restriction.

    Numbers are read in bus order. A shortened UUID admits the one device that it begins.
    """
    if variable is None:
        return None
    known = [card.uuid for card in cards if card.uuid]
    known += [instance.uuid for card in cards for instance in card.mig_instances if instance.uuid]
    admitted: set[str] = set()
    for entry in parse_visible_devices(variable):
        if entry.isdigit():
            matching = [card.uuid for card in cards if card.index == int(entry) and card.uuid]
        else:
            matching = [uuid for uuid in known if uuid.startswith(entry)]
        if len(matching) != 1:
            break
        admitted.add(matching[0])
    return admitted
