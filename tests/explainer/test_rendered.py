# SPDX-License-Identifier: Apache-2.0
"""Tracebacks as rich draws them and as pytest prints them give the user's own line, at any width."""

import io

import pytest
from rich.console import Console

from truestep.explainer.logs.explaining import explain_log

MESSAGE = "mat1 and mat2 shapes cannot be multiplied (64x400 and 320x50)"
SECTION = "___________________ test_net ___________________\n"
PYTEST = f"""\
{SECTION}
    def test_net():
        net = nn.Linear(20, 5)
>       out = helper(net)
              ^^^^^^^^^^^

tests/test_net.py:10: 
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

net = Linear(in_features=20, out_features=5, bias=True)

    def helper(net):
        def inner():
            raise TypeError("no")
>       return net(x)

tests/test_net.py:6: 
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

    def forward(self, input):
>       return F.linear(input, self.weight, self.bias)
E       RuntimeError: {MESSAGE}

/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:134: RuntimeError
"""  # noqa: W291 - pytest ends these lines so
SHORT = f"""\
{SECTION}tests/test_net.py:10: in test_net
    out = helper(net)
tests/test_net.py:6: in helper
    return net(x)
/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py:134: in forward
    return F.linear(input, self.weight, self.bias)
E   RuntimeError: {MESSAGE}
___________________ test_other ___________________
tests/test_other.py:3: in test_other
    other()
E   KeyError: 'x'
"""


@pytest.fixture
def boxed(tmp_path):
    """Draw a traceback through a file of a long path."""
    file = tmp_path / "a_rather_long_folder_of_a_project" / "with_parts" / "train_the_network.py"
    file.parent.mkdir(parents=True)
    text = "\n" * 6 + "def main(secret=3):\n    raise RuntimeError(message)\nmain()\n"
    file.write_text(text, "utf-8")

    def drawn(width, **options):
        output = io.StringIO()
        try:
            exec(compile(text, str(file), "exec"), {"message": MESSAGE})
        except RuntimeError:
            Console(width=width, file=output).print_exception(**options)
        return output.getvalue()

    return drawn


@pytest.mark.parametrize("width", [200, 100, 70, 50])
@pytest.mark.parametrize("options", [{}, {"show_locals": True}])
def test_a_box_is_read_at_any_width(boxed, width, options):
    explanation = explain_log(boxed(width, **options)).main.explanation
    assert explanation.name == "matrix-sizes-differ"
    assert explanation.at == "train_the_network.py:8 in main: raise RuntimeError(message)"
    assert "320" in explanation.here


def test_a_box_shows_the_line_that_it_marks():
    text = (
        "╭──────── Traceback (most recent call last) ────────╮\n"
        "│ /home/me/train.py:34 in main                      │\n"
        "│                                                   │\n"
        "│   33 │   x, y = batch                             │\n"
        "│ ❱ 34 │   loss = criterion(net(x), y)              │\n"
        "│                                                   │\n"
        "│ /opt/lib/python3.11/site-packages/torch/nn/linear │\n"
        "│ .py:125 in forward                                │\n"
        "│                                                   │\n"
        "│ ❱ 125 │   │   return F.linear(input, self.weight) │\n"
        "╰───────────────────────────────────────────────────╯\n"
        "RuntimeError: mat1 and mat2 shapes cannot be\nmultiplied (64x400 and 320x50)\n"
    )
    report = explain_log(text * 2)
    assert report.main.explanation.at == "train.py:34 in main: loss = criterion(net(x), y)"
    assert len(report.errors) == 1


def test_a_box_without_its_end_is_said_to_be_cut(boxed):
    text = boxed(80)
    report = explain_log(text[: text.index("╰")])
    assert report.errors == ()
    assert report.cut_at == 1


@pytest.mark.parametrize("text", [PYTEST, SHORT, "E" + PYTEST[1:]])
def test_pytests_report_names_the_users_innermost_line(text):
    found = {
        each.explanation.name: each.explanation.at for each in explain_log(text).errors if each.explanation
    }
    assert found["matrix-sizes-differ"] == "test_net.py:6 in helper: return net(x)"


def test_a_message_of_several_marked_lines_is_read_whole():
    text = (
        "tests/test_a.py:4: in test_a\n    net.load_state_dict(saved)\n"
        "E   RuntimeError: Error(s) in loading state_dict for Net:\n"
        'E   \tMissing key(s) in state_dict: "a.weight". \n'
        'E   \tUnexpected key(s) in state_dict: "module.a.weight". \n'
    )
    explanation = explain_log(text).main.explanation
    assert '"module."' in explanation.here
    assert explanation.at == "test_a.py:4 in test_a: net.load_state_dict(saved)"


def test_quotations_are_still_taken_away():
    quoted = "".join(
        f"> {line}\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/home/me/train.py", line 4, in step',
            "    net(x)",
            f"RuntimeError: {MESSAGE}",
        )
    )
    assert explain_log(quoted).main.explanation.at == "train.py:4 in step: net(x)"


@pytest.mark.parametrize("end", range(0, len(SHORT), 40))
def test_any_cut_of_a_report_is_read(end):
    explain_log(SHORT[:end])
    explain_log(PYTEST[end:])
