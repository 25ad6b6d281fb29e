# SPDX-License-Identifier: Apache-2.0
"""Modes of precision, one file each; the table is below."""
