# SPDX-License-Identifier: Apache-2.0
"""A call that its function refuses."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, BUG, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.elided_code import STANDS_FOR_OTHERS
from truestep.doctor.source.linking import imported_files
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, Function, Scope, dotted_name, last_part, receiver_of
from truestep.doctor.source.signatures import is_left_open
from truestep.doctor.source.value_origins import constant, has_star_args, value_origins

_ONE_BY_ONE = frozenset(
    f"{home}.{name}"
    for name in operations(numbers="rectified activated")
    for home in ("torch", "torch.nn.functional")
)
_LOSS = re.compile(r"^torch\.nn\.\w+Loss$")
_SAME_PARAMETERS = (
    "no_grad",
    "inference_mode",
    "torch.jit.ignore",
    "script_method",
    "staticmethod",
    "classmethod",
)


class ArgumentsThatDoNotFit(SourceCheck):
    """A call gives too few or too many arguments, or one of a name that the function doesn't take.

    Why: Python stops there with a TypeError, on the first run that comes this way: often after an epoch.

    Bad:
        def safe_divide(num_right, num_all):
            return num_right / max(num_all, 1)

        for x, y in loader:
            num_right = (net(x).argmax(1) == y).sum()
            accuracy = safe_divide(num_right / len(y))  # here

    Good:
        def safe_divide(num_right, num_all):
            return num_right / max(num_all, 1)

        for x, y in loader:
            num_right = (net(x).argmax(1) == y).sum()
            accuracy = safe_divide(num_right, len(y))

    Fix: the arguments that the function's first line names.

    Evidence: 186 repositories, beds E, F, G, H, I, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y: 806 true, 41
    debatable, 31 false.
    """

    code = "VALUE040"
    holds_anywhere = True
    words = ("def ", "dim", "Loss(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report calls of functions in sight, and a dimension for a function that works number by number."""
        if "torch" not in module.text:
            return
        for call in module.all(ast.Call):
            if has_star_args(call) or _is_failure_expected(module, call):
                continue
            function = _called_function(module, call)
            text = (
                _argument_mismatch_message(module, function, call)
                if function is not None
                else _torch_argument_message(module, call)
            )
            if text is not None and not _is_abbreviated_call(module, call):
                yield At(
                    call, text, ADVICE if _is_only_called_in_comment(module, module.scope(call)) else BUG
                )


def _is_only_called_in_comment(module: SourceModule, function: Scope) -> bool:
    """Tell a function that nothing calls, or imports, and whose own call stands in a comment: `# test()`."""
    if not isinstance(function, ast.FunctionDef) or module.functions.callers(function):
        return False
    return not module.read_under(function.name) and any(
        line.lstrip("# \t").startswith(f"{function.name}(") and line.lstrip().startswith("#")
        for line in module.lines
    )


def _is_abbreviated_call(module: SourceModule, call: ast.Call) -> bool:
    """Tell a call of a manual that gives some arguments alone: `...` among them, or a comment that stands for the others."""
    if any(constant(each) is Ellipsis for each in call.args):
        return True
    lines = module.text.splitlines()[call.lineno - 1 : call.end_lineno]
    return len(lines) > 1 and any(STANDS_FOR_OTHERS.search(each) for each in lines)


def _called_function(module: SourceModule, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the one function that a call runs, where its parameters are those that it is written with."""
    function = module.functions.target(call)
    if function is None and (owner := module.classes.named(call.func)) is not None:
        function = _plain_init(module, owner)
    if function is None or isinstance(function, ast.Lambda) or _has_several_definitions(module, call.func):
        return None
    if _is_import_fallback(module, function) or (
        module.path.endswith(".md") and _is_method_without_class(module, function)
    ):
        return None
    if _can_be_replaced_by_star_import(module, call):
        return None
    names = [ast.unparse(each) for each in function.decorator_list]
    if not all(each.endswith(_SAME_PARAMETERS) or each.endswith("no_grad()") for each in names):
        return None
    owner = _class_of_method(module, function)
    made = module.classes.named(call.func)
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if last != (made.name if made is not None else function.name):
        return None
    if _may_be_partial(module, call.func, owner):
        return None
    if owner is None or made is not None or _is_super_of_single_base(module, call):
        return function
    instance = isinstance(call.func, ast.Attribute) and _is_instance(module, call.func.value)
    alone = len(module.classes.attributes(owner).get(function.name, [])) == 1
    heirs = any(
        function.name in module.classes.attributes(each) for each in module.classes.subclasses_of(owner)
    )
    return function if instance and alone and not heirs and not is_left_open(function) else None


def _may_be_partial(module: SourceModule, called: ast.expr, owner: Class | None) -> bool:
    """Tell what a call made, or an object was given: a partial has given some of the arguments."""
    return _is_bound_to_call_result(module, called) or (owner is None and _is_given_to_object(module, called))


def _is_given_to_object(module: SourceModule, called: ast.expr) -> bool:
    """Tell what a class keeps of a parameter of its own: `self.mask = mask`."""
    inside = module.enclosing(called, ast.ClassDef)
    name = dotted_name(called)
    if inside is None or name is None or not name.startswith("self."):
        return False
    kept = [
        each.value
        for each in module.inside(inside, ast.Assign)
        if any(dotted_name(target) == name for target in each.targets)
    ]
    return any(
        isinstance(each, ast.Name) and any(one.how == "parameter" for one in module.names.bindings(each))
        for each in kept
    )


def _is_import_fallback(module: SourceModule, function: Function) -> bool:
    """Tell a function of `except ImportError:`, which is run by where the real one is missing alone."""
    return any(isinstance(each, ast.ExceptHandler) for each in module.ancestors(function))


def _is_method_without_class(module: SourceModule, function: Function) -> bool:
    """Tell a method that a page shows without its class."""
    first = function.args.args[:1]
    return _class_of_method(module, function) is None and any(each.arg == "self" for each in first)


def _has_several_definitions(module: SourceModule, name: ast.expr) -> bool:
    """Tell a name that is imported from here or from there, and one that is imported where it is called and defined later."""
    found = module.names.bindings(name) if isinstance(name, ast.Name) else []
    imported = [each for each in found if each.how == "import"]
    if len({ast.unparse(each.node) for each in imported}) > 1:
        return True
    here = module.scope(name) is module.tree
    before = [each for each in found if each.line <= name.lineno] if here else found
    last = max((each.line for each in before), default=0)
    return len(found) > len(imported) and any(each.line == last or not here for each in imported)


def _can_be_replaced_by_star_import(module: SourceModule, call: ast.Call) -> bool:
    """Tell a name behind whose import `from numpy import *` stands, or a magic like `%pylab`: it may bring the name anew."""
    if _is_patched(module, call):
        return True
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    scope = module.scope(call)
    bound = module.names.bindings(root) if isinstance(root, ast.Name) else []
    if not bound or not all(module.scope(each.node) is module.tree for each in bound):
        return False
    first, last = max(each.line for each in bound), call.lineno if scope is module.tree else None
    return any(
        first < each.lineno and (last is None or each.lineno < last)
        for each in module.all(ast.ImportFrom)
        if each.names[0].name == "*" and not imported_files(module.names.find_module, module.tree, [each])
    )


def _is_patched(module: SourceModule, call: ast.Call) -> bool:
    """Tell `patch.object(trainer, "train")`, `monkeypatch.setattr(helpers, "load", fake)` and `patch("app.load")` of its name."""
    key = (_is_patched, module.tree)
    if key not in module.remembered:
        module.remembered[key] = {*_patched_names(module)}
    names: set[str] = module.remembered[key]
    return last_part(call.func) in names


def _patched_names(module: SourceModule) -> Iterator[str]:
    for each in module.all(ast.Call):
        texts = [text for one in each.args[:2] if isinstance(text := constant(one), str)]
        made = ast.unparse(each.func) if texts else ""
        if "patch" in made or made.endswith("setattr"):
            yield from (text.rpartition(".")[2] for text in texts)


def _is_bound_to_call_result(module: SourceModule, name: ast.expr) -> bool:
    """Tell a name that is given what a call makes, be it by another name: `note = partial(helpers.note, sink=sink)`."""

    def assigned_values(each: ast.expr) -> list[ast.expr]:
        if not isinstance(each, (ast.Name, ast.Attribute)):
            return []
        bound = [one for one in module.names.bindings_behind(each) if one.how == "assign"]
        if isinstance(each, ast.Attribute):
            bound += [one for _, one in module.index.written.get(each.attr, [])]
        return [one.value for one in bound if one.value is not None]

    return any(isinstance(each, ast.Call) for each in walk_each_once([name], assigned_values))


def _is_bound_in_class_body(module: SourceModule, name: ast.expr) -> bool:
    """Tell a function that a class is given from outside, which passes the object: `step = step` in the class."""
    owner = module.classes.of(name.value) if isinstance(name, ast.Attribute) else None
    if owner is None or not isinstance(name, ast.Attribute) or not _is_instance(module, name.value):
        return False
    lineage = module.classes.lineage(owner)
    bound = [one for each in lineage for one in module.classes.attributes(each).get(name.attr, [])]
    return any(module.parents.get(each.node) in lineage for each in bound)


def _is_instance(module: SourceModule, node: ast.expr) -> bool:
    """Tell an object, or `self`, from a class and from `super()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return False
    return module.classes.named(node) is None and module.classes.of(node) is not None


def _is_super_of_single_base(module: SourceModule, call: ast.Call) -> bool:
    """Tell `super().__init__(...)` in a class with one base: no other class can come between."""
    inner = receiver_of(call)
    if not (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "super"):
        return False
    own = module.enclosing(call, ast.ClassDef)
    named = not inner.args or (
        isinstance(inner.args[0], ast.Name) and own is not None and inner.args[0].id == own.name
    )
    return named and own is not None and len(own.bases) == 1 and not module.classes.subclasses_of(own)


def _class_of_method(module: SourceModule, function: Function) -> Class | None:
    owner = module.index.parents.get(function)
    return owner if isinstance(owner, ast.ClassDef) else None


def _plain_init(module: SourceModule, owner: Class) -> Function | None:
    """Return `__init__` where nothing else has a say in how an object of the class is made."""
    lineage = module.classes.lineage(owner)
    before = lineage[
        : next((i for i, each in enumerate(lineage) if "__init__" in module.classes.attributes(each)), 0) + 1
    ]
    for each in before:
        if each.decorator_list or each.keywords or "__new__" in module.classes.attributes(each):
            return None
        if len(module.classes.attributes(each).get("__init__", [])) > 1 or (
            each is not before[-1] and len(each.bases) != 1
        ):
            return None
    return (
        module.classes.method(owner, "__init__")
        if "__init__" in module.classes.attributes(before[-1])
        else None
    )


def _is_failure_expected(module: SourceModule, call: ast.Call) -> bool:
    """Tell a call whose failure is expected: in `try`, or beneath `pytest.raises`."""
    for each in module.ancestors(call):
        if isinstance(each, ast.Try) and each.handlers:
            return True
        if isinstance(each, ast.With) and any("raises" in ast.unparse(item) for item in each.items):
            return True
    return False


def _argument_mismatch_message(
    module: SourceModule, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call
) -> str | None:
    """Say what Python would, where the arguments of a call are not those of a function."""
    given = function.args
    ordered = [each.arg for each in [*given.posonlyargs, *given.args]]
    static = any(ast.unparse(each) == "staticmethod" for each in function.decorator_list)
    if (
        _class_of_method(module, function) is not None or _is_bound_in_class_body(module, call.func)
    ) and not static:
        ordered = ordered[1:]
    named = [each.arg for each in given.kwonlyargs]
    keywords = [each.arg for each in call.keywords]
    if len(call.args) > len(ordered) and given.vararg is None:
        return f"{function.name} takes {len(ordered)} arguments by position and is given {len(call.args)}."
    unknown = [each for each in keywords if each not in (*ordered, *named)]
    if unknown and given.kwarg is None:
        return f"{function.name} takes no argument {unknown[0]!r}."
    twice = [each for each in keywords if each in ordered[: len(call.args)]]
    if twice:
        return f"{function.name} is given {twice[0]!r} twice: by position and by name."
    required = ordered[: max(len(ordered) - len(given.defaults), 0)][len(call.args) :]
    required += [name for name, value in zip(named, given.kw_defaults, strict=True) if value is None]
    missing = [each for each in required if each not in keywords]
    return f"{function.name} is not given {missing[0]!r}, which has no default." if missing else None


def _torch_argument_message(module: SourceModule, call: ast.Call) -> str | None:
    """Tell `F.relu(x, dim=1)`: what works on each number by itself takes no dimension; and a loss that is given no target."""
    name = module.qualify(call.func) or ""
    if name in _ONE_BY_ONE and any(each.arg == "dim" for each in call.keywords):
        return f"{name} works on each number by itself: it takes no dim. A softmax takes one."
    return _missing_target_message(module, call)


def _missing_target_message(module: SourceModule, call: ast.Call) -> str | None:
    """Say what `criterion(outputs)` lacks where torch made the loss: each of them is given a target, too."""
    if len(call.args) != 1 or call.keywords or module.qualify(call.func) is not None:
        return None
    made = [call.func] if isinstance(call.func, ast.Call) else list(value_origins(module, call.func))
    names = [module.qualify(each.func) or "" for each in made if isinstance(each, ast.Call)]
    if not names or len(names) != len(made) or not all(_LOSS.match(each) for each in names):
        return None
    return (
        f"{names[0].rpartition('.')[2]} is given {ast.unparse(call.args[0])} alone: it needs the target, too."
    )
