# SPDX-License-Identifier: Apache-2.0
"""What a user names as trained: a module, parameters, an optimizer or a learner."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from truestep.core.errors import OptionError
from truestep.core.module_inspection import original_module
from truestep.core.text_formatting import a_type

_WRITE = "give a module, its parameters, an optimizer or a learner: ts.relations(loss, batch, trains=net)"


@dataclass(frozen=True, eq=False)
class Trained:
    """The parameters that are trained, by name, and the modules that they are known to belong to."""

    parameters: dict[str, Tensor]
    modules: dict[str, nn.Module]


def find_trained(trains: Any) -> Trained:
    """Return what is trained.

    Raises:
        OptionError: nothing is, or something else was given.
    """
    modules: dict[str, nn.Module] = {}
    parameters: dict[str, Tensor] = {}
    for name, part in _named_parts(trains):
        if isinstance(part, nn.Module):
            modules[name] = part
            found = [(f"{name}.{key}" if name else key, each) for key, each in part.named_parameters()]
        else:
            number = len(parameters)  # of all of them: groups count their own from 0
            found = [(f"parameter {number}" if name.startswith("parameter ") else name, part)]
        known = {id(each) for each in parameters.values()}
        parameters |= {key: each for key, each in found if id(each) not in known}
    if any(is_lazy(each) for each in parameters.values()):
        raise OptionError(
            "ts.relations(trains=...): the module has lazy layers, whose first forward makes their weights, and "
            "nothing could be put back afterwards. Call it once with a batch before."
        )
    kept = {name: each for name, each in parameters.items() if each.requires_grad}
    if not kept:
        raise OptionError(
            f"ts.relations(trains=...) was given {len(parameters)} parameters, none of which needs a gradient; {_WRITE}."
        )
    return Trained(kept, modules)


def _named_parts(trains: Any) -> Iterator[tuple[str, Any]]:
    """Yield the modules and parameters that were given, with names."""
    module = original_module(trains)
    if module is not None:
        yield "", module
    elif isinstance(groups := getattr(trains, "param_groups", None), list):
        yield from _named_parts([each for group in groups for each in group["params"]])
    elif isinstance(trains, Tensor):
        yield "parameter 0", trains
    elif isinstance(trains, dict):
        yield from _named_parts(trains["params"] if "params" in trains else trains.items())
    elif isinstance(trains, Iterable) and not isinstance(trains, str):
        yield from _named_members(trains)
    else:
        raise OptionError(f"ts.relations(trains=...) was given {a_type(trains)}; {_WRITE}.")


def _named_members(members: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for number, each in enumerate(members):
        if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str):
            name, part = each
        else:
            part, name = each, f"parameter {number}"
        if isinstance(part, Tensor):
            yield name, part
        elif (module := original_module(part)) is not None:
            yield name if name != f"parameter {number}" else f"[{number}]", module
        else:
            yield from _named_parts(part)


def with_module_names(trained: Trained, modules: Iterable[nn.Module]) -> Trained:
    """Return what is trained with the names that parameters given by themselves have in one of these modules."""
    known = {id(each): name for module in modules for name, each in module.named_parameters()}
    names = [known.get(id(each), name) for name, each in trained.parameters.items()]
    if trained.modules or len(set(names)) < len(names):
        return trained
    return Trained(dict(zip(names, trained.parameters.values(), strict=True)), {})
