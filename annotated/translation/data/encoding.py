"""Parallel text as token ids: packed arrays, which several processes can share, and subword dropout."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from annotated.translation.data.packed import CHUNK, TOKEN_TYPE, PackedRows, load_rows, save_rows
from annotated.translation.data.pairs import FORMAT, Pairs, ParallelText
from annotated.translation.data.text_files import progress
from annotated.translation.files import cached_folder, sha256
from annotated.translation.tokenizers import UNK, Tokenizer


class EncodedPairs(Pairs):
    """Sentence pairs as token ids, the source ending with `</s>`, the target between `<s>` and `</s>`."""

    src: PackedRows
    tgt: PackedRows

    def report(self) -> str:
        """Return a summary, as that of text, and the share of tokens outside the vocabularies."""
        src, tgt = (float(np.mean(side.data == UNK)) for side in (self.src, self.tgt))
        if not src and not tgt:
            return super().report()
        advice = "; other units, by --tokenizer, would know them" if max(src, tgt) > 0.1 else ""
        unknown = f"  unknown: {src:.1%} of the source tokens, {tgt:.1%} of the target tokens{advice}"
        return f"{super().report()}\n{unknown}"


def room_for_text(tokens: int, src_tokenizer: Tokenizer) -> int:
    """Return how many of so many tokens are left for a sentence, on either side, by the symbols around it."""
    return tokens - max(1, len(src_tokenizer.before + src_tokenizer.after))  # `<s>` is not predicted


def encode_corpus(
    text: ParallelText,
    src_tokenizer: Tokenizer,
    tgt_tokenizer: Tokenizer,
    max_sentence: int | None = None,
    cache: str | Path | None = None,
) -> EncodedPairs:
    """Encode `text`, and drop and count the pairs with more than `max_sentence` tokens on a side.

    `<s>` and `</s>` are not counted. With a folder `cache`, ids are kept there under a checksum of text and
    tokenizers, and memory-mapped by all processes. Raises ValueError if no pair is left.
    """
    around = (tgt_tokenizer.start,), (tgt_tokenizer.end,)
    src: Any = encode_sentences(text.src, src_tokenizer, src_tokenizer.before, src_tokenizer.after)
    tgt: Any = encode_sentences(text.tgt, tgt_tokenizer, *around)
    if cache is not None:
        key = json.dumps([FORMAT, text.fingerprint, *map(tokenizer_sums, (src_tokenizer, tgt_tokenizer))])
        write = partial(save_rows, name="ids", src=src, tgt=tgt, lines=text.lines)
        src, tgt, _ = load_rows(cached_folder(cache, "ids", key, write), "ids", TOKEN_TYPE)
    pairs = EncodedPairs(src, tgt, text.lines, text.name, text.dropped)
    if max_sentence is None:
        return pairs
    symbols = len(src_tokenizer.before + src_tokenizer.after)
    kept = np.maximum(pairs.src.lengths - symbols, pairs.tgt.lengths - 2) <= max_sentence
    dropped = text.without({f"more than {max_sentence} tokens": np.flatnonzero(~kept).tolist()}).dropped
    return replace(pairs.take(np.flatnonzero(kept)), dropped=dropped)


def encode_sentences(
    sentences: Sequence[str], tokenizer: Tokenizer, before: Sequence[int], after: Sequence[int]
) -> Iterator[list[int]]:
    """Encode sentences, each between the ids `before` and `after`; a bar shows the progress in large text."""
    with progress("encoding", "sentences", len(sentences)) as bar:
        for start in range(0, len(sentences), CHUNK):
            for ids in tokenizer.encode_batch(sentences[start : start + CHUNK]):
                yield [*before, *ids, *after]
                bar.update()


def tokenizer_sums(tokenizer: Tokenizer) -> list[str]:
    """Compute the checksum of each file of a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder), "tokenizer")
        return [sha256(path) for path in sorted(Path(folder).iterdir())]


@dataclass(frozen=True)
class SubwordDropout:
    """Cuts sentences into subwords anew, each merge left out with probability `rate` (Provilkov et al. 2020).

    Raises ValueError for a tokenizer whose tokens are not made of merges.
    """

    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    rate: float
    max_sentence: int  # tokens; what would have more stays as it is

    def __post_init__(self) -> None:
        for tokenizer in (self.src_tokenizer, self.tgt_tokenizer):
            tokenizer.encode("", self.rate)

    def __call__(self, ids: list[int], tokenizer: Tokenizer, random: Random) -> list[int]:
        """Cut a row of ids anew; its special symbols stay."""
        first = next((i for i, token in enumerate(ids) if token > UNK), len(ids))
        last = len(ids) - next((i for i, token in enumerate(reversed(ids)) if token > UNK), 0)
        cut = tokenizer.encode(tokenizer.decode(ids), self.rate, random)
        return [*ids[:first], *cut, *ids[last:]] if len(cut) <= self.max_sentence else ids
