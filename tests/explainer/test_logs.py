# SPDX-License-Identifier: Apache-2.0
"""Logs: of several ranks in one another, of thousands of lines, of notebooks, quoted, cut, with and without tracebacks."""

import random
import time

import pytest

from truestep.explainer.logs.explaining import explain_log
from truestep.explainer.logs.log_errors import decode_error_log, read_error_log

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 34, in <module>
    main()
  File "/home/me/train.py", line 30, in main
    loss = criterion(net(x), y)
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x400 and 320x50)
"""
TIMEOUT = (
    "[E ProcessGroupNCCL.cpp:475] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE,"
    " NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)


def name_of(text):
    main = explain_log(text).main
    return main.explanation.name if main and main.explanation else None


@pytest.mark.parametrize(
    "prefix",
    [
        *("", "[rank0]: ", "[default0]:", "0: ", "[1,0]<stderr>:", "> "),
        *("2026-01-01T10:00:00.123456789Z ", "(Worker pid=12, ip=10.0.0.1) "),
        *("\x1b[31m", "\x1b[36m(Trainer pid=7)\x1b[0m "),
    ],
)
def test_what_launchers_put_before_each_line_is_taken_away(prefix):
    text = "\n".join(prefix + line for line in TRACEBACK.splitlines())
    report = explain_log(text)
    assert report.main.explanation.name == "matrix-sizes-differ"
    assert report.main.explanation.at == "train.py:30 in main: loss = criterion(net(x), y)"


def test_the_users_own_line_and_what_a_log_can_not_tell_are_said():
    lines = explain_log(TRACEBACK).main.explanation.lines()
    assert any(line.startswith("  At:    train.py:30") for line in lines)
    assert any(line.startswith("  Log:   can't tell the shapes") for line in lines)


def test_an_error_is_found_in_thousands_of_lines():
    noise = [f"step {step} loss {1 / (step + 1):.3f} WARNING: slow batch" for step in range(20_000)]
    noise[12_345:12_345] = TRACEBACK.splitlines()
    report = explain_log("\n".join(noise))
    assert report.main.explanation.name == "matrix-sizes-differ"
    assert report.main.line == 12_345 + len(TRACEBACK.splitlines())


def test_ranks_written_into_one_another_are_read_apart():
    random.seed(0)
    rows = {rank: [f"[rank{rank}]: {line}" for line in TRACEBACK.splitlines()] for rank in range(4)}
    mixed = []
    while any(rows.values()):
        rank = random.choice([rank for rank in rows if rows[rank]])
        mixed.append(rows[rank].pop(0))
    (error,) = explain_log("\n".join(mixed)).errors
    assert error.ranks == (0, 1, 2, 3)
    assert error.explanation.name == "matrix-sizes-differ"


def test_the_rank_that_failed_comes_before_those_that_waited_for_it():
    waiting = [f"[rank{rank}]: RuntimeError: {TIMEOUT}" for rank in (0, 2, 3)]
    failed = [f"[rank1]: {line}" for line in TRACEBACK.splitlines()]
    launcher = ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "]
    first, *others = explain_log("\n".join(waiting + failed + launcher)).errors
    assert (first.explanation.name, first.ranks) == ("matrix-sizes-differ", (1,))
    assert {each.explanation.name for each in others} == {"process-group-timed-out", "child-failed"}


def test_an_error_that_was_caught_early_is_not_what_the_process_died_of():
    fatal = (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    f()\nKeyError: 'x'\n"
    )
    report = explain_log(TRACEBACK + "going on without it\n" * 50 + fatal)
    assert report.main.explanation is None
    assert report.main.error == "KeyError: 'x'"
    assert [each.explanation.name for each in report.errors[1:]] == ["matrix-sizes-differ"]


def test_of_a_chain_the_known_one_is_explained():
    outer = (
        "\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
        '  File "a.py", line 1, in <module>\n    f()\nmy.TrainingError: it failed\n'
    )
    assert name_of(TRACEBACK + outer) == "matrix-sizes-differ"


def test_of_a_workers_error_the_original_is_explained():
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    for b in loader:\n'
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal " + TRACEBACK
    )
    assert name_of(text) == "matrix-sizes-differ"


def test_a_notebooks_traceback_is_read():
    text = """\
---------------------------------------------------------------------------
RuntimeError                              Traceback (most recent call last)
<ipython-input-3-0123456789ab> in <module>
      1 x = torch.rand(2, 3)
----> 2 net(x)

/usr/local/lib/python3.10/dist-packages/torch/nn/modules/module.py in _call_impl(self, *args)
   1509         else:
-> 1511             return self._call_impl(*args, **kwargs)

RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)
"""
    explanation = explain_log(text).main.explanation
    assert explanation.name == "matrix-sizes-differ"
    assert explanation.at.endswith("net(x)")


def test_a_message_of_several_lines_is_read_whole():
    text = (
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "a.weight", "a.bias". \n'
        '\tUnexpected key(s) in state_dict: "module.a.weight", "module.a.bias". \n'
    )
    assert '"module."' in explain_log(text).main.explanation.here


def test_a_kernels_assertion_is_read_with_the_error_that_follows_it():
    text = (
        "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [1,0,0], thread: [0,0,0] Assertion "
        "`srcIndex < srcSelectDimSize` failed.\n"
        * 40
        + TRACEBACK.replace(
            "mat1 and mat2 shapes cannot be multiplied (64x400 and 320x50)",
            "CUDA error: device-side assert triggered",
        )
    )
    explanation = explain_log(text).main.explanation
    assert explanation.name == "device-side-assert"
    assert "embedding" in explanation.here


def test_a_line_without_an_exception_tells_of_a_known_error():
    assert (
        name_of("epoch 1\nepoch 2\nslurmstepd: error: Detected 1 oom_kill event in StepId=3.batch.\n")
        == "process-killed"
    )
    assert (
        name_of("[W:onnxruntime] Some nodes were not assigned to the preferred execution providers")
        == "provider-unavailable"
    )


def test_a_progress_bar_and_bytes_of_other_encodings_do_no_harm():
    assert name_of(f"\r 10%|#\r 20%|##\rRuntimeError: {TIMEOUT}") == "process-group-timed-out"
    for encoding in ("utf-8", "utf-16"):
        assert name_of(decode_error_log(TRACEBACK.encode(encoding))) == "matrix-sizes-differ"
    assert name_of(decode_error_log(b"\xff\xfe\x00\x81" + TRACEBACK.encode())) in (
        None,
        "matrix-sizes-differ",
    )


def test_a_log_without_an_error_has_none():
    report = explain_log("\n".join(f"epoch {epoch} accuracy 0.9" for epoch in range(100)))
    assert report.errors == ()


def test_an_unknown_message_lists_the_nearest():
    (error,) = explain_log(
        "ValueError: the convolution of this image has a kernel that is too large for the channels"
    ).errors
    assert error.explanation is None
    assert "convolution-channels-differ" in error.nearest


def test_any_cut_of_a_log_is_read():
    whole = "\n".join(f"[rank{rank}]: {line}" for line in TRACEBACK.splitlines() for rank in (0, 1))
    for end in range(0, len(whole), 7):
        explain_log(whole[:end])
        explain_log(whole[end:])


def test_lines_that_only_look_like_tracebacks_take_no_long_time():
    text = "Traceback (most recent call last):\n" * 3000 + '  File "x", line 1, in f\n' * 3000
    assert read_error_log(text).found == []


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("C:\\Users\\me\\project\\train.py", "train.py:5 in step: net(x)"),
        ("/home/me/project/lib/train.py", "train.py:5 in step: net(x)"),
        ("C:\\Python310\\lib\\site-packages\\torch\\nn\\modules\\linear.py", None),
        ("/opt/conda/lib/python3.10/runpy.py", None),
    ],
)
def test_the_users_own_line_is_told_from_a_packages_by_its_path(path, shown):
    text = (
        f'Traceback (most recent call last):\n  File "{path}", line 5, in step\n    net(x)\n'
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n"
    )
    assert explain_log(text).main.explanation.at == shown


@pytest.mark.parametrize(
    "text",
    ["OSError: [Errno 98] Address already in use", "requests.exceptions.ConnectionError: Socket Timeout"],
)
def test_errors_of_other_programs_are_not_taken_for_torchs(text):
    assert name_of(text) is None


def test_long_lines_and_many_take_time_in_proportion():
    def seconds(count):
        text = "A" * 1_000_000 + "".join(
            f"\nINFO loss 0.5 Error in {chr(97 + index % 26) * (1 + index // 26)}: Xerror {'B' * 500}"
            for index in range(count)
        )
        started = time.process_time()
        explain_log(text)
        return time.process_time() - started

    seconds(100)
    assert seconds(2_000) < 12 * seconds(500)


def test_pytests_summary_which_cuts_messages_is_not_taken_for_the_error():
    text = (
        ">       net(torch.zeros(4, 10))\n"
        "E       RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x10 and 20x5)\n\n"
        "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:134: RuntimeError\n"
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_net.py::test_net - RuntimeError: mat1 and mat2 shapes cannot be ...\n"
    )
    (error,) = explain_log(text).errors
    assert error.explanation.name == "matrix-sizes-differ"


@pytest.mark.parametrize("end", [40, 100, 200, TRACEBACK.index("RuntimeError")])
def test_a_traceback_without_its_end_is_said_to_be_cut(end):
    noise = "step 1 loss 0.5\n" * 30
    for before in ("", noise):
        report = explain_log(before + TRACEBACK[:end])
        assert report.errors == ()
        assert report.cut_at == before.count("\n") + 1
    assert explain_log(TRACEBACK + noise + TRACEBACK[:end]).main.explanation.name == "matrix-sizes-differ"
    assert explain_log(TRACEBACK + noise + TRACEBACK[:end]).cut_at == 9 + 30
    assert explain_log(TRACEBACK).cut_at is None


def test_lines_are_counted_as_editors_count_them():
    assert explain_log("").num_lines == 0
    assert explain_log(TRACEBACK).num_lines == len(TRACEBACK.splitlines())
    assert explain_log(TRACEBACK.rstrip()).num_lines == len(TRACEBACK.splitlines())


def test_controls_are_taken_out_and_with_them_the_nuls_of_unmarked_utf_16():
    report = explain_log(decode_error_log(TRACEBACK.encode("utf-16-le")))
    assert report.main.explanation.at == "train.py:30 in main: loss = criterion(net(x), y)"
    shown = explain_log("\x1b]0;title\x1b\\\x9b2J\x08\x07RuntimeError: mat1 \x1b[2Kand\x1b7").main.error
    assert shown.isprintable()
