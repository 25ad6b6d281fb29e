# SPDX-License-Identifier: Apache-2.0
"""A call is replaced once while somebody listens, in whatever order listeners come and go; behind the last it is torch's own."""

import gc
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import truestep as ts
from truestep.instrument.call_listeners import wrap_with_layer


def module():
    """A module with one function, and that function."""

    def double(number):
        return 2 * number

    return SimpleNamespace(double=double), double


def telling(heard, name):
    def layer(original):
        def called(*arguments):
            heard.append(name)
            return original(*arguments)

        return called

    return layer


@given(st.lists(st.integers(0, 3), max_size=12))
def test_each_listener_hears_each_call_once_while_it_listens(events):
    """An event is a listener that comes, or goes where it is there."""
    home, double = module()
    here, heard = {}, []
    for name in events:
        if name in here:
            call, layer = here.pop(name)
            call.remove(layer)
        else:
            layer = telling(heard, name)
            here[name] = wrap_with_layer(home, "double", layer), layer
        heard.clear()
        assert home.double(3) == 6
        assert heard == [*here][::-1]  # the newest first
        assert (home.double is double) == (not here)
        assert getattr(home.double, "__wrapped__", double) is double  # wrapped once, however many listen


@pytest.mark.parametrize("goes_first", ["ours", "theirs"])
def test_another_librarys_wrapper_on_top_stays_and_works(goes_first):
    home, _ = module()
    heard = []
    layers = telling(heard, "ours"), telling(heard, "again")
    first = wrap_with_layer(home, "double", layers[0])
    theirs = telling(heard, "theirs")(home.double)
    home.double = theirs
    second = wrap_with_layer(home, "double", layers[1])
    assert (home.double(1), heard) == (2, ["again", "theirs", "ours"])
    ends = [(first, layers[0]), (second, layers[1])]
    for call, layer in ends if goes_first == "ours" else reversed(ends):
        call.remove(layer)
    assert home.double is theirs
    assert home.double(1) == 2


def test_what_is_not_there_is_left_alone():
    assert wrap_with_layer(SimpleNamespace(), "double", telling([], "a")) is None
    assert wrap_with_layer(SimpleNamespace(double=3), "double", telling([], "a")) is None


def looked_at():
    """What runs and watches both follow."""
    calls = (
        torch.optim.Optimizer.zero_grad,
        nn.Module.zero_grad,
        torch.autograd.backward,
        torch.Tensor.backward,
    )
    steps = (lr_scheduler.StepLR.step, lr_scheduler.ReduceLROnPlateau.step, nn.utils.clip_grad_value_)
    hooks = (dict(_global_optimizer_pre_hooks), dict(_global_optimizer_post_hooks))
    return (*calls, *steps, *hooks)


def opened(folder):
    run = ts.Run(folder, device="cpu", progress=False, quiet=True, doctor=False)
    run.learner(nn.Linear(3, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    assert run.epochs(1) is not None
    return run


@pytest.mark.parametrize("begin", [*permutations(("a run", "another", "a watch"))], ids=", ".join)
def test_torch_is_its_own_again_whoever_ends_last(tmp_path, begin):
    gc.collect()
    before = looked_at()
    ends = []
    for name in begin:
        if name == "a watch":
            ends.append(ts.watch().__enter__().end)
        else:
            ends.append(opened(tmp_path / name).close)
    for end in ends:  # who came first leaves first; the other orders are drawn above
        assert nn.Module.zero_grad is not before[1]
        end()
    assert looked_at() == before
