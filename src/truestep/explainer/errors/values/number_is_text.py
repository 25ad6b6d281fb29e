# SPDX-License-Identifier: Apache-2.0
"""NumberIsText."""

from truestep.explainer.explainer import Cause, Crash, Explainer, Match


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
    """

    types = ("TypeError",)
    messages = (
        r"'[<>]=?' not supported between instances of (?:'str' and '(?:int|float|Tensor)'|'(?:int|float|Tensor)' and 'str')",
        r"unsupported operand type\(s\) for [^:]+: (?:'str' and '(?:int|float|Tensor)'|'(?:int|float|Tensor)' and 'str')",
        r"can't multiply sequence by non-int of type 'float'",
    )
    not_in_a_log = "which value it is"

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        found = [each.name for each in crash.values if type(each.value) is str]
        given = next(
            (
                f"the argument {name}"
                for frame in reversed(crash.frames)
                if not frame.is_users
                for name, value in frame.locals().items()
                if type(value) is str and name in ("lr", "weight_decay", "eps", "momentum")
            ),
            "",
        )
        return Cause(f"{given or f'`{found[0]}`'} is a string.") if given or found else None
