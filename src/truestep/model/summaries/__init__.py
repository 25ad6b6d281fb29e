# SPDX-License-Identifier: Apache-2.0
"""`ts.summary`: what each layer holds, gets, gives and costs, found on copies without weights."""
