# SPDX-License-Identifier: Apache-2.0
"""Vanilla dropout beside torch's inverted one, and a model of one kind as one of the other."""
