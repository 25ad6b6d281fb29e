# SPDX-License-Identifier: Apache-2.0
"""A callback that watches what nobody logs."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import MONITORS
from truestep.doctor.source.metrics import logged_by_modules
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, literal


class MonitoredNeverLogged(SourceCheck):
    """A callback of Lightning's watches a name under which the program logs nothing.

    Why: no best model is kept and nothing stops early; Lightning fails at the end of the first epoch, or only warns.

    Bad:
        class Task(lightning.LightningModule):
            def validation_step(self, batch, index):
                x, y = batch
                self.log("val_loss", F.cross_entropy(self(x), y))

        best = lightning.pytorch.callbacks.ModelCheckpoint(monitor="valid_loss")  # here

    Good:
        class Task(lightning.LightningModule):
            def validation_step(self, batch, index):
                x, y = batch
                self.log("val_loss", F.cross_entropy(self(x), y))

        best = lightning.pytorch.callbacks.ModelCheckpoint(monitor="val_loss")

    Fix: watch the name that self.log is given.
    """

    code = "EVAL038"
    words = ("monitor", "EarlyStopping")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a monitor that no log of the program can be, where all names that it logs are in sight."""
        for name, row in MONITORS.items():
            for call in module.calls(name) if row.logged else ():
                watched = literal(module, argument(call, *row.metric))
                logged = module.of_program(logged_by_modules)
                if isinstance(watched, str) and logged.values and not logged.may_be(watched):
                    known = ", ".join(map(repr, sorted(logged.values)))
                    yield At(call, f"{watched!r} is watched, and never logged: there is {known}.", RISK)
