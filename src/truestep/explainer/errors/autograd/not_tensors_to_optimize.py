# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Explainer, Match


class NotTensorsToOptimize(Explainer):
    """An optimizer is given something else than parameters.

    Means: it takes an iterable of tensors, or a list of dicts with "params"; a model, a list of generators or a method is none.

    Raises:
        first, second = nn.Linear(2, 2), nn.Linear(2, 2)
        torch.optim.SGD([first.parameters(), second.parameters()], lr=0.1)

    Works:
        first, second = nn.Linear(2, 2), nn.Linear(2, 2)
        torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)

    Fix: write model.parameters() with its parentheses; of several models [*a.parameters(), *b.parameters()], or groups
    [{"params": a.parameters(), "lr": 1e-3}, {"params": b.parameters()}]; one tensor goes into a list.

    Cases:
        `parameters;` or `generator;`: a generator of parameters stands inside the list.
            Fix: unpack it: [*a.parameters(), *b.parameters()].
        `kind=method;`: parameters was not called. Fix: write model.parameters().
        `Tensor;`: one tensor was passed. Fix: write [tensor].
        `kind=tuple;`: named_parameters() gives names with the tensors. Fix: write model.parameters().
        `.nn.`: the layer itself ({class_}) was passed. Fix: write layer.parameters().
        otherwise: one of them is of type {kind}.
    """

    types = ("TypeError",)
    messages = (
        r"optimizer can only optimize Tensors, but one of the params is (?P<kind>(?:\w+\.)*(?P<class_>\w*))",
        r"params argument given to the optimizer should be an iterable of .*, but got (?P<kind>(?:\w+\.)*(?P<class_>\w*))",
        r"'(?P<kind>method)' object is not iterable",
    )

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Leave a method that something else loops over to others."""
        found = super().match(crash)
        asked = any("optim" in frame.path or "parameters" in frame.text for frame in crash.frames)
        return found if found is None or found["kind"] != "method" or asked else None
