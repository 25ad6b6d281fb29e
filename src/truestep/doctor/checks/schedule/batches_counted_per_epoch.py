# SPDX-License-Identifier: Apache-2.0
"""A Lightning schedule in batches, stepped per epoch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Severity
from truestep.doctor.source.libraries import is_switched
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import names_in
from truestep.doctor.source.schedules import counted_in_batches
from truestep.doctor.source.values import literal, seen_through


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
    """

    code = "SCHED012"
    words = ("configure_optimizers",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report what configure_optimizers returns, if its schedule counts batches by its length or its kind."""
        for owner in module.classes_of_kind("lightning module"):
            function = module.method(owner, "configure_optimizers")
            own = ("automatic_optimization", "lr_scheduler_step")  # then the user steps it
            if function is None or any(is_switched(module, owner, each) for each in own):
                continue
            if module.enclosing(function, ast.ClassDef) is not owner:
                continue
            for given in module.returns(function):
                for scheduler in _stepped_per_epoch(module, given.value):
                    severity = _counts(module, scheduler)
                    if severity is not None:
                        name = ast.unparse(scheduler.func).rsplit(".", 1)[-1]
                        text = f'{name} counts batches, and Lightning steps it once per epoch: "interval" is not "step".'
                        yield At(given, text, severity)


def _counts(module: SourceModule, scheduler: ast.Call) -> Severity | None:
    """Return how certain it is that a schedule counts batches."""
    counted = counted_in_batches(module, scheduler)
    return None if counted is None else BUG if counted else RISK


def _stepped_per_epoch(module: SourceModule, returned: ast.expr | None) -> Iterator[ast.Call]:
    """Yield the constructors of the schedules that are given without an interval, or with "epoch"."""
    value = seen_through(module, returned)
    if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == 2:
        second = seen_through(module, value.elts[1])
        if isinstance(second, ast.List | ast.Tuple):
            for each in second.elts:
                yield from _of_entry(module, each)
            return
    several: list[ast.expr | None] = [value]
    if isinstance(value, ast.Tuple | ast.List):
        several = list(value.elts)
    for one in several:
        whole = seen_through(module, one)
        parts = module.resolver.part_of(whole, "lr_scheduler") if whole is not None else None
        for part in parts or ():
            yield from _of_entry(module, part) if part is not None else ()


def _of_entry(module: SourceModule, entry: ast.expr) -> Iterator[ast.Call]:
    """Yield the schedule of an entry: itself, or what stands under "scheduler" beside an interval."""
    made = seen_through(module, entry)
    parts = module.resolver.part_of(made, "scheduler") if made is not None else None
    if parts and made is not None:
        interval = module.resolver.part_of(made, "interval") or []
        spread = isinstance(made, ast.Dict) and None in made.keys
        told = [literal(module, each) for each in interval]
        if spread or _is_written_later(module, entry) or (told and told != ["epoch"]):
            return
        made = seen_through(module, parts[-1])
    if isinstance(made, ast.Call):
        yield made


def _is_written_later(module: SourceModule, entry: ast.expr) -> bool:
    """Tell `config["interval"] = "step"`."""
    items = module.index.items.get(module.scope(entry), [])
    return any(key == "interval" and set(names_in(target)) & set(names_in(entry)) for target, key, _ in items)
