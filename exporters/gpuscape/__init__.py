# SPDX-License-Identifier: Apache-2.0
"""Our own metric families: base units, and sums that are right."""
