# SPDX-License-Identifier: Apache-2.0
"""Predicting with a loaded model in training mode."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.library.operations import operations
from truestep.doctor.source.evaluations import sensitive_layers
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.gan_sides import gan_role_in_source
from truestep.doctor.source.memoized_walk import walk_each_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, given_to, walk
from truestep.doctor.source.training_actions import EVALUATE
from truestep.doctor.source.value_origins import is_call_of, value_origins

_MADE_UP = operations(numbers="drawn filled")
_MEASURES = operations(numbers="measured") | {"dtype", "device"}


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

    Evidence: 186 repositories, beds E, F, G, H, I, K, M, N, P, Q, R, T, U, V, Y: 41 true, 4 debatable, 4 false.
    """

    code = "EVAL008"
    holds_anywhere = True
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
                if _is_shape_probe(module, forward):
                    continue
                if forward.subject in loads and trace.events.index(forward) > trace.events.index(
                    loads[forward.subject]
                ):
                    layers = (
                        sensitive_layers(module, forward.receiver, forward.node)
                        if forward.receiver is not None
                        else None
                    )
                    if layers:
                        text = f"It predicts in training mode; it has {', '.join(sorted(layers))}."
                        # the dropout of a GAN may be its noise, and its norms those of the batch, as pix2pix has it
                        severity = BUG if any(layers.values()) else RISK
                        severity = QUESTION if _is_gan_generator(module, forward) else severity
                        yield At(forward.node, text, severity)
                        break
                    if layers is None:
                        yield Unsure(forward.node, "the layers of the model can't be seen from here")


def _is_shape_probe(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell a model that is given numbers made up, and asked for no more than the shape of what it gives."""
    call = forward.node
    home = module.home(call)
    made = (
        [each for part in given_to(call) for each in _possible_sources(home, part)]
        if isinstance(call, ast.Call)
        else []
    )
    names = [(home.qualify(each.func) or "") if isinstance(each, ast.Call) else "" for each in made]
    if not names or not all(
        name.startswith("torch.") and name.rpartition(".")[2] in _MADE_UP for name in names
    ):
        return False
    return all(_is_shape_read_or_unused(home, each) for each in _reads_of_result(home, call))


def _possible_sources(module: SourceModule, value: ast.expr) -> list[ast.expr | None]:
    """Return what a value may come from, be it wrapped in a `Variable` or not."""
    found: list[ast.expr | None] = []

    def unwrap_variable(part: ast.expr) -> Iterator[ast.expr]:
        for each in value_origins(module, part):
            if (
                isinstance(each, ast.Call)
                and each.args
                and is_call_of(module, each, "torch.autograd.Variable")
            ):
                yield each.args[0]
            else:
                found.append(each)

    list(walk_each_once([value], unwrap_variable))
    return found


def _reads_of_result(module: SourceModule, call: ast.expr) -> list[ast.expr]:
    """Return where the result of a call is read: where it stands, or under the names that it is given."""
    above = module.parents[call]
    targets = above.targets if isinstance(above, ast.Assign) else []
    names = [
        each for target in targets for each in walk(target) if isinstance(each, (ast.Name, ast.Attribute))
    ]
    if not names or not all(isinstance(each, ast.Name) for each in names):
        return [call]
    reads = [read for each in names if isinstance(each, ast.Name) for read in module.reads(each.id)]
    return [
        each
        for each in reads
        if isinstance(each, ast.Name) and any(made.value is call for made in module.resolver.reaching(each))
    ]


def _is_shape_read_or_unused(module: SourceModule, read: ast.expr) -> bool:
    """Tell `y.shape`, `y.size()`, `y[0].shape`, `len(y)`, and what nothing takes."""
    above = module.parents[read]
    if isinstance(above, ast.Subscript) and above.value is read:
        return _is_shape_read_or_unused(module, above)
    if isinstance(above, ast.Call):
        return read in above.args and dotted_name(above.func) in ("len", "type")
    return isinstance(above, ast.Expr) or (isinstance(above, ast.Attribute) and above.attr in _MEASURES)


def _is_gan_generator(module: SourceModule, forward: TraceEvent) -> bool:
    """Tell the generator of a GAN: by its own name, by that of its class, or by a discriminator in the class's file."""
    receiver = forward.receiver
    owner = module.classes.of(receiver) if receiver is not None else None
    beside = [each.name for each in module.home(owner).named_classes] if owner is not None else []
    if any(gan_role_in_source(each) == "discriminator" for each in beside):
        return True
    names = [
        dotted_name(receiver) or "" if receiver is not None else "",
        owner.name if owner is not None else "",
    ]
    return any(gan_role_in_source(each) == "generator" or "generator" in each.lower() for each in names)
