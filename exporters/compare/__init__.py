"""What `gpuscape compare` says of two exporters."""
