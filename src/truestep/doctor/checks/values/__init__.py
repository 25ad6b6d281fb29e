# SPDX-License-Identifier: Apache-2.0
"""What becomes of a value: computed and not used, or another one used in its place."""
