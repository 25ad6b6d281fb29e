# SPDX-License-Identifier: Apache-2.0
"""What to write where `update` or a loss is called with other arguments than it takes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from truestep.core.argument_errors import is_argument_error
from truestep.core.errors import LossError, OptionError, RankError
from truestep.core.nested_structures import batch_children, batch_leaves
from truestep.core.text_formatting import ROWS_OF_SAMPLES, a_type, plural
from truestep.engine.data.unsupported_data_hints import mistaken_data_message

if TYPE_CHECKING:
    from truestep.engine.shared_context import UpdateObserver

CORRECT = (
    "def correct(batch): x, y = batch; return (net(x).argmax(1) == y).float(), and then net.evaluate(correct, run.data(test_set, "
    "batch_size=256))."
)
_PREDICTIONS = (  # names in a compute_metrics of the Trainer
    *("predictions", "label_ids", "eval_pred", "eval_preds", "eval_prediction", "EvalPrediction"),
    "compute_metrics",
)
_MOST_LEAVES = 6  # of a batch that are shown; more would hide the error they stand beside
_BETWEEN = ("truestep.engine.", "torch.nn.modules.module")


def loss_not_callable_message(loss: Any, batch: Any = None) -> str:
    """Say that a value was given in the place of a loss function."""
    if callable(batch):
        return (
            f"update was given {a_type(loss)} first, and a function in the place of the batch: the function comes first. Exchange "
            "the two: net.update(loss, batch), or of several learners ts.update([a, b], loss, batch)."
        )
    return (
        f"update was given {a_type(loss)} instead of a loss function. The engine calls the loss itself, so that it "
        "can split the batch or try it again: def loss(batch): ... and then net.update(loss, batch). For a loss that is computed "
        "already write with net.accumulating() as update: update.backward(loss)."
    )


def wrong_update_message(arguments: tuple[Any, ...]) -> str | None:
    """Say what `net.update` takes, where no function or several batches were given."""
    loss = arguments[0] if arguments else None
    if loss is not None and not callable(loss):
        return loss_not_callable_message(loss, *arguments[1:2])
    if len(arguments) < 3:
        return None
    names = ", ".join("xyzuvw"[: len(arguments) - 1])
    return (
        f"net.update was given {len(arguments) - 1} batches, and takes one, which it may have to split. Put them into a tuple: "
        f"net.update(loss, ({names})), which the loss takes apart: {names} = batch."
    )


def wrong_evaluate_message(arguments: tuple[Any, ...]) -> str:
    """Say what `net.evaluate` takes, for a call that python refused."""
    return f"net.evaluate takes a function of a batch, and the data, not {plural(len(arguments), 'value')}: {CORRECT}"


def check_evaluation(values: Any, data: Any, metric: Any) -> None:
    """Raise an OptionError where `net.evaluate` was given something else than a function, batches and a metric object."""
    if not callable(values):
        exchanged = callable(data) and not hasattr(data, "__iter__")
        what = "data and function in each other's place" if exchanged else f"{a_type(values)} first"
        raise OptionError(
            f"net.evaluate was given {what}. It calls a function with each batch, so the function comes first, and the data after "
            f"it: {CORRECT}"
        )
    if not hasattr(data, "batches") and not hasattr(data, "__iter__"):
        raise OptionError(
            f"net.evaluate was given {a_type(data)} as data. Give what run.data returned, or any iterable of batches: "
            f"{CORRECT}"
        )
    _refuse_tensors(data)
    _refuse_samples(data)
    _check_metric(metric)


def _refuse_tensors(data: Any) -> None:
    parts = data if isinstance(data, tuple) else data.values() if isinstance(data, dict) else [data]
    is_pair = len(parts) > 1 and all(isinstance(each, Tensor) for each in parts)
    # what one tensor was split into are batches, alike in all but their number of examples
    if isinstance(data, Tensor | dict) or (
        is_pair and len({(each.dtype, each.shape[1:]) for each in parts}) > 1
    ):
        written = ", ".join(
            str(tuple(each.shape)) if isinstance(each, Tensor) else type(each).__name__ for each in parts
        )
        raise OptionError(
            f"net.evaluate was given the data themselves ({written}) where batches are asked for, and would call the function with "
            "each part of them. Make a source of them first: run.data(data, batch_size=256), and give that."
        )


def _refuse_samples(data: Any) -> None:
    """Refuse a data set of Hugging Face and the like, whose rows would each be taken for a batch."""
    if (mistake := mistaken_data_message(data)) is not None:
        raise OptionError(f"net.evaluate was given no batches: {mistake}")
    features = getattr(data, "features", None)
    kinds = [type(each).__name__ for each in features.values()] if isinstance(features, dict) else []
    # a number or a text in a row: rows that are batches have lists throughout
    if hasattr(data, "column_names") and any(kind in ("Value", "ClassLabel") for kind in kinds):
        formatted = "" if getattr(data, "format", {}).get("type") else '.with_format("torch")'
        raise OptionError(
            f"net.evaluate was given {a_type(data)} of samples ({', '.join(map(str, features or ()))}), and would take each for a "
            "batch. Make a source of it, as of the training's data: "
            f"net.evaluate(correct, run.data(data{formatted}, batch_size=256))."
        )


def _check_metric(metric: Any) -> None:
    if isinstance(metric, type):
        raise OptionError(
            f"net.evaluate(metric={metric.__name__}) was given the class itself, which holds no numbers yet. Make the object, with "
            f"what it needs to know: metric={metric.__name__}(...)."
        )
    lacking = [name for name in ("update", "compute", "reset") if not callable(getattr(metric, name, None))]
    if metric is not None and lacking:
        shown = repr(metric) if isinstance(metric, str | int | float) else f"{type(metric).__name__}(...)"
        raise OptionError(
            f"net.evaluate(metric={shown}) was given {a_type(metric)}, which has no {' and no '.join(lacking)}: "
            "a metric is an object that is fed batch by batch, such as torchmetrics.Accuracy(...). An accuracy needs none, as what "
            f"the function returns is averaged: {CORRECT}"
        )


@contextmanager
def explain_trainer_metrics(values: Callable[[Any], Any], batch: Any) -> Iterator[None]:
    """Say of a function that fails and is a Trainer's `compute_metrics` that it is called with a batch here."""
    try:
        yield
    except (AttributeError, LossError, RuntimeError, TypeError, ValueError) as error:
        code = getattr(values, "__code__", None)
        noted = getattr(values, "__annotations__", {}).values()
        kinds = (each if isinstance(each, str) else getattr(each, "__name__", "") for each in noted)
        names = [
            getattr(values, "__name__", ""),
            *(code.co_varnames[: code.co_argcount] if code else ()),
            *kinds,
        ]
        if isinstance(error, AttributeError) and isinstance(error.obj, tuple | list | dict):
            names.append(error.name)
        if not any(name in _PREDICTIONS for name in names):
            raise
        raise OptionError(
            "net.evaluate was given a function that reads predictions and labels of all data, as compute_metrics of the "
            f"Trainer does, and it failed ({type(error).__name__}: {str(error).partition('.')[0]}). Here a function is called with "
            f"each batch, {a_type(batch)} as the data give it, calls the model, and returns one value per example: {CORRECT}"
        ) from error


def learner_not_picklable_message(name: str) -> str:
    """Say what to save or copy in a learner's stead."""
    return (
        f"The learner {name!r} can't be pickled or copied, as torch.save, copy.deepcopy and a worker process would: it belongs to "
        "its run, with threads and hooks. The run saves its whole state by itself. For a file of the weights write "
        'torch.save(net.module.state_dict(), "weights.pt"); for a copy of the model, copy.deepcopy(net.module); '
        "for an average of the weights, as AveragedModel keeps it, run.learner(module, optimizer, ema=ts.EMA(0.999))."
    )


def note_non_tensor_inputs(error: TypeError, inputs: Sequence[object]) -> None:
    """Note beside what a layer raised for a number, list or array what a module takes."""
    given = [each for each in inputs if not isinstance(each, Tensor)]
    if given and "must be Tensor, not" in str(error) and len(given) == len(inputs):
        error.add_note(
            f"truestep: a module takes tensors on the run's device, and was given {a_type(given[0])}. Make one of it: "
            "net(torch.as_tensor(x, dtype=torch.float32, device=run.device)); for class or token numbers leave dtype= out."
        )


def report_failure_to_observer(error: Exception, batch: Any, observer: "UpdateObserver") -> None:
    """Say beside an exception what the function was called with; a rank that is gone has nothing to do with the batch."""
    if not isinstance(error, RankError):
        _note_batch(error, batch)
        observer.failed(error)


def _note_batch(error: Exception, batch: Any) -> None:
    """Note beside an exception out of a function of a batch what that batch is made of: types and shapes, no values."""
    parts = [f"batch{name} {_describe_leaf(leaf)}" for name, leaf in batch_leaves(batch)]
    shown = ", ".join(parts[:_MOST_LEAVES]) + (", ..." if len(parts) > _MOST_LEAVES else "")
    whole = "" if batch_children(batch) is None else f"{a_type(batch)} of "
    apart = ""
    if parts and all(isinstance(leaf, str) for _, leaf in batch_leaves(batch)):
        apart = (
            " These are texts. Make numbers of them where the batch is made: run.data(texts, collate=lambda rows: tokenizer(rows, "
            'padding=True, return_tensors="pt")).'
        )
    elif (
        isinstance(batch, dict)
        and not isinstance(error, RuntimeError)  # of a computation with what was taken out
        and (names := [key for key in batch if isinstance(key, str)][:_MOST_LEAVES])
    ):
        apart = f" Take it apart by name: {', '.join(f'batch[{name!r}]' for name in names)}."
    elif whole and _is_batch_given_to_module(error, batch):
        apart = f" A module was given all of it. Take it apart, and give the module what it takes: {_unpacking_hint(batch)}."
    if hasattr(batch, "batches") or type(batch).__name__ == "DataLoader":
        apart = " That is all the data, not a batch of it: for batch in run.batches(source): net.update(loss, batch)."
    error.add_note(f"truestep: the function was called with this batch: {whole}{shown}.{apart}")
    note_batch_of_batches(error, batch)


def note_batch_of_batches(error: Exception, batch: Any) -> None:
    """Note beside an exception that each example of a batch has rows of its own, as it has where batches are batched again.

    Sequences of vectors with a label at each place look alike, so it is a question.
    """
    leaves = [leaf for _, leaf in batch_leaves(batch) if isinstance(leaf, Tensor)]
    ranks = {leaf.ndim for leaf in leaves}
    if len(ranks) < 2 or min(ranks) != 2 or len({leaf.shape[:2] for leaf in leaves}) != 1:
        return
    count, rows = leaves[0].shape[:2]
    error.add_note(
        f"{ROWS_OF_SAMPLES} {plural(count, 'sample')} has {plural(rows, 'row')} of its own. Were the items of the data "
        "batches already? Then they need no batch_size, which puts several into one: run.data(lambda: batches)."
    )


def _is_batch_given_to_module(error: Exception, batch: Any) -> bool:
    """Tell whether a call of a module on the way to the error was given the batch itself, and nothing else."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if (
            frame.f_code.co_name == "_call_impl"
            and frame.f_globals.get("__name__") == "torch.nn.modules.module"
        ):
            given = frame.f_locals.get("args", ())
            if len(given) == 1 and given[0] is batch:
                return True
        trace = trace.tb_next
    return False


def _unpacking_hint(batch: Any) -> str:
    size = len(batch) if isinstance(batch, tuple | list) else 0
    if size == 2:
        return "x, y = batch, and net(x)"
    return "x, *others = batch, and net(x)" if size > 1 else "batch[0], and net(batch[0])"


def _describe_leaf(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
    return type(leaf).__name__


def loss_call_error(error: TypeError, function: Callable[[Any], Any], batch: Any) -> LossError | None:
    """Say what is wrong with a loss that takes other arguments than one batch; None where the error is another one."""
    if not is_argument_error(error, through=_BETWEEN):
        return None
    given = f"{a_type(batch)}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
    name = getattr(function, "__qualname__", type(function).__name__).rpartition(".")[2]
    return LossError(
        f"The function {name} was called with the batch, {given}, as its only argument, and python says: {error}. Let it take one "
        "batch and take that apart: def loss(batch): x, y = batch. What else it needs it can read from around it, or "
        "functools.partial gives it."
    )
