# SPDX-License-Identifier: Apache-2.0
"""What are the settings of a program: neither they nor what lies under them is an optimizer or a net by its name."""

import ast
import re

from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.names import last_part
from truestep.doctor.source.resolving import Resolver

_MAKERS = re.compile(
    r"^(absl|addict|argparse|click|configargparse|configparser|easydict|fire|fvcore|hydra|json|jsonargparse|ml_collections|mmcv"
    r"|mmengine|munch|omegaconf|simple_parsing|tap|toml|tomllib|transformers\.HfArgumentParser|types\.SimpleNamespace|yacs|yaml)\b"
)
_NAMED = re.compile(
    r"^_*(\w+_)?(args|cfgs?|conf|configs?|flags|hparams|hps|hyper_?params|opts|options|settings)$|^(cfg|config)_\w+$",
    re.IGNORECASE,
)
_PARSES = ("parse_args", "parse_known_args", "parse_intermixed_args")
_MOST_STEPS = 5  # names and functions that the settings are handed through


@asked_once(False)
def is_setting(resolver: Resolver, node: ast.expr, depth: int = 0) -> bool:
    """Tell whether something is the settings of the program, by what made them, or lies under them."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
        if _NAMED.match(last_part(node)):
            return True
    if not isinstance(node, ast.Name):
        return False
    hint = resolver.classes.annotation(node)
    if hint is not None and _MAKERS.match(resolver.names.qualify(hint) or ""):
        return True
    values = [each for each in resolver.definitions(node) if each is not None]
    values += [value for value, place in resolver.unpacked(node) or () if place == (0,)]
    return any(_is_made_by_settings(resolver, each, depth + 1) for each in values)


def _is_made_by_settings(resolver: Resolver, value: ast.expr, depth: int) -> bool:
    """`parser.parse_args()` is made by what made the parser."""
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Name) and is_setting(resolver, value, depth)
    if _MAKERS.match(resolver.names.qualify(value.func) or ""):
        return True
    if not isinstance(value.func, ast.Attribute):
        return False
    results = resolver.results_of(value) if depth < _MOST_STEPS else []
    if value.func.attr in _PARSES or any(_is_made_by_settings(resolver, each, depth + 1) for each in results):
        return True  # wherever the parser is kept
    receiver = value.func.value
    return is_setting(resolver, receiver, depth) or (
        isinstance(receiver, ast.Call) and _is_made_by_settings(resolver, receiver, depth)
    )
