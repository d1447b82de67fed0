"""Attention Is All You Need, in code that a reader can hold in mind and a test holds to account.

    import annotated
    model = annotated.make_model(src_vocab=11, tgt_vocab=11, N=2)

Everything here also lives in a module named after what it does; heavier parts (plots, spaCy, torchtext) are
loaded only when they are asked for.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("annotated-transformer")  # PyPI's `annotated` is another's
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

# Where each public name lives. It is imported when it is first asked for: `import annotated` stays cheap.
# The function `attention` is not among them: `annotated.attention` is the module that holds it.
_HOMES = {
    "masks": ("Batch", "padding_mask", "subsequent_mask"),
    "cache": ("DecoderCache", "KeyValueCache"),
    "attention": ("MultiHeadedAttention", "clones"),
    "layers": (
        "Embeddings",
        "LearnedPositions",
        "PositionalEncoding",
        "PositionwiseFeedForward",
        "SublayerConnection",
        "sinusoids",
    ),
    "model": (
        "Decoder",
        "DecoderLayer",
        "Encoder",
        "EncoderDecoder",
        "EncoderLayer",
        "Generator",
        "TransformerConfig",
        "make_model",
    ),
    "modes": ("capture_attention", "evaluating"),
    "loss": ("LabelSmoothing", "smoothed_cross_entropy"),
    "schedule": ("noam_scheduler", "rate"),
    "tokenizers": ("SentencePieceTokenizer", "WordTokenizer"),
    "data": ("data_gen",),
    "decoding": ("Hypothesis", "beam_search", "greedy_decode", "length_penalty"),
    "evaluation": (
        "alignment_error_rate",
        "bleu",
        "bootstrap",
        "chrf",
        "moses_tokenized",
        "paired_bootstrap",
        "score_tokens",
        "tokenized_bleu",
    ),
    "checkpoints": ("average_checkpoints", "load_model", "save_model"),
    "translator": ("Translator", "load_pretrained"),
    "inside": ("watch",),
    "interop": ("from_hub",),
    "training": ("SimpleLossCompute", "TrainState", "run_epoch"),
    "settings": ("TrainingConfig",),
    "trainer": ("Trainer", "TrainingError"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'annotated' has no attribute {name!r}")
    value = getattr(import_module(f"annotated.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
