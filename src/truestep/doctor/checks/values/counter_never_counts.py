# SPDX-License-Identifier: Apache-2.0
"""A count that is asked for and never moves, or moves and is not asked."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted
from truestep.doctor.source.signatures import called
from truestep.doctor.source.uses import names_read
from truestep.doctor.source.values import constant

_COUNTS = re.compile(
    r"^(num_|n_|global_|cur(rent)?_|total_)?(updates?|steps?|iters?|iterations?|n_averaged|num_batches|calls)$"
)


class CounterNeverCounts(SourceCheck):
    """A counter begins at 0, what is computed depends on it, and nothing ever adds to it; or another one is asked in its place.

    Why: a warm-up stays at its first value for ever: an average that is to get slower does not, a rate never rises.

    Bad:
        class Average:
            def __init__(self, net):
                self.net, self.updates = copy.deepcopy(net), 0

            def update(self, net):
                decay = min(0.999, (1 + self.updates) / (10 + self.updates))  # here
                for old, new in zip(self.net.parameters(), net.parameters()):
                    old.data.lerp_(new.data, 1 - decay)

    Good:
        class Average:
            def __init__(self, net):
                self.net, self.updates = copy.deepcopy(net), 0

            def update(self, net):
                self.updates += 1
                decay = min(0.999, (1 + self.updates) / (10 + self.updates))
                for old, new in zip(self.net.parameters(), net.parameters()):
                    old.data.lerp_(new.data, 1 - decay)

    Fix: add 1 to it in each update.
    """

    code = "VALUE023"
    words = ("step", "update", "iter", "n_averaged", "calls", "num_batches")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report arithmetic with an attribute that is 0 at all times, and a call given another counter than its own."""
        if "torch" not in module.text:
            return
        for owner in module.classes.values():
            for name in module.attributes(owner):
                if _COUNTS.match(name) and _is_always_zero(module, owner, name):
                    use = next(
                        (each for each in _uses(module, owner, name) if _is_computed_with(module, each)), None
                    )
                    if use is not None:
                        yield At(use, f"{name!r} is 0 at all times: nothing adds to it.", RISK)
        for function in module.functions:
            yield from _exchanged(module, function)


def _is_always_zero(module: SourceModule, owner: ast.ClassDef, name: str) -> bool:
    """Tell whether the only value that the program gives is the first one."""
    bindings = module.resolver.attribute_bindings(owner, name)
    heirs = [each for each in module.resolver.heirs(owner) if name in module.attributes(each)]
    sets = {"setattr", "__dict__", "load_state_dict", "register_buffer"} & module.own_identifiers
    only = len(bindings) == 1 and bindings[0].how in ("assign", "unpack") and constant(bindings[0].value) == 0
    return only and not heirs and not sets and name not in module.index.written and name not in module.texts


def _uses(module: SourceModule, owner: ast.ClassDef, name: str) -> list[ast.Attribute]:
    found = module.attributes_read.get(name, [])
    return [
        each
        for each in found
        if dotted(each) == f"self.{name}" and module.enclosing(each, ast.ClassDef) is owner
    ]


def _is_computed_with(module: SourceModule, use: ast.expr) -> bool:
    return isinstance(module.parents[use], ast.BinOp)


def _exchanged(module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[At]:
    """Yield calls that give another loop's variable for a parameter which has the name of a counter that nothing reads."""
    counted = {
        each.target.id: each
        for each in module.inside(function, ast.AugAssign)
        if isinstance(each.target, ast.Name) and constant(each.value) == 1 and module.scope(each) is function
    }
    unread = {name for name in counted if name not in names_read(function) and _COUNTS.match(name)}
    for call in module.inside(function, ast.Call) if unread else ():
        target = called(module, call)
        for name in unread if isinstance(target, Function) else ():
            given = module.argument_for(target, call, name) if target is not None else None
            if isinstance(given, ast.Name) and given.id != name and _is_loop_s(module, given):
                yield At(
                    call,
                    f"{given.id!r} is given for {name!r}, and nothing reads the {name!r} that is counted.",
                    RISK,
                )


def _is_loop_s(module: SourceModule, name: ast.Name) -> bool:
    return any(each.how == "for" for each in module.bindings(name))
