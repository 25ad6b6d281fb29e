# SPDX-License-Identifier: Apache-2.0
"""What the page and the README show of an experiment is what comes of the page's script."""

import re
from pathlib import Path

from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs" / "experiments.md").read_text("utf-8")


def test_the_numbers_of_the_page_are_those_of_its_script():
    script = re.search(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    findings = {each.code: each for each in watched(script, ("REL002", "REL009")).findings}
    assert findings["REL002"].place.line == 15
    for text in (PAGE, (REPOSITORY / "README.md").read_text("utf-8")):
        for code in ("REL002", "REL009"):
            shown = " ".join(
                re.search(rf"{code}  (.*?)\n *(?:\d+  |loss =|for x|```)", text, re.DOTALL)[1].split()
            )
            numbers = re.findall(r"\d+\.\d+%?", shown)
            assert numbers
            assert all(number in findings[code].message for number in numbers), (
                shown,
                findings[code].message,
            )
