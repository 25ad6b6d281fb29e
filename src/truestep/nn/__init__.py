# SPDX-License-Identifier: Apache-2.0
"""Standalone pieces that stand on torch alone."""
