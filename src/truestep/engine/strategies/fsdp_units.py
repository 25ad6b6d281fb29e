# SPDX-License-Identifier: Apache-2.0
"""The units of a module whose weights are divided: what is gathered together, in which order, and from where it must not be."""

import zlib
from collections.abc import Iterator
from functools import partial
from itertools import chain
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from truestep.core.errors import LossError, RankError
from truestep.core.tensor_bytes import tensor_version
from truestep.engine.batches import map_batch_tensors
from truestep.engine.gradient_hooks import register_gradient_hooks
from truestep.engine.processes.shards import is_divided_over_ranks
from truestep.engine.processes.world import World

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
_MEETING = 'a layer of divided weights (strategy="fsdp"), which every rank must call'
_BACKWARD = 0  # stands for the backward, where a unit's tag is expected
_ITS_END = 2**32 + 1
# added to the tag of a unit whose inputs get gradients: torch sums such a unit's at once, others' at the end
_WITH_INPUTS = 2**33


def fsdp_roots(module: nn.Module) -> list[nn.Module]:
    """Return the modules that are called: itself, or the members of a dict or list, which nobody calls."""
    return list(module.children()) if isinstance(module, nn.ModuleDict | nn.ModuleList) else [module]


def fsdp_blocks(root: nn.Module) -> Iterator[nn.Module]:
    """Yield the outermost members of lists, dicts and sequences: the repeated layers of most models.

    Where parameters are shared by several of them there are none, since each belongs to one unit.
    """
    owners: dict[int, int] = {}
    found = list(_container_members(root))
    for number, part in enumerate(found):
        for parameter in part.parameters():
            if owners.setdefault(id(parameter), number) != number:
                return
    inside = set(owners)
    blocks = {id(part) for block in found for part in block.modules()}
    outside = [part for part in root.modules() if id(part) not in blocks]
    if inside.isdisjoint(id(p) for part in outside for p in part.parameters(recurse=False)):
        yield from (part for part in found if any(True for _ in part.parameters()))


def _container_members(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(module, _CONTAINERS) and not isinstance(child, _CONTAINERS):
            yield child
        else:
            yield from _container_members(child)


class UnitContents:
    """What the modules of a unit hold: compared in each call, object by object, and looked at where it is not what it was."""

    def __init__(self, unit: nn.Module) -> None:
        self._unit = unit
        self._homes: list[dict[str, Any]] = []
        self._known: list[Any] = []

    def are_unchanged(self) -> bool:
        """Whether each parameter and part is the object that was there when all was found right."""
        now = self._current_contents()
        return len(now) == len(self._known) > 0 and all(map(is_, now, self._known))

    def note(self) -> None:
        """All is right as it is now."""
        parts = list(self._unit.modules())
        self._homes = [each._parameters for each in parts]
        self._homes += [each._modules for each in parts]
        self._known = self._current_contents()

    def _current_contents(self) -> list[Any]:
        return list(chain.from_iterable(home.values() for home in self._homes))


class FsdpUnitCalls:
    """The calls of a module's units: that all ranks make the same, which weights got gradients, and who has begun a backward.

    The ranks meet before each unit is gathered, in a backward too: where one gathers another unit, or sums gradients, gloo ends the
    process.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        self._paths = {part: name for name, part in module.named_modules()}
        self._world = world
        self._names = {_BACKWARD: "the backward", _ITS_END: "the end of the backward"}
        """What a rank has come for, by the number that it says so with."""
        self._holdings: dict[nn.Module, UnitContents] = {}
        self._unhooked: dict[nn.Module, list[tuple[str, Tensor]]] = {}
        self._written: dict[nn.Module, list[tuple[str, Tensor, int]]] = {}
        """The weights of a unit, and how often each had been written to when they were gathered last."""
        self._whole: set[int] = set()
        """Identities of the weights that torch gathers into: the same tensors each time."""
        self.used: set[str] = set()
        """Names of the weights that a backward has come to."""
        self.goes_back = False
        """Whether a backward is one that the engine has begun."""
        self._going_back = -1

    def begin(self) -> None:
        """Count from here on."""
        self.used.clear()

    def watch(self, unit: nn.Module) -> None:
        """Compare the calls of a unit, whose weights are gathered when its last hook is called."""
        tag = zlib.crc32(self._paths[unit].encode()) + 1  # 32 bits are exact in what travels
        self._names[tag] = self._paths[unit] or "the whole module"
        self._names[tag + _WITH_INPUTS] = f"{self._names[tag]} with inputs that get gradients"
        unit.register_forward_pre_hook(
            lambda unit, *inputs: self._before_unit_call(unit, tag, inputs), prepend=True, with_kwargs=True
        )
        unit.register_forward_pre_hook(lambda unit, _: self._hook_gathered_weights(unit))
        # The first hook of all, so that what it puts on outputs comes before torch gathers the unit.
        unit.register_forward_hook(
            lambda unit, _, output: self._after_unit_call(unit, tag, output), prepend=True
        )

    def _before_unit_call(self, unit: nn.Module, tag: int, inputs: Any) -> None:
        self._refuse_other_weights(unit)
        if torch._C._current_graph_task_id() == -1:  # no checkpointed layer that runs again in a backward
            self.goes_back = False
            leaves = tree_leaves(inputs)
            gets_gradients = torch.is_grad_enabled() and any(
                isinstance(each, Tensor) and each.requires_grad for each in leaves
            )
            self.meet(tag + _WITH_INPUTS * gets_gradients)

    def _refuse_other_weights(self, unit: nn.Module) -> None:
        """Raise where a module holds other weights than its own for this call: torch would gather its own over them."""
        holdings = self._holdings.get(unit) or self._holdings.setdefault(unit, UnitContents(unit))
        if holdings.are_unchanged():
            return
        for name, parameter in unit.named_parameters():
            is_own = is_divided_over_ranks(parameter) or id(parameter) in self._whole
            if not is_own or not isinstance(parameter, nn.Parameter):
                where = ".".join(each for each in (self._paths[unit], name) if each)
                raise LossError(_OTHER_WEIGHTS.format(name=where))
        holdings.note()

    def meet(self, tag: int = _BACKWARD) -> None:
        """Meet the other ranks before a unit is gathered, or before the backward; raise where they are somewhere else."""
        if not self._world.is_open and self._world.error is None:  # the run is over
            return
        found = [int(number) for (number,) in self._world.meet(_MEETING, tag)]
        if len(set(found)) > 1:
            called = "; ".join(f"rank {rank}: {self._names[number]}" for rank, number in enumerate(found))
            raise RankError(_OTHER_LAYERS.format(called=called))

    def _hook_gathered_weights(self, unit: nn.Module) -> None:
        """Note from now on which of its weights, the same tensors each time they are gathered, get a gradient."""
        if unit not in self._unhooked:  # those of units within it are not gathered now
            named = unit.named_parameters(self._paths[unit])
            self._unhooked[unit] = [(name, each) for name, each in named if not is_divided_over_ranks(each)]
            self._whole |= {id(each) for _, each in self._unhooked[unit]}
            self._written[unit] = [(name, each, 0) for name, each in self._unhooked[unit]]
        self._written[unit] = [(name, each, tensor_version(each)) for name, each, _ in self._written[unit]]
        register_gradient_hooks(
            [pair for pair in self._unhooked[unit] if pair[1].requires_grad], self._note_used_weight
        )
        self._unhooked[unit] = [pair for pair in self._unhooked[unit] if not pair[1].requires_grad]

    def _note_used_weight(self, name: str, _: Tensor) -> None:
        self.used.add(name)

    def _after_unit_call(self, unit: nn.Module, tag: int, output: Any) -> Any:
        """Return an output without views that says when a backward comes to it; raise where the call wrote to its weights."""
        for name, parameter, before in self._written[unit]:
            if tensor_version(parameter) != before:
                raise LossError(_WRITTEN_TO.format(name=name))
        if not torch.is_grad_enabled():
            return output
        output = _without_views(output)
        come = partial(self._on_backward, tag, set())

        def hook(tensor: Tensor) -> Tensor:
            if tensor.requires_grad:
                tensor.register_hook(come)  # type: ignore[no-untyped-call]
            return tensor

        map_batch_tensors(hook, output)
        return output

    def _on_backward(self, tag: int, backwards: set[int], gradient: Tensor) -> None:
        """Meet the other ranks once for a call and backward, and at the backward's end before torch sums what is left."""
        self._check_backward_allowed()
        backward = torch._C._current_graph_task_id()
        if backward in backwards:  # another output of the same call
            return
        backwards.add(backward)
        if backward != self._going_back:
            self._going_back = backward
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self.meet(_ITS_END))
        self.meet(tag)

    def _check_backward_allowed(self) -> None:
        if not self.goes_back:
            raise LossError(
                "The loss goes back through the model itself (a gradient penalty, torch.autograd.grad), which can't be done with "
                'strategy="fsdp": torch gives the gathered weights back before they are needed again. Use strategy="ddp", where '
                "each process has all weights."
            )


_OTHER_WEIGHTS = (
    '{name} is called with another tensor in its place (torch.func.functional_call), and with strategy="fsdp" torch gathers the '
    'module\'s own weights before it computes: the other ones would count for nothing. Use strategy="ddp", where a module is '
    "called with whatever weights it is given."
)

_WRITTEN_TO = (
    '{name} is changed in place while its module computes (max_norm of an embedding does so), and with strategy="fsdp" the change '
    "is lost: torch gathers the weights anew for each call. Change it behind the update, with torch.no_grad(): weight.copy_(...), "
    'or use strategy="ddp".'
)

_OTHER_LAYERS = (
    'The ranks called other layers, or in another order, or their losses go back to other layers, and with strategy="fsdp" each '
    "gathers its weights from all: {called}. Layer drop that differs by rank is such a case, a layer for some examples only, and a "
    "detach() on some ranks. Make the choice the same on all ranks (draw it with ts.rand(())), or use "
    'strategy="ddp".'
)


def _without_views(output: Any) -> Any:
    """Return an output with copies of its views: one that is written to in place (`x += y`) would lose torch's hooks."""
    return map_batch_tensors(lambda x: x.clone() if x.requires_grad and x._is_view() else x, output)
