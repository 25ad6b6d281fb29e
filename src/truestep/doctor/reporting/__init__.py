# SPDX-License-Identifier: Apache-2.0
"""One report, three forms: for the terminal, as JSON, as SARIF."""
