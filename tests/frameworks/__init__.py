# SPDX-License-Identifier: Apache-2.0
"""Trainings and loaders of other frameworks, and ways to kill them."""
