# SPDX-License-Identifier: Apache-2.0
"""The critic's step goes back into the generator."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.actions import CLEAR
from truestep.doctor.source.adversaries import crossed_optimizers, gan_role_in_source
from truestep.doctor.source.behind import calls_with_graph
from truestep.doctor.source.events import Trace, TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, method_of

_FREEZES = re.compile(r"requires_grad_?\b.{0,40}\bFalse|toggle")  # a side, while the other one trains


class GeneratorTrainedByCritic(SourceCheck):
    """The discriminator's loss is computed on generated data that are not detached, and the generator's
    gradients are not cleared after it; or both steps come behind both backward(); or the optimizer of the
    one holds the weights of the other.

    Why: the generator also gets the gradient that helps the discriminator, the opposite of what it should
    learn.

    Bad:
        fake = generator(z)
        opt_d.zero_grad()
        d_loss = discriminator(fake).mean() - discriminator(real).mean()  # here
        d_loss.backward(retain_graph=True)
        opt_d.step()
        g_loss = -discriminator(fake).mean()
        g_loss.backward()
        opt_g.step()
        opt_g.zero_grad()

    Good:
        fake = generator(z)
        opt_d.zero_grad()
        d_loss = discriminator(fake.detach()).mean() - discriminator(real).mean()
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = -discriminator(fake).mean()
        g_loss.backward()
        opt_g.step()

    Fix: discriminator(fake.detach()) in the discriminator's step; zero_grad() straight before each
    backward(), and each step() straight behind it; Adam(discriminator.parameters()) for the optimizer that
    steps after the discriminator's loss.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/softmax_gan/softmax_gan.py:146; bed R: 1
    true, 0 false.
    """

    code = "GRAD020"
    never = (CLEAR,)
    words = ("backward", "optim")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report generated data in a loss that both sides step on, and optimizers that are crossed."""
        for call, name, held in crossed_optimizers(module):
            yield At(
                call, f"{name} holds the weights of {held}: the other side's loss would train them.", BUG
            )
        for trace in module.traces:
            found = [
                at
                for each in trace.of("backward")
                if all(_is_stepped_on(trace, each, side) for side in ("discriminator", "generator"))
                for at in _judged(module, each)
            ]
            gravest = min((each.severity.rank for each in found), default=0)
            yield from (each for each in found if each.severity.rank == gravest)


def _is_stepped_on(trace: Trace, backward: TraceEvent, side: str) -> bool:
    """Tell whether the side's optimizer steps behind a backward with no clear between, perhaps in the next iteration."""
    around = backward.path[: next((i + 1 for i, each in enumerate(backward.path) if each.kind == "loop"), 0)]
    events = trace.within(around, "step", "zero_grad")
    at = trace.order[backward]
    behind = sorted(events, key=lambda each: (trace.order[each] < at, trace.order[each]))
    sides = [(each, gan_role_in_source(each.subject)) for each in behind]
    first = next((each for each, own in sides if own in (side, None)), None)
    return first is not None and first.kind != "zero_grad" and gan_role_in_source(first.subject) == side


def _judged(module: SourceModule, backward: TraceEvent) -> Iterator[At]:
    """Report generated data with their graph in such a loss: the discriminator's, where that is given others as well."""
    call, loss = backward.node, backward.receiver
    if loss is None or (isinstance(call, ast.Call) and any(each.arg == "inputs" for each in call.keywords)):
        return
    judged = [
        each
        for each in calls_with_graph(module, loss)
        if _side(module, each) == "discriminator" and each.args
    ]
    generated = [each for each in judged if any(_is_generated(module, part) for part in each.args)]
    if not generated:
        return
    name = ast.unparse(generated[0].args[0])
    if len(generated) < len(judged):
        yield At(generated[0], f"{name} is not detached: the generator gets these gradients.", BUG)
    elif not _FREEZES.search(module.text):
        yield At(
            call,
            "The steps of both sides take the gradient of this loss, which is good for one and bad for the other.",
            RISK,
        )


def _is_generated(module: SourceModule, part: ast.expr) -> bool:
    """Tell what the generator made, unless a function with a gradient of its own, which may turn it round, stands between."""
    made = calls_with_graph(module, part)
    turned = any(method_of(each) == "apply" for each in made)
    return any(_side(module, each) == "generator" for each in made) and not turned


def _side(module: SourceModule, call: ast.Call) -> str | None:
    is_other = (module.qualify(call.func) or "").startswith("torch.") or (
        isinstance(call.func, ast.Attribute) and dotted(call.func) is None
    )
    return (
        None if is_other else gan_role_in_source(ast.unparse(call.func))
    )  # torch.Generator().manual_seed(1)
