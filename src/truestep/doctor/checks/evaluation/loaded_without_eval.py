# SPDX-License-Identifier: Apache-2.0
"""Predicting with a loaded model in training mode."""

from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, At, SourceCheck, Unsure
from truestep.doctor.source.actions import EVALUATE
from truestep.doctor.source.adversaries import gan_role_in_source
from truestep.doctor.source.evaluations import sensitive_layers
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class LoadedWithoutEval(SourceCheck):
    """Weights are loaded and the model predicts, but eval() is never called.

    Why: a new model is in training mode, and state_dict does not hold the mode: dropout and batch norm
    are active.

    Bad:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        net.load_state_dict(torch.load("net.pt", map_location="cpu"))
        prediction = net(x).argmax(1)  # here

    Good:
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
        net.load_state_dict(torch.load("net.pt", map_location="cpu"))
        net.eval()
        prediction = net(x).argmax(1)

    Fix: net.eval() after loading.

    Evidence: 186 repositories, beds E, F, G, H, I, K, M: 20 true, 3 debatable, 2 false.
    """

    code = "EVAL008"
    never = (EVALUATE,)
    words = ("load_state_dict",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the first forward of a loaded model on a way that trains nothing and sets no mode."""
        if module.method_calls("backward", "eval", "train", "fit") or module.calls("torch.autograd.grad"):
            return
        for trace in module.traces:
            if trace.of("backward", "grad", "eval", "train", "unknown"):
                continue
            loads = {event.subject: event for event in trace.of("load_state")}
            for forward in trace.of("forward"):
                if forward.subject in loads and trace.events.index(forward) > trace.events.index(
                    loads[forward.subject]
                ):
                    layers = (
                        sensitive_layers(module, forward.receiver) if forward.receiver is not None else None
                    )
                    if layers:
                        text = f"It predicts in training mode; it has {', '.join(sorted(layers))}."
                        # the dropout of a GAN may be its noise, and its norms those of the batch, as pix2pix has it
                        severity = QUESTION if _is_generator(module, forward) else BUG
                        yield At(forward.node, text, severity)
                        break
                    if layers is None:
                        yield Unsure(forward.node, "the layers of the model can't be seen from here")


def _is_generator(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell the generator of a GAN: by its own name, by that of its class, or by a discriminator in the class's file."""
    receiver = forward.receiver
    owner = module.classes.of(receiver) if receiver is not None else None
    beside = [each.name for each in module.home(owner).named_classes] if owner is not None else []
    if any(gan_role_in_source(each) == "discriminator" for each in beside):
        return True
    names = [dotted(receiver) or "" if receiver is not None else "", owner.name if owner is not None else ""]
    return any(gan_role_in_source(each) == "generator" or "generator" in each.lower() for each in names)
