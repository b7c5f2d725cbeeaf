# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""The coordinator: which nodes may change their MIG layouts, and when; cordon, permit, rollback."""
