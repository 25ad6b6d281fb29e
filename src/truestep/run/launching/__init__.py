# SPDX-License-Identifier: Apache-2.0
"""Starting several processes of one training, over torchrun's own agent: `truestep launch` and `ts.spawn`."""
