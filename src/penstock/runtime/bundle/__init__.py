"""What is deployed: a manifest and one graph a stage."""
