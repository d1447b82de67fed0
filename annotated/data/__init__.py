"""Corpora of sentence pairs, and batches made of them."""

from annotated.data.batches import Batch, TokenBatches, data_gen, pad_rows
from annotated.data.corpora import load_corpus, multi30k, own_corpus, own_text
from annotated.data.encoding import EncodedPairs, SubwordDropout, encode_corpus
from annotated.data.pairs import Corpus, ParallelText, hold_out
from annotated.data.text_files import read_lines, read_pairs, read_parallel, read_tsv

__all__ = [
    "Batch", "Corpus", "EncodedPairs", "ParallelText", "SubwordDropout", "TokenBatches", "data_gen",
    "encode_corpus", "hold_out", "load_corpus", "multi30k", "own_corpus", "own_text", "pad_rows",
    "read_lines", "read_pairs", "read_parallel", "read_tsv",
]  # fmt: skip
