# SPDX-License-Identifier: Apache-2.0
"""Choose cards: which ones meet the conditions, in which order, and what the nearest miss is.

Everything here is a function of what was read and asked; waiting and claiming are elsewhere.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truestep.core.errors import OptionError, names_hint
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import bytes_text
from truestep.machine.gpus.records import Gpu, GpuProcess, MigInstance

FAR = 1000.0  # the distance of what no waiting brings nearer


@dataclass(frozen=True, kw_only=True)
class CardCandidate:
    """A card, or a MIG instance of one, that could be chosen."""

    uuid: str
    name: str
    index: int
    slot: int  # the card's place on the bus, counted among the cards
    num_slots: int
    mig: bool = False
    free_bytes: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None
    num_processes: int | None = None
    blocked: str | None = None


@dataclass(frozen=True, kw_only=True)
class CardConditions:
    """What the chosen cards must offer, and which are preferred."""

    count: int = 1
    free_memory_bytes: int = 0
    max_utilization_percent: float | None = None
    max_temperature_celsius: float | None = None
    without_processes: bool = False
    only: tuple[str, ...] = ()  # numbers in bus order, or UUIDs (the beginning is enough)
    by: str = "freest"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise OptionError(f"{self.count} cards can't be chosen. Write a count of 1 or more.")
        if self.by not in ORDERS:
            raise OptionError(f"There is no order {self.by!r}. {names_hint(self.by, ORDERS)}")


def _sort_key_unknown_last(value: float | None) -> tuple[bool, float]:
    """Return a key that sorts by value, what is unknown last."""
    return value is None, 0 if value is None else value


# Each order of preference: what is compared first; ties go to more free memory, then to the bus order.
ORDERS: Mapping[str, Callable[[CardCandidate], Any]] = {
    "freest": lambda card: _sort_key_unknown_last(None if card.free_bytes is None else -card.free_bytes),
    "coolest": lambda card: _sort_key_unknown_last(card.temperature_celsius),
    "least-used": lambda card: (
        _sort_key_unknown_last(card.utilization_percent),
        _sort_key_unknown_last(card.num_processes),
    ),
    # the outer slots get the most air: first the two ends of the bus, then inwards
    "edge": lambda card: (min(card.slot, card.num_slots - 1 - card.slot), card.slot),
}


def card_candidates(
    cards: Sequence[Gpu], visible: Collection[str] | None = None
) -> tuple[CardCandidate, ...]:
    """Return what can be chosen among: cards, and the instances of cards that are split by MIG."""
    ordered = sorted(cards, key=lambda card: (card.bus_id or "", card.index))
    found = []
    for slot, card in enumerate(ordered):
        wanted = card.mig_instances if card.mig_enabled else (card,)
        found += [
            _make_card_candidate(card, one, slot=slot, num_slots=len(ordered)) for one in wanted if one.uuid
        ]
    return tuple(one for one in found if visible is None or one.uuid in visible)


def _make_card_candidate(card: Gpu, one: Gpu | MigInstance, *, slot: int, num_slots: int) -> CardCandidate:
    """Return a card, or an instance of it, as what could be chosen."""
    users: Sequence[GpuProcess] | None = card.processes
    if isinstance(one, MigInstance) and users is not None:
        users = [each for each in users if each.gpu_instance_id == one.gpu_instance_id]
    return CardCandidate(
        uuid=one.uuid or "",
        name=one.name or f"unknown {'card' if one is card else 'instance'}",
        index=card.index,
        slot=slot,
        num_slots=num_slots,
        mig=one is not card,
        free_bytes=one.memory_free_bytes,
        utilization_percent=one.utilization_percent if isinstance(one, Gpu) else None,
        temperature_celsius=card.temperature_celsius,
        num_processes=None if users is None else len(users),
        blocked=_reason_card_is_blocked(card),
    )


def _reason_card_is_blocked(card: Gpu) -> str | None:
    if card.error:
        return card.error
    if card.compute_mode == "prohibited":
        return "its compute mode forbids to compute"
    if card.compute_mode in ("exclusive_process", "exclusive_thread") and card.processes:
        return "it is in exclusive mode, and in use"
    return None


@dataclass(frozen=True, kw_only=True)
class CardRejection:
    """A card that was not chosen: every reason, and how far it is from the conditions."""

    candidate: CardCandidate
    reasons: tuple[str, ...]
    distance: float


@dataclass(frozen=True, kw_only=True)
class CardChoice(Result):
    """The chosen cards in order of preference, and why the others are not among them."""

    wanted: CardConditions
    picked: tuple[CardCandidate, ...] = ()
    refused: tuple[CardRejection, ...] = ()
    error: str | None = None  # why there is no card at all to choose from
    warnings: tuple[str, ...] = ()

    @property
    def uuids(self) -> tuple[str, ...]:
        """The names to put into CUDA_VISIBLE_DEVICES."""
        return tuple(card.uuid for card in self.picked)

    @property
    def met(self) -> bool:
        """Whether as many cards as wanted were found."""
        return len(self.picked) >= self.wanted.count

    def explain(self) -> str:
        """Return one sentence that says why too few cards were found, with the nearest miss."""
        if self.error:
            return self.error
        able = sum(not refusal.reasons for refusal in self.refused) + len(self.picked)
        missed = [refusal for refusal in self.refused if refusal.reasons]
        says = f"{self.wanted.count} card(s) wanted, {able} of {len(self.refused)} meet the conditions"
        if not missed:
            return says
        near = min(missed, key=lambda refusal: (len(refusal.reasons), refusal.distance))
        card = near.candidate
        return f"{says}. Nearest miss: card {card.index} ({card.name}): {'; '.join(near.reasons)}"

    def __rich__(self) -> RenderableType:
        return "\n".join(self.uuids) if self.met else self.explain()


def choose_cards(
    cards: Sequence[CardCandidate], wanted: CardConditions, claimed: Mapping[str, str]
) -> CardChoice:
    """Return the preferred cards that meet every condition; none at all when they are too few.

    `claimed` names, per UUID, who holds a card.
    """
    refusals = card_rejections(cards, wanted, claimed)
    able = [refusal.candidate for refusal in refusals if not refusal.reasons]
    # down to the UUID, so that two readings of the same state choose the same cards
    able.sort(key=lambda card: (ORDERS[wanted.by](card), ORDERS["freest"](card), card.slot, card.uuid))
    picked = able[: wanted.count] if len(able) >= wanted.count else []
    rest = tuple(refusal for refusal in refusals if refusal.candidate not in picked)
    return CardChoice(wanted=wanted, picked=tuple(picked), refused=rest)


def card_rejections(
    cards: Sequence[CardCandidate], wanted: CardConditions, claimed: Mapping[str, str]
) -> list[CardRejection]:
    """Return, for each card, what speaks against it; nothing where it meets the conditions."""
    found = []
    for card in cards:
        misses = list(_unmet_conditions(card, wanted))
        misses += [(f"claimed by {holder}", 1.0)] if (holder := claimed.get(card.uuid)) else []
        reasons, distances = tuple(reason for reason, _ in misses), (distance for _, distance in misses)
        found.append(CardRejection(candidate=card, reasons=reasons, distance=sum(distances)))
    return found


def _unmet_conditions(card: CardCandidate, wanted: CardConditions) -> Iterator[tuple[str, float]]:
    """Yield each condition that the card does not meet, with a relative distance; unknown is not met."""
    named = (int(e) == card.index if e.isdigit() else e and card.uuid.startswith(e) for e in wanted.only)
    if wanted.only and not any(named):
        yield "not among the cards that were named", FAR
    if card.blocked:
        yield card.blocked, FAR
    if card.mig and wanted.count > 1:
        yield "a MIG instance, of which CUDA gives a process only one", FAR
    yield from _check_minimum("free", card.free_bytes, wanted.free_memory_bytes, bytes_text)
    yield from _check_maximum(
        "busy", card.utilization_percent, wanted.max_utilization_percent, "{:.0f} %".format
    )
    yield from _check_maximum(
        "warm", card.temperature_celsius, wanted.max_temperature_celsius, "{:.0f} °C".format
    )
    if wanted.without_processes and card.num_processes != 0:
        unknown = card.num_processes is None
        yield "its processes are unknown" if unknown else f"{card.num_processes} process(es)", 1.0


def _check_minimum(
    what: str, value: float | None, bound: float, text: Callable[[float], str]
) -> Iterator[tuple[str, float]]:
    if bound and value is None:
        yield f"how much is {what} is unknown", 1.0
    elif value is not None and value < bound:
        yield f"{text(value)} {what}, {text(bound)} wanted", (bound - value) / bound


def _check_maximum(
    what: str, value: float | None, bound: float | None, text: Callable[[float], str]
) -> Iterator[tuple[str, float]]:
    if bound is not None and value is None:
        yield f"how {what} it is is unknown", 1.0
    elif bound is not None and value is not None and value > bound:
        yield f"{text(value)} {what}, {text(bound)} at most wanted", (value - bound) / max(bound, 1)
