# SPDX-License-Identifier: Apache-2.0
"""volatile=True, which does nothing."""

from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.behind import is_without_grad
from truestep.doctor.source.module import SourceModule


class Volatile(SourceCheck):
    """A tensor is made with volatile=True.

    Why: it has had no effect since torch 0.4 (a warning only): gradients are recorded.

    Bad:
        from torch.autograd import Variable

        v = Variable(x, volatile=True)  # here

    Good:
        with torch.no_grad():
            out = net(x)

    Fix: with torch.no_grad(): or torch.inference_mode().

    Evidence: ZhaoJ9014/face.evoLVe a9897bda applications/align/detector.py:79; ZhaoJ9014/face.evoLVe a9897bda
    applications/align/detector.py:100; corpus: 3 true, 0 false; bed E: 9 true, 0 false; bed F: 15 true, 0
    false; bed G: 18 true, 0 false; bed H: 9 true, 0 false; bed I: 18 true, 0 false; bed K: 4 true, 7 debatable,
    3 false; 186 repositories: 15 true, 8 debatable, 0 false.
    """

    code = "OLD007"
    words = ("volatile",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the keyword of Variable."""
        for call in module.calls("torch.autograd.Variable", "torch.Variable"):
            given = any(word.arg == "volatile" for word in call.keywords)
            if given and not is_without_grad(module, call):
                yield At(call, "volatile has no effect: gradients are recorded.")
