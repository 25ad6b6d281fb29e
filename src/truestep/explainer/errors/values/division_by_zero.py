# SPDX-License-Identifier: Apache-2.0
import ast

from truestep.explainer.explainer import Crash, Explainer, Match

_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)


class DivisionByZero(Explainer):
    """A sum is divided by a number of samples or batches that is 0.

    Means: nothing was counted: the loader is empty, everything was filtered out, or a length was divided down to 0.

    Raises:
        losses = []
        mean = sum(losses) / len(losses)

    Works:
        losses = [0.5]
        mean = sum(losses) / len(losses)

    Fix: look at why the count is 0: a folder or split without samples, drop_last with fewer samples than a batch, a mask that
    selects nothing, len(loader) // steps. Stop with a message where the data is read.

    Cases:
        otherwise: `{zero}` is 0.
        otherwise: `{empty}` is empty: len({empty}) is 0.
    """

    types = ("ZeroDivisionError",)
    messages = (
        r"(?:float |integer )?(?:division|floor division|divmod\(\)|modulo)(?: or modulo)?(?: by zero)",
    )
    not_in_a_log = "which number is 0"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        divided = [each.right for each in crash.written(ast.BinOp) if isinstance(each.op, _DIVISIONS)]
        divisors = {
            ast.unparse(each) for each in (*divided, *(each.value for each in crash.written(ast.AugAssign)))
        }
        numbers = [
            each for each in crash.values if type(each.value) in (int, float) and each.name in divisors
        ]
        if zero := next((each.name for each in numbers if each.value == 0), None):
            return {"zero": zero}
        empty = next((each.name for each in crash.values if f"len({each.name})" in divisors), None)
        return {"empty": empty} if empty else {}
