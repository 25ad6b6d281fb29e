# SPDX-License-Identifier: Apache-2.0
"""What torch warns of while the doctor watches is shown where it would be without, as often and under the same filters."""

import inspect
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts

ROWS, TARGETS = torch.ones(4, 1), torch.ones(4)


def copied():
    return torch.tensor(ROWS)  # torch's C++ warns, of the innermost python frame


def compared():
    return F.mse_loss(ROWS, TARGETS)  # torch's python warns, of its caller's frame


def compared_by_a_module():
    return nn.MSELoss()(ROWS, TARGETS)


def divided_by_a_module():
    return nn.Softmax()(ROWS)  # of a frame five calls out


def divided_by_a_module_with_a_hook():
    layer = nn.LogSoftmax()
    layer.register_forward_hook(lambda *_: None)
    return layer(ROWS)


def divided():
    return F.softmax(ROWS)


def divided_by_a_layer_within():
    return nn.Sequential(nn.Softmax())(ROWS)


def stepped():
    layer = nn.Embedding(3, 2, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    torch.optim.Adagrad(layer.parameters()).step()  # torch's C++ warns, of a frame of torch's


def divergence():
    return nn.KLDivLoss()(TARGETS, TARGETS)


def turned():
    return torch.ones(2, 3, 4).T


def meshed():
    return torch.meshgrid(TARGETS, TARGETS)


def scheduled_before_a_step():
    optimizer = torch.optim.SGD([nn.Parameter(ROWS)], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()


def warned_by_the_users_own_function():
    return meant_for_whoever_calls()


def meant_for_whoever_calls():
    warnings.warn("old", DeprecationWarning, stacklevel=2)


def of_a_parameter_of_torchs():
    return nn.L1Loss(size_average=False)


def twice():
    for _ in range(2):
        copied()
        compared()


OF_THE_USER = (copied, compared, divided, turned, warned_by_the_users_own_function)
OF_TORCH = (
    compared_by_a_module,
    divided_by_a_module,
    divided_by_a_module_with_a_hook,
    divided_by_a_layer_within,
    divergence,
    stepped,
    meshed,
    scheduled_before_a_step,
    of_a_parameter_of_torchs,
)


@pytest.fixture(autouse=True)
def warns_always():
    """Have torch's C++ warn each time of what it else warns of once in a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def shown(action, calls, *, watched=True):
    """Return the lines that calls warn at, and what stands there, by the filter `action`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        globals().pop("__warningregistry__", None)
        if watched:
            with ts.watch():
                for call in calls:
                    call()
        else:
            for call in calls:
                call()
    return [(each.filename, each.lineno) for each in caught]


def line_of(function):
    return __file__, inspect.getsourcelines(function)[1] + 1


@pytest.mark.parametrize("function", OF_THE_USER, ids=lambda function: function.__name__)
def test_the_line_is_the_users(function):
    assert shown("default", [function]) == [line_of(function)]


@pytest.mark.parametrize("function", [*OF_THE_USER, *OF_TORCH], ids=lambda function: function.__name__)
def test_the_line_is_that_of_a_plain_run(function):
    plain = shown("always", [function], watched=False)
    assert plain
    assert shown("always", [function]) == plain


@pytest.mark.parametrize("action", ["default", "always", "module", "once", "ignore"])
def test_it_is_shown_as_often_as_without_the_watch(action):
    assert shown(action, [twice]) == shown(action, [twice], watched=False)


def another_copy():
    return torch.tensor(ROWS)


def test_two_lines_that_warn_of_the_same_are_both_shown():
    assert shown("default", [copied, another_copy]) == [line_of(copied), line_of(another_copy)]


def test_a_filter_for_the_users_own_module_is_obeyed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", module=__name__.replace(".", r"\."))
        with ts.watch():
            twice()
    assert caught == []


def test_a_filter_that_raises_does():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="copy construct"), ts.watch():
            copied()


def test_the_users_own_way_to_show_warnings_is_kept(monkeypatch):
    seen = []

    def first(message, category, filename, lineno, file=None, line=None):
        seen.append(("first", filename, lineno))

    def second(message, category, filename, lineno, file=None, line=None):
        seen.append(("second", filename, lineno))

    warnings.simplefilter("always")
    monkeypatch.setattr(warnings, "showwarning", first)
    with ts.watch():
        copied()
    assert warnings.showwarning is first
    with ts.watch():
        ours = warnings.showwarning
        warnings.showwarning = second
    assert warnings.showwarning is second
    warnings.showwarning = ours  # whoever puts back what he found
    copied()
    assert seen == [("first", *line_of(copied))] * 2
