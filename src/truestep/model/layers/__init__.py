# SPDX-License-Identifier: Apache-2.0
"""Layers while they train: what they give, what comes back through them, and what is wrong with either."""
