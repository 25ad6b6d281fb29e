# SPDX-License-Identifier: Apache-2.0
"""`python -m truestep` is `truestep`, which imports nothing from the folder it is called in: it reads other people's code there."""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120  pathlib may be theirs


def main() -> None:
    """Run the command; what it needs is imported here, where Ctrl+C and SIGTERM end it with one line."""
    from truestep.cli.early_signals import end_plainly_until_loaded, give_signals_back

    end_plainly_until_loaded()
    try:
        from truestep.cli.main import main as run_command

        run_command()
    finally:
        give_signals_back()


if __name__ == "__main__":
    if sys.path and not sys.flags.safe_path and os.path.abspath(sys.path[0]) != _HOME:  # noqa: PTH100
        del sys.path[0]
    main()
