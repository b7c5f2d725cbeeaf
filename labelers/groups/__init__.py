# SPDX-License-Identifier: Apache-2.0
"""The labels, one module for each group of them."""
