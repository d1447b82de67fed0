"""The public names: each of them comes from `annotated` itself, too."""

from annotated.attention_maps import capture_attention
from annotated.data import Batch, data_gen
from annotated.fast import CpuKernels
from annotated.inside import watch
from annotated.metrics import (
    alignment_error_rate,
    bleu,
    bootstrap,
    chrf,
    moses_tokenized,
    paired_bootstrap,
    tokenized_bleu,
)
from annotated.modes import evaluating
from annotated.perplexity import score_tokens
from annotated.search.beam import Hypothesis, beam_search
from annotated.search.cache import DecoderCache, KeyValueCache
from annotated.search.greedy import greedy_decode
from annotated.search.penalty import length_penalty
from annotated.storage.model_folder import load_model, save_model
from annotated.tokenizers import CharacterTokenizer, SentencePieceTokenizer, WordTokenizer
from annotated.training.checkpoint import average_checkpoints
from annotated.training.config import TrainingConfig
from annotated.training.loop import SimpleLossCompute, TrainState, run_epoch
from annotated.training.loss import LabelSmoothing, smoothed_cross_entropy
from annotated.training.schedule import noam_scheduler, rate
from annotated.training.train import Stopped, train
from annotated.training.trainer import Trainer, TrainingError
from annotated.transformer.attention import (
    MultiHeadedAttention,
    attention,
    clones,
    padding_mask,
    subsequent_mask,
)
from annotated.transformer.config import TransformerConfig
from annotated.transformer.layers import Embeddings, PositionwiseFeedForward, SublayerConnection
from annotated.transformer.model import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    Generator,
    make_model,
)
from annotated.transformer.parts import Parts, variant
from annotated.transformer.positions import LearnedPositions, PositionalEncoding, sinusoids
from annotated.translator import Translator, load_pretrained

__all__ = [
    "Batch", "CharacterTokenizer", "CpuKernels", "Decoder", "DecoderCache", "DecoderLayer", "Embeddings",
    "Encoder", "EncoderDecoder", "EncoderLayer", "Generator", "Hypothesis", "KeyValueCache",
    "LabelSmoothing", "LearnedPositions", "MultiHeadedAttention", "Parts", "PositionalEncoding",
    "PositionwiseFeedForward", "SentencePieceTokenizer", "SimpleLossCompute", "Stopped", "SublayerConnection",
    "TrainState", "Trainer", "TrainingConfig", "TrainingError", "TransformerConfig", "Translator",
    "WordTokenizer", "alignment_error_rate", "attention", "average_checkpoints", "beam_search", "bleu",
    "bootstrap", "capture_attention", "chrf", "clones", "data_gen", "evaluating", "greedy_decode",
    "length_penalty", "load_model", "load_pretrained", "make_model", "moses_tokenized", "noam_scheduler",
    "padding_mask", "paired_bootstrap", "rate", "run_epoch", "save_model", "score_tokens", "sinusoids",
    "smoothed_cross_entropy", "subsequent_mask", "tokenized_bleu", "train", "variant", "watch",
]  # fmt: skip
