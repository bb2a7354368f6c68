"""Process a stream: input checks, features, windows, detection.

    blocks -> InputGuard -> Frontend -> frames -> FrameRing -> Pipeline -> scores -> Detector -> events

Everything here needs numpy only, and computes the same however the stream is split into chunks.
"""
