# SPDX-License-Identifier: Apache-2.0
"""Kinds of gradient clipping, one file each; this table is the closed set of them."""

from truestep.core.errors import OptionError
from truestep.engine.clipping.adaptive import ClipAdaptive
from truestep.engine.clipping.base import Clip
from truestep.engine.clipping.function import ClipFunction
from truestep.engine.clipping.norm import ClipNorm
from truestep.engine.clipping.value import ClipValue

KINDS: dict[str, type[Clip]] = {
    "norm": ClipNorm,
    "value": ClipValue,
    "adaptive": ClipAdaptive,
    "function": ClipFunction,
}


def clip_from_option(option: object) -> Clip | None:
    """Read a user's `clip=`: None, a kind of clipping, or a function of {name: gradient}."""
    if option is None or isinstance(option, Clip):
        return option
    if isinstance(option, type) and issubclass(option, Clip):
        raise OptionError(
            f"clip={option.__name__} is the kind of clipping itself, which does not say how much: write "
            f"clip=ts.{option.__name__}(...) with its numbers, for example ts.ClipNorm(1.0)."
        )
    if str(getattr(option, "__module__", "")).startswith("torch.nn.utils"):
        name = getattr(option, "__name__", "it")
        kind = "ClipValue" if "value" in name else "ClipNorm"
        raise OptionError(
            f"clip={name} is torch's, which takes parameters, and a clip is given a dict {{name: gradient}}, of the whole batch: "
            f"write clip=ts.{kind}(1.0)."
        )
    if callable(option):
        return ClipFunction(option)
    if isinstance(option, int | float):
        raise OptionError(
            f"clip={option} does not say what is clipped: write ts.ClipNorm({option}) or ts.ClipValue({option})."
        )
    raise OptionError(
        f"clip={option!r} is no kind of clipping. There are: {', '.join(kind.__name__ for kind in KINDS.values())}."
    )


__all__ = ["KINDS", "Clip", "ClipAdaptive", "ClipFunction", "ClipNorm", "ClipValue", "clip_from_option"]
