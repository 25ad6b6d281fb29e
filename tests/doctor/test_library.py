# SPDX-License-Identifier: Apache-2.0
"""The tables of what torch's operations and functions do, held to what torch does."""

import ast
import importlib
import inspect
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from support.old_torch import HAS_DIVISION
from torch import nn

import truestep.doctor
from truestep.doctor.library.functions import FUNCTIONS, functions
from truestep.doctor.library.layers import DROPPING_LAYERS, LAYERS_WITHOUT_WEIGHTS
from truestep.doctor.library.losses import LOSSES, loss_function_names
from truestep.doctor.library.operations import OPERATIONS, operations

DOCTOR = Path(truestep.doctor.__file__).parent
# what an operation takes beside the tensor
GIVEN = {
    "to": (torch.float64,), "type": (torch.float64,), "type_as": (torch.ones(1, dtype=torch.float64),), "view": (-1,),
    "view_as": (torch.ones(12),), "reshape": (-1,), "reshape_as": (torch.ones(12),), "unflatten": (1, (2, 2)),
    "unsqueeze": (0,), "expand": (2, 3, 4), "expand_as": (torch.ones(2, 3, 4),), "permute": (1, 0), "transpose": (0, 1),
    "swapaxes": (0, 1), "swapdims": (0, 1), "movedim": (0, 1), "moveaxis": (0, 1), "softmax": (1,), "softmin": (1,),
    "log_softmax": (1,), "cumprod": (1,), "cumsum": (1,), "logcumsumexp": (1,), "logsumexp": (1,), "clamp": (0.1,),
    "pow": (torch.full((3, 4), 1.5),), "gather": (1, torch.zeros(3, 4, dtype=torch.int64)),
    "index_select": (0, torch.tensor([0, 1])), "narrow": (0, 0, 2), "take": (torch.tensor([0, 5]),), "select": (0, 1),
    **dict.fromkeys(("mean", "sum", "nanmean", "nansum", "var", "std", "amax", "amin", "prod"), (1,)),
    "norm": (2, 1), "prelu": (torch.ones(1),), "topk": (2,), "argmax": (1,), "argmin": (1,), "max": (1,), "min": (1,),
    **dict.fromkeys(operations(shape="broadcast"), (torch.full((3, 4), 0.7),)),
}  # fmt: skip
NOT_ALONE = operations(numbers="drawn filled copied joined projected measured dropped") | {
    "cuda", "xpu", "pin_memory",  # need a device
    "bmm", "mm", "matmul", "einsum", "addmm", "baddbmm",  # need matrices that fit
    "softmax2d", "log_sigmoid", "identity",  # layers
    "data",
}  # fmt: skip
ALONE = [each for each in OPERATIONS if each.name not in NOT_ALONE]


def applied(operation, tensor):
    homes = (tensor, torch, F)
    home = next(each for each in homes if hasattr(each, operation.name))
    given = GIVEN.get(operation.name, ())
    found = getattr(home, operation.name)(*given if home is tensor else (tensor, *given))
    return found[0] if isinstance(found, tuple) else found


def tensor_for(operation, grad=True):
    detached = operation.name in ("numpy", "tolist", "requires_grad_", "detach_")
    values = torch.linspace(0.2, 2.3, 12).reshape(3, 4) if operation.name != "item" else torch.tensor(0.5)
    values = values.T.contiguous() if operation.name in ("view_as", "reshape_as") else values
    return values.requires_grad_(grad and not detached)


@pytest.mark.parametrize("layer", DROPPING_LAYERS.values(), ids=lambda each: each.layer)
def test_a_layer_s_dropout_stands_where_the_table_says(layer):
    made = getattr(nn, layer.layer)
    if layer.several is None:
        parameters = inspect.signature(made).parameters
        assert list(parameters)[layer.at] == layer.option
        assert parameters[layer.option].default == layer.default
    else:  # its signature says *args
        between = ("tanh", True, False) if layer.layer == "RNN" else (True, False)
        given = (4, 8, 2, *between, 0.25)
        place, name = layer.several
        assert (given[layer.at], getattr(made(*given), layer.option)) == (0.25, 0.25)
        assert (given[place], getattr(made(*given), name)) == (2, 2)
        assert getattr(made(4, 8), layer.option) == layer.default


@pytest.mark.parametrize("operation", ALONE, ids=lambda each: each.name)
def test_torch_does_what_the_table_says(operation):
    tensor = tensor_for(operation)
    result = applied(operation, tensor * 1)
    if operation.shape == "gone" or operation.graph == "left":
        assert not isinstance(result, torch.Tensor)
        return
    if operation.numbers in ("kept", "itself", "home"):
        assert sorted(result.detach().flatten().tolist()) == pytest.approx(
            sorted(tensor.detach().expand(result.shape if operation.name.startswith("expand") else tensor.shape)
                   .flatten().tolist())
        )  # fmt: skip
    if operation.shape == "same":
        assert result.shape == tensor.shape
    if operation.shape == "fewer" and operation.name not in ("topk", "sort", "argsort"):
        assert result.dim() == tensor.dim() - 1
    if operation.shape == "turned":
        assert result.shape == tensor.T.shape
    if operation.name != "requires_grad_":
        assert result.requires_grad is (operation.graph != "cut" and tensor.requires_grad)


@pytest.mark.parametrize(
    "operation", [each for each in ALONE if each.graph == "zero"], ids=lambda each: each.name
)
def test_a_gradient_said_to_be_zero_is(operation):
    tensor = tensor_for(operation)
    applied(operation, tensor).sum().backward()
    assert not tensor.grad.any()


@pytest.mark.parametrize(
    "operation", [each for each in ALONE if each.graph == "kept" and each.shape != "broadcast"], ids=lambda each: each.name
)  # fmt: skip
def test_a_backward_needs_the_result_where_the_table_says_so(operation):
    result = applied(operation, tensor_for(operation) * 1)
    if (
        result.is_leaf
        or operation.numbers in ("kept", "itself", "home", "picked", "chosen")
        or operation.name == "relu_"
    ):
        return  # a view, or the tensor itself
    with torch.no_grad():
        result.mul_(1.5)
    try:
        result.sum().backward()
        needed = False
    except RuntimeError:
        needed = True
    assert needed is (operation.backward == "result")


@pytest.mark.parametrize("name", sorted(operations(numbers="share")))
def test_probabilities_are_between_0_and_1(name):
    layer = nn.Softmax2d() if name == "softmax2d" else None
    values = torch.linspace(-9, 9, 24).reshape(2, 3, 2, 2)
    given = (1,) if name in ("softmax", "softmin") else ()
    found = layer(values) if layer else getattr(F, name)(values, *given)
    assert ((found >= 0) & (found <= 1)).all()


def loss_by(known, target, scores=None):
    scores = torch.rand(4, 3, requires_grad=True) if scores is None else scores
    more = (torch.ones(4, 3),) if known.function == "gaussian_nll_loss" else ()
    return getattr(F, known.function)(scores, target, *more)


@pytest.mark.parametrize("known", LOSSES, ids=lambda each: each.function)
@pytest.mark.filterwarnings("ignore:reduction. .mean. divides")
def test_torch_takes_the_targets_that_the_table_says(known):
    indices, like = torch.tensor([0, 1, 2, 0]), torch.rand(4, 3)
    loss_by(known, indices if known.target == "classes" else like).backward()
    assert getattr(nn, known.layer)
    one_hot = F.one_hot(indices, 3)
    if known.function == "mse_loss" and not HAS_DIVISION:
        pytest.skip("torch 2.11 refuses whole targets of mse_loss, later ones take them")
    if known.whole == "taken":
        loss_by(known, one_hot).backward()
    else:
        with pytest.raises((RuntimeError, ValueError)):
            loss_by(known, one_hot).backward()


def test_every_loss_of_the_table_has_a_row_of_its_own():
    assert len({each.function for each in LOSSES}) == len({each.layer for each in LOSSES}) == len(LOSSES)
    assert loss_function_names(target="classes", given="log-shares") == ("nll_loss",)


def test_each_operation_stands_once():
    assert [name for name, count in Counter(each.name for each in OPERATIONS).items() if count > 1] == []


def test_every_column_has_values_that_its_comment_explains():
    text = (DOCTOR / "library" / "operations.py").read_text("utf-8").partition('_TABLE = """')[0]
    used = {value for each in OPERATIONS for value in each[1:] if value != "-"}
    assert [value for value in sorted(used) if value not in text] == []


def test_a_name_of_torch_is_one_that_torch_has():
    names = sorted({name for names in FUNCTIONS.values() for name in names if name.startswith("torch.")})
    assert names
    for name in names:
        found = torch
        for part in name.split(".")[1:]:
            inner = getattr(found, part, None)
            found = inner if inner is not None else importlib.import_module(f"{found.__name__}.{part}")
        assert found is not None, name


def test_asking_for_what_no_row_does_is_a_mistake():
    with pytest.raises(KeyError):
        functions("does nothing")


# ── checks hold no lists ──────────────────────────────────────────────────────────────────────────

MOST_NAMES = 3  # of a library, in one display of a check
# Knowledge of one check alone: what replaces what, which options each class has.
OWN_TABLES = {
    "checks/deprecated/deprecated_call.py",  # the old name and the new
    "checks/loss/logarithm_of_zero.py",  # what lies between -1 and 1, and what makes a limit of -inf
    "checks/repeatability/backend_attribute_invented.py",  # every switch that a backend has
}
LIBRARIES = (
    "torch.",
    "numpy.",
    "transformers.",
    "accelerate.",
    "lightning.",
    "pytorch_lightning.",
    "torchvision.",
)


def names_of_libraries(node):
    known = {
        *loss_function_names(),
        *(each.name for each in OPERATIONS),
        *(name for names in FUNCTIONS.values() for name in names),
    }
    texts = [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return [text for text in texts if text in known or text.startswith(LIBRARIES)]


def displays(path):
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield node


def test_checks_ask_by_property_and_hold_no_lists_of_names():
    found = {}
    for path in sorted((DOCTOR / "checks").rglob("*.py")):
        name = path.relative_to(DOCTOR).as_posix()
        long = [names for each in displays(path) if len(names := names_of_libraries(each.value)) > MOST_NAMES]
        if long and name not in OWN_TABLES:
            found[name] = long
    assert found == {}


def test_every_exception_is_one():
    long = {
        each
        for each in OWN_TABLES
        if any(len(names_of_libraries(node.value)) > MOST_NAMES for node in displays(DOCTOR / each))
    }
    assert long == OWN_TABLES


@pytest.mark.parametrize("name", sorted(LAYERS_WITHOUT_WEIGHTS))
def test_a_layer_without_weights_has_none(name):
    layer = getattr(nn, name.removeprefix("torch.nn."))
    sizes = {
        each.name: (2, 2) if each.name == "unflattened_size" else 2
        for each in inspect.signature(layer).parameters.values()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    }
    made = layer(**sizes) if "Fractional" not in name else layer(2, output_size=2)
    assert ([*made.parameters()], [*made.buffers()]) == ([], [])


def test_the_layers_of_torch_are_those_with_weights_the_losses_and_those_without():
    plain = {each.removeprefix("torch.nn.") for each in LAYERS_WITHOUT_WEIGHTS}
    left = {
        name
        for name in dir(nn)
        if inspect.isclass(each := getattr(nn, name)) and issubclass(each, nn.Module) and name not in plain
    }
    with_weights = (
        "Norm",
        "Linear",
        "Conv",
        "RNN",
        "LSTM",
        "GRU",
        "Embedding",
        "Transformer",
        "Attention",
        "PReLU",
    )
    holders = {"Module", "Container", "DataParallel", "AdaptiveLogSoftmaxWithLoss"}
    left = {each for each in left if not any(word in each for word in with_weights)}
    assert {
        each
        for each in left
        if not each.endswith(("Loss", "Loss2d", "List", "Dict", "Sequential", "Bilinear"))
        and each not in holders
    } == set()
