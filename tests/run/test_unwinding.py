# SPDX-License-Identifier: Apache-2.0
"""A generator can tell a loop that is left on purpose from one that an exception goes through."""

import contextlib

import pytest

from truestep.run.unwinding import exception_on_its_way


class Watched:
    def __init__(self):
        self.seen = None

    def batches(self):
        for number in range(5):
            try:
                yield number
            except GeneratorExit:
                self.seen = "exception" if exception_on_its_way() else "left"
                raise
        self.seen = "ended"


def wrapped(iterable):
    for item in iterable:  # noqa: UP028  (a loop, as helpers write it)
        yield item


def fail():
    raise KeyError("deep")


def end(watched):
    for _ in watched.batches():
        pass


def leave(watched):
    for number in watched.batches():
        if number == 2:
            break


def leave_by_return(watched):
    for number in watched.batches():
        if number == 2:
            return number
    return None


def leave_both(watched):
    for _ in range(3):
        for number in watched.batches():
            if number == 2:
                break
        else:
            continue
        break


def leave_wrapped(watched):
    for number, _ in enumerate(wrapped(watched.batches())):
        if number == 2:
            break


def leave_zip(watched):
    for a, b in zip(watched.batches(), range(2), strict=False):
        assert a == b


def forget(watched):
    iterator = watched.batches()
    next(iterator)
    del iterator


def raise_here(watched):
    for number in watched.batches():
        if number == 2:
            raise ValueError(number)


def raise_deep(watched):
    for number in wrapped(watched.batches()):
        if number == 2:
            fail()


def raise_in_an_operation(watched):
    for number in enumerate(watched.batches()):
        1 / (2 - number[0])


def raise_and_catch(watched):
    try:
        for number in watched.batches():
            [][number]
    except IndexError:
        pass


def raise_in_a_with(watched):
    with contextlib.suppress(KeyError):
        for _ in watched.batches():
            fail()


@pytest.mark.parametrize("loop", [leave, leave_by_return, leave_both, leave_wrapped, leave_zip, forget])
def test_left_on_purpose(loop):
    watched = Watched()
    loop(watched)
    assert watched.seen == "left"


@pytest.mark.parametrize(
    "loop", [raise_here, raise_deep, raise_in_an_operation, raise_and_catch, raise_in_a_with]
)
def test_an_exception_goes_through(loop):
    watched = Watched()
    with contextlib.suppress(ValueError, KeyError, ZeroDivisionError):
        loop(watched)
    assert watched.seen == "exception"


def test_a_loop_that_ends_is_not_closed():
    watched = Watched()
    end(watched)
    assert watched.seen == "ended"
