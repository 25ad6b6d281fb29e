# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class NumberIsText(Explainer):
    """A number is compared or computed with, and is a string.

    Means: settings read from a file or the command line are strings, and YAML reads 1e-3 as one: it wants 1.0e-3.

    Raises:
        settings = {"lr": "1e-3"}
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=settings["lr"])

    Works:
        settings = {"lr": "1e-3"}
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=float(settings["lr"]))

    Fix: turn it into a number where it is read: float(settings["lr"]), type=float in add_argument, 1.0e-3 in YAML.

    Cases:
        otherwise: the argument {argument} is a string.
        otherwise: `{name}` is a string.
    """

    types = ("TypeError",)
    messages = (
        r"'[<>]=?' not supported between instances of (?:'str' and '(?:int|float|Tensor)'|'(?:int|float|Tensor)' and 'str')",
        r"unsupported operand type\(s\) for [^:]+: (?:'str' and '(?:int|float|Tensor)'|'(?:int|float|Tensor)' and 'str')",
        r"can't multiply sequence by non-int of type 'float'",
    )
    not_in_a_log = "which value it is"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        inner = (
            each for frame in reversed(crash.frames) if not frame.is_users for each in frame.locals().items()
        )
        arguments = (name for name, value in inner if type(value) is str and name in _ARGUMENTS)
        if argument := next(arguments, None):
            return {"argument": argument}
        names = [each.name for each in crash.values if type(each.value) is str]
        return {"name": names[0]} if names else {}


_ARGUMENTS = ("lr", "weight_decay", "eps", "momentum")
