# SPDX-License-Identifier: Apache-2.0
"""Calling a model on a batch only to look: how a batch becomes arguments, and what a failing forward says."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from truestep.core.errors import ModelError
from truestep.core.module_inspection import restoring_module
from truestep.core.random_streams import preserve_host_rng

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def forward_arguments(model: nn.Module, batch: Any) -> Arguments:
    """Return how a batch is handed over: a tuple's items one by one, a dict by name where the forward has these names."""
    # A named tuple is one argument: a forward that takes it asks for its fields.
    if isinstance(batch, tuple) and not hasattr(batch, "_fields"):
        return batch, {}
    if (
        isinstance(batch, Mapping)
        and all(isinstance(key, str) for key in batch)
        and _accepts_keyword_arguments(model, batch)
    ):
        return (), dict(batch)
    return (batch,), {}


def _accepts_keyword_arguments(model: nn.Module, batch: Mapping[str, Any]) -> bool:
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return False
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return True
    return set(batch) <= set(parameters)


def map_forward_arguments(arguments: Arguments, change: Callable[[Tensor], Tensor]) -> Arguments:
    """Return the arguments with every tensor changed; structures are kept, also of dicts and named tuples."""
    return pytree.tree_map_only(Tensor, change, arguments)  # type: ignore[no-any-return]


def shapes_in_structure(value: Any) -> Any:
    """Return the shapes in a structure: a tuple of sizes for one tensor, a list for several."""
    shapes = [tuple(each.shape) for each in tensors_in_structure(value)]
    return shapes[0] if len(shapes) == 1 else shapes


def tensors_in_structure(value: Any) -> list[Tensor]:
    """Return the tensors in a structure, also those of a packed sequence and of plain objects with attributes."""
    found = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, nn.Module | type):
            found += [each for each in vars(leaf).values() if isinstance(each, Tensor)]
    return found


def _do_nothing(*_: Any) -> None:
    pass


class ForwardModulePath:
    """Where a forward is: the modules entered and not left, by the names under which their callers hold them."""

    def __init__(self, model: nn.Module) -> None:
        # scripted modules take no hooks
        self._modules = [each for each in model.modules() if not isinstance(each, torch.jit.ScriptModule)]
        self._names: dict[nn.Module, list[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            self._names.setdefault(module, []).append(name)
        self.entered: list[tuple[str, nn.Module, Any]] = []

    @contextmanager
    def followed(
        self,
        begins: Callable[[str, Any], None] = _do_nothing,
        ends: Callable[[str, Any, Any], None] = _do_nothing,
    ) -> Iterator[None]:
        """Keep the path while the model runs.

        `begins` is called with a module's name and inputs once it is entered, `ends` with its output, too, before it is left.
        """

        # None is returned: what a hook gives back would replace what flows.
        def push_module(module: nn.Module, args: Any, kwargs: Any) -> None:
            self.entered.append((self._qualified_module_name(module), module, (args, kwargs)))
            begins(self.entered[-1][0], (args, kwargs))

        def pop_module(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            ends(self.entered[-1][0], (args, kwargs), output)
            self.entered.pop()

        with ExitStack() as stack:
            for module in self._modules:
                stack.callback(module.register_forward_pre_hook(push_module, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(pop_module, with_kwargs=True).remove)
            yield

    def _qualified_module_name(self, module: nn.Module) -> str:
        above = self.entered[-1][0] if self.entered else ""
        names = self._names[module]
        # A shared module has several names: its caller's own for it is meant, else one inside its caller, else any.
        held = [name for name in names if self.entered and name.rpartition(".")[0] == above]
        inside = [name for name in names if name.startswith(f"{above}.")]
        return [*held, *inside, *names][0]


@contextmanager
def preserve_model_state(model: nn.Module) -> Iterator[None]:
    """Run the user's own model: modes, buffers and all random streams are as before afterwards."""
    # A forward may draw from python's and NumPy's streams too; `restoring_module` puts back torch's.
    with restoring_module(model), preserve_host_rng():
        yield


def run_forward(model: nn.Module, arguments: Arguments) -> Any:
    """Call the model; a failing forward becomes a ModelError that names the module, what it got and the cause."""
    path = ForwardModulePath(model)
    with path.followed():
        try:
            return model(*arguments[0], **arguments[1])
        except Exception as error:
            raise ModelError(_failed_forward_message(model, path, error)) from error


def _failed_forward_message(model: nn.Module, path: ForwardModulePath, error: Exception) -> str:
    cause = f"{type(error).__name__}: {error}"
    if not path.entered:
        return f"The forward of {type(model).__name__} failed. {cause}"
    name, module, inputs = path.entered[-1]
    where = f"{name} ({type(module).__name__})" if name else type(module).__name__
    args, kwargs = inputs
    named = (f"{key}={_argument_text(each)}" for key, each in kwargs.items())
    got = ", ".join([*map(_argument_text, args), *named])
    said = f"The forward failed in {where}, which got {got or 'nothing'}. {cause}"
    # Other libraries' summaries take a shape in place of a batch.
    if args and all(isinstance(each, int) for each in args):
        shape = ", ".join(map(str, args if len(args) > 1 else (2, *args)))
        said = f"{said.rstrip('.')}. A batch is data, not a shape: give torch.zeros({shape}), "
        said += "where the first size is the number of examples."
    elif _INDICES.search(str(error)) and any(
        isinstance(each, Tensor) and each.is_floating_point() for each in args
    ):
        shape = ",".join(map(str, next(each for each in args if isinstance(each, Tensor)).shape))
        said = f"{said.rstrip('.')}. It takes whole numbers: give torch.zeros(({shape}), dtype=torch.int64), "
        said += f"or on the command line --input {shape}:int64"
    return said


_INDICES = re.compile(r"\b(long|int64|index tensor)\b", re.IGNORECASE)


def _argument_text(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')} on {value.device}"
    tensors = tensors_in_structure(value)
    if tensors:
        return f"{type(value).__name__} of {', '.join(str(list(each.shape)) for each in tensors)}"
    text = repr(value)
    return text if len(text) < 40 else type(value).__name__
