# SPDX-License-Identifier: Apache-2.0
"""Programs and pods that block a change of MIG layouts, and waiting for them."""
