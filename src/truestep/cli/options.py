# SPDX-License-Identifier: Apache-2.0
"""Arguments and options that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Model = Annotated[
    str, typer.Argument(metavar="FILE.py:NAME", help="A model, or a function (or class) that makes it.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="Shape of an argument of the forward: 1,3,224,224, or 2,12:int64."),
]
Batch = Annotated[str | None, typer.Option("--batch", help="FILE.py:NAME of a function that makes a batch.")]
