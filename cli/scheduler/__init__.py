"""``gpuscape scheduler`` and its subcommands."""
