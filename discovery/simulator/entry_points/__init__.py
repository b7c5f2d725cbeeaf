"""NVML's entry points: names, arguments, and how arguments lie in C memory."""
