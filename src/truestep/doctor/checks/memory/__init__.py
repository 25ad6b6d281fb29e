# SPDX-License-Identifier: Apache-2.0
"""What is kept longer than it is needed, and what slows every step."""
