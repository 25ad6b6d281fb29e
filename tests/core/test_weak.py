# SPDX-License-Identifier: Apache-2.0
"""Callbacks that don't keep the object whose method they call."""

import weakref

from truestep.core.weak import weak_method_callback


class Counts:
    def __init__(self):
        self.seen = []

    def take(self, *arguments):
        self.seen.append(arguments)


def test_the_method_is_called_while_its_object_lives():
    counts = Counts()
    weak_method_callback(counts.take)(1, 2)
    assert counts.seen == [(1, 2)]


def test_the_callback_keeps_nothing_and_does_nothing_afterwards():
    counts = Counts()
    gone, callback = weakref.ref(counts), weak_method_callback(counts.take)
    del counts
    assert gone() is None
    callback(1)
