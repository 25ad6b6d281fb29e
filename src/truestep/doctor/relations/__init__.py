# SPDX-License-Identifier: Apache-2.0
"""Relations that any right training keeps: a batch is altered, the loss computed again, the gradients compared."""
