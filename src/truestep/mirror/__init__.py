# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a run in an object store: sent while it trains, fetched on a machine that has none. Imports no torch."""
