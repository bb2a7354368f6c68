"""Choose alpha and beta on validation data."""
