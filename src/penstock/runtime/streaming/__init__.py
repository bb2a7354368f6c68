"""Process a stream: input checks, features, windows, detection.

    blocks -> InputGuard -> Frontend -> frames -> FrameRing -> Pipeline -> scores -> Detector -> events

Everything here needs numpy only, takes the stream in chunks of any length, and gives the result of the whole stream.
"""
