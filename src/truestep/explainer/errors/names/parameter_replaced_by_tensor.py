# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.evidence import running_layer
from truestep.explainer.explainer import Crash, Explainer, Match


class ParameterReplacedByTensor(Explainer):
    """A tensor is assigned to the name of a parameter.

    Means: a module holds parameters under their names, and takes only nn.Parameter or None there.

    Raises:
        layer = nn.Linear(2, 2)
        layer.weight = torch.zeros(2, 2)

    Works:
        layer = nn.Linear(2, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.zeros(2, 2))

    Fix: copy the values into it under torch.no_grad(): layer.weight.copy_(values); write nn.Parameter(values) to have a new one,
    before the optimizer is made. For weights computed in forward use torch.nn.utils.parametrize, or F.linear(x, weight).

    Cases:
        otherwise: {what} {name}{of_layer} was given a {kind}; it takes a {wanted}.
    """

    types = ("TypeError",)
    messages = (
        (
            r"cannot assign '(?P<kind>[\w.]+)' as (?P<what>parameter|child module|buffer) '(?P<name>\w+)' "
            r"\((?P<wanted>[\w.]+) or None"
        ),
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        return {"of_layer": f" of {running_layer(crash)}" if crash.layer is not None else ""}
