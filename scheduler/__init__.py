# A package of gpuscape.
"""Which node a pod should go to, judged by the GPUs that it will be given there."""
