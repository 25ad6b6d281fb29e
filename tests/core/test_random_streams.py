# SPDX-License-Identifier: Apache-2.0
"""Keys are the same whether they are computed one by one or a window of steps at once."""

import pytest
import torch

from truestep.core.random_streams import KeyedRandom, StepRandomKeys, random_key


@pytest.mark.parametrize("seed", [0, 7, -3, 2**63, 2**64 - 1])
def test_windows_of_steps_have_the_keys_of_single_steps(seed):
    keys = StepRandomKeys(seed)
    for step in [1, 2, 255, 256, 257, 258, 800, 799, 5, 2**40, 2**40 + 255, 2**40 + 256]:
        for others in [(1, 0, 0), (2, 3, 1), (17, 0, 0), (1, 100, 5)]:
            assert keys.at(step, others) == random_key(seed, step, *others)


def test_keys_depend_on_every_number_and_their_order():
    numbers = [(1, 2, 3), (1, 3, 2), (2, 1, 3), (1, 2, 4), (1, 2), (1, 2, 3, 0)]
    assert len({random_key(*each) for each in numbers}) == len(numbers)


def test_keys_stay_what_they_were():
    """A run of 0.1.0 goes on with the same numbers."""
    assert [random_key(0), random_key(0, 1, 1, 0, 0), random_key(-1, 2**70)] == GOLDEN


@pytest.mark.parametrize(("device", "chosen"), [("cuda", 1), ("cuda:0", 0), ("cuda:1", 1)])
def test_the_stream_that_is_keyed_is_that_of_the_card_that_is_used(monkeypatch, device, chosen):
    cards = [torch.Generator().manual_seed(number) for number in range(2)]
    for name, value in {
        "init": lambda: None,
        "current_device": lambda: 1,
        "default_generators": cards,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    random = KeyedRandom.of(torch.device(device))
    caller = random.save()
    random.set(42)
    random.restore([caller[0], cards[chosen].get_state()])
    assert [card.initial_seed() == 42 for card in cards] == [number == chosen for number in range(2)]


GOLDEN = [6685036501382267578, 1400779925829681454, 6749435647490620592]
