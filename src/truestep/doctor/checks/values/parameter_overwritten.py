# SPDX-License-Identifier: Apache-2.0
"""A parameter whose value is replaced before anything reads it."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.live_variables import names_read, value_uses
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, is_none, is_self, last_part, receiver_of, walk

_SENTENCE = 5  # words of a comment that says why, with its mark


class ParameterOverwritten(SourceCheck):
    """A function gives one of its parameters a value of its own before it reads what it was called with.

    Why: whatever the caller gives has no effect.

    Bad:
        def noisy(images, strength):
            strength = 0.1  # here
            return images + strength * torch.randn_like(images)

        images = noisy(x, strength=0.5)

    Good:
        def noisy(images, strength):
            return images + strength * torch.randn_like(images)

        images = noisy(x, strength=0.5)

    Fix: delete the assignment, or the parameter.

    Evidence: 186 repositories, beds A, B, C, D, F, G, H, I, M, P, R, T, U, V, W, X, Y: 24 true, 14 debatable, 6
    false.
    """

    code = "VALUE013"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such an assignment where a call in the program gives the parameter a value."""
        if "torch" not in module.text:
            return
        for function in module.named_functions:
            yield from _find_loops_over_other_loader(module, function)
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            stored = _first_assignments_by_name(module, function)
            for name in [each.arg for each in arguments if each.arg in stored]:
                if name in value_uses(module, function).read_at_start or name.startswith("_"):
                    continue
                given = [argument_for(function, call, name) for call in module.functions.callers(function)]
                own = [each for each in given if each is not None and not is_none(each)]
                if _is_default_of_parameter(
                    function, name, stored[name].value
                ) or _is_parameter_of_other_classes(module, function, name):
                    continue
                if own and all(
                    _is_argument_kept_on_self(module, function, each)
                    or _is_same_value_as_given(module, stored[name].value, each)
                    or _is_used_in_other_arguments(module, each)
                    for each in own
                ):
                    continue
                if any(each not in [*function.args.defaults, *function.args.kw_defaults] for each in own):
                    text = f"{name!r} is replaced before anything reads what the caller gave."
                    yield At(
                        stored[name], text, ADVICE if _has_comment_on_line(module, stored[name]) else RISK
                    )


def _has_comment_on_line(module: SourceModule, store: ast.Assign) -> bool:
    """Tell a comment on the same line: whoever replaces it says why."""
    rest = module.lines[(store.end_lineno or store.lineno) - 1].encode()[store.end_col_offset or 0 :]
    return rest.strip().startswith(b"#") and len(rest.split()) >= _SENTENCE


def _find_loops_over_other_loader(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[At]:
    """Report a loop over a loader from outside of a function that is given another one, which nothing in it reads."""
    read = names_read(function)
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    left = [
        each.arg
        for each in arguments
        if each.arg not in read and not _is_parameter_of_other_classes(module, function, each.arg)
    ]
    calls = module.functions.callers(function) if left else []
    for loop in module.directly_in(function, ast.For) if calls else ():
        around = [each for each in walk(loop.iter) if _is_global_or_object_loader(module, each)]
        for name in left if len(around) == 1 else ():
            given = [each for call in calls if (each := argument_for(function, call, name)) is not None]
            loaders = [each for each in given if module.kind(each) == "loader"]
            if loaders and not any(dotted_name(each) == dotted_name(around[0]) for each in given):
                text = f"The loop goes over {dotted_name(around[0])}, and nothing reads {name!r}, the loader that it is given."
                yield At(around[0], text, RISK)


def _is_global_or_object_loader(module: SourceModule, node: ast.AST) -> bool:
    """Tell a loader that is no local variable: one of the file, or of the object."""
    if isinstance(node, ast.Attribute):
        return is_self(node.value) and module.kind(node) == "loader"
    if not isinstance(node, ast.Name) or module.kind(node) != "loader":
        return False
    return module.names.owner(node.id, module.index.scope_of[node]) is module.tree


def _is_default_of_parameter(
    function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, value: ast.expr
) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(
        zip((each.arg for each in reversed(arguments)), reversed(function.args.defaults), strict=False)
    )
    return name in defaults and ast.dump(defaults[name]) == ast.dump(value)


def _is_argument_kept_on_self(module: SourceModule, function: ast.AST, given: ast.expr) -> bool:
    """Tell `self.rows = self.read(x)` before `self.fit(x)`: the object has what the caller gives."""
    home = module.home(given)
    owner = home.enclosing(given, ast.ClassDef)
    if owner is None or owner is not module.enclosing(function, ast.ClassDef):
        return False
    return isinstance(given, ast.Name) and any(
        each.lineno < given.lineno
        and home.scope(each) is home.scope(given)
        and any(
            isinstance(part, ast.Attribute) and is_self(part.value)
            for target in each.targets
            for part in walk(target)
        )
        and given.id in names_read(each.value)
        for each in home.inside(owner, ast.Assign)
    )


def _is_same_value_as_given(module: SourceModule, value: ast.expr, given: ast.expr) -> bool:
    """Tell `options = parser.parse_args()` where callers give the same anew: the options of the command line."""
    bound = module.home(given).names.bindings(given) if isinstance(given, ast.Name) else []
    made = [each.value for each in bound] or [given]
    return all(
        each is not None
        and _start_of_method_chain(module, each) == _start_of_method_chain(module, value) is not None
        for each in made
    )


def _start_of_method_chain(module: SourceModule, made: ast.expr) -> str | None:
    """Return what a chain of methods begins with: `Options()` of `Options().parse()`, else the call itself."""
    home = module.home(made)
    while (inner := receiver_of(made) if isinstance(made, ast.Call) else None) is not None:
        if home.qualify(made.func) is not None:  # type: ignore[attr-defined]
            break
        made = inner
    return ast.dump(made) if isinstance(made, (ast.Call, ast.Name)) else None


def _is_used_in_other_arguments(module: SourceModule, given: ast.expr) -> bool:
    """Tell `state = load(path)` before `built(state, path)`: the other arguments are what was made of this one."""
    home = module.home(given)
    call = home.parents[given]
    others = call.args if isinstance(call, ast.Call) and isinstance(given, ast.Name) else []
    made = [
        each.value for other in others if isinstance(other, ast.Name) for each in home.names.bindings(other)
    ]
    return any(each is not None and last_part(given) in names_read(each) for each in made)


def _is_parameter_of_other_classes(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> bool:
    """Tell whether other classes have such a method with this parameter: then the callers ask for it."""
    if not isinstance(module.parents.get(function), ast.ClassDef) or function.name == "__init__":
        return False
    others = (each for file in module.program.linked for each in file.named_functions if each is not function)
    return any(
        each.name == function.name
        and isinstance(module.home(each).parents.get(each), ast.ClassDef)
        and name in [argument.arg for argument in each.args.args]
        for each in others
    )


def _first_assignments_by_name(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> dict[str, ast.Assign]:
    """Return where names are first given a value in a function's own body, if that is read later."""
    found: dict[str, ast.Assign] = {}
    read = names_read(function)
    for node in module.inside(function, ast.Assign):
        if module.scope(node) is function:
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id in read:
                    found.setdefault(target.id, node)
    return found
