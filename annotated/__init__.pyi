"""The public names, and the module that brings each: it is imported when one of its names is first used."""

from . import (
    attention_maps as attention_maps,
    batches as batches,
    check as check,
    cpu_kernels as cpu_kernels,
    evaluation_mode as evaluation_mode,
    loop as loop,
    loss as loss,
    metrics as metrics,
    perplexity as perplexity,
    plots as plots,
    schedule as schedule,
    search as search,
    transformer as transformer,
    translation as translation,
)
from .attention_maps import capture_attention as capture_attention
from .batches import Batch as Batch, data_gen as data_gen, padding_mask as padding_mask
from .cpu_kernels import CpuKernels as CpuKernels
from .evaluation_mode import evaluating as evaluating
from .loop import (
    SimpleLossCompute as SimpleLossCompute,
    TrainState as TrainState,
    run_epoch as run_epoch,
)
from .loss import LabelSmoothing as LabelSmoothing, smoothed_cross_entropy as smoothed_cross_entropy
from .metrics import (
    alignment_error_rate as alignment_error_rate,
    bleu as bleu,
    bootstrap as bootstrap,
    chrf as chrf,
    paired_bootstrap as paired_bootstrap,
    tokenized_bleu as tokenized_bleu,
)
from .perplexity import score_tokens as score_tokens
from .schedule import noam_scheduler as noam_scheduler, rate as rate
from .search.beam import Hypothesis as Hypothesis, beam_search as beam_search
from .search.config import length_penalty as length_penalty
from .search.greedy import greedy_decode as greedy_decode
from .transformer.attention import (
    MultiHeadedAttention as MultiHeadedAttention,
    attention as attention,
    clones as clones,
    subsequent_mask as subsequent_mask,
)
from .transformer.cache import DecoderCache as DecoderCache, KeyValueCache as KeyValueCache
from .transformer.config import TransformerConfig as TransformerConfig
from .transformer.layers import (
    DecoderLayer as DecoderLayer,
    Embeddings as Embeddings,
    EncoderLayer as EncoderLayer,
    PositionwiseFeedForward as PositionwiseFeedForward,
    SublayerConnection as SublayerConnection,
)
from .transformer.model import (
    Decoder as Decoder,
    Encoder as Encoder,
    EncoderDecoder as EncoderDecoder,
    Generator as Generator,
    make_model as make_model,
)
from .transformer.positions import (
    LearnedPositions as LearnedPositions,
    PositionalEncoding as PositionalEncoding,
    sinusoids as sinusoids,
)
from .transformer.variants import Parts as Parts, variant as variant
from .translation.evaluation import moses_tokenized as moses_tokenized
from .translation.storage.model_folder import load_model as load_model, save_model as save_model
from .translation.tokenizers import (
    CharacterTokenizer as CharacterTokenizer,
    SentencePieceTokenizer as SentencePieceTokenizer,
    WordTokenizer as WordTokenizer,
)
from .translation.training.checkpoint import average_checkpoints as average_checkpoints
from .translation.training.config import TrainingConfig as TrainingConfig
from .translation.training.train import Stopped as Stopped, train as train
from .translation.training.trainer import Trainer as Trainer, TrainingError as TrainingError
from .translation.translator import Translator as Translator, load_pretrained as load_pretrained
from .translation.watch import watch as watch

__version__: str
