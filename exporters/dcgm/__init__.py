"""DCGM's metric families as dcgm-exporter serves them."""
