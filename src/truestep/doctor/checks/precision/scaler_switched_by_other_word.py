# SPDX-License-Identifier: Apache-2.0
"""A scaler that no option switches on."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, literal


class ScalerSwitchedByOtherWord(SourceCheck):
    """GradScaler(enabled=...) asks for a word that the option can't have.

    Why: the comparison is always false: float16 trains without scaling, and small gradients become zero.

    Bad:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
        args = parser.parse_args()
        scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")  # here

    Good:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--precision", choices=["float32", "float16"], default="float32")
        args = parser.parse_args()
        scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "float16")

    Fix: compare with one of the option's choices.
    """

    code = "AMP010"
    words = ("enabled",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a comparison of an argparse option with a text that is not among its choices."""
        choices = _choices(module)
        for name in ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.autocast"):
            for call in module.calls(name):
                enabled = argument(call, None, "enabled")
                if isinstance(enabled, ast.Compare) and isinstance(enabled.left, ast.Attribute):
                    known = choices.get(enabled.left.attr)
                    word = constant(enabled.comparators[0])
                    same = isinstance(enabled.ops[0], ast.Eq) and isinstance(word, str)
                    if known and same and word not in known:
                        yield At(
                            call, f"{word!r} is none of {', '.join(sorted(known))}: it is never enabled."
                        )


def _choices(module: SourceModule) -> dict[str, set[str]]:
    """Return the choices of each option that argparse is given as texts."""
    found: dict[str, set[str]] = {}
    for call in module.method_calls("add_argument"):
        given = argument(call, None, "choices")
        names = [str(constant(each)) for each in call.args]
        if isinstance(given, ast.List | ast.Tuple) and names:
            long = next((each for each in names if each.startswith("--")), names[0])
            words = {constant(each) for each in given.elts}
            if all(isinstance(each, str) for each in words):
                dest = literal(module, argument(call, None, "dest")) or long.lstrip("-").replace("-", "_")
                found[dest] = words
    return found
