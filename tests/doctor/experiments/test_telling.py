# SPDX-License-Identifier: Apache-2.0
"""What a report says of experiments of which none could be tried, and of those that a process had no time for."""

from types import SimpleNamespace

import pytest

from truestep.doctor.experiments.experiment_report import experiment_report_lines


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        (("not tried:a run", "not tried:a run"), "none of 2 relations was tried: a run ("),
        (("not tried:a run", "not applicable:"), "none of 1 relation was tried: a run; 1 does not apply ("),
        (("not tried:", "not tried:"), "none of 2 relations was tried: the script was over before ("),
        (("held:", "not tried:a run"), "1 relation holds; 0 broken; 1 not tried: a run ("),
    ],
)
def test_the_first_line(outcomes, told):
    found = {f"REL{number:03}": tuple(each.split(":")) for number, each in enumerate(outcomes)}
    experiments = SimpleNamespace(
        records=found,
        outcome=found.__getitem__,
        why_not_tried=lambda code: found[code][1],
        budget=SimpleNamespace(num_children=0),
        seconds=0.0,
    )
    lines = experiment_report_lines(experiments)
    assert lines == [f"experiments: {told}0 children in 0.00 s)"]
