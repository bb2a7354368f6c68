"""Pictures: how they become the input of a network, in training and on a device alike."""
