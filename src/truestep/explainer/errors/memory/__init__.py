# SPDX-License-Identifier: Apache-2.0
"""Errors of memory, of devices and of the machine."""
