# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


class IndexNotInteger(Explainer):
    """An index or a slice's end is no integer, mostly the result of a division.

    Means: / gives a float (or a floating tensor) even where it comes out even; positions must be integers.

    Raises:
        scores, half = torch.zeros(4), torch.tensor(4) / 2
        scores[:half]

    Works:
        scores, half = torch.zeros(4), torch.tensor(4) // 2
        scores[:half]

    Fix: divide with // (or int(...)), and convert indices with .long().

    Cases:
        `divides=`: the line divides with /, which gives a float.
            Fix: write // in its place.
    """

    messages = (
        r"only integer tensors of a single element can be converted to an index",
        r"slice indices must be integers or None or have an __index__ method",
        r"only integers, slices \(`:`\), ellipsis \(`\.\.\.`\)",
        r"'float' object cannot be interpreted as an integer",
    )

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        divides = crash.user is not None and "/" in crash.user.text.replace("//", "")
        return {"divides": "yes"} if divides else {}
