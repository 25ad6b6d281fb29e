# SPDX-License-Identifier: Apache-2.0
"""Where a value was made is told by file, line and layer, while the watch looks, and keeps no value alive."""

import gc
import linecache
import threading
import weakref

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode, _len_torch_function_stack

import truestep as ts
from truestep.doctor.catalogue import checks
from truestep.doctor.finding import Place
from truestep.doctor.merging import merge_findings
from truestep.doctor.runtime import value_origins
from truestep.doctor.runtime.operations import WatchedOperationMode
from truestep.doctor.runtime.recorder import Recorder

NETWORK = """
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(8, 3), nn.{activation}

    def forward(self, x):
        return self.act(self.linear(x)).view(-1, 3)
"""
MAIN = """
import torch
import torch.nn.functional as F
from network import Head
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), Head())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = {loss}
for _ in range(6):
    opt.zero_grad()
    outputs = model(torch.randn(8, 4))
    loss = criterion(outputs, {target})
    loss.backward()
    opt.step()
"""
CASES = [
    ("Softmax(1)", "nn.CrossEntropyLoss()", "torch.randint(3, (8,))", "LOSS001", "softmax"),
    ("Softmax(1)", "nn.NLLLoss()", "torch.randint(3, (8,))", "LOSS003", "softmax"),
    ("Sigmoid()", "nn.BCEWithLogitsLoss()", "torch.rand(8, 3)", "LOSS002", "sigmoid"),
]


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()  # compiled code depends on the modes that are on, so that none is put on beside it


def run(folder, monkeypatch, network, main):
    for name, text in (("network.py", network), ("main.py", main)):
        (folder / name).write_text(text, "utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "network", raising=False)
    with ts.watch() as watch:
        exec(compile(main, str(folder / "main.py"), "exec"), {"__name__": "__main__"})
    monkeypatch.delitem(__import__("sys").modules, "network", raising=False)
    return watch


@pytest.mark.parametrize(("activation", "loss", "target", "code", "operation"), CASES)
def test_a_finding_about_a_value_says_where_it_was_made(
    activation, loss, target, code, operation, tmp_path, monkeypatch
):
    network, main = NETWORK.format(activation=activation), MAIN.format(loss=loss, target=target)
    watch = run(tmp_path, monkeypatch, network, main)
    (finding,) = watch.findings
    assert (finding.code, finding.place.line) == (code, 13)
    assert f"the result of {operation} at network.py:11 (model.1.act)" in finding.message
    assert finding.evidence["made_at"] == f"{tmp_path / 'network.py'}:11"


def test_in_one_line_no_place_is_repeated():
    net = nn.Linear(4, 3)
    with ts.watch() as watch:
        F.cross_entropy(net(torch.randn(8, 4)).softmax(1), torch.randint(3, (8,))).backward()
    assert watch.findings[0].message == "The input of cross entropy is the result of softmax."


def origin_of(watch, value):
    return watch.history.origins.of(value)


def test_what_a_value_was_made_of_is_known_through_changes_in_place():
    with ts.watch() as watch:
        first = torch.ones(3)
        second = first * 2
        second += 1
        total = second.sum()
        names = [each.operation for each in origin_of(watch, total).ancestors()]
    assert names == ["sum", "add", "mul", "ones"]


def test_the_end_of_a_graph_is_marked():
    weight = torch.ones(3, requires_grad=True)
    with ts.watch() as watch:
        made = weight * 2
        kept, cut, chosen = made + 1, made.detach(), made.argmax()
        with torch.no_grad():
            unrecorded = made * 2
        cuts = [origin_of(watch, each).cuts for each in (made, kept, cut, chosen, unrecorded)]
    assert cuts == [False, False, True, False, True]


def test_no_value_is_kept_alive_and_none_outlives_its_step():
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch() as watch:
        value = torch.ones(3) * 2
        gone = weakref.ref(value)
        assert origin_of(watch, value) is not None
        del value
        gc.collect()
        assert gone() is None
        kept = torch.ones(3) * 2
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
        assert origin_of(watch, kept) is None


def test_an_accumulator_holds_a_part_of_its_past():
    with ts.watch() as watch:
        total = torch.zeros(())
        for _ in range(1000):
            total = total + 1
        assert sum(1 for _ in origin_of(watch, total).ancestors()) <= 2 * value_origins.MAX_DEPTH


def test_values_without_number_are_forgotten():
    with ts.watch() as watch:
        held = [torch.zeros(1) for _ in range(3 * value_origins.MAX_ENTRIES)]
        assert len(watch.history.origins._known) <= value_origins.MAX_ENTRIES < len(held)


def test_off_a_look_no_operation_is_followed():
    net = nn.Linear(4, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with ts.watch() as watch:
        depths = []
        for _ in range(30):
            opt.zero_grad()
            F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,))).backward()
            depths.append(_len_torch_function_stack())
            opt.step()
    assert depths == [1] * 20 + [0] * 10
    assert (_len_torch_function_stack(), watch.failures) == (0, [])


@pytest.mark.parametrize("by_closure", [False, True])
def test_an_optimizer_s_own_operations_are_left_out(monkeypatch, by_closure):
    names = []
    monkeypatch.setattr(Recorder, "on_operation", lambda _self, name, *_: names.append(name))
    net = nn.Linear(4, 3)
    opt = torch.optim.Adam(net.parameters(), lr=0.1, foreach=False)

    def loss():
        opt.zero_grad()
        value = F.cross_entropy(net(torch.randn(8, 4)), torch.randint(3, (8,)))
        value.backward()
        return value

    with ts.watch() as watch:
        for _ in range(3):
            opt.step(loss) if by_closure else (loss(), opt.step())
    assert names.count("linear") == 3
    assert ("lerp" in names) is by_closure  # a step that calls the user's code is followed as a whole
    assert watch.failures == []


class Own(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def of_meta():
    return torch.zeros(1).is_meta


@pytest.mark.parametrize("inside", [True, False])
def test_modes_of_the_users_come_and_go_in_their_own_order(inside):
    mode = WatchedOperationMode(lambda *_: None)
    mode.switch(not inside)
    with torch.device("meta"), Own():
        mode.switch(inside)
        assert of_meta()
    assert not of_meta()
    torch.set_default_device("meta")
    assert of_meta()
    mode.switch(False)
    mode.switch(True)
    torch.set_default_device("cpu")
    torch.set_default_device(None)
    assert not of_meta()
    mode.switch(False)
    assert _len_torch_function_stack() == 0


def test_a_mode_that_ends_in_another_thread_tells_nothing_more():
    told = []
    mode = WatchedOperationMode(lambda *facts: told.append(facts))
    mode.switch(True)
    thread = threading.Thread(target=mode.switch, args=(False,))
    thread.start()
    thread.join()
    torch.ones(1)
    assert told == []
    mode.switch(True)
    torch.ones(1)
    assert len(told) == 1
    mode.switch(False)
    assert _len_torch_function_stack() == 0


class Cut(nn.Module):
    def __init__(self, way):
        super().__init__()
        self.body, self.head, self.way = nn.Linear(4, 6), nn.Linear(6, 3), way

    def forward(self, x):
        if self.way == "no_grad":
            with torch.no_grad():
                return self.head(self.body(x))
        out = self.body(x)
        if self.way == "item":
            return self.head(torch.full_like(x, out.mean().item())[:, :1].expand(-1, 6))
        return self.head(torch.tensor(out.tolist()) if self.way == "list" else out.detach())


WAYS = [("no_grad", "linear"), ("detach", "detach"), ("item", "item"), ("list", "tolist")]


@pytest.mark.parametrize(("way", "operation"), WAYS)
def test_the_operation_that_ends_a_graph_is_named_for_what_gets_no_gradient(way, operation):
    net = Cut(way)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    aim = nn.Linear(3, 3)
    with ts.watch(select=["PARAM016"]) as watch:
        for _ in range(8):
            opt.zero_grad()
            (
                F.cross_entropy(aim(net(torch.randn(8, 4))), torch.randint(3, (8,))) + net.head.bias.sum()
            ).backward()
            opt.step()
    (finding,) = watch.findings
    assert f"the graph ends in {operation}" in finding.message
    assert "return self.head(" in linecache.getline(finding.place.path, finding.place.line)
    assert "(net" in finding.message


def test_a_difference_that_broadcasts_is_told_where_it_stands():
    head = nn.Linear(4, 1)
    opt = torch.optim.SGD(head.parameters(), lr=0.01)
    with ts.watch(select=["LOSS017"]) as watch:
        for _ in range(2):
            opt.zero_grad()
            error = head(torch.randn(8, 4)) - torch.randn(8)
            loss = (error**2).mean()
            loss.backward()
            opt.step()
    (finding,) = watch.findings
    assert (
        finding.place.line
        == test_a_difference_that_broadcasts_is_told_where_it_stands.__code__.co_firstlineno + 6
    )


def test_a_finding_of_both_ways_says_where_the_value_was_made():
    check = checks()["LOSS001"]()
    place = Place("main.py", 13)
    read = check.finding(place, "read")
    ran = check.finding(place, "at network.py:11", evidence={"made_at": "network.py:11"}, seen="ran")
    (found,) = merge_findings([ran], [read])
    assert (found.message, found.seen) == ("at network.py:11", "read and ran")
