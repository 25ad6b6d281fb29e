# SPDX-License-Identifier: Apache-2.0
"""What a step sees of its batch."""

import torch

from truestep.doctor.experiments.batch_leaf_usage import DataFlowTracker
from truestep.doctor.relations.examples import find_examples


def test_memory_of_an_item_that_was_dropped_is_not_taken_for_the_item():
    given = find_examples({"x": torch.randn(6, 8), "hard": torch.rand(6, 4096)})
    batch = given.fresh()
    with DataFlowTracker(given.like(batch)) as sight:
        used = batch["x"] * 2
        del batch  # as the next batch of an accumulation takes its name
        made = [torch.zeros(6, 4096) for _ in range(20)]
        assert not any(each.any() for each in made)
    assert sight.touched == ["['x']"]
    assert used.shape == (6, 8)
