# SPDX-License-Identifier: Apache-2.0
"""Finds errors in logs: of any length, of several ranks, with or without tracebacks."""
