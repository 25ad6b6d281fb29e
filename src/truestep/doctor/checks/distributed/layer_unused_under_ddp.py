# SPDX-License-Identifier: Apache-2.0
"""A layer for whose gradients DDP waits in vain."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.checks.parameters.layer_never_used import layers_never_used
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, forwards_all, literal


class LayerUnusedUnderDdp(SourceCheck):
    """A model with a layer that forward never uses is wrapped in DistributedDataParallel.

    Why: DDP waits for the gradient of every parameter: the second forward raises "Expected to have
    finished reduction".

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
                self.auxiliary = nn.Linear(8, 3)  # here

            def forward(self, x):
                return self.head(self.body(x).relu())

        net = DDP(Net())

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

            def forward(self, x):
                return self.head(self.body(x).relu())

        net = DDP(Net())

    Fix: delete the layer, or freeze it with requires_grad_(False) before wrapping.
    """

    code = "DIST014"
    words = ("DDP", "DistributedDataParallel")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such layers in classes whose instances this file wraps."""
        for wrap in module.calls("torch.nn.parallel.DistributedDataParallel"):
            owner = module.class_of(wrap.args[0]) if wrap.args else None
            searched = literal(module, argument(wrap, None, "find_unused_parameters")) is True
            if owner is None or searched or forwards_all(wrap):
                continue
            for name, node in layers_never_used(module, owner):
                if not module.method_calls("requires_grad_"):
                    yield At(node, f"forward does not use self.{name}, and DDP waits for its gradients.")
