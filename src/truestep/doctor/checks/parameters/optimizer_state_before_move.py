# SPDX-License-Identifier: Apache-2.0
"""An optimizer with state, made before the model moves."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.live_variables import are_in_other_arms, reads_followed
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name
from truestep.doctor.source.value_origins import argument_parts

MOVES = operations(numbers="moved rounded")


class OptimizerStateBeforeMove(SourceCheck):
    """Adagrad is made, or another optimizer's state loaded, before the model is moved or converted.

    Why: Adagrad makes its state in its constructor, and a loaded state goes where the parameters are then. (For
    SGD, Adam and most others without a state the order does not matter: .to() keeps the Parameter objects.)

    Bad:
        opt = torch.optim.Adagrad(net.parameters(), lr=0.1)
        net.to("cuda")  # here

    Good:
        net.to("cuda")
        opt = torch.optim.Adagrad(net.parameters(), lr=0.1)

    Fix: move the model first.

    Evidence: the plain form of row 68 of docs/mistakes.md; 186 repositories, beds E, H, M, N: 4 true, 3 false.
    """

    code = "PARAM007"
    words = ("Adagrad", "load_state_dict")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a move, in the same block, of the module whose parameters an Adagrad holds."""
        for made, since in _optimizers_with_state(module):
            if _is_state_moved_manually(module, since):
                continue
            held = {
                dotted_name(each.func.value)  # type: ignore[attr-defined]
                for each in argument_parts(module, made)
                if _asks_parameters(each)
            }
            reached = [
                each for each in module.method_calls(*MOVES) if not are_in_other_arms(module, since, each)
            ]
            block = module.parents[module.statement(made)]
            for move in sorted(reached, key=lambda call: call.lineno):
                base = move.func.value if isinstance(move.func, ast.Attribute) else move
                same_block = module.parents[module.statement(move)] is block
                if (
                    same_block
                    and _line_and_column(move) > _line_and_column(since)
                    and dotted_name(base) in held - {None}
                ):
                    yield At(
                        move,
                        f"The model moves after the optimizer got its state on line {since.lineno}.",
                        RISK,
                    )
                    break


def _optimizers_with_state(module: SourceModule) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield the optimizers that have a state from some line on: Adagrad's own, or one that is loaded."""
    for call in module.calls("torch.optim.Adagrad"):
        yield call, call
    for load in module.method_calls("load_state_dict"):
        held = load.func.value if isinstance(load.func, ast.Attribute) else load
        for made in module.definitions(held):
            if isinstance(made, ast.Call) and module.kind(made) == "optimizer":
                yield made, load


def _is_state_moved_manually(module: SourceModule, load: ast.Call) -> bool:
    """Tell whether the tensors of a state are gone through behind its loading, here or in a function that is given it."""
    held = dotted_name(load.func.value) if isinstance(load.func, ast.Attribute) else None
    later = [each for each in module.reads(held or "") if _line_and_column(each) > _line_and_column(load)]
    uses = [use for each in later for use in reads_followed(module, each)]
    asked = [above for each in uses if isinstance(above := module.parents[each], ast.Attribute)]
    return any(each.attr == "state" and module.enclosing(each, ast.For) is not None for each in asked)


def _line_and_column(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _asks_parameters(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters"
    )
