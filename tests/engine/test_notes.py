# SPDX-License-Identifier: Apache-2.0
"""Whether a process is the one that was noted."""

import pytest

from truestep.engine.processes.store_notes import RankProcess


@pytest.mark.parametrize(("seconds", "trouble"), [(0, None), (0.99, None), (-0.99, None), (60, "is gone")])
def test_a_process_is_told_from_another_of_its_number_by_when_it_began_to_a_second(seconds, trouble):
    this = (
        RankProcess.of_this_process()
    )  # by a clock that is set while it runs, and whose time of boot has no fractions
    assert this._replace(began=this.began + seconds).trouble == trouble
