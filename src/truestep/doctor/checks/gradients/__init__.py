# SPDX-License-Identifier: Apache-2.0
"""Backward, step and clear: what reaches the optimizer."""
