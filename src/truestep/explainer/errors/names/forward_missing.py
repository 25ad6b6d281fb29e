# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match


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

    Cases:
        `kind=ModuleList;` or `kind=ModuleDict;`: nn.{kind} is a container and is not called.
            Fix: loop over it: for layer in self.layers: x = layer(x).
        `trains=`: {kind} has training_step, as a LightningModule does, and no forward: its layers are called there.
            Fix: take the loss from it, model.training_step(batch, index), in a learner net.update(lambda batch:
            net.training_step(batch, 0), batch); or write def forward(self, x) in the class.
        otherwise: {kind} has {close}, but no forward. Fix: rename {close} to forward.
    """

    messages = (r"Module \[(?P<kind>\w+)\] is missing the required \"forward\" function",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        called = crash.frames[-1].locals().get("self") if crash.frames else None
        if hasattr(type(called), "training_step"):
            return {"trains": "yes"}
        names = vars(type(crash.layer.module)) if crash.layer else ()
        close = [name for name in names if name.lower().startswith("fo") and "w" in name]
        return {"close": close[0]} if close else {}
