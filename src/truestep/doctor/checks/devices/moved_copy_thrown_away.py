# SPDX-License-Identifier: Apache-2.0
"""A tensor moved and not kept."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck, Unsure
from truestep.doctor.library.operations import OF_TENSORS_ALONE, operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, receiver_of
from truestep.doctor.source.rewriting import Edits, node_text, replace_node
from truestep.doctor.source.value_origins import constant

_PARTS = ("keys", "values", "items")
_OF_TENSORS = (
    "shape", "dtype", "device", "grad", "data", "T", "mT", "H", "real", "imag", "ndim", "is_cuda", "requires_grad", "layout",
    "grad_fn", "is_leaf", "nbytes", "itemsize", "is_sparse",
)  # fmt: skip

_SHOWN = re.compile(r"#.*(\btensor\(|torch\.Size\(|\[\[)")  # what a manual says a line gives
_TO_DEVICES = ("to", "cuda")
METHODS = operations(numbers="kept home moved rounded whole indices", shape="same other turned")


class MovedCopyThrownAway(SourceCheck):
    """The result of x.to(device), x.float() or x.view(...) of a tensor is thrown away.

    Why: a tensor's methods return a new tensor; only modules are moved in place.

    Bad:
        for x, y in loader:
            x.to("cuda")  # here
            loss = F.cross_entropy(net(x), y)

    Good:
        for x, y in loader:
            x = x.to("cuda")
            loss = F.cross_entropy(net(x), y)

    Fix: x = x.to(device).

    Evidence: JDAI-CV/fast-reid c9bc3ceb projects/FastRT/pybind_interface/market_benchmark.py:41; corpus, 186
    repositories, beds C, D, E, F, H, K, R, T, V, Y: 8 true, 8 debatable, 11 false.
    """

    code = "DEV005"

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report such a call as a statement, on what can be seen to be a tensor."""
        for statement in module.all(ast.Expr):
            call = statement.value
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            if statement in module.shown or (module.qualify(call.func) or "").startswith("torch."):
                continue  # printed by a notebook, or a function of torch and no method
            own = call.func.attr in OF_TENSORS_ALONE and not _is_in_try_or_own_method(module, statement)
            own = own and (call.func.attr != "detach" or _is_tensor_computation(module, call.func.value))
            if call.func.attr in METHODS and (own or _is_tensor(module, call.func.value)):
                if _is_demonstration_line(module, statement, call.func.value):
                    continue
                if _is_mapping_or_graph(module, call.func.value):
                    yield Unsure(call, "what has named parts may move them in place, as batches of texts do")
                    continue
                name = ast.unparse(call.func.value)
                text = f"{name} stays what it was: .{call.func.attr}() returns a new tensor."
                if call.func.attr == "contiguous":  # the numbers and their order are the same
                    yield At(
                        call, f"{name} stays laid out as it was: .contiguous() returns what it made.", ADVICE
                    )
                    continue
                if call.func.attr in _TO_DEVICES and not _is_move_of_batch(module, call):
                    yield At(call, text, ADVICE)  # torch refuses what meets another device, or all is there
                    continue
                yield At(call, text, RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Keep what is returned."""
        return [
            replace_node(module, node, f"{node_text(module, node.func.value)} = {node_text(module, node)}")
        ]


def _is_move_of_batch(module: SourceModule, move: ast.Call) -> bool:
    """Tell a move of a batch; a change of the kind of numbers is none."""
    moved = receiver_of(move)
    found = module.names.bindings(moved) if isinstance(moved, ast.Name) else []
    kinds = [each for each in move.args if (module.qualify(each) or "").startswith("torch.")]
    return bool(kinds) or any(each.how == "for" for each in found)


def _is_demonstration_line(module: SourceModule, statement: ast.Expr, tensor: ast.expr) -> bool:
    """Tell a line whose value stands in a comment behind it, and a tensor that nothing reads from there on."""
    line = module.text.splitlines()[(statement.end_lineno or statement.lineno) - 1]
    if _SHOWN.search(line):
        return True
    if not isinstance(tensor, ast.Name):
        return False
    scope, bound = module.scope(tensor), module.resolver.reaching(tensor)
    loops = [each for each in module.ancestors(statement) if isinstance(each, (ast.For, ast.While))]
    uses = [
        each
        for each in module.reads(tensor.id)
        if not isinstance(module.statement(each), ast.Expr) or _is_read_beyond_display(module, each)
    ]
    return not any(
        module.scope(each) is not scope
        or (
            (each.lineno > statement.lineno or any(loop in module.ancestors(each) for loop in loops))
            and isinstance(each, ast.Name)
            and any(one in bound for one in module.resolver.reaching(each))
        )
        for each in uses
    )


def _is_read_beyond_display(module: SourceModule, read: ast.expr) -> bool:
    """Tell a read that some call is given from `row.repeat(2)`, which shows it and changes nothing."""
    above = module.parents[read]
    shown = isinstance(above, ast.Attribute) and above.attr in (*METHODS, "repeat")
    return not (shown and isinstance(module.parents[module.parents[above]], ast.Expr))


def _is_tensor_computation(module: SourceModule, node: ast.expr) -> bool:
    """Tell what arithmetic gives, or an operation on a tensor: contexts and processes are detached too."""
    made = module.definitions(node)
    return bool(made) and all(
        isinstance(each, ast.BinOp)
        or (isinstance(each, ast.Call) and getattr(each.func, "attr", "") in operations(graph="kept cut"))
        for each in made
    )


def _is_in_try_or_own_method(module: SourceModule, statement: ast.stmt) -> bool:
    """Tell what is done to see whether it raises, and a method that the program defines itself."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    defined = isinstance(call, ast.Call) and module.functions.target(call) is not None
    return defined or any(isinstance(each, ast.Try) for each in module.ancestors(statement))


def _is_tensor(module: SourceModule, node: ast.expr) -> bool:
    """A variable of a loop over a loader, what a module or a function of torch returned."""
    if not isinstance(node, ast.Name):
        return False
    bindings = module.names.bindings(node)
    return bool(bindings) and all(_binds_tensor(module, each.how, each.value) for each in bindings)


def _is_mapping_or_graph(module: SourceModule, node: ast.expr) -> bool:
    """Tell a mapping or a graph from a tensor: `net(**batch)`, `batch["labels"]`, `batch.edge_index`."""
    for use in module.reads(dotted_name(node) or ""):
        outer = module.parents[use]
        if isinstance(outer, ast.keyword) and outer.arg is None:
            return True
        if isinstance(outer, ast.Subscript) and isinstance(constant(outer.slice), str):
            return True
        if isinstance(outer, ast.Attribute) and (
            outer.attr in _PARTS if module.index.is_called(outer) else outer.attr not in _OF_TENSORS
        ):
            return True
    return False


def _binds_tensor(module: SourceModule, how: str, value: ast.expr | None) -> bool:
    if value is None:
        return False
    if how == "for":
        return _is_loader(module, value)
    name = module.qualify(value.func) if isinstance(value, ast.Call) else None
    made = (name or "").count(".") == 1 and (name or "").startswith("torch.")
    applied = isinstance(value, ast.Call) and _is_module(module, value.func)
    is_class = isinstance(value, ast.Call) and module.kind(value) is not None
    return how in ("assign", "unpack") and (made or applied) and not is_class and name != "torch.load"


def _is_module(module: SourceModule, called: ast.expr) -> bool:
    """`net(x)` applies a module; `network()` of a function, of this file or imported, may make one."""
    makes = module.functions.named(called) is not None or module.qualify(called) is not None
    return module.kind(called) in ("module", "ddp") and not makes


def _is_loader(module: SourceModule, source: ast.expr) -> bool:
    while isinstance(source, ast.Call) and source.args and module.kind(source) is None:
        source = source.args[0]  # enumerate(loader), tqdm(loader)
    return module.kind(source) == "loader"
