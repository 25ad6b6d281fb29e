# SPDX-License-Identifier: Apache-2.0
"""Models whose forward draws from a generator of their own, held in the ways in which programs hold one."""
# ruff: noqa: PLW0108 - a lambda that looks its function up in each call is what is tried

import contextvars
import functools
import itertools
import random
import threading
import weakref

import numpy as np
import torch
from torch import nn

MODULE_VARIABLE = {}
CONTEXT = contextvars.ContextVar("draw")
LOCAL = threading.local()


class Draws:
    """A stream of numbers, called for the next one."""

    def __init__(self, source):
        makes = {
            "torch": lambda: functools.partial(self.of_torch, torch.Generator().manual_seed(5)),
            "numpy": lambda: np.random.default_rng(5).random,
            "random": lambda: random.Random(5).random,
            "counter": lambda: functools.partial(next, itertools.count(0.5)),
        }
        self.draw = makes[source]()

    @staticmethod
    def of_torch(generator):
        return float(torch.rand((), generator=generator))

    def __call__(self):
        return self.draw()


class Noisy(nn.Module):
    """Its output depends on how often was drawn before."""

    def __init__(self, draw, how_many=1):
        super().__init__()
        self.draw, self.how_many = draw, how_many
        self.layer, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.layer(x)
        for _ in range(self.how_many):
            hidden = hidden * (0.5 + self.draw())
        return self.head(hidden.relu())


def of_class(draws):
    return type("OfClass", (Noisy,), {"draw": property(lambda self: draws, lambda self, value: None)})(None)


def of_module_variable(draws):
    MODULE_VARIABLE["kept"] = [draws]
    return Noisy(lambda: MODULE_VARIABLE["kept"][0]())


def of_context(draws):
    CONTEXT.set(draws)
    return Noisy(lambda: CONTEXT.get()())


def of_thread(draws):
    LOCAL.draws = draws
    return Noisy(lambda: LOCAL.draws())


def of_default_argument(draws):
    def draw(source=draws):
        return source()

    return Noisy(draw)


def of_weak_reference(draws):
    net, found = Noisy(None), weakref.ref(draws)
    net.draw = lambda: found()()
    net.keeps = lambda: draws
    return net


def of_replaced_forward(draws):
    net = Noisy(lambda: 0.5)
    plain = net.forward
    net.forward = lambda x: plain(x) * (0.5 + draws())
    return net


def of_hook(draws):
    net = Noisy(lambda: 0.5)
    net.layer.register_forward_hook(lambda module, args, output: output * (0.5 + draws()))
    return net


def of_function_attribute(draws):
    def draw():
        return draw.source()

    draw.source = draws
    return Noisy(draw)


class Once:
    """What a copy of a module shares with it, by its own wish."""

    def __init__(self, draws):
        self.draws = draws

    def __deepcopy__(self, memo):
        return self

    def __call__(self):
        return self.draws()


HOLDERS = {
    "attribute": Noisy,
    "closure": lambda draws: Noisy(lambda: draws()),
    "class": of_class,
    "module variable": of_module_variable,
    "partial": lambda draws: Noisy(functools.partial(draws.draw)),
    "iterator": lambda draws: Noisy(functools.partial(next, iter(draws, None))),
    "generator": lambda draws: Noisy((draws() for _ in itertools.count()).__next__),
    "bound method": lambda draws: Noisy(draws.__call__),
    "method of C": lambda draws: Noisy(draws.draw),
    "container": lambda draws: Noisy([draws.draw].__getitem__(0)),
    "context": of_context,
    "thread": of_thread,
    "default argument": of_default_argument,
    "weak reference": of_weak_reference,
    "replaced forward": of_replaced_forward,
    "hook": of_hook,
    "function's attribute": of_function_attribute,
    "shared by its own wish": lambda draws: Noisy(Once(draws)),
}
SOURCES = ("torch", "numpy", "random", "counter")


def noisy_model(holder, source):
    """Return a model with the same weights and the same stream, each time."""
    torch.manual_seed(0)
    return HOLDERS[holder](Draws(source))
