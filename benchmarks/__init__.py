"""The figures that Penstock must reach, measured: `make bench`, or `make bench only=predict`."""
