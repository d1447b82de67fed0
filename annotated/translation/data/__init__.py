"""Corpora of sentence pairs, and batches made of them."""

from annotated.translation.data.corpora import load_corpus, multi30k, own_corpus, own_text
from annotated.translation.data.pairs import Corpus, ParallelText, hold_out
from annotated.translation.data.tables import read_pairs
from annotated.translation.data.text_files import read_lines, read_parallel
from annotated.translation.data.token_batches import EncodedPairs, TokenBatches, encode_corpus, pad_rows

__all__ = [
    "Corpus", "EncodedPairs", "ParallelText", "TokenBatches",
    "encode_corpus", "hold_out", "load_corpus", "multi30k", "own_corpus", "own_text", "pad_rows",
    "read_lines", "read_pairs", "read_parallel",
]  # fmt: skip
