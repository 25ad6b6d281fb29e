# SPDX-License-Identifier: Apache-2.0
"""softmax over dimension 0, also where torch guesses it."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.losses import classifier_outputs, loss_calls
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part, method_of, walk
from truestep.doctor.source.value_origins import argument, has_star_args, is_call_of, literal, value_origins

MAX_DEPTH = 3  # from a model to its last part
_SOFTMAX = ("softmax", "log_softmax")
_WITHOUT = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin"), 0),
    **dict.fromkeys(("functional.softmax", "functional.log_softmax", "functional.softmin"), 1),
}
_CHOOSING = ("argmax", "max", "topk")
_LAYERS = ("torch.nn.Softmax", "torch.nn.LogSoftmax")


class SoftmaxOverBatch(SourceCheck):
    """The softmax of a model's outputs runs over dimension 0, the batch, or is not told its dimension; or a contrastive
    loss compares vectors that are normalised over it, or each with itself.

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
    words = ("oftmax", "oftmin", "cross_entropy", "CrossEntropyLoss")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss over classes whose input is a softmax over dimension 0."""
        for call, origin in classifier_outputs(module):
            name = (module.qualify(origin.func) or "").rsplit(".", 1)[-1]
            if name in _SOFTMAX and literal(module, argument(origin, 1, "dim")) == 0:
                yield At(call, f"Its input is a {name} over dimension 0, the batch.", RISK)
        for softmax in dict.fromkeys(_final_softmaxes_over_batch(module)):
            yield At(softmax, "The model ends in a softmax over dimension 0, the batch.", RISK)
        for softmax in _softmaxes_before_argmax(module):
            yield At(
                softmax, "The softmax runs over dimension 0, and the class is chosen in dimension 1.", RISK
            )
        for call in loss_calls(module, "cross_entropy"):
            yield from _find_similarity_errors(module, call)
        for call, name in _calls_without_dim(module):
            yield At(call, f"{name} without dim: of a 3-dimensional input it takes the batch.", ADVICE)


def _find_similarity_errors(module: SourceModule, loss: ast.Call) -> Iterator[At]:
    """Report similarities of vectors that are normalised over the batch, and of each vector to itself as a candidate."""
    found = _similarity_operands(module, argument(loss, 0, "input"))
    if found is None:
        return
    left, right, is_whole = found
    if _is_normalised_over_batch(module, left) and _is_normalised_over_batch(module, right):
        yield At(
            loss, "The vectors are normalised over dimension 0, the batch, and compared row by row.", RISK
        )
    target = argument(loss, 1, "target")
    made = [each for each in value_origins(module, target) if each] if target is not None else []
    is_numbered = any(is_call_of(module, part, "torch.arange") for each in made for part in walk(each))
    if is_whole and is_numbered and ast.dump(left) == ast.dump(right):
        text = "Each row's similarity to itself is among its candidates, and the greatest: mask the diagonal."
        yield At(loss, text, RISK)


def _similarity_operands(
    module: SourceModule, node: ast.expr | None
) -> tuple[ast.expr, ast.expr, bool] | None:
    """Return a and b of `a @ b.T`, and whether all of it is left as it is but for a number that scales it."""
    inner: ast.expr | None = None
    is_whole = False
    match node:
        case ast.Name() if len(made := module.definitions(node)) == 1:
            uses = [module.parents[each] for each in module.reads(node.id) if each is not node]
            inner, is_whole = (
                made[0],
                not any(isinstance(each, ast.Attribute | ast.Subscript) for each in uses),
            )
        case ast.BinOp(left=left, op=ast.Div() | ast.Mult()):
            inner, is_whole = left, True
        case ast.BinOp(left=left, op=ast.MatMult(), right=right) | ast.Call(args=[left, right]):
            turned = right.func if isinstance(right, ast.Call) else right
            known = isinstance(node, ast.BinOp) or is_call_of(module, node, "torch.mm", "torch.matmul")
            if known and isinstance(turned, ast.Attribute) and turned.attr in ("T", "t", "mT"):
                return left, turned.value, True
            is_filled = isinstance(node, ast.Call) and method_of(node) == "masked_fill"
            inner = getattr(node.func, "value", None) if is_filled and isinstance(node, ast.Call) else None
        case ast.Subscript(value=inner) | ast.BinOp(left=inner):
            pass
    found = _similarity_operands(module, inner) if inner is not None else None
    return (*found[:2], found[2] and is_whole) if found is not None else None


def _is_normalised_over_batch(module: SourceModule, node: ast.expr) -> bool:
    made = list(value_origins(module, node))
    calls = [each for each in made if is_call_of(module, each, "torch.nn.functional.normalize")]
    return bool(calls) and all(
        literal(module, argument(each, 2, "dim")) == 0 for each in calls if isinstance(each, ast.Call)
    )


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


def _final_softmaxes_over_batch(module: SourceModule) -> Iterator[ast.Call]:
    """Yield the softmax over dimension 0 that the models which a loop over a loader applies end in."""
    for trace in module.traces:
        for loop in trace.training_loops():
            is_batch = isinstance(loop.node, ast.For) and module.kind(_loop_iterable(loop.node)) == "loader"
            for event in loop.of("forward") if is_batch else ():
                if event.receiver is not None and not any(
                    each.kind == "call" for each in event.path[len(loop.path) :]
                ):
                    yield from _softmaxes_at_model_end(module, event.receiver)


def _loop_iterable(loop: ast.For) -> ast.expr:
    """Return x of `for ... in x`, `enumerate(x)` and `tqdm(x)`."""
    source = loop.iter
    while isinstance(source, ast.Call) and source.args:
        source = source.args[0]
    return source


def _softmaxes_at_model_end(module: SourceModule, model: ast.expr) -> Iterator[ast.Call]:
    """Yield what a model ends with, over the batch, be it in its last part."""

    def last_parts(each: ast.expr) -> list[ast.expr]:
        ends = [end for end in _final_calls(module, each) if not _is_softmax_over_batch(module, end)]
        return [end.func for end in ends if module.kind(end.func) == "module"]

    for each in walk_each_once([model], last_parts, MAX_DEPTH):
        yield from (end for end in _final_calls(module, each) if _is_softmax_over_batch(module, end))


def _final_calls(module: SourceModule, model: ast.expr) -> list[ast.Call]:
    owner = module.classes.of(model)
    forward = module.classes.method(owner, "forward")
    given = module.functions.results(forward)
    ends = [each for result in given for each in value_origins(module, result)]
    for made in value_origins(module, model) if owner is None else ():
        is_row = isinstance(made, ast.Call) and module.qualify(made.func) == "torch.nn.Sequential"
        ends += made.args[-1:] if is_row and isinstance(made, ast.Call) else []
    return [each for each in ends if isinstance(each, ast.Call)]


def _is_softmax_over_batch(module: SourceModule, call: ast.Call) -> bool:
    """Tell `F.softmax(x, 0)`, `x.softmax(0)`, `nn.Softmax(0)` and the call of such a layer."""
    layers = [call, *(each for each in value_origins(module, call.func) if isinstance(each, ast.Call))]
    for each in layers:
        if module.qualify(each.func) in _LAYERS:
            return bool(literal(module, argument(each, 0, "dim")) == 0)
    name = module.qualify(call.func) or ""
    method = method_of(call)
    if name.rpartition(".")[2] not in _SOFTMAX and method not in _SOFTMAX:
        return False
    place = 1 if name.startswith("torch.") else 0  # behind the input
    return bool(literal(module, argument(call, place, "dim")) == 0)
