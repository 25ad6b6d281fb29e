# SPDX-License-Identifier: Apache-2.0
"""`truestep env`: what this machine offers to training, and what is wrong with it."""

import sys
from typing import Annotated

import typer

from truestep.core.errors import OptionError

EXIT_CHECK_FAILED = 1

app = typer.Typer(add_completion=False)


@app.command()
def env(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    collect_env: Annotated[
        bool,
        typer.Option(
            "--collect-env", help="Print the format of python -m torch.utils.collect_env, for bug reports."
        ),
    ] = False,
    real_import: Annotated[
        bool,
        typer.Option(
            "--import",
            help="Run the whole `import torch` in a child process, not only its compiled part (about 1 s).",
        ),
    ] = False,
) -> None:
    """Report on torch, CUDA, Python and the machine, with a verdict on each; works without torch.

    The exit status is 1 when a verdict fails.
    """
    from truestep.cli.screen import print_json_document, show_on_screen
    from truestep.machine.environment import environment

    if as_json and collect_env:
        raise OptionError("--json and --collect-env are two formats. Write one of them.")
    report = environment(real_import=real_import)
    if as_json:
        print_json_document(report.to_dict())
    elif collect_env:
        from truestep.machine.environment.collect_env import collect_env_text

        sys.stdout.write(collect_env_text(report.machine) + "\n")
    else:
        show_on_screen(report)
    raise typer.Exit(EXIT_CHECK_FAILED if report.failed else 0)
