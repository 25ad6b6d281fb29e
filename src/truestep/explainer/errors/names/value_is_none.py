# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.evidence import made_at_line
from truestep.explainer.explainer import Crash, Explainer, Match


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
        otherwise: `{name}` is None{made}.
    """

    types = ("TypeError", "RuntimeError")
    messages = (
        r"'NoneType' object is not (?P<what>subscriptable|iterable|callable)",
        r"object of type 'NoneType' has no len\(\)",
        r"'[<>]=?' not supported between instances of (?:'NoneType' and '\w+'|'\w+' and 'NoneType')",
        r"Could not infer dtype of NoneType",
        r"unsupported operand type\(s\) for [^:]+: (?:'NoneType' and '\w+'|'\w+' and 'NoneType')",
    )
    not_in_a_log = "which value is None, where the line names several"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        empty = next((each.name for each in crash.values if each.value is None), None)
        if empty is None:
            return {}
        return {"name": empty, "made": made_at_line(crash.made(empty)).replace(", made at", ", set at")}
