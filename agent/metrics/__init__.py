"""What the agent serves on /metrics, and what the settings say of it."""
