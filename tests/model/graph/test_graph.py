# SPDX-License-Identifier: Apache-2.0
"""The graph: all that runs is in it, what is alike is rolled up and nothing else, and nothing of a drawing overlaps."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import ARCHITECTURES, WORDS, Transformer, large
from torch import nn

import truestep as ts
from tests.support.scripted import scripted
from truestep.model.calling import forward_arguments, map_forward_arguments
from truestep.model.graph.graph_nodes import ModuleCall, nodes_of_member
from truestep.model.graph.repeat_folding import GraphRepeatFolder
from truestep.model.graph.tracing import trace_model
from truestep.model.summaries.memory import copy_model_with, to_meta_tensor, to_meta_tensor_except_lengths


def titles(picture):
    return [box.lines[0] for box in picture.boxes] + [frame.title for frame in picture.frames]


# ---------------------------------------------------------------------- what is rolled up


@pytest.mark.parametrize("name", ["transformer", "ResNet-50", "ViT"])
def test_deep_models_fold_to_what_one_can_read(name):
    found = large(name)
    for kind in ("modules", "autograd"):
        assert 5 <= len(found.picture(kind=kind).boxes) <= 60
    assert any("×" in title for title in titles(found.picture()))


def test_a_transformers_blocks_are_one():
    deepest = large("transformer").modules[-1]
    assert deepest.frames[0].title.startswith("blocks.0 … blocks.23 Block")
    assert [frame.times for frame in deepest.frames] == [24, 1]
    assert len(deepest.boxes) < 20


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_every_operation_is_in_what_is_rolled_up(name):
    """Each node counts as often as it and what it stands in are repeated or called."""
    each = ARCHITECTURES[name]
    model = each.make()
    modules, backward = trace_model(
        copy_model_with(model, to_meta_tensor),
        map_forward_arguments(forward_arguments(model, each.batch()), to_meta_tensor_except_lengths),
    )
    for graph in (modules, backward.graph):
        total = len(list(nodes_of_member(graph.root)))
        GraphRepeatFolder(graph).roll()
        shared = any(group.num_calls > 1 for group in _groups(graph.root))
        counted = sum(_counted(graph.root, 1))
        assert counted <= total if shared else counted == total


def _groups(group):
    return [
        group,
        *(inner for child in group.children if isinstance(child, ModuleCall) for inner in _groups(child)),
    ]


def _counted(group, times):
    for child in group.children:
        if isinstance(child, ModuleCall):
            yield from _counted(child, times * child.times)
        else:
            yield times


def chain(*blocks):
    return nn.Sequential(*blocks)


class Side(nn.Module):
    """Each layer on the same input; or each also on what the first gave."""

    def __init__(self, *, dense):
        super().__init__()
        self.parts = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(5)])
        self.dense = dense

    def forward(self, x):
        if not self.dense:
            return torch.cat([part(x) for part in self.parts], 1)
        given = [x]
        for part in self.parts:
            given.append(part(sum(given)))
        return given[-1]


def frozen(block):
    return block.requires_grad_(False)


def linear(**settings):
    return nn.Sequential(nn.Linear(4, 4, **settings), nn.Tanh())


def leaky(slope):
    return nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(slope))


@pytest.mark.parametrize(
    ("model", "rolled"),
    [
        (chain(*(linear() for _ in range(5))), [5]),
        (chain(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh()), [3]),
        (chain(linear(), linear(), linear(bias=False), linear()), [2]),
        (chain(linear(), linear(), frozen(linear()), linear()), [2]),
        (chain(leaky(0.1), leaky(0.1), leaky(0.2), leaky(0.1)), [2]),
        (chain(linear(), linear(), linear().eval(), linear()), [2]),
        (Side(dense=False), [5]),
        (Side(dense=True), []),
    ],
)
def test_what_is_alike_is_rolled_up_and_nothing_else(model, rolled):
    deepest = ts.graph(model, torch.zeros(3, 4)).modules[-1]
    assert [each.times for each in (*deepest.boxes, *deepest.frames) if each.times > 1] == rolled


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None)
def test_what_is_rolled_up_unrolls_to_the_model(letters):
    """The layers of a chain come back in their order, whichever repeat."""
    make = {"a": lambda: nn.Linear(4, 4), "b": nn.Tanh, "c": nn.Sigmoid}
    modules, _ = trace_model(
        nn.Sequential(*(make[letter]() for letter in letters)), ((torch.zeros(2, 4),), {})
    )
    GraphRepeatFolder(modules).roll()

    def unrolled(group):
        for child in group.children:
            if not isinstance(child, ModuleCall):
                continue
            inside = [child.type] if child.module is not None else list(unrolled(child))
            yield from inside * child.times

    assert list(unrolled(modules.root)) == [type(make[letter]()).__name__ for letter in letters]


# ---------------------------------------------------------------------- what is shared


def test_shared_modules_are_joined_and_tied_weights_connected():
    siamese = ARCHITECTURES["siamese, bilinear"]
    shown = ts.graph(siamese.make(), siamese.batch()).modules[0]
    [tower] = [box for box in shown.boxes if "tower" in box.lines[0]]
    assert "called 2 times" in tower.lines[0]
    assert sum(arrow.target == tower.id for arrow in shown.arrows) == 2
    tied = ts.graph(Transformer(1), WORDS).modules[0]
    [weight] = [arrow for arrow in tied.arrows if arrow.is_weight]
    names = {box.id: box.lines[0].split()[0] for box in tied.boxes}
    assert {names[weight.source], names[weight.target]} == {"words", "head"}


class Sharing(nn.Module):
    """One block five times, one activation everywhere."""

    def __init__(self):
        super().__init__()
        self.block, self.act, self.out = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(5):
            x = self.block(x)
        return self.act(self.out(self.act(x)))


def test_one_block_called_again_and_again_is_said_and_an_activation_is_not_one_thing():
    shown = ts.graph(Sharing(), torch.zeros(2, 4)).modules[0]
    names = [box.lines[0] for box in shown.boxes]
    assert sum("called 5 times" in name for name in names) == 1
    assert sum(name.startswith("act") for name in names) == 2


# ---------------------------------------------------------------------- autograd


def test_saved_bytes_are_those_that_autograd_packs():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(1))
    inputs = torch.randn(6, 8)
    found = ts.graph(copy.deepcopy(model), inputs, saved=True, attributes=True)
    packed = {}
    held = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}

    def pack(tensor):
        if tensor.untyped_storage()._cdata not in held:
            packed[tensor.untyped_storage()._cdata] = tensor  # kept, so that no other takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(inputs)
    assert found.saved_bytes == sum(each.untyped_storage().nbytes() for each in packed.values())
    assert output.requires_grad
    words = [line for box in found.autograd[-1].boxes for line in box.lines]
    assert "saves result: 6 × 16 float32, 384 B" in words
    assert "saves mat1: 6 × 8 float32, 192 B" in words
    assert "training = True" in words
    plain = ts.graph(model, inputs).autograd[-1]
    assert not any("saves" in line for box in plain.boxes for line in box.lines[1:] if box.kind == "gradient")


def test_without_anything_to_train_there_is_no_autograd_graph():
    found = ts.graph(nn.Linear(2, 2).requires_grad_(False), torch.zeros(1, 2))
    assert found.autograd == ()
    with pytest.raises(ts.OptionError, match="no autograd graph"):
        found.picture(kind="autograd")


# ---------------------------------------------------------------------- any model, left as it was


class DataDependent(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout()

    def forward(self, batch):
        x = batch["x"]
        return {"y": self.drop(self.norm(x)) if float(x.sum()) < 1e9 else x}


def test_a_model_that_needs_values_runs_and_is_left_as_it_was():
    model, inputs = DataDependent(), torch.randn(3, 4)
    model.drop.eval()
    before = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()], torch.get_rng_state()
    found = ts.graph(model, {"x": inputs})
    assert "does not run without values" in found.notes[0]
    assert all(torch.equal(before[0][key], value) for key, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Odd(nn.Module):
    """Writes in place, through a view, and gives back what it got."""

    def __init__(self):
        super().__init__()
        self.first, self.same, self.flat = nn.Linear(4, 4), nn.Identity(), nn.Flatten()

    def forward(self, x):
        x = self.same(self.first(x))
        y = torch.zeros_like(x)
        y[:, 0] = x[:, 1]
        return self.flat(y.relu_().unsqueeze(1)), x.T


def test_writing_in_place_and_views():
    shown = ts.graph(Odd(), torch.zeros(3, 4)).modules[-1]
    names = {box.id: box.lines[0].split()[0] for box in shown.boxes}
    arrows = {(names[arrow.source], names[arrow.target]) for arrow in shown.arrows}
    assert arrows >= {("first", "setitem"), ("zeros_like", "setitem"), ("setitem", "relu"), ("relu", "flat")}
    assert ("first", "output") in arrows
    assert "same" not in names.values()


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (lambda: scripted(nn.Sequential(nn.Linear(4, 3), nn.ReLU())), torch.zeros(2, 4)),
        (lambda: nn.LazyLinear(3), torch.zeros(2, 4)),
        (nn.Identity, torch.zeros(2, 4)),
        (lambda: nn.LSTM(4, 3), torch.zeros(5, 2, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*lazy.*:UserWarning")
def test_models_of_other_kinds(make, batch):
    shown = ts.graph(make(), batch).modules[-1]
    assert [box.kind for box in shown.boxes].count("input") == 1
    assert "output" in {box.kind for box in shown.boxes}


def test_a_failing_forward_names_its_module():
    with pytest.raises(ts.ModelError, match=r"failed in 1 \(Linear\), which got \[2, 5\] float32 on cpu"):
        ts.graph(nn.Sequential(nn.Linear(4, 5), nn.Linear(4, 1)), torch.zeros(2, 4))


# ---------------------------------------------------------------------- text and files


@pytest.mark.parametrize("kind", ["modules", "autograd"])
def test_the_text_names_every_box_once(kind):
    found = ts.graph(Transformer(2), WORDS)
    shown = found.picture(kind=kind)
    mermaid, dot = found.mermaid(kind=kind), found.dot(kind=kind)
    assert mermaid.splitlines()[0] == "flowchart TB"
    for box in shown.boxes:
        assert (
            sum(line.strip().startswith((f"{box.id}[", f"{box.id}(")) for line in mermaid.splitlines()) == 1
        )
        assert sum(line.strip().startswith(f"{box.id} [") for line in dot.splitlines()) == 1
    opened = [line.strip() for line in mermaid.splitlines()]
    assert sum(line.startswith("subgraph") for line in opened) == opened.count("end") == len(shown.frames)
    assert dot.count("{") == dot.count("}") == 1 + len(shown.frames)


def test_names_that_mean_something_to_mermaid_or_dot_stay_words(tmp_path):
    model = nn.Sequential()
    model.add_module('a"<b>#&\\', nn.Linear(2, 2))
    found = ts.graph(model, torch.zeros(1, 2))
    assert "a&quot;&lt;b&gt;&#35;&amp;\\" in found.mermaid()
    assert 'label="a\\"<b>#&\\\\ Linear' in found.dot()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"depth": 9}, "depths 1 to 3"),
        ({"depth": 0}, "depths 1 to 3"),
        ({"kind": "module"}, "Did you mean 'modules'"),
    ],
)
def test_what_there_is_not_is_said(asked, said):
    with pytest.raises(ts.OptionError, match=said):
        ts.graph(Transformer(1), WORDS).picture(**asked)


def test_files(tmp_path):
    found = ts.graph(Transformer(1), WORDS)
    for suffix, start in ((".mmd", "flowchart"), (".dot", "digraph"), (".json", "{")):
        assert found.save(tmp_path / f"g{suffix}").read_text().startswith(start)
    with pytest.raises(ts.OptionError, match=r"\.mmd"):
        found.save(tmp_path / "g.png")
    assert "add" in str(found)
    assert found.to_dict()["modules"][0]["depth"] == 1
