# A package of gpuscape.
