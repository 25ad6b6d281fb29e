# SPDX-License-Identifier: Apache-2.0
import ast
import inspect

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import made_at_line_phrase


class ObjectNotCallable(Explainer):
    """A value is called as if it were a function.

    Means: a name that was a function, a class or a layer now holds a value, or an attribute is followed by parentheses.

    Raises:
        loss = nn.CrossEntropyLoss()
        for step in range(2):
            loss = loss(torch.zeros(2, 3), torch.tensor([0, 1]))

    Works:
        criterion = nn.CrossEntropyLoss()
        for step in range(2):
            loss = criterion(torch.zeros(2, 3), torch.tensor([0, 1]))

    Fix: give the function and its result two names (criterion and loss, model and output); leave the parentheses away from
    attributes (x.shape, x.grad, x.dtype); tensors are indexed with brackets: x[0].

    Cases:
        otherwise: `{own}` is of type {type}: this line gave it its own result, and runs again.
        otherwise: `{name}` is of type {type}{made}.
        otherwise: {attribute} is no method. Fix: write {attribute}.
    """

    types = ("TypeError",)
    messages = (r"'(?P<kind>(?!NoneType)[\w.]+)' object is not callable",)
    not_in_a_log = "which name it is, and where it got its value"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        calls = [node.func for node in crash.written(ast.Call)]
        called = {ast.unparse(function) for function in calls}
        kind = match["kind"].rpartition(".")[2]
        for each in crash.values:
            if each.name in called and type(each.value).__name__ == kind:
                if crash.user and crash.user.text.startswith(f"{each.name} = "):
                    return {"own": each.name, "type": kind}
                return {"name": each.name, "type": kind, "made": made_at_line_phrase(crash.made(each.name))}
        attributes = [each for each in calls if isinstance(each, ast.Attribute)]
        known = (
            each for each in attributes if each.attr in _ATTRIBUTES or _is_property_of_owner(crash, each)
        )
        return {"attribute": ast.unparse(found)} if (found := next(known, None)) else {}


def _is_property_of_owner(crash: Crash, written: ast.Attribute) -> bool:
    """Whether an attribute is a property of its owner's class, whatever it gives."""
    if crash.user is None or not isinstance(written.value, ast.Name):
        return False
    owner = crash.user.lookup(written.value.id)
    return isinstance(inspect.getattr_static(type(owner), written.attr, None), property)


_ATTRIBUTES = {"shape", "dtype", "device", "grad", "data", "T", "ndim", "is_cuda", "requires_grad", "grad_fn"}
