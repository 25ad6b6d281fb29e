# SPDX-License-Identifier: Apache-2.0
"""A check that says that something never happens says so of a closed world alone: where each call that could do it is followed."""

import re

import pytest

from truestep.doctor.catalogue import checks
from truestep.doctor.check import SourceCheck
from truestep.doctor.linting import read_text, read_texts
from truestep.doctor.page import PRELUDE

READERS = {code: check for code, check in checks().items() if issubclass(check, SourceCheck)}
NEVER = [code for code, check in READERS.items() if check.never]

# By the check: what it misses in its Bad, and the line there before which that is to happen.
MISSING = {
    "AMP001": ("scaler.unscale_(opt)", "    nn.utils.clip_grad_norm_"),
    "AMP007": ("scaler.scale(loss).backward()", "    loss.backward()"),
    "DATA005": ("torch.utils.data.get_worker_info()", "        return iter"),
    "DEV003": ("print(sess.get_providers())", ""),
    "DIST001": ("sampler.set_epoch(0)", "    for x, y in loader"),
    "EVAL002": ("net.eval()", "with torch.no_grad"),
    "EVAL003": ("net.train()", "    for x, y in loader"),
    "EVAL004": ("torch.set_grad_enabled(False)", "for x, y in test_loader"),
    "EVAL008": ("net.eval()", "prediction = "),
    "EVAL042": ("task.valid_acc.update(1, 1)", "        self.log"),
    "GRAD001": ("opt.zero_grad()", "    F.cross_entropy"),
    "GRAD003": ("opt.zero_grad()", "        F.cross_entropy"),
    "GRAD006": ("opt.step()", ""),
    "GRAD007": ("opt.step()", ""),
    "GRAD016": ("handle.remove()", "    net(x)"),
    "GRAD020": ("opt_g.zero_grad()", "g_loss = "),
    "GRAD024": ("F.cross_entropy(net(x), y).backward()", "    opt.step"),
    "GRAD045": ("opt.zero_grad()", "    loss = "),
    "GRAD046": ("accelerator.accumulate(net).__enter__()", "    loss = "),
    "PARAM022": ("target_net.load_state_dict(net.state_dict())", "    opt.step"),
    "SAVE005": ('torch.save(opt.state_dict(), "opt.pt")', "    torch.save"),
    "SAVE011": ('opt.load_state_dict(torch.load("last.pt")["opt"])', "    net.load_state_dict"),
    "SCHED002": ("sched.step()", "    opt.zero_grad"),
}

# These look for the name of what they miss in the whole program: where it stands anywhere they never say "never".
BY_NAME = {
    "AMP007", "DATA005", "DEV003", "DIST001", "EVAL004", "EVAL008", "EVAL042", "GRAD007", "GRAD024", "PARAM022",
    "SAVE005", "SCHED002",
}  # fmt: skip

# What is absent here is absent from one call, expression, class or option, whatever else the program runs.
FROM_THE_TEXT = {
    "DATA001", "DEV006", "EVAL001", "EVAL009", "GRAD005", "GRAD011", "GRAD040", "LOSS007",
    "LOSS011", "LOSS035", "OLD010", "PARAM004", "PARAM011", "PARAM021", "PARAM038", "PARAM047",
    "SCHED008", "SEED002", "VALUE014", "VALUE028", "VALUE029", "VALUE030", "VALUE032", "VALUE041",
}  # fmt: skip
ABSENCE = re.compile(r"\b(never|without|nothing|no|not|none)\b", re.IGNORECASE)

# By the habit: what stands before the program, and the line that makes it happen.
HABITS = {
    "decorator": (
        (
            "def doing(function):\n    def wrapper(*given):\n        ACT\n        return function(*given)\n"
            "    return wrapper\n\n@doing\ndef noted():\n    return None\n"
        ),
        "noted()",
    ),
    "callback": ('def act():\n    ACT\n\nhooks = {"each": [act]}\n', 'for each in hooks["each"]: each()'),
    "partial": (
        "import functools\n\ndef act(what):\n    ACT\n\nlater = [functools.partial(act, None)]\n",
        "later[0]()",
    ),
    "hook": (
        "def act(*given):\n    ACT\n\nother = nn.Linear(2, 2)\nother.register_forward_hook(act)\n",
        "other(x)",
    ),
    "subclass": (
        (
            "class Before:\n    def happens(self):\n        pass\n\nclass Mine(Before):\n    def happens(self):\n        ACT\n\n"
            'KINDS = {"mine": Mine}\nbefore = KINDS[os.environ["KIND"]]()\n'
        ),
        "before.happens()",
    ),
}

LEFT_OUT = ("", "...")  # a page shows a part of a program


def with_it_behind(code, habit, act=None):
    """Return the check's Bad with what it misses, or something else, moved behind a habit."""
    missing, line = MISSING[code]
    act = act or missing
    before, call = HABITS.get(habit, LEFT_OUT)
    lines = READERS[code].page().bad.splitlines()
    at = (
        next((number for number, each in enumerate(lines) if each.startswith(line)), len(lines))
        if line
        else len(lines)
    )
    indent = re.match(" *", lines[min(at, len(lines) - 1)])[0]
    lines.insert(at, indent + call)
    return PRELUDE + before.replace("ACT", act) + "\n" + "\n".join(lines) + "\n"


def test_a_check_that_says_never_says_of_which_action():
    said = {code for code, check in READERS.items() if ABSENCE.search(check.page().summary)}
    assert said - set(NEVER) == FROM_THE_TEXT


@pytest.mark.parametrize("habit", [*HABITS, "left out"])
@pytest.mark.parametrize("code", NEVER)
def test_it_is_not_said_of_what_happens_behind_a_call_that_is_not_followed(code, habit):
    reading = read_text(with_it_behind(code, habit))
    assert [each for each in reading.findings if each.code == code] == []
    if code not in BY_NAME and habit != "decorator":  # a decorator is followed
        assert code in {each.code for each in reading.abstentions}


@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize("code", NEVER)
def test_it_is_still_said_where_another_thing_happens_there(code, habit):
    reading = read_text(with_it_behind(code, habit, act="pass"))
    assert code in {each.code for each in reading.findings}


@pytest.mark.parametrize("habit", ["callback", "hook", "partial", "subclass"])
def test_what_another_script_does_opens_nothing(habit):
    """Two scripts that share a file are one program to whoever links them: neither runs in the other."""
    before, call = HABITS[habit]
    shared = "import torch\n\n\ndef make():\n    return torch.nn.Linear(3, 3)\n"
    loop = "from shared import make\n\nnet = make()\n" + READERS["GRAD001"].page().bad
    texts = {
        "shared.py": shared,
        "plain.py": PRELUDE + loop,
        "other.py": PRELUDE + before.replace("ACT", "opt.zero_grad()") + f"\n{loop}    {call}\n",
    }
    found = [(each.code, each.place.path) for each in read_texts(texts).findings]
    assert found == [("GRAD001", "plain.py")]
