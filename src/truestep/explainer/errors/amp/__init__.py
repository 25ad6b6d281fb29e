# SPDX-License-Identifier: Apache-2.0
"""Errors of automatic mixed precision."""
