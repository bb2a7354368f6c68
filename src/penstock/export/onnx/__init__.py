"""The ONNX exporter: graphs of stages, pruned, quantized, with payloads of any dtype."""
