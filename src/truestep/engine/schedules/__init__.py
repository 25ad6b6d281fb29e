# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules on top of torch's own: the usual ones by name, and what steps any of them."""
