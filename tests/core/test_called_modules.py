# SPDX-License-Identifier: Apache-2.0
"""A room of the package that is called says which public name was meant."""

import re
import sys
from importlib import import_module

import pytest

import truestep as ts
from truestep.core.guidance import guidance_by_name


@pytest.mark.parametrize("name", guidance_by_name("ts.NAME()"))
def test_a_module_that_is_called_says_what_to_write(name):
    import_module(f"truestep.{name}")
    assert ts.Run  # asked for once, the modules that are imported by then answer
    sys.modules["truestep"].__dict__.pop("ClipNorm", None)
    assert ts.ClipNorm
    module = getattr(ts, name)
    assert module is sys.modules[f"truestep.{name}"]
    with pytest.raises(ts.OptionError, match=rf"^ts\.{name} is a module and can't be called\. ") as caught:
        module("runs/x")
    for named in re.findall(r"\bts\.(\w+)\(", str(caught.value)):
        assert named in ts.__all__
