# SPDX-License-Identifier: Apache-2.0
"""Experiments on a running script: sealed children go on with one thing changed, and are compared with one that changes nothing."""
