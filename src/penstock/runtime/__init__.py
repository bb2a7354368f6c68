"""What runs on a device: numpy and one engine, never torch."""
