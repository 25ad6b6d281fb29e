# SPDX-License-Identifier: Apache-2.0
"""Tensors whose axes have names."""
