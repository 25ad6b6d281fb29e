# SPDX-License-Identifier: Apache-2.0
"""The command line: main.py and one file a command."""
