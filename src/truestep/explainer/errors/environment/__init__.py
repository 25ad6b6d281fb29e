# SPDX-License-Identifier: Apache-2.0
"""Errors of installed packages."""
