# SPDX-License-Identifier: Apache-2.0
"""Finds every check by scanning the folders of checks and relations; nothing is registered, torch is not imported."""

import inspect
import pkgutil
from functools import cache
from importlib import import_module
from typing import TypeGuard

from truestep.doctor import checks as checks_folder
from truestep.doctor.check import Check, SourceCheck
from truestep.doctor.relations import batch, data, epoch, evaluation, gradient, state

_FOLDERS = (checks_folder, batch, data, epoch, evaluation, gradient, state)


@cache
def checks() -> dict[str, type[Check]]:
    """Return every check by its code, sorted."""
    return {check.code: check for check in sorted(all_check_classes(), key=lambda check: check.code)}


def all_check_classes() -> list[type[Check]]:
    """Return each class of a check; that no two have one code is for `tests/test_scaffold.py` to see."""
    modules = (
        module
        for folder in _FOLDERS
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}.")
    )
    return [
        check for module in modules if not module.ispkg for check in _check_classes_in_module(module.name)
    ]


def _check_classes_in_module(module_name: str) -> list[type[Check]]:
    members = vars(import_module(module_name)).values()
    return [
        each
        for each in members
        if inspect.isclass(each)
        and each.__module__ == module_name
        and issubclass(each, Check)
        and not inspect.isabstract(each)
    ]


def check_topic(check: type[Check]) -> str:
    """Return the folder that a check lives in."""
    parts = check.__module__.split(".")
    return "relations" if "relations" in parts else parts[-2]


def source_checks() -> list[SourceCheck]:
    """Return one of each check that reads source."""
    return [check() for check in checks().values() if _is_source_check(check)]


def _is_source_check(check: type[Check]) -> TypeGuard[type[SourceCheck]]:
    # `issubclass` asks an abstract class for all that were made from it before it says no
    return SourceCheck in check.__mro__
