# SPDX-License-Identifier: Apache-2.0
"""What the page and the README show of an experiment is what comes of the page's script."""

import re
import textwrap
from pathlib import Path

from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "experiments.md").read_text("utf-8")


NUMBERS = {"ten": 10, "十": 10}


def outcomes_of(watch):
    return [watch.experiments.outcome(code)[0] for code in watch.experiments.records]


def assert_mended_script_has_count(script, loss, evaluation):
    """The page's own lines in place of the wrong ones: no relation is broken, and the count is the one shown."""
    mended = re.sub(r"loss = .*", loss, script)
    mended = mended[: mended.index("    with torch.no_grad")] + textwrap.indent(evaluation, "    ")
    watch = watched(mended, ("REL",))
    shown = re.search(
        r"experiments: (\d+) relations hold; (\d+) broken; (\d+) not tried; (\d+) do not apply", PAGE
    )
    found = outcomes_of(watch)
    counts = [found.count(each) for each in ("held", "broken", "not tried", "not applicable")]
    assert counts == [int(each) for each in shown.groups()]


def test_the_numbers_of_the_page_are_those_of_its_script(monkeypatch):
    monkeypatch.setattr("truestep.doctor.experiments.budget.MOST_SECONDS", 600.0)  # a busy machine
    monkeypatch.setattr("truestep.doctor.experiments.budget.MOST_SECONDS_OF_CHILD", 60.0)
    script, loss, evaluation = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert_mended_script_has_count(script, loss, evaluation)
    watch = watched(script, ("REL",))
    outcomes = outcomes_of(watch)
    findings = {each.code: each for each in watch.findings}
    assert [findings[code].place.line for code in ("REL004", "REL009")] == [16, 24]
    for code in ("REL004", "REL009"):
        shown = re.search(rf"{code}  (.*?)\n *for x", PAGE, re.DOTALL)[1]
        numbers = re.findall(r"\d+\.\d+|\bby \d+\b", " ".join(shown.split()))
        assert numbers
        assert [number for number in numbers if number not in findings[code].message] == []
    for readme in ("README.md", "README.zh.md"):
        text = (REPOSITORY / readme).read_text("utf-8")
        tried = re.search(r"a-first-run\)\D*?(ten|十|10)", text)[1]
        assert NUMBERS.get(tried, 10) == outcomes.count("held") + outcomes.count("broken")
        numbers = re.search(r"#a-first-run\).*?(0\.\d+)\D*(0\.\d+)", text).groups()
        assert all(number in findings["REL009"].message for number in numbers)
