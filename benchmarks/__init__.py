"""The figures that Penstock promises, measured: `make bench`, or `make bench only=predict`."""
