# SPDX-License-Identifier: Apache-2.0
"""What a learning-rate schedule counts, by the length that it is given or by its kind, and which ones Lightning steps."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.source.libraries import TRAINERS, is_switched
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, last_part, names_in, walk
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.values import argument, constant, literal, seen_through

# Where the length stands in each constructor: position and name.
_LENGTHS = {
    "torch.optim.lr_scheduler.OneCycleLR": ((2, "total_steps"), (4, "steps_per_epoch")),
    "torch.optim.lr_scheduler.CosineAnnealingLR": ((1, "T_max"),),
    "torch.optim.lr_scheduler.LinearLR": ((3, "total_iters"),),
    "torch.optim.lr_scheduler.PolynomialLR": ((1, "total_iters"),),
    "transformers.get_linear_schedule_with_warmup": ((1, "num_warmup_steps"), (2, "num_training_steps")),
    "transformers.get_cosine_schedule_with_warmup": ((1, "num_warmup_steps"), (2, "num_training_steps")),
    "transformers.get_constant_schedule_with_warmup": ((1, "num_warmup_steps"),),
    "transformers.get_polynomial_decay_schedule_with_warmup": ((1, "num_warmup_steps"), (2, "num_training_steps")),
}  # fmt: skip
_FACTORS = {"torch.optim.lr_scheduler.LambdaLR": (1, "lr_lambda")}  # given a function of the count
_COMPOSED = {
    "torch.optim.lr_scheduler.SequentialLR": (1, "schedulers"),
    "torch.optim.lr_scheduler.ChainedScheduler": (0, "schedulers"),
}
_FAR = 5  # times the number of epochs: nobody gives a length in epochs of which so little is seen
# Those of which nobody would give the length in epochs.
_BY_KIND = ("OneCycleLR", "CyclicLR", "with_warmup")
_STEPS = re.compile(r"(^|_)(steps?|iters?|iterations?|batch(es)?)(_|$)", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_KEEPS = ("int", "round", "max", "min", "ceil", "floor", "float")
_BATCHES = ("estimated_stepping_batches", "num_training_batches")  # attributes of Lightning's trainer
_OWN = ("automatic_optimization", "lr_scheduler_step")  # then the user steps it
Scheduled = tuple[ast.Call, str | None]  # a constructor, and its interval; None: out of sight


def counted_in_batches(module: SourceModule, scheduler: ast.Call) -> bool | None:
    """Return True where a schedule is given a number of batches in sight, False where names or its kind suggest one."""
    name = module.qualify(scheduler.func) or ""
    given = lengths_of(module, scheduler)
    lengths = [each for each in given if not _is_one(module, each)]
    if any(_is_number_of_batches(module, each) for each in lengths):
        return True
    parts = [each for each in _parts_of(module, scheduler) if each is not scheduler]
    if parts:
        told = [counted_in_batches(module, each) for each in parts]
        return True if True in told else False if False in told else None
    function = _factor_of(module, scheduler)
    named = [_words(each) for each in lengths] + [_words(each) for each in _computed_with(module, function)]
    if any(_EPOCHS.search(each) for words in named for each in words):
        return None
    if any(_STEPS.search(each) for words in named for each in words):
        return False
    if _is_beyond_the_epochs(module, [*lengths, *_divisors(module, function)]):
        return False
    return False if name.endswith(_BY_KIND) and (lengths or not given) else None


def lengths_of(module: SourceModule, scheduler: ast.Call) -> list[ast.expr]:
    """Return the lengths that a schedule is given."""
    name = module.qualify(scheduler.func) or ""
    given = [argument(scheduler, *each) for each in _LENGTHS.get(name, ())]
    return [each for each in given if each is not None]


def _factor_of(module: SourceModule, scheduler: ast.Call) -> Function | None:
    """Return the function of the count that a schedule is given, be it one that another function makes."""
    name = module.qualify(scheduler.func) or ""
    given = argument(scheduler, *_FACTORS[name]) if name in _FACTORS else None
    if given is None:
        return None
    made = seen_through(module, given) or given
    if isinstance(made, ast.Call) and (maker := module.functions.target(made)) is not None:
        results = module.functions.results(maker)
        made = results[0] if len(results) == 1 else made
    return module.functions.named(made)


def _parts_of(module: SourceModule, scheduler: ast.Call) -> list[ast.Call]:
    """Return the schedules that one is made of."""
    name = module.qualify(scheduler.func) or ""
    several = seen_through(module, argument(scheduler, *_COMPOSED[name])) if name in _COMPOSED else None
    found = several.elts if isinstance(several, (ast.List, ast.Tuple)) else []
    made = [seen_through(module, each) for each in found]
    return [each for each in made if isinstance(each, ast.Call)]


def _divisors(module: SourceModule, function: Function | None) -> list[ast.expr]:
    """Return what a function of the count divides it by."""
    parts = module.inside(function, ast.BinOp) if function is not None else []
    return [each.right for each in parts if isinstance(each.op, (ast.Div, ast.FloorDiv))]


def _is_beyond_the_epochs(module: SourceModule, lengths: list[ast.expr]) -> bool:
    """Tell a length that the epochs of the program's trainer never come near to."""
    epochs = max(module.program.answer(_epochs_of_trainers), default=None)
    known = [literal(module, each) for each in lengths] if epochs is not None else []
    return any(isinstance(each, (int, float)) and each >= _FAR * (epochs or 0) for each in known)


def _epochs_of_trainers(files: list[SourceModule]) -> list[int]:
    trainers = [call for each in files for call in each.calls(*TRAINERS)]
    given = [literal(each, argument(call, None, "max_epochs")) for each in files[:1] for call in trainers]
    return [each for each in given if isinstance(each, int) and each > 0]


def _is_one(module: SourceModule, length: ast.expr) -> bool:
    """Tell `steps_per_epoch=1`: then it counts epochs."""
    return bool(constant(seen_through(module, length)) == 1)


def _is_number_of_batches(module: SourceModule, length: ast.expr) -> bool:
    values = [length, *(each for each in module.definitions(length) if each is not None)]
    asked = [node.attr for value in values for node in walk(value) if isinstance(node, ast.Attribute)]
    return any(each in _BATCHES for each in asked) or any(_counts_batches(module, each) for each in values)


@asked_once(False)
def _counts_batches(module: SourceModule, node: ast.expr, depth: int = 0) -> bool:
    """Tell `len(loader)`, and what is computed of it: divided by a window's batches it counts updates, never epochs."""
    match node:
        case ast.Call() if last_part(node.func) == "len" and len(node.args) == 1:
            return module.kind(node.args[0]) == "loader"
        case ast.Call() if last_part(node.func) in _KEEPS:
            return any(_counts_batches(module, each, depth + 1) for each in node.args)
        case ast.BinOp():
            sides = [_counts_batches(module, each, depth + 1) for each in (node.left, node.right)]
            return sides == [True, False] if isinstance(node.op, (ast.Div, ast.FloorDiv)) else any(sides)
        case ast.Name() | ast.Attribute():
            made = [each for each in module.definitions(node) if not isinstance(each, ast.Constant)]
            return bool(made) and all(
                each is not None and _counts_batches(module, each, depth + 1) for each in made
            )
    return False


def _computed_with(module: SourceModule, function: Function | None) -> list[ast.expr | Function]:
    """Return a function of the count, and what the names in it stand for."""
    if function is None:
        return []
    names = module.inside(function, ast.Name)
    values = [value for name in names for value in module.definitions(name) if isinstance(value, ast.expr)]
    return [function, *values]


def _words(node: ast.expr | Function) -> list[str]:
    """Return the names that are used in an expression or a function."""
    return [
        each.id if isinstance(each, ast.Name) else each.attr
        for each in walk(node)
        if isinstance(each, (ast.Name, ast.Attribute))
    ]


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
