# SPDX-License-Identifier: Apache-2.0
"""An IterableDataset that each worker yields whole."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck, Unsure
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.options import option_defaults
from truestep.doctor.source.training_actions import SPLIT_WORKERS
from truestep.doctor.source.value_origins import argument, literal


class StreamDuplicatedByWorkers(SourceCheck):
    """An IterableDataset is read by several workers and does not split itself among them.

    Why: every worker yields the whole stream: each sample comes num_workers times per epoch.

    Bad:
        class Numbers(IterableDataset):
            def __iter__(self):
                return iter(range(10))

        loader = DataLoader(Numbers(), num_workers=2)  # here

    Good:
        class Numbers(IterableDataset):
            def __iter__(self):
                worker = torch.utils.data.get_worker_info()
                return iter(range(worker.id, 10, worker.num_workers) if worker else range(10))

        loader = DataLoader(Numbers(), num_workers=2)

    Fix: split by torch.utils.data.get_worker_info() in __iter__.

    Evidence: the plain form of row 76 of docs/mistakes.md.
    """

    code = "DATA005"
    never = (SPLIT_WORKERS,)
    words = ("IterableDataset",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report a loader with workers over such a class that never asks which worker it is."""
        loaders = module.calls("torch.utils.data.DataLoader")
        for call in loaders:
            data = argument(call, 0, "dataset")
            if (
                data is None
                or module.kind(data) != "iterable dataset"
                or _has_worker_info_query(module, loaders)
            ):
                continue
            given = argument(call, 5, "num_workers")
            workers = _literal_or_option_default(module, given)
            if isinstance(workers, int) and workers > 1:
                text = f"Each of the {workers} workers yields the whole stream."
                yield At(call, text, BUG if literal(module, given) is not None else RISK)
            elif given is not None and workers is None:
                yield Unsure(call, "the number of workers can't be seen from here")


def _has_worker_info_query(module: SourceModule, loaders: list[ast.Call]) -> bool:
    """Tell whether anything asks which worker it is."""
    given = [word.value for call in loaders for word in call.keywords if word.arg == "worker_init_fn"]
    return any("worker" in ast.unparse(each) for each in given) or any(
        "worker_info" in each.text for each in module.program.linked
    )


def _literal_or_option_default(module: SourceModule, node: ast.expr | None) -> object:
    """Return the constant that a setting usually is, or None."""
    value = literal(module, node)
    if value is not None or not isinstance(node, ast.Attribute):
        return value
    defaults = module.program.answer(option_defaults)
    return defaults.get(node.attr)
