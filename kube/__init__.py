# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""The narrow client of the Kubernetes API that all programs use."""
