# SPDX-License-Identifier: Apache-2.0
"""Autocast, gradient scaling and half precision."""
