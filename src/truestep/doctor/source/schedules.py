# SPDX-License-Identifier: Apache-2.0
"""What a learning-rate schedule counts: batches, by the length that it is given or by its kind."""

import ast
import re

from truestep.doctor.source.counting import BATCHES, counted_unit
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, walk
from truestep.doctor.source.values import argument, constant, seen_through

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
# Those of which nobody would give the length in epochs.
_BY_KIND = ("OneCycleLR", "CyclicLR", "with_warmup")
_STEPS = re.compile(r"(^|_)(steps?|iters?|iterations?|batch(es)?)(_|$)", re.IGNORECASE)
_EPOCHS = re.compile(r"epoch", re.IGNORECASE)
_BATCHES = ("estimated_stepping_batches", "num_training_batches")  # attributes of Lightning's trainer


def counted_in_batches(module: SourceModule, scheduler: ast.Call) -> bool | None:
    """Return True where a schedule is given a number of batches in sight, False where names or its kind suggest one."""
    name = module.qualify(scheduler.func) or ""
    given = [argument(scheduler, *each) for each in _LENGTHS.get(name, ())]
    lengths = [each for each in given if each is not None and not _is_one(module, each)]
    if any(_is_number_of_batches(module, each) for each in lengths):
        return True
    factor = argument(scheduler, *_FACTORS[name]) if name in _FACTORS else None
    function = module.function_named(seen_through(module, factor) or factor) if factor is not None else None
    named = [_words(each) for each in lengths] + [_words(each) for each in _computed_with(module, function)]
    if any(_EPOCHS.search(each) for words in named for each in words):
        return None
    if any(_STEPS.search(each) for words in named for each in words):
        return False
    return False if name.endswith(_BY_KIND) and (lengths or not given) else None


def _is_one(module: SourceModule, length: ast.expr) -> bool:
    """Tell `steps_per_epoch=1`: then it counts epochs."""
    return bool(constant(seen_through(module, length)) == 1)


def _is_number_of_batches(module: SourceModule, length: ast.expr) -> bool:
    values = [length, *(each for each in module.definitions(length) if each is not None)]
    asked = [node.attr for value in values for node in walk(value) if isinstance(node, ast.Attribute)]
    return any(each in _BATCHES for each in asked) or any(
        counted_unit(module, each) == BATCHES for each in values
    )


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
        if isinstance(each, ast.Name | ast.Attribute)
    ]
