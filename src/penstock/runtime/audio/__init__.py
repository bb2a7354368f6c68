"""Where sound comes from: a file, a pipe or a microphone, as blocks of mono samples in constant memory.

    file, pipe, microphone -> mix to mono -> resample -> Block, Block, ...

Nothing is repaired: NaN and overly loud samples are passed on, missing samples are counted. An error about the end of a
source, such as a truncated file, is raised after its last block.
"""
