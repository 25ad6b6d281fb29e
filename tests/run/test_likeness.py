# SPDX-License-Identifier: Apache-2.0
"""What ranks compare before they train together."""

import sys
from types import ModuleType

from truestep.run.likeness import _what_is_trained


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
            facts = _what_is_trained({})
        found.append({name: code for name, code in facts.items() if tmp_path.name in name})
    assert len(set(found[0].values())) == 2
    assert found[0] == found[1]
