# SPDX-License-Identifier: Apache-2.0
"""What the user gave to a run, as settings that can be compared: `config.json` holds but a part of it."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from truestep.report.record import ReportedRun
from truestep.report.tables import setting_leaves

NOT_OF_THE_RUN = ("schema_version",)
GIVEN = "given to "  # begins the reason of a choice that was the user's


def given_settings(record: ReportedRun) -> dict[str, Any]:
    """Return what the run was made with: hyper-parameters under their own names, and what learners and data were given."""
    found = record.config if isinstance(record.config, Mapping) else {}
    own = found.get("config")
    flat = dict(
        setting_leaves({key: each for key, each in found.items() if key not in (*NOT_OF_THE_RUN, "config")})
    )
    flat |= dict(setting_leaves(own)) if isinstance(own, Mapping) else {} if own is None else {"config": own}
    given = [each for each in record.choices if _is_given(each)]
    return flat | {name: value for each in given for name, value in _leaves(str(each["name"]), each["value"])}


def circumstances(record: ReportedRun) -> dict[str, Any]:
    """Return what the run depends on besides: machine, code, and what was chosen for it."""
    machine = dict(setting_leaves(record.environment)) if isinstance(record.environment, Mapping) else {}
    chosen = {str(each.get("name")): each.get("value") for each in record.choices if not _is_given(each)}
    return machine | chosen


def _is_given(choice: Mapping[str, Any]) -> bool:
    return str(choice.get("reason")).startswith(GIVEN) and {"name", "value"} <= choice.keys()


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the options of `AdamW(lr=0.1, eps=1e-08)` each by itself, so that what differs stands alone."""
    try:
        call = ast.parse(str(value), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        call = None
    if not (isinstance(call, ast.Call) and not call.args and all(each.arg for each in call.keywords)):
        yield name, value
        return
    yield name, ast.unparse(call.func)
    for each in call.keywords:
        yield f"{name}: {each.arg}", ast.unparse(each.value)
