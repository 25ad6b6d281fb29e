# SPDX-License-Identifier: Apache-2.0
"""What ranks compare before they train together."""

import hashlib
import json
import sys
from types import ModuleType

import pytest

import truestep as ts
from truestep.run.agreement import RankAgreement
from truestep.run.rank_consistency import _code_and_parameter_facts


def test_files_of_one_name_are_two_whatever_is_imported_first(tmp_path, monkeypatch):
    """Of two packages' `__init__.py` only the one that was imported last was compared, and ranks may import in another order."""
    found = []
    for order in (("nets", "plots"), ("plots", "nets")):
        with monkeypatch.context() as patched:
            for package in order:
                file = tmp_path / package / "__init__.py"
                file.parent.mkdir(exist_ok=True)
                file.write_text(f"name = {package!r}\n")
                module = ModuleType(package)
                module.__file__ = str(file)
                patched.setitem(sys.modules, package, module)
            facts = _code_and_parameter_facts({})
        found.append({name: code for name, code in facts.items() if tmp_path.name in name})
    assert len(set(found[0].values())) == 2
    assert found[0] == found[1]


class Ranks:
    """Stands for a world in which each rank gave what it is told here."""

    def __init__(self, *facts):
        self._facts = facts

    def share_bytes(self, mine, what):
        packed = [json.dumps(each).encode() for each in self._facts]
        return packed if mine in packed else [hashlib.sha256(each).digest() for each in packed]


def test_a_file_that_one_rank_alone_imports_is_no_difference():
    mine = {"the code of train.py": "1", "rate": 0.1}
    for other in (mine | {"the code of plots.py": "2"}, {"rate": 0.1}):
        RankAgreement(Ranks(mine, other)).refuse_rank_differences("what they train", lambda: mine)
    for other in (mine | {"the code of train.py": "2"}, {"the code of train.py": "1"}, mine | {"rate": 0.2}):
        with pytest.raises(ts.OptionError, match="differ in what they train"):
            RankAgreement(Ranks(mine, other)).refuse_rank_differences("what they train", lambda: mine)
