# SPDX-License-Identifier: Apache-2.0
"""The ways to an object are written as one would write them, and looking keeps nothing alive."""

import gc
import sys
import threading
import types
import weakref
from collections import deque
from functools import partial

import pytest

from truestep.machine.memory.object_holders import ReferrerPathFinder


class Thing:
    """Something to be held; unlike an int it is tracked by the garbage collector."""

    def __init__(self):
        self.payload = []


class Slotted:
    __slots__ = ("inside",)


class Box:
    kept = None


@pytest.fixture
def module():
    """A module whose name is known, as a user's script is."""
    made = types.ModuleType("a_script")
    sys.modules["a_script"] = made
    yield made
    del sys.modules["a_script"]


def way(thing):
    ways = ReferrerPathFinder(ignored=[]).paths_to(thing)
    return [one for one in ways if one.startswith("a_script")]


def hold(module, build):
    """Put `build(thing)` into the module and return a way to the thing, which nothing else holds."""
    thing = Thing()
    module.x = build(thing)
    (found,) = way(thing)
    return found


class TestWays:
    def test_a_variable(self, module):
        assert hold(module, lambda thing: thing) == "a_script.x"

    def test_a_list_in_a_dict(self, module):
        assert hold(module, lambda thing: {"history": [0, (1, thing)]}) == "a_script.x['history'][1][1]"

    def test_a_deque(self, module):
        assert hold(module, lambda thing: deque([0, thing])) == "a_script.x[1]"

    def test_an_attribute_and_a_slot(self, module):
        def build(thing):
            outer, inner = Thing(), Slotted()
            outer.state, inner.inside = inner, thing
            return outer

        assert hold(module, build) == "a_script.x.state.inside"

    def test_a_dict_in_an_attribute(self, module):
        def build(thing):
            outer = Thing()
            outer.cache = {"last": thing}
            return outer

        assert hold(module, build) == "a_script.x.cache['last']"

    def test_a_closure(self, module):
        def build(thing):
            return lambda: thing

        assert hold(module, build) == "a_script.x.__closure__[0].cell_contents"

    def test_a_partial_and_a_default(self, module):
        assert hold(module, lambda thing: partial(print, thing)) == "a_script.x.args[0]"

        def build(thing):
            def function(a=thing):
                return a

            return function

        assert hold(module, build) == "a_script.x.__defaults__[0]"

    def test_a_bound_method(self, module):
        def build(thing):
            thing.run = None
            return types.MethodType(lambda self: self, thing)

        assert hold(module, build) == "a_script.x.__self__"


def test_a_class_attribute():
    gc.unfreeze()  # the class is among what was set aside when it was imported
    Box.kept = thing = Thing()
    try:
        assert f"{Box.__module__}.Box.kept" in ReferrerPathFinder().paths_to(thing)
    finally:
        Box.kept = None
        gc.freeze()


def test_a_local_variable_of_a_running_function():
    thing = Thing()
    (found,) = ReferrerPathFinder().paths_to(thing)
    assert found.startswith("thing in test_a_local_variable_of_a_running_function() (test_holders.py:")


def test_a_local_variable_of_another_thread():
    ready, done = threading.Event(), threading.Event()
    things = []

    def work():
        mine = Thing()
        things.append(weakref.ref(mine))
        ready.set()
        done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(60)
        ways = ReferrerPathFinder().paths_to(things[0]())
        assert any(".work() (test_holders.py:" in one and one.startswith("mine in") for one in ways)
    finally:
        done.set()
        thread.join()


def test_a_suspended_generator(module):
    thing = Thing()
    reference = weakref.ref(thing)

    def produce(item):
        yield item

    module.running = produce(thing)
    next(module.running)
    del thing
    (found,) = ReferrerPathFinder().paths_to(reference())
    assert "produce() (test_holders.py:" in found
    assert found.endswith("suspended as item")


def test_the_traceback_of_an_error(module):
    def fails():
        big = Thing()
        references.append(weakref.ref(big))
        raise ValueError

    references = []
    try:
        fails()
    except ValueError as error:
        module.error = error
    found = ReferrerPathFinder().paths_to(references[0]())
    assert any("fails() (test_holders.py:" in one and "kept by a traceback as big" in one for one in found)
    module.error = None


def test_nothing_is_found_for_what_nothing_reachable_holds():
    island = [Thing()]
    island.append(island)
    reference = weakref.ref(island[0])
    gc.disable()
    try:
        del island
        assert reference() is not None
        assert ReferrerPathFinder().paths_to(reference()) == ()
    finally:
        gc.enable()
        gc.collect()


def test_looking_keeps_nothing_alive():
    thing = Thing()
    reference = weakref.ref(thing)
    ReferrerPathFinder().paths_to(thing)
    del thing
    assert reference() is None


def test_an_object_whose_attributes_raise_is_no_obstacle(module):
    class Hostile:
        __slots__ = ("inside",)

        @property
        def args(self):
            raise RuntimeError

    def build(thing):
        hostile = Hostile()
        hostile.inside = thing
        return hostile

    assert hold(module, build) == "a_script.x.inside"


def test_a_search_without_time_says_so(monkeypatch):
    monkeypatch.setattr("truestep.machine.memory.object_holders.MAX_SECONDS", -1.0)
    assert ReferrerPathFinder().paths_to(Thing()) == ("not found within -1 s",)
