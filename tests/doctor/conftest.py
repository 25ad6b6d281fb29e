# SPDX-License-Identifier: Apache-2.0
"""The watch doesn't follow operations in a process that has compiled something; a test of compiled code may have run before."""

import sys

import pytest


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if getattr(frames, "cached_backends", None):
        sys.modules["torch._dynamo"].reset()
