# SPDX-License-Identifier: Apache-2.0
"""The names that weight norm and spectral norm have in checkpoints: those of torch's old hooks, and today's."""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from truestep.core.errors import OptionError

# (endings of the old names, endings of today's): NAME is the tensor's, as in "weight".
_WEIGHT = (("{}_g", "parametrizations.{}.original0"), ("{}_v", "parametrizations.{}.original1"))
_SPECTRAL = (
    ("{}_orig", "parametrizations.{}.original"),
    ("{}_u", "parametrizations.{}.0._u"),
    ("{}_v", "parametrizations.{}.0._v"),
)
_OLD = re.compile(r"(?P<prefix>(?:.*\.)?)(?P<tensor>[^.]+)_(?P<end>g|orig)")
_NEW = re.compile(r"(?P<prefix>(?:.*\.)?)parametrizations\.(?P<tensor>[^.]+)\.(?P<end>original0?)")


def convert_norm_keys(state_dict: Mapping[str, Any], *, to: str = "parametrizations") -> dict[str, Any]:
    """Return a state dict whose weight and spectral norms have today's names, or those of torch's old hooks.

    Values, their order and everything else are kept; no tensor is copied. Both directions undo each other, and what
    has the wanted names already stays. `weight_g`, `weight_v` become `parametrizations.weight.original0`, `original1`;
    `weight_orig`, `weight_u`, `weight_v` become `parametrizations.weight.original`, `.0._u`, `.0._v`.

    Args:
        state_dict: of a model, `checkpoint["model"]` say.
        to: "parametrizations", for `ts.nn.add_weight_norm` and `ts.nn.add_spectral_norm`, or "hooks", for
            `torch.nn.utils.weight_norm` and `spectral_norm`.

    Raises:
        OptionError: no state dict of tensors; a spectral norm of torch before 1.0; a name that is taken.
    """
    if not isinstance(state_dict, Mapping) or not all(isinstance(key, str) for key in state_dict):
        raise OptionError(
            f"A model's state dict is expected, {{name: tensor}}; got {type(state_dict).__name__}: write model.state_dict()."
        )
    if to not in {"parametrizations", "hooks"}:
        raise OptionError(f"to={to!r}: names are converted to 'parametrizations' or to 'hooks'.")
    nested = [key for key, value in state_dict.items() if isinstance(value, Mapping)]
    if nested:
        raise OptionError(
            f"A model's state dict is expected; this holds other dicts under {', '.join(map(repr, nested))}. Give the model's own, "
            f"checkpoint[{nested[0]!r}] say."
        )
    renamed = dict(_renamed(state_dict, to))
    taken = [new for old, new in renamed.items() if new in state_dict and new not in renamed]
    if taken:
        raise OptionError(f"Both old and new names are there, so one would be lost: {', '.join(taken)}.")
    converted: dict[str, Any] = OrderedDict(
        (renamed.get(key, key), value) for key, value in state_dict.items()
    )
    if (metadata := getattr(state_dict, "_metadata", None)) is not None:
        converted._metadata = metadata  # type: ignore[attr-defined]
    return converted


def _renamed(state: Mapping[str, Any], to: str) -> Iterator[tuple[str, str]]:
    source, target, pattern = (0, 1, _OLD) if to == "parametrizations" else (1, 0, _NEW)
    for key in state:
        found = pattern.fullmatch(key)
        if found is None:
            continue
        prefix, tensor = found["prefix"], found["tensor"]
        pairs = _WEIGHT if found["end"] in {"g", "original0"} else _SPECTRAL
        names = [tuple(prefix + form.format(tensor) for form in pair) for pair in pairs]
        if all(name[source] in state for name in names):
            if pairs is _SPECTRAL or _is_length(state[names[0][source]], state[names[1][source]]):
                yield from ((name[source], name[target]) for name in names)
        elif found["end"] == "orig" and f"{prefix}{tensor}_u" in state:
            raise OptionError(
                f"{key} has no {prefix}{tensor}_v beside it: torch before 1.0 saved spectral norms so. Load it once into a model "
                "with torch.nn.utils.spectral_norm, which computes the missing vector, and save that model."
            )


def _is_length(length: Any, direction: Any) -> bool:
    """Tell whether one tensor can be the length of the other: one number, or one for each entry of a dimension."""
    if not (isinstance(length, Tensor) and isinstance(direction, Tensor)):
        return False
    if length.dim() == 0:
        return True
    kept = [size for size in length.shape if size != 1]
    return length.dim() == direction.dim() and (
        not kept or (len(kept) == 1 and kept[0] == direction.shape[length.shape.index(kept[0])])
    )
