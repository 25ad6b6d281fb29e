# SPDX-License-Identifier: Apache-2.0
"""`with ts.explain_errors():` and the notes: what stays as it is, what a note may hold, and what is left alone."""

import ast
import gc
import pickle
import subprocess
import sys
import traceback

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.explainer import explain as explaining
from truestep.explainer.explanation import COLUMNS, MAX_LINES, TITLE


def notes(error):
    return [note for note in getattr(error, "__notes__", ()) if note.startswith(TITLE)]


def failing(batch):
    return nn.Linear(20, 5)(batch)


def test_type_message_and_traceback_stay_and_a_note_is_added():
    with pytest.raises(RuntimeError) as bare:
        failing(torch.zeros(4, 10))
    with pytest.raises(RuntimeError) as explained, ts.explain_errors():
        failing(torch.zeros(4, 10))
    assert type(explained.value) is type(bare.value)
    assert str(explained.value) == str(bare.value)
    frames = [(each.name, each.lineno) for each in traceback.extract_tb(explained.value.__traceback__)]
    assert (
        frames[1:]
        == [(each.name, each.lineno) for each in traceback.extract_tb(bare.value.__traceback__)][1:]
    )
    (note,) = notes(explained.value)
    assert "failing: return nn.Linear(20, 5)(batch)" in note
    assert "matrix-sizes-differ" in "".join(traceback.format_exception(explained.value))


def test_what_is_caught_inside_gets_no_note():
    with ts.explain_errors(), pytest.raises(RuntimeError) as caught:
        failing(torch.zeros(4, 10))
    assert notes(caught.value) == []


def test_nested_blocks_and_a_second_exit_give_one_note():
    with pytest.raises(RuntimeError) as caught, ts.explain_errors(), ts.explain_errors():
        failing(torch.zeros(4, 10))
    assert len(notes(caught.value)) == 1


def test_it_is_a_decorator_too():
    @ts.explain_errors()
    def train():
        failing(torch.zeros(4, 10))

    with pytest.raises(RuntimeError) as caught:
        train()
    assert len(notes(caught.value)) == 1


@pytest.mark.parametrize(
    "error",
    [KeyError("accuracy"), KeyboardInterrupt(), SystemExit(2), ts.OptionError("steps=0"), StopIteration()],
)
def test_what_is_not_known_and_what_is_no_error_of_the_run_is_left_alone(error):
    with pytest.raises(type(error)) as caught, ts.explain_errors():
        raise error
    assert not hasattr(caught.value, "__notes__")


def test_an_explanation_that_fails_is_dropped_but_for_a_debug_log(monkeypatch, logged):
    monkeypatch.setattr(explaining, "explain_exception", lambda error: 1 / 0)
    with logged.debugging(), pytest.raises(RuntimeError) as caught, ts.explain_errors():
        failing(torch.zeros(4, 10))
    assert notes(caught.value) == []
    assert [each.levelname for each in logged.records] == ["DEBUG"]


class Hostile:
    """A value of the user's whose every attribute runs code of the user's."""

    asked = False

    def __getattr__(self, name):
        type(self).asked = True
        raise RuntimeError(name)

    def __repr__(self):
        type(self).asked = True
        return "secret"


def test_no_code_of_the_users_runs_and_no_value_or_string_is_shown():
    hostile, password = Hostile(), "hunter2"
    weights = torch.tensor([[123.25, 456.5]])
    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        torch.mm(weights, torch.zeros(3, 3)) if password and hostile is not None else hostile
    (note,) = notes(caught.value)
    assert not Hostile.asked
    assert "weights: float32 (1, 2) on cpu" in note
    for secret in ("hunter2", "123.25", "456.5"):
        assert secret not in note


@ts.explain_errors()
def wrapping():
    try:
        failing(torch.zeros(4, 10))
    except RuntimeError as error:
        raise ValueError("training failed") from error


def test_a_group_and_a_cause_are_looked_into():
    with pytest.raises(ValueError, match="training failed") as caught:
        wrapping()
    assert "matrix-sizes-differ" in notes(caught.value)[0]
    with pytest.raises(ExceptionGroup) as group, ts.explain_errors():
        raise ExceptionGroup("both", [KeyError("x"), torch.OutOfMemoryError("CUDA out of memory.")])
    assert "out-of-gpu-memory" in notes(group.value)[0]


def test_the_error_of_a_data_worker_is_explained_by_the_workers_own_traceback():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return torch.zeros(2, 3) @ torch.zeros(2, 3)

    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        next(iter(torch.utils.data.DataLoader(Rows(), num_workers=1)))
    (note,) = notes(caught.value)
    assert "matrix-sizes-differ" in note
    assert "in __getitem__: return torch.zeros(2, 3) @ torch.zeros(2, 3)" in note
    del caught  # its traceback holds the iterator, and that its worker
    gc.collect()


def test_a_note_is_at_most_twelve_lines_for_any_lengths():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a_name_that_is_as_long_as_names_of_layers_sometimes_are_in_large_projects = nn.Linear(3, 4)

        def forward(self, batch_of_images_with_their_labels_and_everything_else):
            return self.a_name_that_is_as_long_as_names_of_layers_sometimes_are_in_large_projects(
                batch_of_images_with_their_labels_and_everything_else
            )

    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        Net()(torch.zeros(2, 2))
    lines = notes(caught.value)[0].splitlines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= 2 * COLUMNS + 4


def test_the_note_holds_no_tensor_and_survives_pickling():
    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        failing(torch.zeros(4, 10))
    assert isinstance(caught.value.__notes__[0], str)
    assert notes(pickle.loads(pickle.dumps(caught.value)))


def test_nothing_is_imported_or_done_until_something_is_raised():
    code = (
        "import sys, truestep as ts\n"
        "before = set(sys.modules)\n"
        "with ts.explain_errors():\n    pass\n"
        "print(sorted(name for name in set(sys.modules) - before if 'torch' in name or 'explain' in name))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(ran.stdout) == ["truestep.explainer", "truestep.explainer.block"]


SIZES = "mat1 and mat2 shapes cannot be multiplied (4x10 and 20x5)"


class Watching(torch.Tensor):
    """A tensor whose class sees every question that is put to it."""

    asked = ()

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.asked = (*cls.asked, getattr(function, "__qualname__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


class Watched(nn.Module):
    asked = False

    def named_modules(self, *args, **kwargs):
        type(self).asked = True
        return super().named_modules(*args, **kwargs)

    def forward(self, batch, proxy):
        raise RuntimeError(SIZES if batch is not proxy else "")


class Proxy:
    asked = False

    @property
    def __class__(self):
        type(self).asked = True
        raise SystemExit(3)


def test_tensors_models_and_proxies_with_code_of_their_own_are_not_asked():
    batch, net, proxy = torch.zeros(4, 10).as_subclass(Watching), Watched(), Proxy()
    Watching.asked = ()
    with pytest.raises(RuntimeError) as caught, ts.explain_errors():
        net(batch, proxy)
    assert "batch: float32 (4, 10) on cpu; SIZES: str; proxy: Proxy" in notes(caught.value)[0]
    assert not Watched.asked
    assert not Proxy.asked
    assert Watching.asked == ()


class Odd(RuntimeError):
    """An exception that answers nothing."""

    def __str__(self):
        raise SystemExit(3)

    def __bool__(self):
        raise ValueError


@ts.explain_errors()
def raised(error, cause=None):
    raise error from cause


def test_exceptions_with_odd_methods_and_notes_stay_what_they_are():
    for error in (Odd("x"), ValueError("no number")):
        with pytest.raises(type(error)) as caught:
            raised(error, Odd("y") if isinstance(error, ValueError) else None)
        assert caught.value is error
    noted = RuntimeError(SIZES)
    noted.__notes__ = [3, None]
    with pytest.raises(RuntimeError) as caught:
        raised(noted)
    assert caught.value.__notes__[2].startswith(TITLE)


def test_strings_in_lines_that_the_traceback_does_not_show_are_left_out():
    def lookup():
        found = {"user": 'hunter2 "x"', "sk-1": r"hunter2"}.get("hunter2")
        return found[0]

    def detached():
        layers = {"hunter2": nn.Linear(2, 1)}
        loss = layers["hunter2"](torch.zeros(2)).detach()
        loss.backward()

    def devices():
        weights = {"hunter2": torch.zeros(3, device="meta")}["hunter2"]
        more = torch.zeros(3)
        return weights + more

    for function, code in (
        (lookup, 'found = {"...": "...", "...": r"..."}.get("...")'),
        (detached, 'layers["..."](torch.zeros(2)).detach()'),
        (devices, '{"...": torch.zeros(3, device="meta")}["..."]'),
    ):
        with pytest.raises((RuntimeError, TypeError)) as caught, ts.explain_errors():
            function()
        note = " ".join(notes(caught.value)[0].split())
        assert "hunter2" not in note
        assert code in note


def learner(folder):
    return ts.Run(folder, quiet=True, progress=False).learner(
        nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1)
    )


ANSWERED = {
    "a learner": lambda folder: learner(folder).optimizer,
    "a run": lambda folder: ts.Run(folder, quiet=True).fit,
    "the package": lambda folder: ts.Trainer,
}


@pytest.mark.parametrize("kind", ANSWERED)
def test_a_name_that_our_own_message_answers_is_not_explained_besides(tmp_path, kind):
    with pytest.raises(AttributeError) as caught, ts.explain_errors():
        ANSWERED[kind](tmp_path / "run")
    assert not notes(caught.value)


def test_a_slip_in_our_own_code_is_called_ours(tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.engine.update.UpdatePlan", None)  # as if a name there were wrong
    net = learner(tmp_path / "run")
    with pytest.raises(AttributeError, match="'NoneType'") as caught, ts.explain_errors():
        net.update(lambda rows: net(rows).square(), torch.ones(2, 2))
    (note,) = notes(caught.value)
    assert note.startswith(f"{TITLE}mistake-of-truestep")
    assert "update.py" in note
    assert "truestep env" in note
    assert "return" not in note


def test_a_slip_in_the_users_loss_is_his(tmp_path):
    net = learner(tmp_path / "run")
    with pytest.raises(AttributeError) as caught, ts.explain_errors():
        net.update(lambda rows: None.shape, torch.ones(2, 2))
    (note,) = notes(caught.value)
    assert "mistake-of-truestep" not in note
