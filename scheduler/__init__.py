# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Which node a pod should go to, by the GPUs that it will most probably get there."""
