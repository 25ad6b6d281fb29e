# SPDX-License-Identifier: Apache-2.0
"""What is kept of a run, how it is committed to disk, and how it comes back."""
