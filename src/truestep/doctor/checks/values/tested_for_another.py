# SPDX-License-Identifier: Apache-2.0
"""`if a is not None: use(b)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, walk
from truestep.doctor.source.uses import arms, names_read, names_stored


class TestedForAnother(SourceCheck):
    """A branch makes sure of one option, and uses another one that is optional too.

    Why: the option that was asked for has no effect, and the other one may be None here.

    Bad:
        def schedules(opt, warmup_steps=None, decay_steps=None):
            decay = warmup = None
            if decay_steps is not None:  # here
                decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=warmup_steps)
            if warmup_steps is not None:
                warmup = torch.optim.lr_scheduler.LinearLR(opt, total_iters=warmup_steps)
            return decay, warmup

    Good:
        def schedules(opt, warmup_steps=None, decay_steps=None):
            decay = warmup = None
            if decay_steps is not None:
                decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=decay_steps)
            if warmup_steps is not None:
                warmup = torch.optim.lr_scheduler.LinearLR(opt, total_iters=warmup_steps)
            return decay, warmup

    Fix: use the option that the branch asks for.
    """

    code = "VALUE009"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a test for None of a name that nothing else reads, over a body that reads another such name."""
        for function in module.functions if "torch" in module.text else ():
            tests = [
                (node, name)
                for node in module.inside(function, ast.If)
                if (name := _made_sure_of(arms(node)[0])) is not None
            ]
            optional = {name for _, name in tests}
            for node, name in tests if len(optional) > 1 else ():
                used = frozenset[str]().union(*(names_read(each) for each in arms(node)[1]))
                own = frozenset[str]().union(*(names_stored(each) for each in arms(node)[1]))
                others: set[str | None] = set((used & optional) - own - {name})
                others -= {
                    _made_sure_of(each.test) for each in module.ancestors(node) if isinstance(each, ast.If)
                }
                inside = [each for part in node.body for each in walk(part)]
                others -= {
                    _made_sure_of(each.test) for each in inside if isinstance(each, ast.If | ast.IfExp)
                }
                if others and not _read_elsewhere(function, name):
                    text = f"{name!r} is made sure of and never used; the branch uses {min(filter(None, others))!r}."
                    yield At(node, text, RISK)


def _made_sure_of(test: ast.expr) -> str | None:
    """Return x for `x is not None` and `exists(x)`."""
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and isinstance(test.left, ast.Name)
    ):
        return test.left.id if ast.unparse(test.comparators[0]) == "None" else None
    if isinstance(test, ast.Call) and dotted(test.func) == "exists" and len(test.args) == 1:
        return dotted(test.args[0])
    return None


def _times_asked(test: ast.expr, name: str) -> int:
    """Return how often a test asks whether a name is there; one that compares it with a value uses it."""
    valued = [
        each
        for each in walk(test)
        if isinstance(each, ast.Compare) and not isinstance(each.ops[0], ast.Is | ast.IsNot)
    ]
    times, compared = (
        sum(isinstance(part, ast.Name) and part.id == name for each in nodes for part in walk(each))
        for nodes in ([test], valued)
    )
    return times - compared


def _read_elsewhere(function: Function, name: str) -> bool:
    """Tell whether more than a test for None reads a name."""
    tests = [each.test for each in walk(function) if isinstance(each, ast.If | ast.IfExp)]
    in_tests = sum(_times_asked(each, name) for each in tests)
    reads = [
        each
        for each in walk(function)
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load)
    ]
    return len(reads) > in_tests
