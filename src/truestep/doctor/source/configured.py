# SPDX-License-Identifier: Apache-2.0
"""The schedules that a LightningModule hands over, and how often Lightning is told to step each."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.libraries import is_switched
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import names_in
from truestep.doctor.source.values import literal, seen_through

_OWN = ("automatic_optimization", "lr_scheduler_step")  # then the user steps it
Scheduled = tuple[ast.Call, str | None]  # a constructor, and its interval; None: out of sight


def configured_schedules(module: SourceModule) -> Iterator[tuple[ast.Return, ast.Call, str | None]]:
    """Yield the schedules that Lightning steps, each with the statement that returns it and its interval."""
    for owner in module.kinds.classes_of("lightning module"):
        function = module.classes.method(owner, "configure_optimizers")
        if function is None or any(is_switched(module, owner, each) for each in _OWN):
            continue
        if module.enclosing(function, ast.ClassDef) is owner:
            for given in module.functions.returns(function):
                for scheduler, interval in _schedules_in(module, given.value):
                    yield given, scheduler, interval


def _schedules_in(module: SourceModule, returned: ast.expr | None) -> Iterator[Scheduled]:
    value = seen_through(module, returned)
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == 2:
        second = seen_through(module, value.elts[1])
        if isinstance(second, (ast.List, ast.Tuple)):
            for each in second.elts:
                yield from _of_entry(module, each)
            return
    several: list[ast.expr | None] = [value]
    if isinstance(value, (ast.Tuple, ast.List)):
        several = list(value.elts)
    for one in several:
        whole = seen_through(module, one)
        parts = module.resolver.part_of(whole, "lr_scheduler") if whole is not None else None
        for part in parts or ():
            yield from _of_entry(module, part) if part is not None else ()


def _of_entry(module: SourceModule, entry: ast.expr) -> Iterator[Scheduled]:
    """Yield the schedule of an entry: itself, or what stands under "scheduler" beside an interval."""
    made = seen_through(module, entry)
    parts = module.resolver.part_of(made, "scheduler") if made is not None else None
    told: str | None = "epoch"
    if parts and made is not None:
        given = [literal(module, each) for each in module.resolver.part_of(made, "interval") or ()]
        spread = isinstance(made, ast.Dict) and None in made.keys
        is_open = spread or _is_written_later(module, entry) or len(given) > 1
        told = None if is_open else given[0] if given else "epoch"
        made = seen_through(module, parts[-1])
    if isinstance(made, ast.Call):
        yield made, told


def _is_written_later(module: SourceModule, entry: ast.expr) -> bool:
    """Tell `config["interval"] = "step"`."""
    items = module.index.items.get(module.scope(entry), [])
    return any(key == "interval" and set(names_in(target)) & set(names_in(entry)) for target, key, _ in items)
