# SPDX-License-Identifier: Apache-2.0
"""Memory: free what can be freed, find what holds the rest, see what a block leaves behind."""

from truestep.machine.memory.free import MemoryReport, free_memory
from truestep.machine.memory.leftover import LeftoverMemory, leftover_memory

__all__ = ["LeftoverMemory", "MemoryReport", "free_memory", "leftover_memory"]
