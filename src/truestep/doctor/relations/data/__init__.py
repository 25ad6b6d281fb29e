# SPDX-License-Identifier: Apache-2.0
"""Relations of what a data set holds with what it gives."""
