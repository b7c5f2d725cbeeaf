# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""The ground floor: mechanism that several packages need and that knows nothing of GPUs."""
