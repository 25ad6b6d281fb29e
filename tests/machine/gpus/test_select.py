# SPDX-License-Identifier: Apache-2.0
"""Choosing among random machines: never a card that fails a condition, preference kept, misses named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truestep.core.errors import OptionError
from truestep.machine.gpus.records import Gpu, GpuProcess, MigInstance
from truestep.machine.gpus.select import ORDERS, CardConditions, card_candidates, choose_cards

GIB = 2**30
PROCESS = GpuProcess(pid=7, kind="compute")


def maybe(values):
    return st.none() | values


@st.composite
def machines(draw, most=8):
    """Cards in a shuffled order, any field of which may be unknown."""
    number = draw(st.integers(0, most))
    order = draw(st.permutations(range(number)))
    return [
        Gpu(
            index=place,
            uuid=f"GPU-{bus:04d}",
            name=draw(st.sampled_from(["A", "B"])),
            bus_id=f"00000000:{bus:02X}:00.0",
            memory_free_bytes=draw(maybe(st.integers(0, 80).map(lambda gib: gib * GIB))),
            utilization_percent=draw(maybe(st.integers(0, 100))),
            temperature_celsius=draw(maybe(st.integers(20, 95))),
            compute_mode=draw(st.sampled_from(["default", "default", "prohibited", "exclusive_process"])),
            processes=draw(maybe(st.lists(st.just(PROCESS), max_size=2).map(tuple))),
            error=draw(st.sampled_from([None, None, None, "GPU is lost"])),
        )
        for place, bus in enumerate(order)
    ]


wishes = st.builds(
    CardConditions,
    count=st.integers(1, 4),
    free_memory_bytes=st.integers(0, 80).map(lambda gib: gib * GIB),
    max_utilization_percent=maybe(st.integers(0, 100)),
    max_temperature_celsius=maybe(st.integers(20, 95)),
    without_processes=st.booleans(),
    by=st.sampled_from(sorted(ORDERS)),
)


def meets(card, wanted, claimed):
    """Say independently of the code under test whether a card may be chosen."""
    if card.uuid in claimed or card.error or card.compute_mode == "prohibited":
        return False
    if card.compute_mode == "exclusive_process" and card.processes:
        return False
    if wanted.free_memory_bytes and (card.memory_free_bytes or 0) < wanted.free_memory_bytes:
        return False
    busy, warm = wanted.max_utilization_percent, wanted.max_temperature_celsius
    if busy is not None and (card.utilization_percent is None or card.utilization_percent > busy):
        return False
    if warm is not None and (card.temperature_celsius is None or card.temperature_celsius > warm):
        return False
    return not (wanted.without_processes and card.processes != ())


@given(machines(), wishes, st.sets(st.integers(0, 7)))
def test_exactly_the_cards_that_meet_every_condition_can_be_chosen(cards, wanted, taken):
    claimed = {f"GPU-{bus:04d}": "somebody" for bus in taken}
    choice = choose_cards(card_candidates(cards), wanted, claimed)
    able = {card.uuid for card in cards if meets(card, wanted, claimed)}
    assert choice.met == (len(able) >= wanted.count)
    assert len(choice.picked) == (wanted.count if choice.met else 0)
    assert set(choice.uuids) <= able
    assert {one.candidate.uuid for one in choice.refused if not one.reasons} == able - set(choice.uuids)


def value(card, by, cards):
    """Return what an order compares, smaller preferred, unknown last."""
    unknown = float("inf")
    if by == "freest":
        return unknown if card.memory_free_bytes is None else -card.memory_free_bytes
    if by == "coolest":
        return unknown if card.temperature_celsius is None else card.temperature_celsius
    if by == "least-used":
        return unknown if card.utilization_percent is None else card.utilization_percent
    slots = sorted(other.bus_id for other in cards)
    return min(slots.index(card.bus_id), len(slots) - 1 - slots.index(card.bus_id))


@given(machines(), wishes)
def test_the_order_of_preference_is_kept(cards, wanted):
    choice = choose_cards(card_candidates(cards), wanted, {})
    by_uuid = {card.uuid: card for card in cards}
    chosen = [value(by_uuid[uuid], wanted.by, cards) for uuid in choice.uuids]
    passed_over = [
        value(by_uuid[one.candidate.uuid], wanted.by, cards) for one in choice.refused if not one.reasons
    ]
    assert chosen == sorted(chosen)
    if choice.met and passed_over:
        assert max(chosen) <= min(passed_over)


@given(machines(), wishes, st.randoms())
def test_the_choice_does_not_depend_on_the_order_in_which_cards_are_listed(cards, wanted, random):
    shuffled = random.sample(cards, len(cards))
    assert (
        choose_cards(card_candidates(cards), wanted, {}).uuids
        == choose_cards(card_candidates(shuffled), wanted, {}).uuids
    )


@given(machines(), wishes)
def test_an_unmet_wish_names_a_card_and_every_reason(cards, wanted):
    choice = choose_cards(card_candidates(cards), wanted, {})
    if not choice.met and any(one.reasons for one in choice.refused):
        assert "Nearest miss: card" in choice.explain()


def test_the_nearest_miss_is_the_card_that_lacks_least():
    cards = [
        Gpu(index=place, uuid=f"GPU-{place}", name="A", memory_free_bytes=free * GIB)
        for place, free in enumerate([3, 19, 12])
    ]
    choice = choose_cards(card_candidates(cards), CardConditions(free_memory_bytes=20 * GIB), {})
    expected = (
        "1 card(s) wanted, 0 of 3 meet the conditions. Nearest miss: card 1 (A): 19 GiB free, 20 GiB wanted"
    )
    assert expected == choice.explain()


def test_edge_takes_the_two_ends_first_then_inwards():
    cards = [Gpu(index=i, uuid=f"GPU-{i}", bus_id=f"00000000:{i:02X}:00.0") for i in range(5)]
    choice = choose_cards(card_candidates(cards), CardConditions(count=5, by="edge"), {})
    assert choice.uuids == ("GPU-0", "GPU-4", "GPU-1", "GPU-3", "GPU-2")


def test_cards_are_named_by_number_or_by_the_beginning_of_the_uuid():
    cards = [Gpu(index=i, uuid=f"GPU-{i}{i}") for i in range(4)]
    assert choose_cards(card_candidates(cards), CardConditions(count=2, only=("1", "GPU-3")), {}).uuids == (
        "GPU-11",
        "GPU-33",
    )


def test_a_split_card_is_chosen_by_its_instances_and_one_at_a_time():
    instances = tuple(
        MigInstance(uuid=f"MIG-{i}", gpu_instance_id=i, memory_free_bytes=i * GIB) for i in (1, 2)
    )
    cards = [Gpu(index=0, uuid="GPU-0", mig_enabled=True, mig_instances=instances, processes=())]
    assert choose_cards(card_candidates(cards), CardConditions(), {}).uuids == ("MIG-2",)
    refused = choose_cards(card_candidates(cards), CardConditions(count=2), {})
    assert "CUDA gives a process only one" in refused.explain()


@pytest.mark.parametrize("wrong", [{"count": 0}, {"by": "cheapest"}])
def test_a_wish_that_makes_no_sense_is_refused_with_what_there_is(wrong):
    with pytest.raises(OptionError, match=r"count of 1|coolest, edge, freest, least-used"):
        CardConditions(**wrong)
