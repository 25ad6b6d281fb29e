# SPDX-License-Identifier: Apache-2.0
"""Every script in examples/ runs, briefly, writes its report, and goes on when it is run again."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn.datasets")  # imported here, as it sets environment variables

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_trains_and_goes_on(path, tmp_path, capsys):
    directory = tmp_path / "run"
    main = runpy.run_path(str(path))["main"]
    first = main(str(directory), epochs=1)
    assert (directory / "report.html").stat().st_size > 1000
    assert main(str(directory), epochs=1) == first
    assert "nothing is left to train" in capsys.readouterr().err
