# SPDX-License-Identifier: Apache-2.0
"""softmax over dimension 0, also where torch guesses it."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.losses import classifier_outputs
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, method_of
from truestep.doctor.source.value_origins import argument, has_star_args, literal, value_origins

_SOFTMAX = ("softmax", "log_softmax")
_WITHOUT = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin"), 0),
    **dict.fromkeys(("functional.softmax", "functional.log_softmax", "functional.softmin"), 1),
}
_CHOOSING = ("argmax", "max", "topk")


class SoftmaxOverBatch(SourceCheck):
    """The softmax of a model's outputs runs over dimension 0, the batch, or is not told its dimension.

    Why: the examples of a batch compete with each other instead of the classes. Without a dimension torch guesses (0 for
    1- and 3-dimensional inputs), and warns.

    Bad:
        log_probabilities = F.log_softmax(net(x), dim=0)
        loss = F.nll_loss(log_probabilities, y)  # here

    Good:
        log_probabilities = F.log_softmax(net(x), dim=1)
        loss = F.nll_loss(log_probabilities, y)

    Fix: dim=1 for outputs of shape (batch, classes), dim=-1 where classes come last.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/acgan/acgan.py:100;
    eriklindernoren/PyTorch-GAN 36d3c77e implementations/infogan/infogan.py:111; bed R: 0 true, 2 false.
    """

    code = "LOSS007"
    words = ("oftmax", "oftmin")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss over classes whose input is a softmax over dimension 0."""
        for call, origin in classifier_outputs(module):
            name = (module.qualify(origin.func) or "").rsplit(".", 1)[-1]
            if name in _SOFTMAX and literal(module, argument(origin, 1, "dim")) == 0:
                yield At(call, f"Its input is a {name} over dimension 0, the batch.", RISK)
        for softmax in _softmaxes_before_argmax(module):
            yield At(
                softmax, "The softmax runs over dimension 0, and the class is chosen in dimension 1.", RISK
            )
        for call, name in _calls_without_dim(module):
            yield At(call, f"{name} without dim: of a 3-dimensional input it takes the batch.", ADVICE)


def _calls_without_dim(module: SourceModule) -> Iterator[tuple[ast.Call, str]]:
    """Yield the functions and layers that are not told their dimension."""
    for name, place in _WITHOUT.items():
        for call in module.calls(f"torch.nn.{name}"):
            if argument(call, place, "dim") is None and not has_star_args(call):
                yield call, name.removeprefix("functional.")


def _softmaxes_before_argmax(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the softmax over dimension 0 of which the greatest in dimension 1 is taken: a tensor with one axis has none."""
    for call in module.all(ast.Call):
        dim, given = _softmax_dim_and_input(module, call)
        if dim != 0 or given is None:
            continue
        statement = module.parents[call]
        names = statement.targets if isinstance(statement, ast.Assign) else []
        kept = [each.id for each in names if isinstance(each, ast.Name)]
        reads = [read for name in kept for read in module.reads(name) if module.definitions(read) == [call]]
        if any(_is_argmax_or_topk_input(module, each) for each in [call, *reads]):
            yield call


def _is_argmax_or_topk_input(module: SourceModule, use: ast.expr) -> bool:
    """Tell `use.argmax(1)`, `torch.max(use, dim=1)` and `use.topk(5, 1)`."""
    outer = module.parents[use]
    if isinstance(outer, ast.Attribute):
        call, name, place = module.parents[outer], outer.attr, 0
    else:
        call, place = outer, 1
        name = last_part(outer.func) if isinstance(outer, ast.Call) else ""
    if not isinstance(call, ast.Call) or name not in _CHOOSING:
        return False
    is_own = call.func is outer or (
        use in call.args[:1] and (module.qualify(call.func) or "").startswith("torch.")
    )
    place += name == "topk"  # behind how many are taken
    return is_own and literal(module, argument(call, place, "dim")) == 1


def _softmax_dim_and_input(module: SourceModule, node: ast.expr) -> tuple[int | None, ast.expr | None]:
    """Return the dimension of a softmax, and what it is given."""
    if not isinstance(node, ast.Call):
        return None, None
    layers = [each for each in value_origins(module, node.func) if isinstance(each, ast.Call)]
    layer = next((each for each in [*layers, node.func] if isinstance(each, ast.Call)), None)
    name = module.qualify(node.func) or ""
    if layer is not None and module.qualify(layer.func) == "torch.nn.Softmax":
        dim, given = literal(module, argument(layer, 0, "dim")), argument(node, 0, "input")
    elif name.startswith("torch.") and name.endswith(".softmax"):
        dim, given = literal(module, argument(node, 1, "dim")), argument(node, 0, "input")
    elif method_of(node) == "softmax" and isinstance(node.func, ast.Attribute):
        dim, given = literal(module, argument(node, 0, "dim")), node.func.value
    else:
        return None, None
    return (dim if isinstance(dim, int) else None), given
