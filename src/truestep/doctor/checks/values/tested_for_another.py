# SPDX-License-Identifier: Apache-2.0
"""`if a is not None: use(b)`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, dotted, walk
from truestep.doctor.source.questions import mentions_torch
from truestep.doctor.source.uses import arms, names_read, names_stored
from truestep.doctor.source.values import argument, constant


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
        yield from _of_options(module)


def _of_options(module: SourceModule) -> Iterator[At]:
    """Report `if args.a > 0: f(args.b)`, where nothing reads the value of the first and both are of one sort."""
    if not module.of_program(mentions_torch):
        return
    for node in module.all(ast.If):
        asked, is_value = _asked(arms(node)[0])
        if asked is None or not (is_value or _has_value(module, asked.attr)):
            continue
        if any(module.enclosing(each, ast.ClassDef) for each in [asked] if dotted(each.value) == "self"):
            continue
        inside = [each for part in arms(node)[1] for each in walk(part) if isinstance(each, ast.Attribute)]
        beside = [each for each in inside if dotted(each.value) == dotted(asked.value)]
        beside = [
            each
            for each in beside
            if not isinstance(module.parents[each], ast.Call) or each in _given(module, each)
        ]
        alike = [each for each in beside if each.attr != asked.attr and _last(each) == _last(asked)]
        if alike and len(beside) == len(alike) and _only_tested(module, asked.attr):
            text = f"{asked.attr!r} is made sure of and never used; the branch uses {alike[0].attr!r}."
            yield At(node, text, RISK)


def _asked(test: ast.expr) -> tuple[ast.Attribute | None, bool]:
    """Return the option that a test asks for, and whether it compares the option's value."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Attribute):
        of_value = isinstance(test.ops[0], ast.IsNot | ast.Gt) and isinstance(
            test.comparators[0], ast.Constant
        )
        return (test.left, True) if of_value else (None, False)
    return (test if isinstance(test, ast.Attribute) else None), False


def _has_value(module: SourceModule, option: str) -> bool:
    """Tell an option of the command line that is given a value, which is no switch."""
    for call in (each for file in module.linked for each in file.method_calls("add_argument")):
        names = [constant(each) for each in call.args]
        if any(isinstance(each, str) and each.lstrip("-").replace("-", "_") == option for each in names):
            kind = argument(call, None, "type")
            default = constant(argument(call, None, "default"))
            switch = argument(call, None, "action") is not None or isinstance(default, bool | int)
            return not switch and (kind is None or dotted(kind) in ("float", "str", "Path", "pathlib.Path"))
    return False


def _given(module: SourceModule, node: ast.expr) -> list[ast.expr]:
    """Return the arguments of the call around a value."""
    call = module.parents[node]
    return call.args if isinstance(call, ast.Call) else []


def _last(node: ast.Attribute) -> str:
    return node.attr.rsplit("_", 1)[-1]


def _only_tested(module: SourceModule, option: str) -> bool:
    """Tell whether the program reads an option in tests alone."""
    if option in module.texts:
        return False
    for each in module.attributes_read.get(option, ()):
        home = module.home(each)
        above: ast.AST = home.parents[each]
        while isinstance(above, ast.Compare | ast.BoolOp | ast.UnaryOp):
            above = home.parents[above]
        if not isinstance(above, ast.If | ast.IfExp):
            return False
    return True


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
