# SPDX-License-Identifier: Apache-2.0
"""Options of the command line whose type can't read what is meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.options import is_unread_option
from truestep.doctor.source.value_origins import argument, constant


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

    Evidence: 186 repositories, beds A, B, C, D, E, F, G, H, I, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y: 197
    true, 6 debatable, 4 false.
    """

    code = "VALUE019"
    words = ("add_argument",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report type=bool, and type=int with a fraction as the default: advice where nothing reads or gives it."""
        calls = module.method_calls("add_argument")
        is_idle = bool(calls) and (_empties_sys_argv(module) or _parses_empty_arguments(module))
        unread = [each for each in calls if is_idle or is_unread_option(module, each)]
        for options, severity in (([each for each in calls if each not in unread], RISK), (unread, ADVICE)):
            switches = [each for each in options if _option_type_name(module, each) == "bool"]
            for call in options:
                default = constant(argument(call, None, "default"))
                is_fraction = isinstance(default, float) and default != int(default)
                if is_fraction and _option_type_name(module, call) == "int":
                    yield At(call, f"type=int can't read a number like {default}.", severity)
            if switches:
                more = f", and {len(switches) - 1} more in this file" if len(switches) > 1 else ""
                text = f"type=bool is true for every text: 'False' and '0' switch it on{more}."
                yield At(switches[0], text, severity)


def _empties_sys_argv(module: SourceModule) -> bool:
    """Tell a notebook that empties `sys.argv` before it is read; a script that does so takes options from its user still."""
    if not module.path.endswith(".ipynb"):
        return False
    words = [each for each in module.all(ast.Attribute) if module.qualify(each) == "sys.argv"]
    stores = [each for each in words if isinstance(module.statement(each), ast.Assign)]
    emptied = [module.statement(each) for each in stores if _is_argv_without_options(module, each)]
    reads = module.method_calls("parse_args", "parse_known_args")
    return (
        bool(reads)
        and len(emptied) == len(words)
        and all(
            any(
                each.lineno < call.lineno and _is_top_level_or_same_function(module, each, call)
                for each in emptied
            )
            for call in reads
        )
    )


def _parses_empty_arguments(module: SourceModule) -> bool:
    """Tell `parse_args([])` and `parse_args("")` at each place that reads options: the defaults are used."""
    reads = module.method_calls("parse_args", "parse_known_args")
    return bool(reads) and all(_is_empty_argument_list(argument(each, 0, "args")) for each in reads)


def _is_empty_argument_list(given: ast.expr | None) -> bool:
    return constant(given) == "" or (isinstance(given, (ast.List, ast.Tuple)) and not given.elts)


def _is_argv_without_options(module: SourceModule, words: ast.expr) -> bool:
    """Tell `sys.argv = ["train.py"]`: no option stands there."""
    match module.statement(words):
        case ast.Assign(targets=[target], value=ast.List(elts=parts)):
            return target is words and len(parts) < 2 and not any(isinstance(e, ast.Starred) for e in parts)
    return False


def _is_top_level_or_same_function(module: SourceModule, emptied: ast.stmt, call: ast.Call) -> bool:
    """Tell a statement that stands by itself in the file, or in the function of the call."""
    above = module.parents[emptied]
    return isinstance(above, ast.Module) or (isinstance(above, Function) and above is module.scope(call))


def _option_type_name(module: SourceModule, option: ast.Call) -> str | None:
    given = argument(option, None, "type")
    return module.qualify(given) if given is not None else None
