"""`python -m reproduction data`: list, fetch and check the paper's data sets."""

from penstock.cli.data import data_app
from reproduction.datasets.catalogue import CATALOGUE

app = data_app(CATALOGUE, example="cifar10")
