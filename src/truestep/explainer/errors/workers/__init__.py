# SPDX-License-Identifier: Apache-2.0
"""Errors of data workers and other processes of one script."""
