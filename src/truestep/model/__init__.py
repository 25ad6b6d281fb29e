# SPDX-License-Identifier: Apache-2.0
"""Seeing a model: its schedule, parameters, layers, graph, and its export."""
