# SPDX-License-Identifier: Apache-2.0
"""Errors of recurrent layers and packed sequences."""
