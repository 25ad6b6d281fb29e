# SPDX-License-Identifier: Apache-2.0
"""Errors of values that a function refuses."""
