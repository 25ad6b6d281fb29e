# SPDX-License-Identifier: Apache-2.0
"""`python -m support.on_card FILES`: run tests that need a GPU on the stand-in of two cards."""

import sys

import pytest

from support.card import Card

if __name__ == "__main__":
    with Card(count=2):
        sys.exit(pytest.main(["-q", "-rfE", "-m", "gpu", "-p", "no:cacheprovider", *sys.argv[1:]]))
