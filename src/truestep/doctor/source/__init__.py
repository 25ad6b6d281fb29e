# SPDX-License-Identifier: Apache-2.0
"""What can be known of a Python file without running it: names, values, and the order of events."""
