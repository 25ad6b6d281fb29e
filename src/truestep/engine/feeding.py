# SPDX-License-Identifier: Apache-2.0
"""Metric objects (torchmetrics, or any with `update`, `compute` and `reset`), given every example once and in order."""

from typing import Any

from torch import Tensor

from truestep.core.calls import is_argument_error
from truestep.core.errors import OptionError
from truestep.core.trees import map_tree_leaves
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message
from truestep.engine.processes.world import World


class FedMetric:
    """A metric that is being given the results of an evaluation; of several processes, each gives all of them to its own."""

    def __init__(self, metric: Any, world: World | None) -> None:
        self._metric, self._world = metric, world
        # Each process's metric sees everything: to gather again would count it several times.
        self._syncs = getattr(metric, "sync_on_compute", None)
        metric.reset()

    def add(self, result: Any) -> None:
        """Add what one batch gave; None where this process has none of its examples."""
        if self._world is None:
            self._update(result)
            return
        for each in self._world.share_bytes(pack_rank_message(result), "a batch of an evaluation"):
            if (found := unpack_rank_message(each)) is not None:
                self._update(found)

    def _update(self, result: Any) -> None:
        given = result if isinstance(result, tuple) else (result,)
        try:
            self._metric.update(*given)
        except TypeError as error:
            if not is_argument_error(error, through="torchmetrics."):
                raise
            raise OptionError(
                f"The function given to evaluate returned {len(given)} value{'s' * (len(given) != 1)} a batch, which "
                f"{type(self._metric).__name__}.update does not take ({error}). Return what it takes, several as a tuple: "
                "return net(inputs), labels."
            ) from error

    def answer(self) -> Any:
        """Compute the metric, and leave it as it was."""
        if self._world is not None and self._syncs:
            self._metric.sync_on_compute = False
        try:
            return map_tree_leaves(_as_number, self._metric.compute())
        finally:
            if self._world is not None and self._syncs:
                self._metric.sync_on_compute = self._syncs
            self._metric.reset()


def _as_number(value: Any) -> Any:
    """Return a scalar tensor of a metric's answer as a number, a longer one as a list."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    return value
