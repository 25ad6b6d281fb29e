# SPDX-License-Identifier: Apache-2.0
"""ForwardMissing."""

import re

from truestep.explainer.explainer import Cause, Crash, Explainer, Match


class ForwardMissing(Explainer):
    """A module is called that has no forward of its own.

    Means: forward is misspelt, indented into __init__, or the object is a list of layers (nn.ModuleList has none).

    Raises:
        class Net(nn.Module):
            def foward(self, x):
                return x

        Net()(torch.zeros(1))

    Works:
        class Net(nn.Module):
            def forward(self, x):
                return x

        Net()(torch.zeros(1))

    Fix: define forward(self, ...) in the class, at the depth of __init__; go through a ModuleList with a loop, or make it an
    nn.Sequential.
    """

    messages = (r"Module \[(?P<kind>\w+)\] is missing the required \"forward\" function",)

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Also recognise it in torch before 1.13, whose exception has no message."""
        silent = not crash.message and crash.type_names[:1] == ("NotImplementedError",)
        last = crash.frames[-1] if crash.frames else None
        if silent and last is not None and last.path.replace("\\", "/").endswith("nn/modules/module.py"):
            return re.search("(?P<kind>)", "")
        return super().match(crash)

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        kind = match["kind"]
        if not kind:
            return Cause("no forward was found in the class of the object that is called on this line.")
        if kind in ("ModuleList", "ModuleDict"):
            return Cause(
                f"nn.{kind} is a container and is not called.",
                "loop over it: for layer in self.layers: x = layer(x).",
            )
        layer = crash.layer.module if crash.layer else None
        close = (
            [name for name in vars(type(layer)) if name.lower().startswith("fo") and "w" in name]
            if layer
            else []
        )
        return (
            Cause(f"{kind} has {close[0]}, but no forward.", f"rename {close[0]} to forward.")
            if close
            else None
        )
