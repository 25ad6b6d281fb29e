# SPDX-License-Identifier: Apache-2.0
import ast
from contextlib import suppress

from truestep.explainer.explainer import Crash, Explainer, Match


class NumberNotIterable(Explainer):
    """A loop, or a function that takes several values, was given one number.

    Means: len(x), x.size(0) and an epoch count are numbers; a loop needs something that has items: range(n), a list, a loader.

    Raises:
        samples = [1.0, 2.0, 3.0]
        for index in len(samples):
            print(samples[index])

    Works:
        samples = [1.0, 2.0, 3.0]
        for index in range(len(samples)):
            print(samples[index])

    Fix: write range(n) to count to n; to have the items, loop over them: for x in samples, for index, x in
    enumerate(samples). Where a function takes several values (sum, list, zip, torch.stack), give it a list.

    Cases:
        `kind=int;` and `loop=`: the loop goes over {loop}, which is one number.
            Fix: write range({loop}) to count, or loop over the items themselves.
        `loop=`: the loop goes over {loop}, which is one number ({kind}).
        otherwise: a {kind} stands where several values are expected.
    """

    types = ("TypeError",)
    messages = (r"'(?P<kind>int|float|bool)' object is not iterable",)
    not_in_a_log = "which number it is"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        loops = [each.iter for each in crash.written(ast.comprehension)]
        text = crash.user.text.strip() if crash.user else ""
        with suppress(SyntaxError, ValueError):
            loops += [each.iter for each in ast.parse(f"{text} pass").body if isinstance(each, ast.For)]
        return {"loop": ast.unparse(loops[0])} if len(loops) == 1 else {}
