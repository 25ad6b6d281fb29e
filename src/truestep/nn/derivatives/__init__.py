# SPDX-License-Identifier: Apache-2.0
"""Jacobians, products with a vector, and penalties of gradients, which leave the model as it was."""
