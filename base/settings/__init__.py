"""Settings of a program from flags, environment and file."""
