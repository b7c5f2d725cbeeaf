# SPDX-License-Identifier: Apache-2.0
"""The fleet's changes in numbers: steps, waits, and what metrics show of them."""
