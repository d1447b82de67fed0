"""Attention Is All You Need, in code that a reader can hold in mind and a test holds to account.

    import annotated
    model = annotated.make_model(src_vocab=11, tgt_vocab=11, N=2)

Everything here also lives in a module named after what it does; heavier parts (plots, spaCy, torchtext) are
loaded only when they are asked for.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("annotated-transformer")  # PyPI's `annotated` is another's
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

# Where each public name lives. It is imported when it is first asked for: `import annotated` stays cheap.
_HOMES = {
    "transformer.attention": "MultiHeadedAttention attention clones padding_mask subsequent_mask",
    "transformer.layers": "Embeddings PositionwiseFeedForward SublayerConnection",
    "transformer.positions": "LearnedPositions PositionalEncoding sinusoids",
    "transformer.model": "Decoder DecoderLayer Encoder EncoderDecoder EncoderLayer Generator make_model",
    "transformer.config": "TransformerConfig",
    "transformer.parts": "Parts variant",
    "fast": "CpuKernels",
    "modes": "evaluating",
    "tokenizers": "CharacterTokenizer SentencePieceTokenizer WordTokenizer",
    "data": "Batch data_gen",
    "search.cache": "DecoderCache KeyValueCache",
    "translation.attention_maps": "capture_attention",
    "search.greedy": "greedy_decode",
    "search.beam": "Hypothesis beam_search length_penalty",
    "metrics": "alignment_error_rate bleu bootstrap chrf moses_tokenized paired_bootstrap tokenized_bleu",
    "translation.evaluate": "score_tokens",
    "translation.model_folder": "load_model save_model",
    "translation.translator": "Translator load_pretrained",
    "inside": "watch",
    "training.loop": "SimpleLossCompute TrainState run_epoch",
    "training.loss": "LabelSmoothing smoothed_cross_entropy",
    "training.schedule": "noam_scheduler rate",
    "training.config": "TrainingConfig",
    "training.checkpoint": "average_checkpoints",
    "training.train": "train",
    "training.trainer": "Trainer TrainingError",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}
_ROOMS = {module.partition(".")[0] for module in _HOMES} | {"check", "interop", "plots"}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Import a public name from its home, or a module of the package, when it is first used."""
    if name in _ROOMS:
        return import_module(f"annotated.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'annotated' has no attribute {name!r}")
    value = getattr(import_module(f"annotated.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
