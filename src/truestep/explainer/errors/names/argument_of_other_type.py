# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class ArgumentOfOtherType(Explainer):
    """A function of torch gets an argument of a type it does not take, often a size that is no integer.

    Means: sizes are integers: n / 2 is a float in Python, n // 2 an integer; dtypes and devices are not strings everywhere.

    Raises:
        width = 8
        layer = nn.Linear(width / 2, 3)

    Works:
        width = 8
        layer = nn.Linear(width // 2, 3)

    Fix: compare the types in the message with the function's page: int(n) or // for sizes, one number where a tuple or a shape
    was passed (x.shape[1], not x.shape), torch.float32 in place of "float32", a tensor in place of a list.

    Cases:
        `kind=float;`: {what} of type {kind}{needed}. Fix: write // in place of /, or int(...).
        `kind=tuple;`: {what} of type {kind}{needed}.
            Fix: pass one number: x.shape[1] in place of x.shape, or unpack the tuple with *.
        `kind=Size;`: {what} of type {kind}{needed}. Fix: pass one number: x.shape[1] in place of x.shape.
        `kind=NoneType;`: {what} of type {kind}{needed}.
            Fix: look for the option that was not set, or the function without return.
        otherwise: {what} of type {kind}{needed}.
        otherwise: {function} takes no arguments of the types ({types}).
    """

    types = ("TypeError",)
    messages = (
        r"(?P<function>\w+)\(\) received an invalid combination of arguments - got \((?P<given>[^)]{0,300})",
        r"argument '(?P<argument>\w+)' failed to unpack .*type must be [\w ]+, ?but got (?P<kind>[\w.]+)",
        (
            r"argument '(?P<argument>\w+)' (?:\(position \d+\) )?must be (?P<wanted>(?!Tensor|tuple of Tensors)[\w. ]+), "
            r"(?:not|but found element of type) (?P<kind>[\w.]+)"
        ),
    )
    not_in_a_log = "which value on that line it is"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found = match.groupdict()
        if kind := found.get("kind"):
            names = [each.name for each in crash.values if type(each.value).__name__ == kind]
            argument = found.get("argument")
            what = f"`{names[0]}` is" if names else f"the argument{f' {argument}' if argument else ''} is"
            needed = f", and {found['wanted']} is needed" if found.get("wanted") else ""
            return {"what": what, "needed": needed}
        given = " ".join((found.get("given") or "").split()).rstrip(", ")
        return {"types": given} if given else {}
