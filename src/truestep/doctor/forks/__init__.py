# SPDX-License-Identifier: Apache-2.0
"""A forked child that the kernel keeps from touching anything outside of it: where the doctor runs the user's code once more."""
