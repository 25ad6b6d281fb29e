# SPDX-License-Identifier: Apache-2.0
"""Progress on a real terminal (a pty), in a pipe and in a file."""

import contextlib
import io
import os
import pty
import re
import textwrap
import timeit

import pytest
import torch
from support import warm

import truestep as ts
from truestep.run.progress import Progress
from truestep.run.progress.screens import progress_html

RUN = """
    import math, sys
    from truestep.run.progress import Progress
    progress = Progress(2, 5, sys.stderr)
    step = 0
    for epoch in range(2):
        for batch in range(1, 6):
            step += 1
            if progress.tick(step, epoch, batch):
                progress.show({"loss": math.nan, "samples_per_second": 51234.0, "updates_skipped": 3})
        progress.line(f"saved [bold]{epoch}")
        print("printed by the user")
        progress.end_epoch({"loss": math.nan, "accuracy": 0.9})
    progress.close()
"""


def on_terminal(program, columns=80, **environment):
    """Run a program whose three streams are a terminal; return what the terminal received."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    clean |= {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24", **environment}
    process = warm.Process(
        "-c", textwrap.dedent(program), stdin=theirs, stdout=theirs, stderr=theirs, env=clean
    )
    os.close(theirs)
    received = b""
    with contextlib.suppress(OSError):  # the end of a pty is an error on Linux
        while part := os.read(ours, 65536):
            received += part
    os.close(ours)
    assert process.wait() == 0, received.decode()
    return received.decode()


def in_pipe(program, **environment):
    result = warm.run("-c", textwrap.dedent(program), env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr
    return result.stderr


def lines_of(text):
    """Every line that was drawn, also those drawn over later."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


def test_a_terminal_shows_epoch_step_loss_rate_time_and_skipped_updates():
    seen = "\n".join(lines_of(on_terminal(RUN)))
    for words in ("epoch 2/2", "100%", "took 0:00", "step 10", "loss NaN", "51.2k samples/s", "skipped 3"):
        assert words in seen
    assert "accuracy 0.9000" in seen


def test_messages_and_prints_keep_lines_of_their_own():
    lines = lines_of(on_terminal(RUN))
    assert [line for line in lines if line.startswith("saved")] == ["saved [bold]0", "saved [bold]1"]
    assert lines.count("printed by the user") == 2


def test_a_terminal_gets_its_cursor_back_also_after_an_exception():
    broken = RUN.replace("progress.close()", "raise SystemExit(0)")
    for program in (RUN, broken):
        received = on_terminal(program)
        assert "\x1b[?25l" in received
        assert received.rindex("\x1b[?25h") > received.rindex("\x1b[?25l")


@pytest.mark.parametrize("columns", [20, 40, 79, 80, 200])
def test_no_line_is_wider_than_the_terminal(columns):
    progress_lines = [
        line for line in lines_of(on_terminal(RUN, columns)) if line.startswith(("epoch", "step"))
    ]
    assert progress_lines
    assert max(map(len, progress_lines)) < columns


def test_colours_stay_away_when_they_are_not_wanted():
    colours = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colours.search(on_terminal(RUN))
    assert not colours.search(on_terminal(RUN, NO_COLOR="1"))


def test_a_dumb_terminal_and_a_pipe_get_plain_lines():
    for text in (on_terminal(RUN, TERM="dumb"), in_pipe(RUN), in_pipe(RUN, FORCE_COLOR="1")):
        assert "\x1b" not in text
        last = [line for line in lines_of(text) if line.startswith("epoch 2/2")][-1]
        assert last.startswith(
            "epoch 2/2  step 10  loss NaN  skipped 3  accuracy 0.9000  51.2k samples/s  took"
        )


def test_a_pipe_of_many_short_epochs_is_not_flooded():
    stream = io.StringIO()
    progress = Progress(1000, 1, stream)
    for epoch in range(1000):
        if progress.tick(epoch + 1, epoch, 1):
            progress.show({"loss": 1.0})
        progress.end_epoch({})
    progress.close()
    lines = stream.getvalue().splitlines()
    assert 2 <= len(lines) < 50
    assert lines[-1].startswith("epoch 1000/1000")


def test_nothing_is_due_between_two_showings_and_values_are_asked_for_only_when_it_is():
    stream = io.StringIO()
    progress = Progress(1, 10_000, stream)
    due = []
    for step in range(1, 10_001):
        if progress.tick(step, 0, step):
            due.append(step)
            progress.show({})
    assert due == [1]


def test_a_tick_that_shows_nothing_costs_next_to_nothing():
    progress = Progress(1, 10**9, io.StringIO())
    progress.tick(1, 0, 1)
    progress.show({})
    nothing = min(timeit.repeat(lambda: len(()), number=20_000, repeat=7))
    tick = min(timeit.repeat(lambda: progress.tick(2, 0, 2), number=20_000, repeat=7))
    assert tick < 20 * nothing  # a ratio, for absolute times depend on the machine


def test_the_number_of_batches_is_learnt_from_the_first_whole_epoch():
    stream = io.StringIO()
    progress = Progress(2, None, stream)
    for step in range(1, 6):
        if progress.tick(step, 0, step):
            progress.show({})
    progress.end_epoch({})
    progress.tick(6, 1, 1)
    progress.show({})
    assert "so far" in stream.getvalue().splitlines()[0]
    assert "left" in stream.getvalue().splitlines()[-1]


def test_the_time_left_of_a_resumed_run_counts_only_what_this_process_did(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("truestep.run.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    progress = Progress(10, 100, stream)
    progress.tick(900, 8, 100)
    progress.show({})
    now += 30
    progress.tick(930, 9, 30)
    progress.show({})
    assert stream.getvalue().splitlines()[-1].endswith("1:10 left")


def test_a_stream_that_goes_away_ends_the_showing_and_not_the_run():
    stream = io.StringIO()
    progress = Progress(1, 10, stream)
    stream.close()
    assert progress.tick(1, 0, 1)
    progress.show({"loss": 1.0})
    progress.line("lost")
    assert not progress.tick(2, 0, 2)
    progress.close()


def test_without_a_stream_nothing_is_ever_due():
    progress = Progress(1, 10, None)
    assert not progress.tick(1, 0, 1)
    progress.line("unheard")
    progress.end_epoch({})
    progress.close()


def test_a_learners_name_stands_before_its_values():
    stream = io.StringIO()
    progress = Progress(1, 2, stream)
    progress.tick(1, 0, 1)
    progress.show({"critic/loss": 0.25, "critic/updates_skipped": 2, "critic/learning_rate": 0.1})
    assert "critic loss 0.2500  critic skipped 2" in stream.getvalue()
    assert "learning" not in stream.getvalue()


def test_a_cell_shows_the_same_and_escapes_names():
    progress = Progress(1, 2, io.StringIO())
    progress.tick(1, 0, 1)
    progress.show({"loss": float("nan"), "<b>": 1.0})
    page = progress_html(progress._reading)
    assert 'value="0.5000"' in page
    assert "loss NaN" in page
    assert "&lt;b&gt; 1" in page


@pytest.mark.parametrize("total", [1, 7])
def test_a_run_by_steps_shows_where_it_ended(total, tmp_path, capsys):
    for _ in range(2):
        run = ts.Run(tmp_path, seed=0)
        net = run.learner(torch.nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))
        for _ in run.steps(total):
            net.update(lambda rows, net=net: net(rows).squeeze(1), torch.ones(4, 2))
    shown = [line for line in capsys.readouterr().err.splitlines() if " steps  step " in line]
    assert f"{total}/{total} steps  step {total}  loss " in shown[-1]
    assert "took" in shown[-1]
    assert not any(line.startswith("0/") for line in shown)  # the second start has nothing to do
