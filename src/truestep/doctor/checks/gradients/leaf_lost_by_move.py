# SPDX-License-Identifier: Apache-2.0
"""`.to(device)` after requires_grad."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, method_of, receiver_of
from truestep.doctor.source.rewriting import Edits, insert_behind, remove_keyword
from truestep.doctor.source.value_origins import argument, constant, literal

MOVES = operations(numbers="home moved rounded") | operations(numbers="kept", shape="other turned")
MAKERS = operations(numbers="drawn filled copied")
MAX_LISTS = 3  # from a tensor to its optimizer


class LeafLostByMove(SourceCheck):
    """A tensor is made with requires_grad=True and then moved or converted.

    Why: the moved tensor is the result of an operation and no leaf: its .grad stays None, and an
    optimizer refuses it. On the same device nothing happens, so it works on the CPU and fails on a GPU.

    Bad:
        device = "cuda"
        w = torch.randn(3, requires_grad=True).to(device)  # here
        (w ** 2).sum().backward()
        print(w.grad)

    Good:
        device = "cuda"
        w = torch.randn(3, device=device, requires_grad=True)
        (w ** 2).sum().backward()
        print(w.grad)

    Fix: make it there (device=..., dtype=...), or call .requires_grad_() after .to().

    Evidence: 186 repositories, beds C, K, P, Q, R, T, U, Y: 9 true, 2 debatable, 53 false.
    """

    code = "GRAD013"
    words = ("requires_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a move straight after a maker or Parameter that asks for gradients."""
        for call in module.method_calls(*sorted(MOVES)):
            inner = receiver_of(call)
            if not isinstance(inner, ast.Call) or not isinstance(
                module.parents.get(call), (ast.Assign, ast.Attribute)
            ):
                continue
            made = (module.qualify(inner.func) or "").removeprefix("torch.")
            asked = argument(inner, 1 if made == "nn.Parameter" else None, "requires_grad")
            asks = made in MAKERS and constant(asked) is True
            if _is_no_op_move(module, call, inner) or _is_already_on_device(module, call, inner):
                continue
            if _is_move_to_source_device(module, call, inner):
                continue
            is_parameter = made == "nn.Parameter" and (asked is None or constant(asked) is True)
            if (asks or is_parameter) and _is_gradient_used(module, call, parameter=is_parameter):
                method = ast.unparse(call.func).rsplit(".", 1)[-1]
                text = f".{method}() after requires_grad=True: the result is no leaf, its .grad stays None."
                yield At(call, text, BUG if _is_made_on_cpu_or_converted(module, call, inner) else RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Ask for gradients after the move."""
        made = remove_keyword(module, node.func.value, "requires_grad")
        return [made, insert_behind(module, node, ".requires_grad_()")]


def _is_no_op_move(module: SourceModule, move: ast.Call, maker: ast.Call) -> bool:
    """Tell `.float()` of what is float32 and `.cpu()` of what is there already: they return the tensor itself."""
    method = method_of(move)
    inner = maker.args[0] if maker.args and isinstance(maker.args[0], ast.Call) else maker
    words = {word.arg for each in (maker, inner) for word in each.keywords}
    if method == "float":
        named = (module.qualify(inner.func) or "").removeprefix("torch.")
        return "dtype" not in words and named in (
            "rand",
            "randn",
            "zeros",
            "ones",
            "empty",
            "eye",
            "linspace",
        )
    target = literal(module, argument(move, 0, "device"))
    return "device" not in words and (method == "cpu" or (method == "to" and target == "cpu"))


def _is_move_to_source_device(module: SourceModule, move: ast.Call, maker: ast.Call) -> bool:
    """Tell `Parameter(w.data.clone()).to(w.device)`: what is computed of w alone is there already, and is given back itself."""
    target = move.args[0] if len(move.args) == 1 and not move.keywords else None
    if method_of(move) != "to" or not isinstance(target, ast.Attribute) or target.attr != "device":
        return False
    if any(word.arg in ("device", "dtype") for word in maker.keywords):
        return False
    source: ast.expr | None = maker
    while source is not None and dotted_name(source) != dotted_name(target.value):
        source = _source_tensor(module, source)
    return source is not None


def _source_tensor(module: SourceModule, value: ast.expr) -> ast.expr | None:
    """Return w of `w.data`, `w.clone()`, `torch.zeros_like(w)` and `Parameter(w)`; None for a move and for a maker."""
    match value:
        case ast.Attribute(value=held, attr="data"):
            return held
        case ast.Call(func=function, args=args):
            name = module.qualify(function) or ""
            short = name.rpartition(".")[2]
            if name.startswith("torch."):
                takes = short == "Parameter" or short.endswith("_like") or short not in MAKERS
                return args[0] if args and takes else None
            return receiver_of(value) if method_of(value) not in ("to", "cpu", "cuda") else None
    return None


def _is_made_on_cpu_or_converted(module: SourceModule, move: ast.Call, maker: ast.Call) -> bool:
    """Tell whether what is moved was made here, and so on the CPU, or is converted: a move to where it is does nothing."""
    if isinstance(move.func, ast.Attribute) and move.func.attr not in ("to", "cuda"):
        return True
    made_by = module.qualify(maker.func) or ""
    if not maker.args or not (made_by == "torch.nn.Parameter" or made_by.endswith("_like")):
        return True
    made = maker.args[0]
    name = module.qualify(made.func) if isinstance(made, ast.Call) else None
    return (name or "").removeprefix("torch.") in MAKERS


def _is_gradient_used(module: SourceModule, call: ast.Call, *, parameter: bool) -> bool:
    """Tell whether anything asks for the gradient: an optimizer holds the tensor, or `.grad` is read and not retained.

    A parameter that a module keeps is asked for: that is what it is made for.
    """
    statement = module.statement(call)
    name = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    if name is None:
        return False
    if parameter and name.startswith("self."):
        return True
    uses = module.reads(name)
    if "." not in name:
        uses = [each for each in uses if module.scope(each) is module.scope(call)]
    read = {above.attr for use in uses if isinstance(above := module.parents[use], ast.Attribute)}
    if "retain_grad" in read:
        return False
    return "grad" in read or any(_is_in_optimizer(module, use) for use in uses)


def _is_in_optimizer(module: SourceModule, use: ast.expr) -> bool:
    """Tell `SGD([w])`, be it by a list with a name of its own, to which `w` may be appended."""

    def later_uses(each: ast.expr) -> list[ast.expr]:
        names = _names_filled(module.statement(each))
        return [read for name in names for read in module.reads(name) if read.lineno > each.lineno]

    return any(_is_given_to_optimizer(module, each) for each in walk_each_once([use], later_uses, MAX_LISTS))


def _is_given_to_optimizer(module: SourceModule, use: ast.expr) -> bool:
    for above in module.ancestors(use):
        if isinstance(above, ast.stmt):
            return False
        if isinstance(above, ast.Call) and module.kind(above) == "optimizer":
            return True
    return False


def _names_filled(statement: ast.stmt) -> list[str]:
    """Return what a statement gives a value, or calls a method of."""
    lists = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AugAssign):
        lists = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        lists = [statement.value.func.value] if isinstance(statement.value.func, ast.Attribute) else []
    return [each for target in lists if (each := dotted_name(target)) is not None]


def _is_already_on_device(module: SourceModule, move: ast.Call, maker: ast.Call) -> bool:
    """Tell `nn.Parameter(x.to(device)).to(device)`, and what is made on that device or like something that is there."""
    inner = maker.args[0] if maker.args else None
    device = argument(maker, None, "device")
    if device is not None and not move.keywords and len(move.args) == 1:
        return ast.dump(device) == ast.dump(move.args[0])
    if inner is None or device is not None:
        return False
    taken = inner if not isinstance(inner, ast.Call) else receiver_of(inner)
    moves = [inner, *(module.definitions(taken) if taken is not None else [])]
    known = [each for each in moves if each is not None]
    return (isinstance(inner, ast.Call) and _is_same_move(inner, move)) or (
        len(known) > 1 and all(_is_same_move(each, move) for each in known[1:]) and None not in moves
    )


def _is_same_move(made: ast.expr, move: ast.Call) -> bool:
    if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Attribute):
        return False
    assert isinstance(move.func, ast.Attribute)
    same = [ast.dump(each) for each in made.args] == [ast.dump(each) for each in move.args]
    return made.func.attr == move.func.attr and same and not made.keywords and not move.keywords
