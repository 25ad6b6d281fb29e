# SPDX-License-Identifier: Apache-2.0
"""Models that were made before their run: its seed comes too late for their first weights, which each start draws anew."""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.user_frames import running_user_frames
from truestep.run.state import RunState

_SEEDED = 2**32  # torch takes 64 random bits where nobody has seeded it


class ModelsBeforeSeeding:
    """Notes the models that the variables of the running functions hold; made before the run seeds the global streams."""

    def __init__(self) -> None:
        self._noted = (
            [weakref.ref(each) for each in _models_in_running_functions()] if _was_drawn_unseeded() else []
        )

    def look(self, run: RunState) -> None:
        """Say of which learners the seed does not decide the first weights, where the run begins with these."""
        noted = [each for reference in self._noted if (each := reference()) is not None]
        drawn = {id(weight) for model in noted for weight in _initialized_weights(model)}
        for learner in run.context.learners.values():
            if num := sum(id(each) in drawn for each in learner.module.parameters()):
                run.screen.say_once(_SAID.format(name=learner.name, num=num, seed=run.context.seed))


_SAID = (
    "{name!r} was made before ts.Run(..., seed={seed}), which seeds the weights of what is made after it: {num} of its tensors "
    "were drawn without a seed, so each start, and each run of this seed, begins with others. Write run = ts.Run(...) first, and "
    "make the model below it; where it has to come first, call ts.seed_everything(...) above it"
)


def _was_drawn_unseeded() -> bool:
    """Whether anything was drawn from torch's global stream, and nobody had seeded it."""
    seed = torch.initial_seed()
    untouched = torch.Generator().manual_seed(seed).get_state()
    return seed >= _SEEDED and not torch.equal(torch.get_rng_state(), untouched)


def _models_in_running_functions() -> Iterator[nn.Module]:
    for frame in running_user_frames():
        variables = {**frame.f_globals, **frame.f_locals}
        own = getattr(variables.get("self"), "__dict__", {})
        yield from _models_among_values([*variables.values(), *own.values()])


def _models_among_values(values: Iterable[Any], depth: int = 0) -> Iterator[nn.Module]:
    for each in values:
        if isinstance(each, nn.Module):
            yield each
        elif type(each) in (list, tuple, dict) and depth == 0 and len(each) < 100:
            yield from _models_among_values(each.values() if type(each) is dict else each, 1)


def _initialized_weights(model: nn.Module) -> Iterator[Tensor]:
    """Yield the weights that an initialisation has drawn; where a state was loaded, all tensors of a layer were written again."""
    for layer in model.modules():
        weights = [each for each in layer.parameters(recurse=False) if type(each) is nn.Parameter]
        weights = [each for each in weights if not each.is_meta and each.numel() > 1]
        if any(each._version == 1 for each in weights):
            yield from (
                each for each in weights if each.requires_grad and each._version and _has_varying_values(each)
            )


def _has_varying_values(weight: Tensor) -> bool:
    flat = weight.detach().flatten()[:64]
    return bool((flat != flat[0]).any())
