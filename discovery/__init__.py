"""Facts about this node: read once into frozen values, below everything else."""
