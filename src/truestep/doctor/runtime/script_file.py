# SPDX-License-Identifier: Apache-2.0
"""What `truestep doctor` was given to run: a script or a notebook, or what it is where it is neither."""

from pathlib import Path

from truestep.checkpoints.foreign_formats import describe_path_without_run, has_weights_extension
from truestep.core.errors import OptionError, did_you_mean_path
from truestep.doctor.runtime.launch_commands import refuse_launcher
from truestep.doctor.runtime.script import WatchedScript

# endings of what no one runs with python; most other text is no Python either, and says so by its first line
_NO_SCRIPTS = frozenset(
    {".txt", ".md", ".rst", ".log", ".csv", ".json", ".yaml", ".yml", ".toml", ".ini", ".sh", ".html"}
)
_NAME_IT = "Name the script, or notebook, that trains: truestep doctor train.py"


def check_script(script: WatchedScript) -> None:
    """Raise an OptionError unless there is a script, a notebook or a module to run; and for a command that starts scripts."""
    refuse_launcher(script)
    path = Path(script.name)
    if script.is_module:
        if path.is_file():
            raise OptionError(
                f"-m takes a module, and {script.name} is a file. Write: truestep doctor {script.name}"
            )
        return
    if not path.is_file():
        raise OptionError(f"There is no file {script.name!r} to run.{_suggest_instead(script, path)}")
    if has_weights_extension(path):
        raise OptionError(
            f"{script.name} is no script, so nothing was run.{describe_path_without_run(path)} {_NAME_IT}"
        )
    if path.suffix.lower() in _NO_SCRIPTS:
        raise OptionError(
            f"{script.name} is no script by its ending, so nothing was run. {_NAME_IT}; if it is one, rename it to .py."
        )


def _suggest_instead(script: WatchedScript, path: Path) -> str:
    """Return the nearest files, or what lies in a folder; of what looks like a report's file, the option that takes it."""
    if path.suffix in (".json", ".sarif", ".txt") and script.arguments:
        return f" Write the report's file behind --out: --out {script.name} {script.arguments[0]}"
    if not path.is_dir():
        return did_you_mean_path(path) or f" {_NAME_IT}"
    inside = did_you_mean_path(path)
    if "holds" in inside:
        return f"{inside} Name the one that trains. `truestep read {path}` reads all of them."
    return f" It is a folder without a script.{describe_path_without_run(path)} {_NAME_IT}"
