"""The commands of a device: argparse and nothing else."""
