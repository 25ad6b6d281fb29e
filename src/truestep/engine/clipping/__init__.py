# SPDX-License-Identifier: Apache-2.0
"""Kinds of gradient clipping, one file each."""
