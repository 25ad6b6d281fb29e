# SPDX-License-Identifier: Apache-2.0
"""Causes of errors in files, names, arguments and memory that the pages' examples do not show."""

import json
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts
from truestep.explainer import memory_holders
from truestep.explainer.logs.explaining import explain_log
from truestep.explainer.memory_holders import LiveTensorsAtCrash


def note_of(function, *arguments):
    with pytest.raises(Exception) as caught, ts.explain_errors():  # noqa: PT011
        function(*arguments)
    return " ".join(caught.value.__notes__[0].split())


def test_a_missing_file_is_told_by_what_stands_in_its_folder(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "best_model.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)

    def load(path):
        torch.load(path)

    assert "no such file, but best_model.pt." in note_of(load, "runs/best-model.pt")
    assert "no such folder, but runs." in note_of(load, "run/best_model.pt")
    assert "the folder checkpoints, in" in note_of(load, "checkpoints/last/best_model.pt")
    assert "counted from the working folder" not in note_of(load, str(tmp_path / "nothing.pt"))


def test_a_folder_that_is_opened_as_a_file_is_told_by_what_it_holds(tmp_path, monkeypatch):
    (tmp_path / "runs" / "a" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "config.json").write_text("{}")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "model.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)

    def load(path):
        torch.load(path)

    assert '"runs/a" is a run of Truestep' in note_of(load, "runs/a")
    assert 'write ts.load_weights(module, "runs/a")' in note_of(load, "runs/a")
    assert "it holds 1 name: model.pt" in note_of(load, "saved")


class Holder:
    @property
    def optimizers(self):
        return []


def test_a_property_that_is_called_is_named():
    holder = Holder()

    def call():
        return holder.optimizers()

    note = note_of(call)
    assert "holder.optimizers is no method." in note
    assert "write holder.optimizers." in note


def test_a_function_that_was_not_called_is_named():
    for asked in (
        lambda: nn.Linear(2, 2).parameters.requires_grad_(False),
        lambda: torch.ones(1).item.shape,
        lambda: F.relu.weight,
    ):
        assert "a function that was not called" in note_of(asked)


def test_a_tensor_within_a_dict_is_taken_out_by_its_name():
    def backward(result):
        result.backward()

    weight = torch.ones(2, requires_grad=True)
    note = note_of(backward, {"accuracy": 0.5, "loss": weight.sum()})
    assert "a dict of 'accuracy', 'loss', and backward belongs to a tensor in it" in note
    assert 'value["loss"].backward' in note
    assert 'value["loss"].item' in note_of(lambda result: result.item(), {"loss": weight})
    assert 'value["loss"].backward' in note_of(backward, {})
    assert 'value["accuracy"]' in note_of(lambda result: result.accuracy, {"loss": weight})


def test_rows_made_beside_a_batch_are_told_from_features():
    def rows(x, fake):
        return x[:, 0] - fake[:, 0]

    def features(x, y):
        return x - y

    note = note_of(rows, torch.ones(32, 3), torch.ones(64, 3))
    assert "fake has 64 rows and x has 32 rows, one for each example" in note
    assert "Write len(x) there" in note
    assert "one for each example" not in note_of(features, torch.ones(4, 3), torch.ones(4, 2))


def test_a_program_that_is_missing_is_told_from_a_file():
    def start():
        subprocess.run(["no-such-program-anywhere"], check=True)

    assert "not found on the PATH" in note_of(start)


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        ({"weight": torch.zeros(1)}, "is the state dict itself: 1 tensors by name"),
        ({"model": {}, "a secret": 1}, "has 2 entries, among them model, and no optimizer"),
    ],
)
def test_a_checkpoint_of_another_form_is_told_without_its_own_names(kept, says):
    def resume(checkpoint):
        return checkpoint["optimizer"]

    note = note_of(resume, kept)
    assert says in note
    assert "secret" not in note


def test_the_key_of_another_dict_is_not_taken_for_a_checkpoints():
    assert explain_log("KeyError: 'colour'").main.explanation is None
    text = (
        "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n    {line}\nKeyError: 'colour'\n"
    )
    assert explain_log(text.format(line='x = row["colour"]')).main.explanation is None
    found = explain_log(text.format(line='x = checkpoint["colour"]')).main.explanation
    assert found.name == "checkpoint-key-missing"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nn.Linear(2, 2)({"x": 1}), "take the field that is meant"),
        (lambda: torch.stack([[1.0], [2.0]]), "torch.stack(list)"),
        (lambda: torch.optim.SGD(nn.Linear(2, 2).parameters, lr=0.1), "parameters was not called"),
        (lambda: torch.optim.SGD([nn.Linear(2, 2)], lr=0.1), "the layer itself (Linear)"),
        (lambda: torch.optim.SGD(torch.zeros(2), lr=0.1), "write [tensor]"),
        (lambda: torch.zeros(3).shape(), "is no method."),
        (lambda: 1 - torch.ones(2).bool(), "~mask"),
        (lambda: list(range(2))[5], "index-out-of-range"),
        (lambda: torch.zeros(2)[0, 0], "axis-out-of-range"),
        (lambda: torch.einsum("ij,jk->ik", torch.zeros(2, 3), torch.zeros(4, 5)), "3 meets 4 at axis j"),
        (lambda: torch.tensor(None), "value-is-none"),
        (lambda: torch.zeros(2.5), "argument-of-other-type"),
    ],
)
def test_one_mistake_is_told_from_another_of_its_class(call, says):
    assert says in note_of(call)


@pytest.mark.parametrize(
    "ask",
    [
        lambda run: run.best > 0.5,
        lambda run: 0.5 - run.best,
        lambda run: f"{run.best:.3f}",
        lambda run: min(0.5, run.best),
        lambda run: round(run.best, 3),
        lambda run: float(run.best),
    ],
)
def test_a_best_value_that_no_run_has_yet(tmp_path, ask):
    with ts.Run(tmp_path, progress=False, doctor=False) as run:
        assert "run.best is None until run.log writes the metric" in note_of(ask, run)


def test_a_short_list_is_named_with_its_length():
    def third(rows):
        return rows[3]

    assert "`rows` has 2 items" in note_of(third, [1, 2])


def test_a_name_that_its_own_line_replaced():
    def train(net):
        for _ in range(2):
            net = net(torch.zeros(1, 2))

    assert "this line gave it its own result, and runs again" in note_of(train, nn.Linear(2, 2))


def test_an_empty_loader_is_named_as_the_divisor():
    def mean(total, loader):
        total /= len(loader)

    assert "`loader` is empty" in note_of(mean, 1.0, [])


def test_json_is_not_in_the_list():
    with pytest.raises(TypeError) as caught, ts.explain_errors():
        json.dumps(torch.zeros(1))
    assert not getattr(caught.value, "__notes__", ())


def test_of_many_tensors_only_some_are_looked_into(monkeypatch):
    """What a full memory's explanation costs grows with the number of tensors by one question for each."""
    asked = []
    real = memory_holders._storage_bytes
    monkeypatch.setattr(
        memory_holders, "_storage_bytes", lambda tensors: asked.append(len(tensors)) or real(tensors)
    )
    before = LiveTensorsAtCrash.now()
    many = [torch.zeros(8) for _ in range(40_000)]
    large = torch.zeros(2**20)
    view = large[:2]
    sparse = torch.zeros(2, 2).to_sparse()
    asked.clear()
    alive = LiveTensorsAtCrash.now()
    assert sum(asked) < 2 * memory_holders._MAX_ASKED + len(alive.large)
    assert alive.num_bytes - before.num_bytes == pytest.approx(large.nbytes + 32 * len(many), rel=0.2)
    assert {id(large), id(view)} <= {id(each) for each in alive.large}
    assert sparse.is_sparse


def test_what_is_not_imported_has_no_tensors():
    code = (
        "from truestep.explainer.memory_holders import LiveTensorsAtCrash; import sys; "
        "assert LiveTensorsAtCrash.now().num_bytes == 0; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LENGTHS = ["len(samples)", "samples.size(0)", "samples.shape[0]", "count", "len(samples) - 1"]
LOOPS = {
    "for": "for index in {}:\n    print(index)",
    "for with a target of two": "for index, other in {}:\n    pass",
    "comprehension": "found = [index for index in {}]",
    "generator": "found = sum(index for index in {})",
}


@pytest.mark.parametrize("written", LENGTHS)
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_over_a_length_is_told_to_write_range(tmp_path, written, loop):
    path = tmp_path / "theirs.py"
    path.write_text(loop.format(written))
    names = {"samples": torch.zeros(3, 2), "count": 3}
    note = note_of(lambda: exec(compile(path.read_text(), str(path), "exec"), names))
    assert f"the loop goes over {written}, which is one number." in note
    assert f"write range({written})" in note


@pytest.mark.parametrize("name", ["_cuda_setDevice", "_cuda_init", "_xpu_setDevice", "_cuda_getDeviceCount"])
def test_what_a_build_of_torch_leaves_out_is_no_misspelt_name(name):
    if hasattr(torch._C, name):
        pytest.skip(f"this torch has {name}")
    note = note_of(lambda: getattr(torch._C, name)(0))
    assert f"this torch is built without {name}" in note
    assert "Fix: write" not in note
    assert "torch.cuda.is_available()" in note


@pytest.mark.parametrize("module", ["torch", "torch.nn.functional", "torch.utils.data", "numpy"])
def test_no_private_name_of_a_package_is_proposed(module):
    found = sys.modules[module] if module in sys.modules else __import__(module)
    private = [each for each in dir(found) if each.startswith("_") and not each.startswith("__")]
    assert private
    for each in private[:10]:
        note = note_of(lambda name: getattr(found, name), f"{each}x")
        assert f"write {each}." not in note


def test_nodes_that_were_not_assigned_are_answered_with_both_providers():
    text = "Some nodes were not assigned to the preferred execution providers which may or may not have an negative impact"
    (found,) = explain_log(text).errors
    assert '["CUDAExecutionProvider", "CPUExecutionProvider"]' in " ".join(found.explanation.note().split())


@pytest.mark.parametrize("name", ["size", "shape", "float", "to", "dim"])
def test_a_column_that_is_a_list_is_told_from_a_list_of_layers(name):
    def ask(value):
        return getattr(value, name)

    for column in ([1, 2], [torch.ones(2), torch.ones(2)], [[1, 2], [3, 4]]):
        note = note_of(ask, column)
        assert "torch.tensor(list) for numbers" in note
        assert "ModuleList" not in note
    assert "nn.ModuleList" in note_of(ask, [nn.Linear(1, 1)])


def test_a_module_that_trains_itself_is_told_where_its_loss_is():
    class Base(nn.Module):
        def training_step(self, batch, index):
            return batch.sum()

    class Net(Base):
        pass

    model, inputs = Base(), torch.ones(1)
    for call in (lambda: model(inputs), lambda: nn.Sequential(model)(inputs), lambda: Net()(inputs)):
        assert "net.training_step(batch, 0), batch)" in note_of(call)


NET, X, Y = nn.Linear(4, 3), torch.randn(8, 4), torch.zeros(8, dtype=torch.long)
EXCHANGED = {
    "by function": lambda: F.cross_entropy(Y, NET(X)),
    "by class": lambda: nn.CrossEntropyLoss()(Y, NET(X)),
    "by name": lambda: F.cross_entropy(input=Y, target=NET(X), label_smoothing=0.1),
    "of int32": lambda: F.cross_entropy(Y.int(), NET(X)),
    "of pictures": lambda: F.cross_entropy(torch.zeros(2, 5, 5, dtype=torch.long), torch.randn(2, 3, 5, 5)),
    "of probabilities": lambda: F.nll_loss(Y, F.log_softmax(NET(X), 1)),
}


@pytest.mark.parametrize("kind", EXCHANGED)
def test_labels_in_the_place_of_outputs_are_exchanged_and_not_converted(kind):
    note = note_of(EXCHANGED[kind])
    assert "Fix: exchange the two: the outputs first and then the labels" in note
    assert ".float()" not in note


def test_outputs_that_are_integers_are_the_models_own():
    assert "leave argmax(), .long() and the like out" in note_of(lambda: F.cross_entropy(NET(X).argmax(1), Y))
    assert "leave argmax(), .long() and the like out" in note_of(lambda: F.cross_entropy(NET(X).long(), Y))
    assert "convert integers with .float()" in note_of(lambda: Y.softmax(0))


def test_a_row_of_inputs_in_the_place_of_labels_asks_for_labels():
    def by_number(batch):
        return F.cross_entropy(NET(batch[0]), batch[1])

    assert "Fix: give both: run.data((X, y)" in note_of(by_number, X)
    assert "give both" not in note_of(by_number, (X, Y.float()))
    assert "give both" not in note_of(by_number, torch.randn(2, 4))


TEXTS = ("a b", "c")


@pytest.mark.parametrize(
    "called",
    [
        lambda net, batch: net(batch[0]),
        lambda net, batch: net(batch["text"]),
        lambda net, whole: net(whole),
        lambda net, batch: F.embedding(batch[0], net.weight),
    ],
)
@pytest.mark.parametrize("kind", [tuple, list])
def test_texts_are_to_be_made_numbers_of(called, kind):
    texts = kind(TEXTS)
    batch = texts if "whole" in called.__code__.co_varnames else {"text": texts, 0: texts}
    said = note_of(called, nn.Linear(2, 2), batch)
    assert f" is a {kind.__name__} of texts." in said
    assert "Fix: make numbers of them" in said


@pytest.mark.parametrize(
    ("batch", "fix"),
    [
        (((torch.ones(2), torch.ones(2)), "name"), "unpack it"),
        ([[1.0, 2.0], ("a", "b")], "torch.tensor(list)"),
    ],
)
def test_other_tuples_and_lists_are_no_texts(batch, fix):
    assert fix in note_of(lambda net, batch: net(batch[0]), nn.Linear(2, 2), batch)


SEEN = {
    "values": torch.zeros(4, 2, requires_grad=True),
    "taken": torch.zeros(4),
    "numbers": torch.zeros(4, dtype=torch.long),
    "short": torch.zeros(3),
}


def rows_of_a_tuple(seen):
    values, short = seen["values"][:, 0], seen["short"]
    return (values - short).square()


@pytest.mark.parametrize(
    ("called", "fix"),
    [
        (lambda seen: seen["values"].gather(1, seen["taken"][:, None]), "seen['taken'].long()"),
        (
            lambda seen: seen["values"].gather(1, index=seen["numbers"][:, None].short()),
            "seen['numbers'].long()",
        ),
        (lambda seen: torch.gather(seen["values"], 1, seen["taken"]), "seen['taken'].long()"),
        (
            lambda seen: torch.take_along_dim(seen["values"], seen["taken"][:, None], 1),
            "seen['taken'].long()",
        ),
        (lambda seen: torch.zeros(4, 2).scatter_(1, seen["taken"][:, None], 1.0), "seen['taken'].long()"),
        (lambda seen: seen["values"].index_select(1, seen["taken"]), "seen['taken'].long()"),
        (
            lambda seen: seen["values"].gather(1, seen["numbers"]),
            "write seen['numbers'][:, None] as the index",
        ),
        (lambda seen: torch.gather(seen["values"], dim=1, index=seen["numbers"]), "[:, 0] behind the gather"),
        (lambda seen: torch.take_along_dim(seen["values"], seen["numbers"], 1), "seen['numbers'][:, None]"),
        (lambda seen: seen["values"][:3].gather(1, seen["numbers"][:, None]), "by one slice, mask or order"),
        (lambda seen: seen["values"][torch.arange(3), seen["numbers"]], "torch.arange(len(actions))"),
        (
            lambda seen: seen["values"][:, 0] * seen["short"],
            "seen['short'] has 3 rows and seen['values'] has 4 rows",
        ),
        (rows_of_a_tuple, "short has 3 rows and values has 4 rows"),
    ],
)
def test_actions_that_pick_values_are_told_of_by_name(called, fix):
    assert fix in note_of(called, SEEN)
