# SPDX-License-Identifier: Apache-2.0
"""Whether a tensor is a row, of shape (batch,), or a column, of shape (batch, 1), where every way to it says the same."""

import ast

from truestep.doctor.library.operations import operations
from truestep.doctor.source.batch_counts import sizes_written_in_call
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.model_output_counts import num_outputs
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import common_answer
from truestep.doctor.source.value_origins import argument, constant, resolve_expression

ROW, COLUMN = "row", "column"
KEEP_SHAPE = operations(shape="same")
_MAKERS = operations(shape="sized counted")
_SHAPED = operations(shape="other turned")
_COUNTED = ("torch.arange", "torch.linspace", "torch.randperm")
_NEW_AXIS = (":, None", "(:, None)", "..., None")
_EACH = ("pow", "sqrt", "abs", "square", "clamp", "float", "contiguous")
_WHOLE = ("mean", "sum", "nanmean", "nansum")


@asked_once(None)
def row_or_column(module: SourceModule, node: ast.expr, depth: int = 0) -> str | None:  # noqa: ARG001 - asked so
    """Return "row" or "column" if the last change of shape, on every way here, left the value so."""
    match node:
        case ast.Name():
            return _shape_of_name(module, node)
        case ast.Attribute(attr="data"):
            return row_or_column(module, node.value)
        case ast.Attribute(attr="values" | "indices", value=ast.Call() as call):
            return ROW if _is_axis_reduction(module, call) else None
        case ast.Subscript():
            return _shape_of_indexed(module, node)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            return row_or_column(module, node.operand)
        case ast.BinOp():
            return _shape_of_operation(module, node)
        case ast.Call():
            return _shape_of_call(module, node)
    return None


@asked_once(None)
def row_or_column_with(module: SourceModule, node: ast.expr, depth: int = 0) -> str | None:
    """Return what a value is as far as its known parts say: a row with whatever else is no column, and a column is no row."""
    if (found := row_or_column(module, node)) is not None:
        return found
    ways: list[ast.expr | None] = []
    match node:
        case ast.Name():
            ways = module.definitions(node)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            sides = {row_or_column_with(module, each, depth + 1) for each in (node.left, node.right)}
            return common_answer(sides - {None})
        case ast.Call(func=ast.Attribute(attr=method, value=receiver)) if method in KEEP_SHAPE:
            ways = [receiver] if "." not in (module.qualify(node.func) or "") else []
    return common_answer(row_or_column_with(module, each, depth + 1) if each else None for each in ways)


def _shape_of_name(module: SourceModule, node: ast.Name) -> str | None:
    if (places := module.resolver.unpacked(node)) is not None:
        return common_answer(_shape_of_unpacked(module, value, place) for value, place in places)
    return common_answer(row_or_column(module, each) if each else None for each in module.definitions(node))


def _shape_of_operation(module: SourceModule, node: ast.BinOp) -> str | None:
    """A number leaves a tensor's shape as it is; of two tensors both have to be in sight."""
    if isinstance(node.op, ast.MatMult):
        return None
    sides = [each for each in (node.left, node.right) if not isinstance(constant(each), (int, float))]
    return common_answer(row_or_column(module, each) for each in sides)


def _shape_of_unpacked(module: SourceModule, value: ast.expr, place: tuple[int, ...]) -> str | None:
    """`_, preds = torch.max(outputs, 1)`, and a part of what a function or a model of the program gives back."""
    if not isinstance(value, ast.Call):
        return None
    if place in ((0,), (1,)) and _is_axis_reduction(module, value):
        return ROW
    parts = [_part_at_place(each, place) for each in _returned_values(module, value)]
    return common_answer(row_or_column(module, each) if each else None for each in parts)


def _part_at_place(value: ast.expr, place: tuple[int, ...]) -> ast.expr | None:
    match value, place:
        case ast.Tuple(elts=parts), (int() as at,) if not any(
            isinstance(each, ast.Starred) for each in parts
        ):
            return parts[at] if at < len(parts) else None
    return None


def _shape_of_indexed(module: SourceModule, node: ast.Subscript) -> str | None:
    if ast.unparse(node.slice) in _NEW_AXIS:
        return COLUMN
    if (
        isinstance(node.value, ast.Call)
        and constant(node.slice) in (0, 1)
        and _is_axis_reduction(module, node.value)
    ):
        return ROW
    if isinstance(node.slice, ast.Slice):
        is_some = not any(constant(each) == 1 for each in ast.walk(node.slice) if isinstance(each, ast.expr))
    else:
        is_some = row_or_column(module, node.slice) == ROW
    return row_or_column(module, node.value) if is_some else None  # some of the rows, and more than one


def _shape_of_call(module: SourceModule, call: ast.Call) -> str | None:
    name = module.qualify(call.func) or ""
    if name == "numpy.arange":
        return ROW
    function = name.rsplit(".", 1)[-1] if name.startswith("torch.") else ""
    if function in _MAKERS:
        return _shape_made_by(module, call, function)
    if function in KEEP_SHAPE and call.args:
        return row_or_column(module, call.args[0])
    if function == "argmax":
        return ROW if _is_axis_reduction(module, call) else None
    is_method = isinstance(call.func, ast.Attribute) and not name.startswith(("torch.", "numpy."))
    return _shape_of_method(module, call, call.func.attr) if is_method else _shape_of_applied(module, call)  # type: ignore[attr-defined]


def _shape_of_method(module: SourceModule, call: ast.Call, method: str) -> str | None:
    """Return what a method of a tensor, or of an object of the program, leaves."""
    texts = [ast.unparse(each) for each in call.args]
    if method in ("view", "reshape"):
        return {"-1, 1": COLUMN, "-1": ROW}.get(", ".join(texts))
    if method == "unsqueeze":
        return COLUMN if texts in (["1"], ["-1"]) else None
    if method in ("squeeze", "flatten"):
        inner = row_or_column(module, call.func.value)  # type: ignore[attr-defined]
        return ROW if inner in (ROW, COLUMN) and texts in ([], ["1"], ["-1"]) else None
    if method == "argmax":
        return ROW if _is_axis_reduction(module, call) else None
    if method == "gather":  # as many as it is asked for
        index = argument(call, 1, "index")
        return row_or_column(module, index) if index is not None else None
    if method in KEEP_SHAPE:
        return row_or_column(module, call.func.value)  # type: ignore[attr-defined]
    return ROW if method in _WHOLE and _is_sum_of_features(module, call) else _shape_of_applied(module, call)


def _shape_of_applied(module: SourceModule, call: ast.Call) -> str | None:
    """Return what a model, or a function of the program, gives on each way."""
    if num_outputs(module, call) == 1:
        return COLUMN
    return common_answer(row_or_column(module, each) for each in _returned_values(module, call))


def _returned_values(module: SourceModule, call: ast.Call) -> list[ast.expr]:
    """Return what a function, or the forward of a model, of the program gives on each way: a critic may drop the last axis."""
    return module.functions.results(module.functions.applied(call))


def _is_sum_of_features(module: SourceModule, call: ast.Call) -> bool:
    """Tell `x.sum(1)` where `x` is made with two sizes in sight: one number for each example."""
    if not isinstance(call.func, ast.Attribute) or constant(argument(call, 1, "keepdim")) not in (
        None,
        False,
    ):
        return False
    made = resolve_expression(module, call.func.value)
    sizes = sizes_written_in_call(module, made) if isinstance(made, ast.Call) else None
    return sizes is not None and len(sizes) == 2 and constant(argument(call, 0, "dim")) in (1, -1)


def _shape_made_by(module: SourceModule, call: ast.Call, maker: str) -> str | None:
    """Return what `torch.randn(8)` and `torch.zeros((8, 1))` are by the sizes that are written."""
    if maker in ("randperm", "arange", "linspace"):
        return ROW
    sizes = sizes_written_in_call(module, call)
    if sizes is None:
        return None
    if len(sizes) == 2 and constant(sizes[1]) == 1:
        return COLUMN
    return ROW if len(sizes) == 1 else None


def _is_axis_reduction(module: SourceModule, call: ast.Call) -> bool:
    """Tell `torch.max(x, 1)`, `x.max(1)`, `x.argmax(dim=1)`: no axis is kept."""
    qualified = module.qualify(call.func) in ("torch.max", "torch.argmax")
    method = isinstance(call.func, ast.Attribute) and call.func.attr in ("max", "argmax")
    dim = argument(call, 1 if qualified else 0, "dim")
    kept = argument(call, 2 if qualified else 1, "keepdim")
    return (qualified or method) and constant(dim) in (1, -1) and constant(kept) in (None, False)


def is_meant_table(module: SourceModule, difference: ast.BinOp) -> bool:
    """Tell a difference of all with all that is meant: of a value with itself; or of positions, or with an axis that is
    written there, if the whole is not averaged in sight."""
    sides = difference.left, difference.right
    if len({ast.dump(_strip_shape_changes(module, each) or each) for each in sides}) == 1:
        return True
    is_written = any(_is_made_of_arange(module, each) or _strip_new_axis(each) is not each for each in sides)
    return is_written and not _is_averaged(module, difference)


def _strip_new_axis(node: ast.expr) -> ast.expr:
    """Return what an axis is written at: `a` of `a[:, None]` and `a.unsqueeze(1)`."""
    match node:
        case ast.Subscript() if ast.unparse(node.slice) in _NEW_AXIS:
            return node.value
        case ast.Call(func=ast.Attribute(attr="unsqueeze", value=held)):
            return held
    return node


@asked_once(None)
def _strip_shape_changes(module: SourceModule, node: ast.expr, depth: int = 0) -> ast.expr | None:  # noqa: ARG001 - asked so
    """Return the value of which only the shape was changed; None where it is made of itself."""
    made = resolve_expression(module, node) or node
    match made:
        case ast.Subscript() if (held := _strip_new_axis(made)) is not made:
            return _strip_shape_changes(module, held)
        case ast.Call(func=ast.Attribute(attr=method, value=held)) if method in _SHAPED:
            of_torch = module.qualify(made.func) == f"torch.{method}"
            return _strip_shape_changes(module, made.args[0] if of_torch and made.args else held)
    return made if isinstance(made, ast.Call) else node


@asked_once(False)
def _is_made_of_arange(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:  # noqa: ARG001 - asked so
    """Tell what is made of `torch.arange(n)`: positions, which are no batch."""
    made = resolve_expression(module, node)
    match made:
        case ast.Call(func=ast.Attribute(attr=method, value=held)):
            is_method = method in KEEP_SHAPE or method in _SHAPED
            return module.qualify(made.func) in _COUNTED or (is_method and _is_made_of_arange(module, held))
        case ast.BinOp():
            return _is_made_of_arange(module, made.left) or _is_made_of_arange(module, made.right)
    return False


@asked_once(False)
def _is_averaged(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:  # noqa: ARG001 - asked so
    """Tell whether one number is made of all of a value: `(value ** 2).mean()`, there or under its name."""
    above = module.parents[node]
    match above:
        case ast.BinOp() | ast.UnaryOp():
            return _is_averaged(module, above)
        case ast.Assign(targets=[ast.Name(id=name)]):
            scope = module.scope(node)
            return any(
                _is_averaged(module, each) for each in module.reads(name) if module.scope(each) is scope
            )
        case ast.Attribute(attr=method) if isinstance(call := module.parents[above], ast.Call):
            return not call.args if method in _WHOLE else method in _EACH and _is_averaged(module, call)
        case ast.Call():
            method = (module.qualify(above.func) or "").removeprefix("torch.")
            return (
                len(above.args) == 1 if method in _WHOLE else method in _EACH and _is_averaged(module, above)
            )
    return False
