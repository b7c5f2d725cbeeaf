"""Compare the expositions of two exporters: the verdicts of `gpuscape compare`."""
