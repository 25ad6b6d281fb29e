# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays and tensors: conversions that keep every value, or say which they would change."""
