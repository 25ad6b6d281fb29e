# SPDX-License-Identifier: Apache-2.0
"""The critic's step goes back into the generator."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, At, SourceCheck
from truestep.doctor.source.actions import CLEAR
from truestep.doctor.source.adversaries import crossed_optimizers, gan_role_in_source
from truestep.doctor.source.events import TraceEvent
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import behind


class GeneratorTrainedByCritic(SourceCheck):
    """The discriminator's loss is computed on generated data that are not detached, and the generator's
    gradients are not cleared after it; or the optimizer of the one holds the weights of the other.

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
    backward(); Adam(discriminator.parameters()) for the optimizer that steps after the discriminator's loss.

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/softmax_gan/softmax_gan.py:146; bed R: 1
    true, 0 false.
    """

    code = "GRAD020"
    never = (CLEAR,)
    words = ("backward", "optim")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report generated data in the loss whose backward precedes the discriminator's step, and optimizers that are crossed."""
        for call, name, held in crossed_optimizers(module):
            yield At(
                call, f"{name} holds the weights of {held}: the other side's loss would train them.", BUG
            )
        for trace in module.traces:
            for step in trace.of("step"):
                if gan_role_in_source(step.subject) != "discriminator":
                    continue
                index = trace.events.index(step)
                backward = next((e for e in reversed(trace.events[:index]) if e.kind == "backward"), None)
                if backward is None or backward.path != step.path:
                    continue
                after = [e for e in trace.events[index:] if e.kind in ("zero_grad", "backward")]
                again = [
                    e
                    for e in trace.events[index:]
                    if e.kind == "step" and gan_role_in_source(e.subject) == "generator"
                ]
                cleared = (
                    bool(after)
                    and after[0].kind == "zero_grad"
                    and gan_role_in_source(after[0].subject) != "discriminator"
                )
                if again and not cleared and after:
                    yield from self._leaks(module, backward)

    def _leaks(self, module: SourceModule, backward: TraceEvent) -> Iterator[At]:
        loss = backward.receiver
        for call in behind(module, loss) if loss is not None else ():
            if gan_role_in_source(ast.unparse(call.func)) == "discriminator" and call.args:
                made = module.definitions(call.args[0])
                if (
                    isinstance(call.args[0], ast.Name)
                    and made
                    and all(self._generated(each) for each in made)
                ):
                    name = call.args[0].id
                    yield At(call, f"{name} is not detached: the generator gets these gradients.", BUG)

    def _generated(self, value: ast.expr | None) -> bool:
        return isinstance(value, ast.Call) and gan_role_in_source(ast.unparse(value.func)) == "generator"
