# SPDX-License-Identifier: Apache-2.0
"""Faults to plant in a correct training script: each is the deletion or exchange of one call."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from truestep.doctor.source.module import SourceModule

CROSS_ENTROPY = "torch.nn.functional.cross_entropy"
REGRESSION = ("torch.nn.MSELoss", "torch.nn.L1Loss", "torch.nn.SmoothL1Loss", "torch.nn.HuberLoss")
BATCH = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}


@dataclass(frozen=True)
class Mutant:
    """A script with one fault in it."""

    mutation: str
    text: str
    codes: frozenset[str]  # any of these names the fault
    lines: tuple[int, ...]  # where it may be reported, within a few lines


class Script:
    """A script's text, and what its calls mean."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.module = SourceModule(text)
        self.lines = text.splitlines()

    def calls(self, method: str) -> list[ast.Call]:
        """Return the calls of a method, by its name."""
        return [
            node
            for node in ast.walk(self.module.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == method
        ]

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that a node is part of."""
        while not isinstance(node, ast.stmt):
            node = self.module.parents[node]
        return node

    def without(self, nodes: list[ast.Call]) -> str | None:
        """Return the text with each call's statement passed over; None where one is more than the call."""
        lines = list(self.lines)
        for statement in {self.statement(node): None for node in nodes}:
            if not isinstance(statement, ast.Expr):
                return None
            first, last = statement.lineno - 1, (statement.end_lineno or statement.lineno) - 1
            if lines[first][: statement.col_offset].strip() or ";" in lines[first]:
                return None
            indent = lines[first][: statement.col_offset]
            lines[first : last + 1] = [f"{indent}pass"] + [""] * (last - first)
        return "\n".join(lines) + "\n"

    def replaced(self, node: ast.expr, new: str) -> str:
        """Return the text with an expression of one line exchanged."""
        line = self.lines[node.lineno - 1].encode()
        changed = line[: node.col_offset] + new.encode() + line[node.end_col_offset :]
        return (
            "\n".join([*self.lines[: node.lineno - 1], changed.decode(), *self.lines[node.lineno :]]) + "\n"
        )


Mutation = Callable[[Script], Iterator[tuple[str | None, set[str], list[int]]]]


def _lines(nodes: list[ast.Call]) -> list[int]:
    return [node.lineno for node in nodes]


def delete_zero_grad(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Delete every zero_grad()."""
    if calls := script.calls("zero_grad"):
        yield script.without(calls), {"GRAD001"}, _lines(script.calls("step") + script.calls("backward"))


def delete_eval(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Delete every eval(), where the model has layers to which the mode matters and is evaluated later."""
    calls = [node for node in script.calls("eval") if not node.args]
    if calls and re.search(r"Dropout|BatchNorm", script.text):
        yield script.without(calls), {"EVAL002"}, [*_lines(calls), *_after(script, calls)]


def _after(script: Script, calls: list[ast.Call]) -> list[int]:
    """The fault shows wherever the model is applied after the first of them."""
    return list(range(calls[0].lineno, len(script.lines) + 1))


def delete_no_grad(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Let each block under no_grad() keep its graph."""
    hits = [
        (block, item)
        for block in ast.walk(script.module.tree)
        if isinstance(block, ast.With) and len(block.items) == 1
        for item in block.items
        if isinstance(item.context_expr, ast.Call)
        and script.module.qualify(item.context_expr.func) in ("torch.no_grad", "torch.inference_mode")
    ]
    if hits:
        text = script.text
        for block, item in hits:
            written = ast.get_source_segment(script.text, item.context_expr)
            text = text.replace(f"with {written}:", "if True:")
            del block
        lines = [line for block, _ in hits for line in range(block.lineno, (block.end_lineno or 0) + 1)]
        # PARAM015: a target or teacher whose gradients nobody uses
        yield text, {"EVAL004", "EVAL002", "MEM001", "GRAD023", "PARAM015"}, lines


def delete_set_epoch(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Delete every set_epoch()."""
    if calls := script.calls("set_epoch"):
        yield (
            script.without(calls),
            {"DIST001"},
            [line for call in calls for line in range(call.lineno - 3, call.lineno + 6)],
        )


def delete_unscale(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Delete every unscale_()."""
    if calls := script.calls("unscale_"):
        yield script.without(calls), {"AMP001"}, _lines(calls)


def swap_the_head(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Give the model a new last layer after its optimizer was made."""
    made = [
        node
        for node in ast.walk(script.module.tree)
        if isinstance(node, ast.Call)
        and (script.module.qualify(node.func) or "").startswith("torch.optim.")
        and "lr_scheduler" not in (script.module.qualify(node.func) or "")
    ]
    for node in made:
        given = node.args[0] if node.args else None
        plain = isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute)
        if not plain or given.func.attr != "parameters" or not isinstance(given.func.value, ast.Name):
            continue
        found = _last_layer(script, given.func.value)
        if found is None:
            continue
        name, layer = found
        statement = script.statement(node)
        if not isinstance(statement, ast.Assign):
            continue
        indent = " " * statement.col_offset
        end = statement.end_lineno or statement.lineno
        new = f"{indent}{given.func.value.id}.{name} = {layer}"
        yield (
            "\n".join([*script.lines[:end], new, *script.lines[end:]]) + "\n",
            {"PARAM005"},
            [statement.lineno, end + 1],
        )
        return


def _last_layer(script: Script, model: ast.Name) -> tuple[str, str] | None:
    """Return the name of the last linear layer that the model's class makes, and how it is written, of constants."""
    owner = script.module.class_of(model)
    if owner is None:
        return None
    found = [
        (each.targets[0].attr, ast.unparse(each.value))
        for each in ast.walk(owner)
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Attribute)
        and isinstance(each.value, ast.Call)
        and script.module.qualify(each.value.func) == "torch.nn.Linear"
        and "self" not in ast.unparse(each.value)
        and not (_names(each.value) & _parameters(owner))
    ]
    return found[-1] if found else None


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _parameters(owner: ast.ClassDef) -> set[str]:
    makers = [each for each in owner.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    return {each.arg for maker in makers for each in maker.args.args}


def softmax_before_the_loss(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Give cross entropy probabilities."""
    for node in _losses(script, (CROSS_ENTROPY, "torch.nn.CrossEntropyLoss")):
        first = node.args[0]
        if first.lineno == first.end_lineno:
            written = ast.unparse(first)
            yield script.replaced(first, f"({written}).softmax(1)"), {"LOSS001"}, [node.lineno]
            return


def squeeze_the_target(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Give a loss of regression a target without its last dimension."""
    for node in _losses(script, (*REGRESSION, *(f"torch.nn.functional.{name}" for name in BATCH))):
        second = node.args[1]
        if second.lineno == second.end_lineno:
            yield script.replaced(second, f"({ast.unparse(second)}).squeeze(-1)"), {"LOSS017"}, [node.lineno]
            return


def _losses(script: Script, kinds: tuple[str, ...]) -> Iterator[ast.Call]:
    """Yield the calls of these losses, whether functions or criteria that were made before."""
    for node in ast.walk(script.module.tree):
        if not isinstance(node, ast.Call) or len(node.args) != 2:
            continue
        if script.module.qualify(node.func) in kinds:
            yield node
        elif isinstance(node.func, ast.Name | ast.Attribute):
            made = script.module.definitions(node.func)
            if made and all(
                isinstance(each, ast.Call) and script.module.qualify(each.func) in kinds for each in made
            ):
                yield node


def swap_zero_grad_and_backward(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Clear gradients between backward and step."""
    for clear in script.calls("zero_grad"):
        following = [node for node in script.calls("backward") if 0 < node.lineno - clear.lineno <= 10]
        if not following:
            continue
        first, second = script.statement(clear), script.statement(following[0])
        if first.col_offset != second.col_offset or not isinstance(second, ast.Expr):
            continue
        text = script.without([clear])
        if text is None:
            continue
        lines = text.splitlines()
        lines.insert(second.end_lineno or second.lineno, script.lines[first.lineno - 1])
        yield "\n".join(lines) + "\n", {"GRAD002"}, [(second.end_lineno or 0) + 1]
        return


def delete_step(script: Script) -> Iterator[tuple[str | None, set[str], list[int]]]:
    """Delete the only step of the only optimizer."""
    steps = [node for node in script.calls("step") if re.search("opt", ast.unparse(node.func), re.IGNORECASE)]
    if len(steps) == 1 and not steps[0].args:
        yield script.without(steps), {"GRAD007"}, _lines(script.calls("backward"))


MUTATIONS: tuple[Mutation, ...] = (
    delete_zero_grad,
    delete_eval,
    delete_no_grad,
    delete_set_epoch,
    delete_unscale,
    swap_the_head,
    softmax_before_the_loss,
    squeeze_the_target,
    swap_zero_grad_and_backward,
    delete_step,
)


def mutants(text: str) -> Iterator[Mutant]:
    """Yield every mutant of a script, at most one of each mutation."""
    script = Script(text)
    for mutation in MUTATIONS:
        for mutant, codes, lines in mutation(script):
            if mutant is None:
                continue
            try:
                ast.parse(mutant)
            except SyntaxError:
                continue
            yield Mutant(mutation.__name__, mutant, frozenset(codes), tuple(lines))
            break
