# SPDX-License-Identifier: Apache-2.0
"""Who is in the way of a change of MIG layouts, and waiting for the end of that."""
