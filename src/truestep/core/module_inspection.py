# SPDX-License-Identifier: Apache-2.0
"""Which module a user means, and running one only to look at it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from truestep.core.buffers import BufferSnapshot, buffer_places
from truestep.core.errors import OptionError
from truestep.core.random_streams import preserve_torch_rng

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@contextmanager
def restoring_module(model: nn.Module) -> Iterator[None]:
    """Run without gradients; put back modes, buffers and torch's random state afterwards, also after an error."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = BufferSnapshot(buffer_places(model))
    with preserve_torch_rng([*model.parameters(), *model.buffers()]), torch.no_grad():
        try:
            yield
        finally:
            for module, training in modes:
                # not train(): it reaches all parts, whose modes may differ from their parent's, and classes override it
                module.training = training
            buffers.restore()


def is_compiled_layer(module: nn.Module) -> bool:
    """Whether calling the module runs what torch.compile made of it."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def called_module(function: object) -> nn.Module | None:
    """Return the module that is called: a module itself, a learner's, or a bound method's."""
    function = getattr(function, "__self__", function)
    module = function if isinstance(function, nn.Module) else getattr(function, "module", None)
    return module if isinstance(module, nn.Module) else None


def original_module(function: object) -> nn.Module | None:
    """Return the module that is called; of one that `torch.compile` made, the original."""
    called = called_module(function)
    return getattr(called, "_orig_mod", called)


def as_module(model: object, piece: str) -> nn.Module:
    """Return the module that a user's `model` is or owns (a learner, a compiled module)."""
    module = original_module(model)
    if module is None:
        raise OptionError(
            f"{piece} needs a module, or a learner of a run, first, got {type(model).__name__}. Write {piece}(net), where net "
            f"is what has the parameters, or {piece}(net.part)."
        )
    return module
