# SPDX-License-Identifier: Apache-2.0
"""The critic stepped after the generator's backward."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.adversaries import gan_role_in_source
from truestep.doctor.source.module import SourceModule


class CriticSteppedOnGeneratorLoss(SourceCheck):
    """The discriminator's optimizer steps straight after the generator's backward.

    Why: the gradient in the discriminator is then the generator's: it learns to be fooled.

    Bad:
        g_loss = (discriminator(generator(z)) - 1).pow(2).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        opt_d.step()  # here

    Good:
        g_loss = (discriminator(generator(z)) - 1).pow(2).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()

    Fix: opt_d.zero_grad() before the discriminator's own backward, and its step straight after it.
    """

    code = "GRAD028"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a discriminator's step whose last backward was of a loss named as the generator's."""
        for trace in module.traces:
            for step in trace.of("step"):
                if gan_role_in_source(step.subject) != "discriminator":
                    continue
                before = [
                    each
                    for each in trace.events[: trace.events.index(step)]
                    if each.kind in ("backward", "step")
                ]
                last = before[-1] if before else None
                if (
                    last is None
                    or last.kind != "step"
                    or gan_role_in_source(last.subject) != "generator"
                    or len(before) < 2
                ):
                    continue
                loss = before[-2]
                together = loss.kind == "backward" and loss.path == step.path == last.path
                if (
                    together
                    and gan_role_in_source(
                        loss.subject.split("@")[0].replace("_loss", "").replace("loss_", "x_")
                    )
                    == "generator"
                ):
                    yield At(step.node, "The discriminator steps on the gradients of the generator's loss.")
