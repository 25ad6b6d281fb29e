# SPDX-License-Identifier: Apache-2.0
"""`truestep explain`: what the error in a log means, and what to do."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from truestep.cli.command_output import print_json_document, print_wrapped_lines
from truestep.cli.options import Json
from truestep.cli.statuses import EXIT_FAILED
from truestep.cli.usage import EXAMPLE
from truestep.core.errors import OptionError, did_you_mean_path
from truestep.core.os_specific import is_path_with_folder
from truestep.explainer.explanation import note_width_in_columns
from truestep.explainer.logs.explaining import ErrorLogReport, ExplainedLogError, explain_log
from truestep.explainer.logs.log_errors import decode_error_log

app = typer.Typer(add_completion=False)
_MAX_OTHERS = 5
_CODE = (".py", ".ipynb")
_HEAD = 4096
_MAX_NAME = 255  # a longer word is no file's name anywhere, but a message


@app.command(epilog=f"{EXAMPLE}truestep explain train.log")
def explain(
    log: Annotated[
        str,
        typer.Argument(
            help="A file, - for what is piped in, or the message itself.", metavar="FILE|-|MESSAGE"
        ),
    ],
    as_json: Json = False,
) -> None:
    """Say what the error in a log means, its likeliest cause there, and what to do; imports no torch.

    A log may be of any length and of several ranks. The error to mend comes first, then those that follow from it.
    The exit status is 1 where no error was found, or none that is known.
    """
    text = _read_log_text(log)
    report = explain_log(text, is_file=text is not log)
    if as_json:
        print_json_document(report.to_dict())
    else:
        print_wrapped_lines(_explanation_lines(report))
    if report.main is None or report.main.explanation is None:
        raise typer.Exit(EXIT_FAILED)


def _read_log_text(log: str) -> str:
    if log == "-":
        return decode_error_log(sys.stdin.buffer.read())
    if len(log) <= _MAX_NAME and "\n" not in log and "\0" not in log:
        path = Path(log)
        if path.is_file() or path.is_fifo():  # as `<(command)` is
            if path.suffix in _CODE:
                raise OptionError(
                    f"{log} is code, and what is explained is what it printed: python {log} 2> train.log, and then "
                    "truestep explain train.log. To look for mistakes in it write: truestep read "
                    f"{log}; to run and watch it: truestep doctor {log}"
                )
            return _decode_log(log, path.read_bytes())
        if path.is_dir() or (
            " " not in log
            and (is_path_with_folder(log) or path.suffix in (".log", ".txt", ".out", ".err", *_CODE))
        ):
            raise OptionError(
                f"There is no file {log!r} to explain.{did_you_mean_path(path)} A message stands in quotes, and - reads what is "
                "piped in."
            )
    return log


def _decode_log(log: str, content: bytes) -> str:
    """Return the text of a log; raise where it is no text."""
    if b"\0\0\0" in content[:_HEAD]:  # of UTF-16 every other byte may be one
        raise OptionError(
            f"{log} is no text, so there is no error to explain in it. Give what a program printed: python train.py 2> train.log, "
            "and then truestep explain train.log"
        )
    return decode_error_log(content)


def _explanation_lines(report: ErrorLogReport) -> list[str]:
    main = report.main
    cut = [_cut_off_note(report.cut_at)] if report.cut_at else []
    if main is None:
        return cut or [_no_error_found_message(report.num_lines)]
    shown = [
        *_heading_lines(main, report),
        *(
            main.explanation.lines(note_width_in_columns(sys.stdout))
            if main.explanation
            else _unknown_error_lines(main)
        ),
    ]
    others = report.errors[1 : 1 + _MAX_OTHERS]
    if others:
        shown += ["", "Also in it:"]
    for each in others:
        known = f"  ({each.explanation.name})" if each.explanation else ""
        shown.append(f"  line {each.line}{_format_ranks(each)}: {each.error[:120]}{known}")
    more = len(report.errors) - 1 - len(others)
    shown += [f"  and {more} more (--json has all)"] if more > 0 else []
    return [*shown, "", *cut] if cut else shown


def _cut_off_note(line: int) -> str:
    return f"The traceback at line {line} is cut: its last line, which names the error, is not in the log."


def _no_error_found_message(num_lines: int) -> str:
    if not num_lines:
        return "There is nothing in it: the log is empty."
    return f"There is no error in {'this line' if num_lines == 1 else f'these {num_lines} lines'}."


def _heading_lines(main: ExplainedLogError, report: ErrorLogReport) -> list[str]:
    where = f"line {main.line} of {report.num_lines}{_format_ranks(main)}: " if report.num_lines > 1 else ""
    return [f"{where}{main.error}", ""]


def _format_ranks(error: ExplainedLogError) -> str:
    if not error.ranks:
        return ""
    word = "rank" if len(error.ranks) == 1 else "ranks"
    return f", {word} {', '.join(map(str, error.ranks[:8]))}{', ...' if len(error.ranks) > 8 else ''}"


def _unknown_error_lines(main: ExplainedLogError) -> list[str]:
    near = f" Nearest: {', '.join(main.nearest)} (truestep errors NAME)." if main.nearest else ""
    return [f"This error is not known.{near}", "`truestep errors` lists those that are."]
