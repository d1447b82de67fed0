"""The public names, and the module that brings each: it is imported when one of its names is first used."""

from . import check as check
from . import metrics as metrics
from . import plots as plots
from . import translation as translation
from .attention_maps import capture_attention as capture_attention
from .batches import Batch as Batch
from .batches import data_gen as data_gen
from .fast import CpuKernels as CpuKernels
from .loop import (
    SimpleLossCompute as SimpleLossCompute,
)
from .loop import (
    TrainState as TrainState,
)
from .loop import (
    run_epoch as run_epoch,
)
from .loss import LabelSmoothing as LabelSmoothing
from .loss import smoothed_cross_entropy as smoothed_cross_entropy
from .metrics import (
    alignment_error_rate as alignment_error_rate,
)
from .metrics import (
    bleu as bleu,
)
from .metrics import (
    bootstrap as bootstrap,
)
from .metrics import (
    chrf as chrf,
)
from .metrics import (
    moses_tokenized as moses_tokenized,
)
from .metrics import (
    paired_bootstrap as paired_bootstrap,
)
from .metrics import (
    tokenized_bleu as tokenized_bleu,
)
from .modes import evaluating as evaluating
from .perplexity import score_tokens as score_tokens
from .schedule import noam_scheduler as noam_scheduler
from .schedule import rate as rate
from .search.beam import Hypothesis as Hypothesis
from .search.beam import beam_search as beam_search
from .search.cache import DecoderCache as DecoderCache
from .search.cache import KeyValueCache as KeyValueCache
from .search.greedy import greedy_decode as greedy_decode
from .search.penalty import length_penalty as length_penalty
from .transformer.attention import (
    MultiHeadedAttention as MultiHeadedAttention,
)
from .transformer.attention import (
    attention as attention,
)
from .transformer.attention import (
    clones as clones,
)
from .transformer.attention import (
    padding_mask as padding_mask,
)
from .transformer.attention import (
    subsequent_mask as subsequent_mask,
)
from .transformer.config import TransformerConfig as TransformerConfig
from .transformer.layers import (
    Embeddings as Embeddings,
)
from .transformer.layers import (
    PositionwiseFeedForward as PositionwiseFeedForward,
)
from .transformer.layers import (
    SublayerConnection as SublayerConnection,
)
from .transformer.model import (
    Decoder as Decoder,
)
from .transformer.model import (
    DecoderLayer as DecoderLayer,
)
from .transformer.model import (
    Encoder as Encoder,
)
from .transformer.model import (
    EncoderDecoder as EncoderDecoder,
)
from .transformer.model import (
    EncoderLayer as EncoderLayer,
)
from .transformer.model import (
    Generator as Generator,
)
from .transformer.model import (
    make_model as make_model,
)
from .transformer.parts import Parts as Parts
from .transformer.parts import variant as variant
from .transformer.positions import (
    LearnedPositions as LearnedPositions,
)
from .transformer.positions import (
    PositionalEncoding as PositionalEncoding,
)
from .transformer.positions import (
    sinusoids as sinusoids,
)
from .translation.storage.model_folder import load_model as load_model
from .translation.storage.model_folder import save_model as save_model
from .translation.tokenizers import (
    CharacterTokenizer as CharacterTokenizer,
)
from .translation.tokenizers import (
    SentencePieceTokenizer as SentencePieceTokenizer,
)
from .translation.tokenizers import (
    WordTokenizer as WordTokenizer,
)
from .translation.training.checkpoint import average_checkpoints as average_checkpoints
from .translation.training.config import TrainingConfig as TrainingConfig
from .translation.training.train import Stopped as Stopped
from .translation.training.train import train as train
from .translation.training.trainer import Trainer as Trainer
from .translation.training.trainer import TrainingError as TrainingError
from .translation.translator import Translator as Translator
from .translation.translator import load_pretrained as load_pretrained
from .translation.watch import watch as watch

__version__: str
