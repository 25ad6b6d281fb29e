# SPDX-License-Identifier: Apache-2.0
"""Without a GPU, what is asked of one happens on the CPU; nothing is compiled, and no window opens."""

import sys

sys.modules["sklearn.manifold"] = None  # its pictures of embeddings take minutes, and are optional


def _on_the_cpu():
    import torch
    from torch import nn

    def here(self, *_args, **_options):
        return self

    compiled = torch.compile

    def as_it_is(model=None, **options):
        if options.get("backend") == "eager":  # which compiles nothing either
            return compiled(model, **options)
        return model if model is not None else as_it_is

    torch.Tensor.cuda = nn.Module.cuda = here
    for kind in ("Float", "Half", "Double", "Long", "Byte", "Bool"):
        setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    torch.compile = as_it_is
    nn.Module.compile = here
    load = torch.load
    torch.load = lambda *args, **options: load(*args, **{**options, "map_location": "cpu"})
    torch.cuda.synchronize = lambda *_args: None
    torch.cuda.Event = _Event


class _Event:
    def __init__(self, **_options):
        pass

    def record(self):
        pass

    def elapsed_time(self, _other):
        return 0.0


try:
    import torch
except ImportError:
    pass
else:
    if not torch.cuda.is_available():
        _on_the_cpu()
