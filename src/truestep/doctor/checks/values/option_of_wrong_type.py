# SPDX-License-Identifier: Apache-2.0
"""Options of the command line whose type can't read what is meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.options import is_left_unread
from truestep.doctor.source.values import argument, constant


class OptionOfWrongType(SourceCheck):
    """An option of the command line has a type that can't read what is meant to be given.

    Why: bool("False") is True, so the option can only be switched on; int("0.001") raises.

    Bad:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=int, default=0.001)  # here
        parser.add_argument("--amp", type=bool, default=True)  # here
        args = parser.parse_args([])
        opt = torch.optim.SGD(net.parameters(), lr=args.lr)
        cast = torch.autocast("cuda", enabled=args.amp)

    Good:
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, default=0.001)
        parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True)
        args = parser.parse_args([])
        opt = torch.optim.SGD(net.parameters(), lr=args.lr)
        cast = torch.autocast("cuda", enabled=args.amp)

    Fix: type=float for fractions; action=argparse.BooleanOptionalAction, or "store_true", for switches.

    Evidence: bed A: 7 true, 0 false; bed B: 4 true, 0 false; bed C: 9 true, 0 false; bed D: 3 true, 0 false;
    bed E: 8 true, 0 false; bed F: 8 true, 0 false; bed G: 9 true, 0 false; bed H: 7 true, 0 false; bed I: 11
    true, 0 false; bed K: 5 true, 0 false; bed L: 0 true, 2 debatable, 0 false; 186 repositories: 31 true, 1
    false.
    """

    code = "VALUE019"
    words = ("add_argument",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report type=bool, and type=int with a fraction as the default."""
        switches: list[ast.Call] = []
        for call in module.method_calls("add_argument"):
            if is_left_unread(module, call):
                continue
            given = argument(call, None, "type")
            kind = module.qualify(given) if given is not None else None
            default = constant(argument(call, None, "default"))
            if kind == "bool":
                switches.append(call)
            elif kind == "int" and isinstance(default, float) and default != int(default):
                yield At(call, f"type=int can't read a number like {default}.", RISK)
        if switches:
            more = f", and {len(switches) - 1} more in this file" if len(switches) > 1 else ""
            text = f"type=bool is true for every text: 'False' and '0' switch it on{more}."
            yield At(switches[0], text, RISK)
