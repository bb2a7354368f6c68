"""The gated network: its layers, its surgery, its objective, its checkpoint."""
