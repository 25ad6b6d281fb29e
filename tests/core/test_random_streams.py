# SPDX-License-Identifier: Apache-2.0
"""Keys depend on what they are made of, and the streams of a device are set and put back."""

from typing import NamedTuple

import pytest
import torch

import truestep as ts
from truestep.core.random_streams import KeyedRandom, preserve_torch_rng, random_key
from truestep.run.loop_random import loop_random_state, set_loop_random_state


def test_keys_depend_on_every_number_and_their_order():
    numbers = [(1, 2, 3), (1, 3, 2), (2, 1, 3), (1, 2, 4), (1, 2), (1, 2, 3, 0)]
    assert len({random_key(*each) for each in numbers}) == len(numbers)


def test_keys_stay_what_they_were():
    """A run of 0.1.0 goes on with the same numbers."""
    assert [random_key(0), random_key(0, 1, 1, 0, 0), random_key(-1, 2**70)] == GOLDEN


CARDS = [torch.Generator().manual_seed(number) for number in range(2)]


def cards():
    return {"init": lambda: None, "current_device": lambda: 1, "default_generators": CARDS}


def functions():
    own = CARDS[0]
    return {
        "get_rng_state": lambda device="mps": own.get_state(),
        "manual_seed": own.manual_seed,
        "set_rng_state": lambda state, device="mps": own.set_state(state),
    }


BACKENDS = [
    ("cuda", cards, 1),
    ("cuda:0", cards, 0),
    ("cuda:1", cards, 1),
    ("xpu", cards, 1),
    ("xpu:0", cards, 0),
    ("mps", functions, 0),
]


@pytest.fixture(params=BACKENDS, ids=[name for name, *_ in BACKENDS])
def backend(request, monkeypatch):
    """A device with the random functions of its backend, made of CPU generators, and which of them is its own."""
    name, made, chosen = request.param
    for number, card in enumerate(CARDS):
        card.manual_seed(number)
    device = torch.device(name)
    for attribute, value in made().items():
        monkeypatch.setattr(torch.get_device_module(device), attribute, value)
    return device, chosen


def test_the_stream_that_is_keyed_is_that_of_the_device_that_is_used(backend):
    device, chosen = backend
    drawn = torch.rand(3, generator=torch.Generator().manual_seed(chosen))
    keyed = torch.rand(3, generator=torch.Generator().manual_seed(42))
    random = KeyedRandom.of(device)
    caller = random.save()
    random.set(42)
    assert [card.initial_seed() == 42 for card in CARDS] == [number == chosen for number in range(2)]
    assert torch.equal(torch.rand(3, generator=CARDS[chosen]), keyed)
    random.restore(caller)
    assert torch.equal(torch.rand(3, generator=CARDS[chosen]), drawn)


def test_a_loop_finds_the_stream_of_its_device_again(backend):
    device, chosen = backend
    state = loop_random_state(device)
    drawn = torch.rand(3, generator=CARDS[chosen])
    set_loop_random_state(state, device)
    assert torch.equal(torch.rand(3, generator=CARDS[chosen]), drawn)
    assert device.type in state


def test_a_block_puts_the_streams_of_its_tensors_back(backend):
    device, chosen = backend

    class Placed(NamedTuple):
        device: torch.device

    with preserve_torch_rng([Placed(device), Placed(torch.device("cpu")), Placed(torch.device("xla"))]):
        drawn = torch.rand(3, generator=CARDS[chosen]), torch.rand(3)
    assert torch.equal(torch.rand(3, generator=CARDS[chosen]), drawn[0])
    assert torch.equal(torch.rand(3), drawn[1])


@pytest.mark.parametrize("device", ["xla", "mtia"])
def test_a_device_whose_stream_no_key_reaches_is_refused(monkeypatch, device):
    monkeypatch.delattr(torch.mtia, "manual_seed", raising=False)
    monkeypatch.delattr(torch.mtia, "default_generators", raising=False)
    with pytest.raises(ts.OptionError, match="dropout there could be neither repeated nor resumed"):
        KeyedRandom.of(torch.device(device))


GOLDEN = [6685036501382267578, 1400779925829681454, 6749435647490620592]
