"""Ways for messages to get from one island to another: one file a medium."""
