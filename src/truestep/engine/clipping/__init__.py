# SPDX-License-Identifier: Apache-2.0
"""Kinds of gradient clipping, one file each: what `run.learner(clip=)` takes."""

from truestep.core.errors import OptionError
from truestep.engine.clipping.base import Clip
from truestep.engine.clipping.function import ClipFunction


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
        number = option if option > 0 and not isinstance(option, bool) else 1.0
        raise OptionError(
            f"clip={option} does not say what is clipped: write ts.ClipNorm({number}) or ts.ClipValue({number})."
        )
    raise OptionError(
        f"clip={option!r} is no kind of clipping, so it is not known what to do with the gradients: write ts.ClipNorm(1.0), "
        "another kind (docs/choose-clip.md has them all), or a function of {name: gradient}."
    )


__all__ = ["Clip", "clip_from_option"]
