"""Where sound comes from: a file, a pipe or a microphone, each as blocks of mono samples in constant memory.

    file, pipe, microphone -> mixed to mono -> resampled -> Block, Block, ...

One file a source. Nothing is repaired: samples that are NaN or far too loud are passed on, and what is missing is
counted. An error about the end of a source (a file that is cut short) comes after the last block of it.
"""
