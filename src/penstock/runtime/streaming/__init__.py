"""Listen to a stream: an ear for what is broken, features frame by frame, windows, and a decision.

    blocks -> Ear -> pieces -> Front -> frames -> Windows -> Chain -> scores -> Decider -> events

Everything here is numpy alone, takes the stream in chunks of any length, and gives what the whole stream would give.
"""
