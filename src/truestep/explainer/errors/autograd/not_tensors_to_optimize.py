# SPDX-License-Identifier: Apache-2.0
"""NotTensorsToOptimize."""

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause, Explainer, Match


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
    """

    types = ("TypeError",)
    messages = (
        r"optimizer can only optimize Tensors, but one of the params is (?P<kind>[\w.]+)",
        r"params argument given to the optimizer should be an iterable of Tensors or dicts, but got (?P<kind>[\w.]+)",
        r"'(?P<kind>method)' object is not iterable",
    )

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Leave a method that something else loops over to others."""
        found = super().match(crash)
        asked = any("optim" in frame.path or "parameters" in frame.text for frame in crash.frames)
        return found if found is None or found["kind"] != "method" or asked else None

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        kind = match["kind"]
        if kind.endswith(("parameters", "generator")):
            return Cause(
                "a generator of parameters stands inside the list.",
                "unpack it: [*a.parameters(), *b.parameters()].",
            )
        if kind == "method":
            return Cause("parameters was not called.", "write model.parameters().")
        if kind.endswith("Tensor"):
            return Cause("one tensor was passed.", "write [tensor].")
        if kind == "tuple":
            return Cause("named_parameters() gives names with the tensors.", "write model.parameters().")
        if ".nn." in kind:
            return Cause(
                f"the layer itself ({kind.rpartition('.')[2]}) was passed.", "write layer.parameters()."
            )
        return Cause(f"one of them is of type {kind}.")
