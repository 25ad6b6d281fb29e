# SPDX-License-Identifier: Apache-2.0
"""Penalties on gradients: what is computed of the result of torch.autograd.grad alone, as its norm."""

MAX_NAMES = 4  # one behind the other
