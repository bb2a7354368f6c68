"""Compare a gated network with what one would do instead: train and measure all of it alike."""
