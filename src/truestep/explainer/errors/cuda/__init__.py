# SPDX-License-Identifier: Apache-2.0
"""Errors of CUDA's devices, drivers and kernels."""
