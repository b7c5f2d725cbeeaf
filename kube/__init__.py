# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""One narrow client of the Kubernetes API for all programs."""
