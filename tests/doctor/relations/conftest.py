# SPDX-License-Identifier: Apache-2.0
"""Drawn programs set what is global; it is put back behind each test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _default_dtype_put_back():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)
