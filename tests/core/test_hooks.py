# SPDX-License-Identifier: Apache-2.0
"""A hook that a module's copies don't have."""

import copy
import pickle
import threading

import torch
from torch import nn

from truestep.core.uncopied_hooks import HookOfOriginal


def test_it_is_called_for_the_module_alone_and_what_it_holds_is_not_copied():
    calls, lock = [], threading.Lock()  # a lock can't be copied
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(HookOfOriginal(lambda *given: calls.append((lock, len(given)))))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(torch.ones(1, 2)), twin(torch.ones(1, 2)))
        assert not calls
    layer(torch.ones(1, 2))
    assert calls == [(lock, 3)]
