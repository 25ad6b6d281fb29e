# SPDX-License-Identifier: Apache-2.0
"""Calls of torch, each wrapped once while somebody listens: the run and the doctor follow the same ones."""
