"""Hugging Face's classifiers, for tests alone: small, with random weights. Nothing is downloaded."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = Path(__file__).parents[2] / ".venv" / "transformers"
CLASSES = 5

_LAYERS = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 64}
_PATCHES = {**_LAYERS, "image_size": 32, "patch_size": 8}
_WORDS = {**_LAYERS, "vocab_size": 50, "max_position_embeddings": 32}
_STAGES = {"hidden_sizes": [16, 24, 32, 40], "depths": [2, 2, 2, 2]}
_SPECTROGRAM = {"max_length": 64, "num_mel_bins": 32, "patch_size": 8, "frequency_stride": 8, "time_stride": 8}
_WAVES = {
    **_LAYERS,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 8, 4),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
}
_WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}

# name: (class, of its configuration, configuration, shape of one sample, blocks that cuts stand between)
NETWORKS: dict[str, tuple[str, str, dict, tuple[int, ...], str]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", _PATCHES, (3, 32, 32), "vit.layers"),
    "ast": (
        "ASTForAudioClassification",
        "ASTConfig",
        {**_LAYERS, **_SPECTROGRAM},
        (64, 32),
        "audio_spectrogram_transformer.layers",
    ),
    "wav2vec2": ("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _WAVES, (2000,), "wav2vec2.encoder.layers"),
    "mobilenet_v2": (
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        {"image_size": 64, "depth_multiplier": 0.35},
        (3, 64, 64),
        "mobilenet_v2.layer",
    ),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        {**_STAGES, "embedding_size": 16, "layer_type": "basic"},
        (3, 64, 64),
        "resnet.encoder.stages",
    ),
    "swin": ("SwinForImageClassification", "SwinConfig", _WINDOWS, (3, 32, 32), "swin.encoder.layers.0.blocks"),
    "wavlm": ("WavLMForSequenceClassification", "WavLMConfig", _WAVES, (2000,), "wavlm.encoder.layers"),
    "bert": ("BertForSequenceClassification", "BertConfig", _WORDS, (12,), "bert.encoder.layer"),
}


def import_transformers():
    """Return transformers, or None where it is not installed."""
    if importlib.util.find_spec("transformers") is None:
        if not FOLDER.exists():
            return None
        sys.path.append(str(FOLDER))
    import transformers

    return transformers


def build(name: str, **changes: object) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """Return a network, and a function that draws a batch for it."""
    library = import_transformers()
    kind, config, values, shape, _ = NETWORKS[name]
    network = getattr(library, kind)(getattr(library, config)(**{**values, "num_labels": CLASSES, **changes}))

    def draw(n: int) -> Tensor:
        return torch.randint(3, 50, (n, *shape)) if kind.startswith("Bert") else torch.randn(n, *shape)

    return network, draw
