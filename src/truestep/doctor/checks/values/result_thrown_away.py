# SPDX-License-Identifier: Apache-2.0
"""`scores.masked_fill(mask, 0)` as a statement: a new value that nobody takes."""

import ast
from collections.abc import Iterator
from itertools import takewhile

from truestep.doctor.check import ADVICE, BUG, QUESTION, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import MAKERS, OF_TENSORS_ALONE, operations
from truestep.doctor.source.cached_questions import mentions_torch
from truestep.doctor.source.live_variables import is_behind_exit
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, is_self, last_part, method_of, receiver_of, walk
from truestep.doctor.source.training_actions import BACKWARD, CLEAR, EVALUATE, SCHEDULE, STEP, TRAIN
from truestep.doctor.source.value_origins import argument, constant, value_origins

_OPERATIONS = operations(graph="kept zero cut") - operations(numbers="itself moved drawn filled copied")
_SHAPES = operations(numbers="kept home moved rounded whole indices", shape="same other turned")  # of DEV005
_OF_TABLES = ("dropna", "fillna", "reset_index", "set_index", "sort_values", "drop_duplicates")  # pandas
_OF_TEXTS = ("strip", "rstrip", "lstrip", "lower", "upper")
_LENGTH_KEPT = operations(shape="same broadcast") | frozenset(
    ("masked_fill", "sorted", "fillna", "reset_index", "sort_values", "lower", "upper")
)
_KNOWN = ("torch", "numpy", "pandas", "tensorflow")  # whose methods of these names change nothing
_REDUCED = operations(numbers="averaged reduced")
_NOT_OF_OPERATIONS = frozenset(("KeyboardInterrupt", "SystemExit", "GeneratorExit", "StopIteration"))
_NOTED = 4  # values that a page shows and drops
_ARITHMETIC = ast.Add | ast.Sub | ast.Mult | ast.Div


class ResultThrownAway(SourceCheck):
    """A new value is computed in a line of its own, and nothing takes it; or a step is named and not called.

    Why: the operation changes nothing where it stands: what follows goes on with the old value.

    Bad:
        class Attention(nn.Module):
            def forward(self, query, key, value, mask):
                scores = query @ key.transpose(1, 2)
                scores.masked_fill(mask, float("-inf"))  # here
                return scores.softmax(-1) @ value

    Good:
        class Attention(nn.Module):
            def forward(self, query, key, value, mask):
                scores = query @ key.transpose(1, 2)
                scores = scores.masked_fill(mask, float("-inf"))
                return scores.softmax(-1) @ value

    Fix: assign the result, or use the form that ends with an underscore. A method needs its parentheses: loss.backward().

    Evidence: 186 repositories, beds E, F, G, H, K, L, M, O, P, R, S, U, V, W, X, Y: 58 true, 20 debatable, 24
    false.
    """

    code = "VALUE028"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report statements that are a pure operation, a comparison or a layer's output, and no more."""
        if not module.program.answer(mentions_torch):
            return
        notes = _display_lines_of_notes(module)
        for statement in module.all(ast.Expr):
            value = statement.value
            if (
                statement in module.shown
                or _is_tried_or_timed(module, statement)
                or is_behind_exit(module, statement)
            ):
                continue
            if isinstance(value, ast.Call) and not _has_out_or_inplace_argument(value):
                text = _pure_operation_name(module, value)
                if text is not None:
                    severity = _severity(module, statement, value, notes)
                    yield At(statement, f"{text} gives a new value, and nothing takes it.", severity)
                elif _is_stateless_torch_layer(module, value):
                    yield At(statement, f"Nothing takes the output of {ast.unparse(value.func)}.", RISK)
            elif isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq) and len(value.ops) == 1:
                if _is_name_attribute_or_item(value.left):
                    yield At(statement, f"This compares {ast.unparse(value.left)} and assigns nothing.", BUG)
            elif (text := _idle_expression_message(module, value)) is not None:
                is_shown = isinstance(value, ast.BinOp) and _is_line_of_notes(module, statement, notes)
                yield At(statement, text, QUESTION if is_shown else BUG)


def _idle_expression_message(module: SourceModule, value: ast.expr) -> str | None:
    """Return what to say of an expression that calls nothing; None where it may do something."""
    if isinstance(value, ast.Attribute) and _is_uncalled_training_method(module, value):
        return f"{ast.unparse(value)} is named, and not called: it lacks its parentheses."
    if (
        isinstance(value, ast.BinOp)
        and isinstance(value.op, _ARITHMETIC)
        and _is_name_attribute_or_item(value.left)
    ):
        return "This is computed, and nothing takes it."
    return None


def _is_uncalled_training_method(module: SourceModule, method: ast.Attribute) -> bool:
    """Tell `loss.backward` and `optimizer.step` as statements, by what the doctor follows of a training."""
    return any(
        method.attr in action.names
        and (action.receivers is None or module.kind(method.value) in action.receivers)
        for action in _STEPS_OF_TRAINING
    )


_STEPS_OF_TRAINING = (BACKWARD, CLEAR, STEP, SCHEDULE, EVALUATE, TRAIN)


def _severity(module: SourceModule, statement: ast.Expr, call: ast.Call, notes: list[ast.Expr]) -> Severity:
    if _is_only_length_read(module, statement, call):
        return ADVICE
    if _is_line_of_notes(module, statement, notes):
        return QUESTION
    return RISK if _is_read_without_space(module, call) else BUG


def _is_read_without_space(module: SourceModule, call: ast.Call) -> bool:
    """Tell spaces that are cut off in vain, and what is read of the text takes none: its parts, or its number."""
    text = receiver_of(call)
    given = [constant(each) for each in call.args]
    is_space = all(isinstance(each, str) and not each.strip() for each in given)
    if (
        not isinstance(text, ast.Name)
        or method_of(call) not in ("strip", "lstrip", "rstrip", "replace")
        or not is_space
    ):
        return False
    scope = module.scope(text)
    later = [
        each for each in module.reads(text.id) if module.scope(each) is scope and each.lineno > call.lineno
    ]
    return bool(later) and all(_takes_no_space(module.parents[each]) for each in later)


def _takes_no_space(above: ast.AST) -> bool:
    """Tell `text.split()`, `int(text)` and `float(text)`."""
    return (isinstance(above, ast.Attribute) and above.attr == "split") or (
        isinstance(above, ast.Call) and dotted_name(above.func) in ("int", "float")
    )


def _display_lines_of_notes(module: SourceModule) -> list[ast.Expr]:
    """Return the lines at the top of a file that only show a value, if these are so many and so different that it is notes.

    One of them is a value that nobody would write back: a bare place, or a mean.
    """
    lines = [each for each in getattr(module.tree, "body", []) if isinstance(each, ast.Expr)]
    told = {line: _displayed_expression_name(module, line.value) for line in lines}
    shown = [line for line, name in told.items() if name]
    is_show = any(
        _is_name_attribute_or_item(line.value) or last_part(_called_function(line)) in _REDUCED
        for line in shown
    )
    return shown if is_show and len({told[line] for line in shown}) >= _NOTED else []


def _called_function(line: ast.Expr) -> ast.expr:
    return line.value.func if isinstance(line.value, ast.Call) else line.value


def _displayed_expression_name(module: SourceModule, value: ast.expr) -> str:
    """Return what tells a bare place, or a call of torch's or numpy's that only computes, from others; "" for other lines."""
    if isinstance(value, ast.Call):
        library, _, name = (module.qualify(value.func) or "").rpartition(".")
        computes = name in _OPERATIONS - MAKERS and not _has_out_or_inplace_argument(value)
        return f"{library}.{name}" if library in ("torch", "numpy") and computes else ""
    is_sum = isinstance(value, ast.BinOp) and _is_name_attribute_or_item(value.left)
    return ast.unparse(value) if is_sum or _is_name_attribute_or_item(value) else ""


def _is_line_of_notes(module: SourceModule, statement: ast.Expr, notes: list[ast.Expr]) -> bool:
    """Tell a line on a page of notes that has another such line above or below it, or shows what the line above has stored."""
    if statement not in notes:
        return False
    body = module.tree.body
    place = body.index(statement)
    above = body[place - 1] if place else None
    if isinstance(above, ast.Assign) and isinstance(statement.value, ast.BinOp):
        return ast.unparse(statement.value.left) in map(ast.unparse, above.targets)
    return any(each in notes for each in [*body[max(place - 1, 0) : place], *body[place + 1 : place + 2]])


def _is_only_length_read(module: SourceModule, statement: ast.stmt, call: ast.Call) -> bool:
    """Tell a value of which nothing but the length is asked afterwards, which the operation would leave as it is."""
    place = call.func.value if isinstance(call.func, ast.Attribute) else None
    place = call.args[0] if call.args and not isinstance(place, ast.Name) else place
    name = last_part(call.func)
    if not isinstance(place, ast.Name) or name not in _LENGTH_KEPT or _is_in_loop(module, statement):
        return False
    later = [
        each
        for each in module.reads(place.id)
        if module.scope(each) is module.scope(statement) and each.lineno > (statement.end_lineno or 0)
    ]
    return bool(later) and all(_is_read_for_length(module, each) for each in later)


def _is_in_loop(module: SourceModule, statement: ast.stmt) -> bool:
    return any(isinstance(each, (ast.For, ast.While)) for each in module.ancestors(statement))


def _is_read_for_length(module: SourceModule, read: ast.expr) -> bool:
    above = module.parents[read]
    return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "len"


def _is_name_attribute_or_item(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))


def _is_tried_or_timed(module: SourceModule, statement: ast.stmt) -> bool:
    """Tell what is only done to see whether it raises, or how long it takes."""
    scope = module.scope(statement)
    name = getattr(scope, "name", "").lower()
    within = takewhile(lambda each: each is not scope, module.ancestors(statement))
    tried = any(isinstance(each, ast.Try) and _is_try_around_operation(module, each) for each in within)
    return tried or "test" in name or "bench" in name or "check" in name


def _is_try_around_operation(module: SourceModule, block: ast.Try) -> bool:
    """Tell a block that waits for what an operation raises: not one around a whole training, nor one for Ctrl+C alone."""
    training = module.program.training_loops()
    if any(each in training for part in block.body for each in walk(part)):
        return False
    named = [each.type for each in block.handlers]
    return any(each is None or not set(_exception_names(each)) <= _NOT_OF_OPERATIONS for each in named)


def _exception_names(caught: ast.expr) -> list[str]:
    each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return [last_part(part) or "" for part in each]


def _has_out_or_inplace_argument(call: ast.Call) -> bool:
    return any(each.arg in ("out", "inplace", None) for each in call.keywords)


def _pure_operation_name(module: SourceModule, call: ast.Call) -> str | None:
    """Return what a call computes if that is all that it does."""
    name = module.qualify(call.func) or ""
    last = name.rsplit(".", 1)[-1]
    if name in functions("gives an array anew") or name == "sorted":
        return None if _is_last_argument_output(name, len(call.args)) else name
    if name.startswith(("torch.", "torch.nn.functional.")) and call.args:
        own = name in (f"torch.{last}", f"torch.nn.functional.{last}")
        known = own and last in (_OPERATIONS | OF_TENSORS_ALONE) - MAKERS
        return name if known and len(call.args) + len(call.keywords) < 4 else None
    if (
        not isinstance(call.func, ast.Attribute)
        or module.functions.called(call) is not None
        or name.count(".") == 1
    ):
        return None
    return f"{call.func.attr}()" if _is_pure_method(module, call, call.func) else None


def _is_pure_method(module: SourceModule, call: ast.Call, function: ast.Attribute) -> bool:
    method, held = function.attr, function.value
    if _is_last_argument_output(
        f"numpy.{method}", len(call.args) + 1
    ):  # of the function, the array itself is the first
        return False
    if (
        module.classes.of(held) is not None
        or _is_instance_of_unseen_class(module, held)
        or (isinstance(held, ast.Call) and method not in OF_TENSORS_ALONE)
    ):
        return False
    if (
        method in OF_TENSORS_ALONE - _SHAPES
        or method in _OF_TABLES
        or (method in _OF_TEXTS and len(call.args) < 2)
    ):
        return True
    if method == "replace" and len(call.args) == 2 and isinstance(call.args[0], ast.Constant):
        return isinstance(call.args[0].value, str)
    return False


def _is_instance_of_unseen_class(module: SourceModule, held: ast.expr) -> bool:
    """Tell what a class made that is imported from where nobody looks: its method of that name may change it."""
    made = [each for each in value_origins(module, held) if isinstance(each, ast.Call)]
    names = [module.qualify(each.func) or "" for each in made]
    return any(
        name.rpartition(".")[2][:1].isupper() and name.partition(".")[0] not in _KNOWN for name in names
    )


def _is_last_argument_output(name: str, num_given: int) -> bool:
    """Tell `np.clip(a, 0, 1, a)`: the last of so many is the array that is written to."""
    places = {2: "2nd", 3: "3rd", 4: "4th"}
    return num_given in places and name in functions(f"writes to its {places[num_given]} argument")


def _is_stateless_torch_layer(module: SourceModule, call: ast.Call) -> bool:
    """Tell a layer of torch's own that keeps no statistics and does not write to what it is given."""
    layer = call.func
    place = isinstance(layer, ast.Attribute) and is_self(layer.value)
    if not place or not call.args or module.functions.target(call) is not None:
        return False
    made = module.definitions(layer)
    return bool(made) and all(
        isinstance(each, ast.Call) and _is_layer_without_state(module, each) for each in made
    )


def _is_layer_without_state(module: SourceModule, made: ast.Call) -> bool:
    """Tell a layer, or a container of such layers alone, that a call leaves as it was."""
    name = module.qualify(made.func) or ""
    if name in ("torch.nn.Sequential", "torch.nn.ModuleList"):
        return all(isinstance(each, ast.Call) and _is_layer_without_state(module, each) for each in made.args)
    if name.startswith("torch.nn.Lazy"):
        return False  # the first call decides its shapes
    switch = argument(made, None, "inplace")
    switched = [each for each in made.args if isinstance(each, ast.Constant) and each.value is True]
    return name.startswith("torch.nn.") and "Norm" not in name and switch is None and not switched
