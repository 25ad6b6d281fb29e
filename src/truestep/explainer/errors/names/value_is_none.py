# SPDX-License-Identifier: Apache-2.0
import ast
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import made_at_line_phrase


class ValueIsNone(Explainer):
    """None is indexed, looped over, called or computed with.

    Means: something gave nothing where a value was expected: a function without return, a search without a match, an option
    not set.

    Raises:
        gradient = torch.zeros(1, requires_grad=True).grad
        gradient[0]

    Works:
        weights = torch.zeros(1, requires_grad=True)
        weights.sum().backward()
        weights.grad[0]

    Fix: look at the line that made the value: return in every branch of its function, .grad only after backward(), a file
    or key that
    was not found, an argument left at its default.

    Cases:
        `of=Run;`: {name} is None until run.log writes the metric that ts.Saving(best=...) names, and where none is named.
            Fix: write if {name} is None or value < {name}: (> where a higher value is better).
        otherwise: `{name}` is None{made}.
    """

    types = ("TypeError", "RuntimeError")
    messages = (
        r"'NoneType' object is not (?P<what>subscriptable|iterable|callable)",
        r"object of type 'NoneType' has no len\(\)",
        r"'[<>]=?' not supported between instances of (?:'NoneType' and '\w+'|'\w+' and 'NoneType')",
        r"Could not infer dtype of NoneType",
        r"type NoneType doesn't define __round__ method",
        r"(?:float|int)\(\) argument must be .*, not 'NoneType'",
        r"unsupported format string passed to NoneType\.__format__",
        r"unsupported operand type\(s\) for [^:]+: (?:'NoneType' and '\w+'|'\w+' and 'NoneType')",
    )
    not_in_a_log = "which value is None, where the line names several"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        if (asked := _run_best_on_line(crash)) is not None:
            return {"name": asked, "of": "Run"}
        empty = next((each.name for each in crash.values if each.value is None), None)
        if empty is None:
            return {}
        return {
            "name": empty,
            "made": made_at_line_phrase(crash.made(empty)).replace(", made at", ", set at"),
        }


def _run_best_on_line(crash: Crash) -> str | None:
    """Return `run.best`, as it is written, where the line asks for it and there is none; a run's own property runs no code else."""
    for each in crash.written(ast.Attribute):
        owner: Any = (
            crash.user.lookup(each.value.id) if isinstance(each.value, ast.Name) and crash.user else None
        )
        is_run = type(owner).__module__ == "truestep.run.run" and type(owner).__name__ == "Run"
        if each.attr == "best" and is_run and owner.best is None:
            return ast.unparse(each)
    return None
