# SPDX-License-Identifier: Apache-2.0
"""A Lightning schedule in batches, stepped per epoch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.configured import configured_schedules
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.schedules import counted_in_batches


class BatchesCountedPerEpoch(SourceCheck):
    """A LightningModule gives a schedule that counts batches, without "interval": "step".

    Why: Lightning steps a schedule once per epoch unless it is told otherwise: the warm-up lasts for hundreds of
    epochs, and the rate never comes near its end.

    Bad:
        class Task(lightning.LightningModule):
            def configure_optimizers(self):
                opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
                total = self.trainer.estimated_stepping_batches
                sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=total)
                return {"optimizer": opt, "lr_scheduler": sched}  # here

    Good:
        class Task(lightning.LightningModule):
            def configure_optimizers(self):
                opt = torch.optim.AdamW(self.parameters(), lr=1e-3)
                total = self.trainer.estimated_stepping_batches
                sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-3, total_steps=total)
                return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}

    Fix: {"scheduler": scheduler, "interval": "step"}.

    Evidence: 186 repositories: said 1 times, not judged; beds D, P: 2 true, 1 debatable, 0 false.
    """

    code = "SCHED012"
    words = ("configure_optimizers",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what configure_optimizers returns, if its schedule counts batches by its length or its kind."""
        for given, scheduler, interval in configured_schedules(module):
            severity = _counts(module, scheduler) if interval == "epoch" else None
            if severity is not None:
                name = ast.unparse(scheduler.func).rsplit(".", 1)[-1]
                text = (
                    f'{name} counts batches, and Lightning steps it once per epoch: "interval" is not "step".'
                )
                yield At(given, text, severity)


def _counts(module: SourceModule, scheduler: ast.Call) -> Severity | None:
    """Return how certain it is that a schedule counts batches."""
    counted = counted_in_batches(module, scheduler)
    return None if counted is None else BUG if counted else RISK
