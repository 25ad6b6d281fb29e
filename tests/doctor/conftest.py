# SPDX-License-Identifier: Apache-2.0
"""What the doctor's tests need of the process they run in: nothing compiled, and memory that is cheap to fork.

The watch doesn't follow operations in a process that has compiled something, and a test of compiled code may have run before.
"""

import sys

import pytest
from support import huge_pages


@pytest.fixture(scope="module", autouse=True)
def forks_are_cheap():
    huge_pages.collapse()


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if getattr(frames, "cached_backends", None):
        sys.modules["torch._dynamo"].reset()
