# SPDX-License-Identifier: Apache-2.0
"""Hooks that somebody has put on parameters: called once an update, with the gradient of the whole batch.

torch calls a parameter's hooks in each backward, with the gradient of that part of the batch, and its post-accumulate hooks with
the sum so far. Where a hook does more than multiply (`p.register_hook(lambda g: g.clamp(-1, 1))`), the update would depend on how
the batch is split, or on the number of processes. So they are held back while a part goes backward, and called at the end.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

from truestep.core.errors import OptionError
from truestep.core.weak import weak_method_callback

Hooks = MutableMapping[int, Callable[..., Any]]
_before: Callable[[Tensor], Hooks | None] = attrgetter("_backward_hooks")
_after: Callable[[Tensor], Hooks | None] = attrgetter("_post_accumulate_grad_hooks")


class EngineHook(partial[Any]):
    """A hook of the engine's own on a parameter, which belongs into the backward itself."""


def register_gradient_hooks(
    parameters: Iterable[tuple[Any, Tensor]], method: Callable[[Any, Tensor], None]
) -> list[RemovableHandle]:
    """Call `method(key, parameter)` when a gradient of one of these parameters is complete; each has a key.

    torch holds such a hook where Python's collector can't see it. So the method's object is held weakly: it would keep
    itself, and the sockets of its ranks, for as long as the process lives.
    """
    hook = weak_method_callback(method)  # one for all: there may be ten thousand parameters
    return [
        each.register_post_accumulate_grad_hook(EngineHook(hook, key))  # type: ignore[no-untyped-call]
        for key, each in parameters
    ]


class HeldHooks:
    """The hooks of one kind of one parameter while they are held back."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks, self._before = hooks, dict(hooks)
        for key, hook in self._before.items():
            if not isinstance(hook, EngineHook):
                del hooks[key]

    def put_back(self) -> None:
        """Put them back, in the order in which they were."""
        added = {key: hook for key, hook in self._hooks.items() if key not in self._before}
        self._hooks.clear()
        self._hooks.update(self._before | added)


def hold_gradient_hooks(parameters: Sequence[Tensor]) -> list[HeldHooks]:
    """Take all hooks but the engine's own off these parameters, to be put back behind the backward."""
    all_hooks = [*map(_before, parameters), *map(_after, parameters)]
    return [HeldHooks(hooks) for hooks in all_hooks if hooks and _has_foreign_hooks(hooks)]


def refuse_gradient_hooks(named: Iterable[tuple[str, Tensor]]) -> None:
    """Raise an OptionError where somebody has put a hook on a parameter of which each process has a part only."""
    if names := [name for name, parameter in named if has_gradient_hooks(parameter)]:
        raise OptionError(
            f'There is a hook on {", ".join(names[:4])} (register_hook), and strategy="fsdp" divides the weights: torch calls it '
            'with a part of the gradient, or not at all. Write strategy="ddp", where it gets the gradient of the whole batch; to '
            "bound gradients, clip=ts.ClipNorm(1.0) or ts.ClipValue(0.1) needs no hook."
        )


def call_gradient_hooks(parameter: Tensor, gradient: Tensor) -> None:
    """Make `gradient` the parameter's, as its hooks change it: those that return another one first, as torch does."""
    for hook in _foreign_hooks(_before(parameter)):
        changed = hook(gradient)
        gradient = gradient if changed is None else changed
    parameter.grad = gradient
    for hook in _foreign_hooks(_after(parameter)):
        hook(parameter)


def has_gradient_hooks(parameter: Tensor) -> bool:
    """Whether somebody has put a hook on this parameter."""
    return any(hooks and _has_foreign_hooks(hooks) for hooks in (_before(parameter), _after(parameter)))


def _has_foreign_hooks(hooks: Hooks) -> bool:
    if len(hooks) == 1:  # the usual ones
        return type(next(iter(hooks.values()))) is not EngineHook
    return bool(_foreign_hooks(hooks))


def _foreign_hooks(hooks: Hooks | None) -> list[Callable[..., Any]]:
    return [hook for hook in hooks.values() if not isinstance(hook, EngineHook)] if hooks else []
