# SPDX-License-Identifier: Apache-2.0
"""Modes: training and evaluation, with and without gradients."""
