# SPDX-License-Identifier: Apache-2.0
"""Finding the layers and tensors of a model by kind, name or pattern, with messages that list what there is."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from truestep.core.errors import OptionError, names_hint

SHOWN_NAMES = 20

Selector = type[nn.Module] | str
Layers = Selector | Iterable[Selector]


@dataclass(frozen=True)
class LayerTensor:
    """One tensor of one layer of a model."""

    layer: str
    module: nn.Module = field(repr=False)
    tensor: str

    @property
    def name(self) -> str:
        """The tensor's name in the model."""
        return layer_tensor_name(self.layer, self.tensor)

    @property
    def is_parametrized(self) -> bool:
        """Whether the tensor is computed from others."""
        return parametrize.is_parametrized(self.module, self.tensor)

    @property
    def parametrization(self) -> parametrize.ParametrizationList:
        """What computes the tensor."""
        held = self.module.parametrizations[self.tensor]  # type: ignore[index]
        assert isinstance(held, parametrize.ParametrizationList)
        return held


def layer_tensor_name(layer: str, tensor: str) -> str:
    """Return the name of a tensor within the model; the root's own name is the empty string."""
    return f"{layer}.{tensor}" if layer else tensor


def refuse_non_module(model: object) -> None:
    """Raise an OptionError unless `model` is a module; what changes a model's tensors takes no learner, which knows them."""
    if not isinstance(model, nn.Module):
        owns = isinstance(getattr(model, "module", None), nn.Module)
        instead = "give its module: net.module" if owns else "give an nn.Module"
        raise OptionError(f"A model is expected, got {type(model).__name__}; {instead}.")


def refuse_lazy_layers(model: nn.Module) -> None:
    """Raise an OptionError for layers that don't know their shape yet."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if lazy := [name for name, tensor in tensors if is_lazy(tensor)]:
        raise OptionError(
            f"{', '.join(lazy[:6])}: no shape yet; lazy layers learn it from their first input. Call the model once on an example, "
            "under torch.no_grad(), and come back then."
        )


def match_layer_names(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """Return the names that a pattern matches as in a shell (`*` matches dots too); at least one, or it is an error."""
    known = list(names)
    found = [name for name in known if fnmatchcase(name, pattern)]
    if not found:
        raise OptionError(f"No {kind} is called {pattern!r}. {_similar_names_text(pattern, known)}")
    return found


def match_layer_names_with_children(pattern: str, names: Iterable[str], kind: str) -> list[str]:
    """Do the same, where the name of a module stands for everything inside it: "encoder" is "encoder.*" too."""
    known = list(names)
    outer = {name: accumulate(name.split("."), "{}.{}".format) for name in known}  # "a.b": "a", "a.b"
    inside = [name for name, parts in outer.items() if any(fnmatchcase(part, pattern) for part in parts)]
    if not inside:
        tops = dict.fromkeys(name.partition(".")[0] for name in known if "." in name)
        whole = f" All in a part of it: {', '.join(map(repr, tops))}." if 0 < len(tops) <= SHOWN_NAMES else ""
        raise OptionError(f"No {kind} is called {pattern!r}. {_similar_names_text(pattern, known)}{whole}")
    return inside


def _similar_names_text(word: str, known: list[str]) -> str:
    if len(known) <= SHOWN_NAMES:
        return names_hint(word, filter(None, known))
    close = difflib.get_close_matches(word, known, n=5, cutoff=0.4) or known[:5]
    return f"The nearest of {len(known)} names are: {', '.join(close)}. Patterns are those of a shell, such as {known[-1][:1]}*."


def layer_matches(selector: Selector, name: str, module: nn.Module) -> bool:
    """Tell whether a kind or a name pattern chooses this layer; the root's name is the empty string."""
    return fnmatchcase(name, selector) if isinstance(selector, str) else isinstance(module, selector)


def layer_selectors(layers: Layers, model: nn.Module) -> tuple[Selector, ...]:
    """Return what was given for `layers` as kinds and name patterns.

    Each pattern matches a layer, or it is an error; of several kinds a model need not have all, but something is chosen.
    """
    one = isinstance(layers, str | type | nn.Module) or not isinstance(layers, Iterable)
    chosen: tuple[Any, ...] = (layers,) if one else tuple(layers)  # type: ignore[arg-type]
    kinds = [each for each in chosen if isinstance(each, type) and issubclass(each, nn.Module)]
    wrong = [each for each in chosen if not isinstance(each, str) and each not in kinds]
    if wrong or not chosen:
        raise OptionError(
            f"Layers are chosen by kind (nn.Linear) or by a pattern of their names ('head.*'); got "
            f"{', '.join(map(repr, wrong)) or 'none at all'}."
        )
    modules = dict(model.named_modules())
    patterns = [each for each in chosen if isinstance(each, str)]
    for pattern in patterns:
        match_layer_names(pattern, modules, "layer")
    if not patterns and not any(isinstance(module, tuple(kinds)) for module in modules.values()):
        there = names_hint(kinds[0].__name__, {type(module).__name__ for module in modules.values()})
        names = " or ".join(kind.__name__ for kind in kinds)
        raise OptionError(f"{type(model).__name__} has no layer of kind {names}. {there}")
    return chosen
