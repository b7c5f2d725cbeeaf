"""The host around the GPUs, from sysfs and procfs."""
