"""``gpuscape compare``: its command, the expositions it reads, and when it reads them."""
