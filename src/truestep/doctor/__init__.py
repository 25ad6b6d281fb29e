# SPDX-License-Identifier: Apache-2.0
"""Finds silent bugs in training code that is already there."""
