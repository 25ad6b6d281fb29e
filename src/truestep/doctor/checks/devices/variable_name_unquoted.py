# SPDX-License-Identifier: Apache-2.0
"""`os.environ[CUDA_VISIBLE_DEVICES]`."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, replaced


class VariableNameUnquoted(SourceCheck):
    """The name of an environment variable stands without quotes.

    Why: NameError.

    Bad:
        os.environ[CUDA_VISIBLE_DEVICES] = "1"  # here

    Good:
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"

    Fix: quote it.
    """

    code = "DEV002"
    words = ("environ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name that is bound nowhere as the key of os.environ."""
        for node in module.all(ast.Subscript):
            if (
                module.qualify(node.value) == "os.environ"
                and isinstance(node.slice, ast.Name)
                and not module.bindings(node.slice)
            ):
                if not any(
                    isinstance(each, ast.ImportFrom) and each.names[0].name == "*"
                    for each in module.tree.body
                ):
                    yield At(node, f"{node.slice.id} is no name of this file: it raises NameError.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Quote it."""
        return [replaced(module, node.slice, f'"{node.slice.id}"')]
