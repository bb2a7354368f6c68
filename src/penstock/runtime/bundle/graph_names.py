"""Names of the inputs and outputs of a stage's graph, the same in every bundle."""

INPUT = "values"  # the input of every stage
PACKED = "packed"  # the first output of every stage but the last: the values that its mask keeps
LOGITS = "logits"  # the first output of the last stage: class logits
GATE = "gate"  # the second output of a stage with a gate: one logit per sample
