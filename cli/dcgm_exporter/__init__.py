"""``gpuscape dcgm-exporter``: the agent with dcgm-exporter's flags and variables."""
