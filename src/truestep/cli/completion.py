# SPDX-License-Identifier: Apache-2.0
"""`truestep completion`: what makes a shell complete commands and options with the Tab key."""

from typing import Annotated, Literal

import typer

from truestep.cli.usage import EXAMPLE

app = typer.Typer(add_completion=False)

VARIABLE = "_TRUESTEP_COMPLETE"


@app.command(epilog=f"{EXAMPLE}truestep completion bash")
def completion(
    context: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell: bash, zsh or fish.")],
) -> None:
    """Print the script that makes a shell complete truestep's commands and options with the Tab key.

    bash: write eval "$(truestep completion bash)" into ~/.bashrc; zsh: the same with zsh into ~/.zshrc, after compinit;
    fish: truestep completion fish > ~/.config/fish/completions/truestep.fish
    """
    from typer.completion import show_callback

    show_callback(context, context.command.params[0], shell)
