"""Names of the inputs and outputs of a stage's graph, the same in every bundle."""

INPUT = "values"
"""The input of every stage."""

PACKED = "packed"
"""The first output of every stage but the last: the values that its mask keeps."""

LOGITS = "logits"
"""The first output of the last stage: class logits."""

GATE = "gate"
"""The second output of a stage with a gate: one logit per sample."""
