# SPDX-License-Identifier: Apache-2.0
"""Loaders, shapes and statistics."""
