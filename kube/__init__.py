# A package of gpuscape.
"""One narrow client of the Kubernetes API for all programs."""
