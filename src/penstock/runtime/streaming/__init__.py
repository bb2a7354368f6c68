"""Listen to a stream: an ear for what is broken, features frame by frame, windows, and a decision.

    blocks -> InputGuard -> Frontend -> frames -> FrameRing -> Pipeline -> scores -> Hysteresis -> events

Everything here is numpy alone, takes the stream in chunks of any length, and gives what the whole stream would give.
"""
