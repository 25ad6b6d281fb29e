# SPDX-License-Identifier: Apache-2.0
"""What flows through layers is recorded and edited as it is, and nothing stays behind."""

import copy
import gc
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from tests.support.scripted import scripted
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.shared_context import LearnerContext


class Net(nn.Module):
    """Two blocks of which the first is used twice, an in-place activation after each, and an LSTM."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.alias = self.blocks[1]
        self.act = nn.ReLU(inplace=True)
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.idle = nn.Linear(1, 1)

    def forward(self, x):
        for block in (self.blocks[0], self.blocks[0], self.blocks[1]):
            x = self.act(block(x))
        return self.lstm(x.unsqueeze(1))[0].squeeze(1)


def by_hand(net, x):
    """Outputs of the blocks before the activation, kept with their gradients."""
    values = []
    for block in (net.blocks[0], net.blocks[0], net.blocks[1]):
        values.append(block(x))
        values[-1].retain_grad()
        x = values[-1].relu()
    out, (hidden, cell) = net.lstm(x.unsqueeze(1))
    return values, (out, (hidden, cell))


def hooks(module):
    tables = [part._forward_hooks for part in module.modules()]
    tables += [part._forward_pre_hooks for part in module.modules()]
    tables += [part._backward_hooks for part in module.modules()]
    return sum(map(len, tables)) + sum(len(p._backward_hooks or ()) for p in module.parameters())


@given(st.integers(1, 5), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_outputs_and_gradients_are_those_computed_by_hand_one_for_each_call(batch, dtype, seed):
    torch.manual_seed(seed)
    net = Net().to(dtype)
    x = torch.randn(batch, 4, dtype=dtype)
    values, (out, (hidden, cell)) = by_hand(net, x)
    out.square().sum().backward()
    with ts.capture(net, ["blocks.*", "lstm"]) as captured:
        net(x).square().sum().backward()
    first, second = captured["blocks.0"], captured["blocks.1"]
    assert (len(first.outputs), len(second.outputs)) == (2, 1)
    for expected, output, gradient in zip(
        values, first.outputs + second.outputs, first.gradients + second.gradients, strict=True
    ):
        assert torch.equal(expected, output)
        assert not output.requires_grad
        assert torch.equal(expected.grad, gradient)
    got, (got_hidden, got_cell) = captured["lstm"].outputs[0]
    assert all(map(torch.equal, (out, hidden, cell), (got, got_hidden, got_cell)))
    (gradient, (of_hidden, of_cell)) = captured["lstm"].gradients[0]
    torch.testing.assert_close(gradient, 2 * out.detach())
    assert of_hidden is of_cell is None
    assert hooks(net) == 0


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("blocks.0", ["blocks.0"]),
        ("blocks.?", ["blocks.0", "blocks.1"]),
        (["l*", "act"], ["lstm", "act"]),
        ("", [""]),
        ("alias", ["alias"]),
        (["blocks.1", "alias"], ["blocks.1", "alias"]),
    ],
)
def test_layers_are_found_by_name_and_pattern(layers, expected):
    net = Net()
    with ts.capture(net, layers) as captured, torch.no_grad():
        net(torch.ones(2, 4))
    assert list(captured) == expected
    assert all(len(captured[name].outputs) > 0 for name in expected)


def test_a_module_is_found_under_all_its_names_and_recorded_once():
    net = Net()
    with ts.capture(net, net.alias) as captured, torch.no_grad():
        net(torch.ones(2, 4))
    assert list(captured) == ["blocks.1", "alias"]
    assert captured["blocks.1"] is captured["alias"] is captured[net.alias]
    assert len(captured["alias"].outputs) == 1
    assert repr(captured) == "Captured(blocks.1: 1 call)"


def test_an_edit_takes_the_place_of_the_output_and_is_what_is_recorded():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    silence = lambda name, output: torch.zeros_like(output) if name == "0" else None
    x = torch.ones(3, 2)
    with ts.capture(net, ["0", "1"], edit=silence) as captured:
        result = net(x)
    torch.testing.assert_close(result, net[1].bias.expand(3, 1))
    assert torch.equal(torch.zeros(3, 2), captured["0"].outputs[0])
    assert torch.equal(result, captured["1"].outputs[0])
    assert not torch.equal(result, net(x))


def test_an_edited_gradient_is_what_flows_back_and_is_recorded():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    x = torch.ones(3, 2)
    net(x).sum().backward()
    expected = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    halve = lambda name, gradient: gradient / 2
    with ts.capture(net, "0", edit_gradient=halve) as captured:
        net(x).sum().backward()
    got = [p.grad for p in net.parameters()]
    for half, whole in zip(got, [expected[0] / 2, expected[1] / 2, *expected[2:]], strict=True):
        torch.testing.assert_close(half, whole)
    torch.testing.assert_close(captured["0"].gradients[0], net[1].weight.detach().expand(3, 2) / 2)


def test_the_lstms_tuple_can_be_edited():
    net = Net()
    with ts.capture(net, "lstm", edit=lambda name, output: (output[0] * 0 + 7, output[1])) as captured:
        result = net(torch.ones(2, 4))
    assert torch.equal(torch.full((2, 3), 7.0), result)
    assert torch.equal(torch.full((2, 1, 3), 7.0), captured["lstm"].outputs[0][0])


def test_a_loss_can_be_made_of_what_is_recorded_with_its_graph():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True), nn.Linear(3, 1))
    x = torch.randn(4, 2)
    net[0](x).square().mean().backward()
    expected = net[0].weight.grad.clone()
    net.zero_grad()
    with ts.capture(net, "0", detach=False) as captured:
        net(x)
    captured["0"].outputs[0].square().mean().backward()
    assert torch.equal(expected, net[0].weight.grad)


def test_gradients_of_several_backwards_add_up_and_idle_layers_have_none():
    net = Net()
    with ts.capture(net, ["blocks.1", "idle"]) as captured:
        out = net(torch.ones(2, 4)).sum()
        out.backward(retain_graph=True)
        once = captured["blocks.1"].gradients[0].clone()
        out.backward()
    torch.testing.assert_close(captured["blocks.1"].gradients[0], 2 * once)
    assert (captured["idle"].outputs, captured["idle"].gradients) == ([], [])


@pytest.mark.parametrize("where", ["forward", "body", "backward", "edit"])
def test_nothing_is_left_when_something_raises(where):
    net = Net()

    def edit(name, output):
        if where == "edit":
            raise RuntimeError("edit")

    def edit_gradient(name, gradient):
        if where == "backward":
            raise RuntimeError("backward")

    out = None

    def run_body():
        nonlocal out
        with ts.capture(net, "blocks.*", edit=edit, edit_gradient=edit_gradient):
            net(torch.ones(2, 99 if where == "forward" else 4))
            out = net(torch.ones(2, 4)).sum()
            out.backward(retain_graph=True)
            raise RuntimeError("body")

    with pytest.raises(RuntimeError, match="shapes" if where == "forward" else where):
        run_body()
    assert hooks(net) == 0
    if out is not None:
        out.backward()  # the graph lives on, and its hooks are gone


def test_nothing_is_left_when_a_generator_is_dropped_in_the_middle():
    net = Net()

    def features(batches):
        for batch in batches:
            with ts.capture(net, "blocks.0") as captured, torch.no_grad():
                net(batch)
                yield captured["blocks.0"].outputs[0]

    stream = features([torch.ones(2, 4)] * 3)
    next(stream)
    assert hooks(net) == 1
    del stream
    gc.collect()
    assert hooks(net) == 0
    entered = ts.capture(net, "lstm")
    entered.__enter__()
    assert hooks(net) == 1
    del entered
    gc.collect()
    assert hooks(net) == 0


def test_hooks_that_were_there_stay_and_blocks_nest():
    net = nn.Sequential(nn.Linear(2, 2))
    seen = []
    handle = net[0].register_forward_hook(lambda *_: seen.append(1))
    with ts.capture(net, "0") as outer, ts.capture(net, "0") as inner:
        net(torch.ones(1, 2)).sum().backward()
    assert (len(outer["0"].gradients), len(inner["0"].gradients), seen) == (1, 1, [1])
    assert hooks(net) == 1
    handle.remove()


def test_a_compiled_model_runs_as_its_original_and_is_recorded():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
    compiled = torch.compile(net, backend="eager")
    x = torch.ones(1, 2)
    expected = compiled(x)
    with ts.capture(compiled, "0") as captured:
        assert torch.equal(expected, compiled(x))
    assert torch.equal(net[0](x), captured["0"].outputs[0])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_learners_update_is_recorded_for_each_micro_batch_and_changes_by_nothing(compiled):
    def train(watched):
        torch.manual_seed(0)
        make = lambda p: torch.optim.SGD(p, lr=0.1)
        options = LearnerOptions(name="net", compile=compiled and watched)
        learner = Learner(nn.Linear(3, 1), make, options, LearnerContext(torch.device("cpu")))
        loss = lambda x: learner(x).squeeze(1).square()
        data = torch.arange(15.0).reshape(5, 3)
        if not watched:
            learner.update(loss, data, micro_batch=2)
            return learner, None
        with ts.capture(learner, learner.module) as captured:
            learner.update(loss, data, micro_batch=2)
        return learner, captured

    (plain, _), (learner, captured) = train(False), train(True)
    assert all(map(torch.equal, plain.parameters(), learner.parameters()))
    assert [len(output) for output in captured[""].outputs] == [2, 2, 1]
    assert [len(gradient) for gradient in captured[""].gradients] == [2, 2, 1]
    expected = 2 * torch.cat(captured[""].outputs) / 5
    torch.testing.assert_close(torch.cat(captured[""].gradients), expected)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("block.0", r"No layer is called 'block\.0'.*Did you mean 'blocks\.0' or"),
        (["act", "lstmm"], "Did you mean 'lstm'"),
        ("conv*", r"No layer is called 'conv\*'.*There are: act, alias, blocks"),
        ([], "no layers"),
        (nn.Linear(2, 2), "The layer Linear is no part of the model"),
        ([3], "The layer int is no part of the model"),
        (3, "The layer int is no part of the model"),
        (None, "The layer NoneType is no part of the model"),
        ("blocks", r"'blocks' is of type ModuleList, which is never called itself.*'blocks\.\*'"),
    ],
)
def test_layers_that_do_not_exist_are_refused_with_those_that_do(layers, message):
    with pytest.raises(ts.OptionError, match=message), ts.capture(Net(), layers):
        pass


def test_of_many_names_only_the_nearest_are_listed():
    deep = nn.Sequential(*(nn.Sequential(nn.Linear(1, 1)) for _ in range(50)))
    with pytest.raises(ts.OptionError, match=re.escape("The nearest of 101 names are:")) as caught:
        ts.capture(deep, "49.l").__enter__()
    assert len(str(caught.value)) < 200


def test_a_function_is_no_model():
    with pytest.raises(ts.OptionError, match=r"ts\.capture needs a module.*got builtin_function"):
        ts.capture(torch.relu, "0").__enter__()


@pytest.mark.parametrize("how", ["backward outside", "no_grad"])
def test_gradients_that_can_not_have_arrived_are_an_error_and_not_an_empty_list(how):
    net = nn.Sequential(nn.Linear(2, 1))
    with ts.capture(net, "0") as captured, torch.set_grad_enabled(how != "no_grad"):
        out = net(torch.ones(1, 2))
    if how == "backward outside":
        out.sum().backward()
    with pytest.raises(ts.LossError, match=r"Run backward\(\) inside the `with` block"):
        captured["0"].gradients


def test_a_layer_that_was_not_captured_is_named_with_those_that_were():
    net = Net()
    with ts.capture(net, "lstm") as captured, pytest.raises(KeyError, match="captured were: lstm"):
        captured["act"]


@pytest.mark.parametrize("option", ["edit", "edit_gradient"])
def test_an_edit_that_is_no_function_is_refused(option):
    with pytest.raises(ts.OptionError, match=f"{option}='zero' is no function"):
        ts.capture(Net(), "lstm", **{option: "zero"}).__enter__()


def test_a_scripted_layer_is_refused():
    net = scripted(nn.Sequential(nn.Linear(2, 1)))
    with pytest.raises(ts.OptionError, match=r"'0' is scripted.*Capture the original"):
        ts.capture(net, "0").__enter__()


def test_a_pattern_passes_over_containers_that_are_never_called():
    net = nn.Sequential(nn.ModuleList([nn.Linear(2, 1)]))
    with ts.capture(net, "*") as captured:
        net[0][0](torch.ones(1, 2))
    assert repr(captured) == "Captured(: 0 calls, 0.0: 1 call)"


def test_calls_of_a_copy_that_was_made_inside_the_block_are_not_the_models():
    net = nn.Sequential(nn.Linear(2, 1))
    with ts.capture(net, "0", edit=lambda _, output: output * 0) as captured:
        copied = copy.deepcopy(net)
        assert copied(torch.ones(1, 2)).any()
    assert captured["0"].outputs == []
    assert copied(torch.ones(1, 2)).any()


def test_a_backward_that_brings_a_layer_nothing_is_passed_over():
    """A gradient penalty goes back through a convolution's own backward, where torch's hooks are given None."""
    critic = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 4))
    edited = []
    with ts.capture(critic, "*", edit_gradient=lambda name, gradient: edited.append(gradient.shape)):
        inputs = torch.randn(2, 1, 8, 8, requires_grad=True)
        scores = critic(inputs)
        (gradient,) = torch.autograd.grad(scores.sum(), inputs, create_graph=True)
        gradient.square().sum().backward()
    assert edited
