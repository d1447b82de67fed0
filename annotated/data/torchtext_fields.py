"""The classic way: torchtext 0.6 fields, datasets, vocabularies, and an iterator that makes tight batches.

It gives the same `Batch`es as `annotated.data.batches` does. All that the project needs of torchtext
stands here.
"""

import random
from collections import Counter
from collections.abc import Iterator

from annotated.data.batches import Batch
from annotated.data.parallel import ParallelText
from annotated.tokenizers import END, PAD, SPECIALS, START, UNK, WordTokenizer

try:
    from torchtext.data import BucketIterator, Dataset, Example, Field, RawField
    from torchtext.data.utils import RandomShuffler
    from torchtext.vocab import Vocab
except ImportError:
    raise ImportError('the classic fields need torchtext 0.6: pip install ".[words]" in the clone') from None

Fields = dict[str, RawField]


def make_fields(src_language: str | None, tgt_language: str | None, lower: bool = False) -> Fields:
    """What becomes of each column: `src` and `tgt` are cut into words, `line` stays a number.

    Words are those of `WordTokenizer`. A source ends with `</s>`, a target stands between `<s>` and `</s>`.
    """
    return {
        "src": _field(src_language, lower, init_token=None),
        "tgt": _field(tgt_language, lower, init_token=SPECIALS[START]),
        "line": RawField(),
    }


def make_dataset(text: ParallelText, fields: Fields) -> Dataset:
    """`text`, cut into words, as a torchtext dataset."""
    columns = list(fields.items())
    rows = zip(text.src, text.tgt, text.lines, strict=True)
    return Dataset([Example.fromlist(row, columns) for row in rows], columns)


def build_vocabularies(fields: Fields, train: Dataset, min_freq: int = 2) -> None:
    """Gives `src` and `tgt` their vocabularies: the words that occur at least `min_freq` times in `train`.

    Give it the training set alone: a word that only a test sentence holds is one that the model cannot
    know. The special symbols come first, in the order of every vocabulary of this project.
    """
    for side in ("src", "tgt"):
        counts = Counter(word for example in train for word in getattr(example, side))
        fields[side].vocab = Vocab(counts, min_freq=min_freq, specials=list(SPECIALS))


class FieldBatches:
    """Batches of at most `max_tokens` positions a side, padding counted; each iteration is one epoch.

    For training, pools of a hundred batches' worth are sorted by length, cut into batches, and the batches
    shuffled: an iteration continues the random order that began with `seed`. Otherwise all is sorted by
    length.
    """

    def __init__(self, dataset: Dataset, max_tokens: int, train: bool = True, seed: int = 0) -> None:
        """Raises ValueError naming the line of a pair that does not fit into a batch."""
        for example in dataset:
            if _width(example) > max_tokens:
                where = f"line {example.line}: {_width(example):,} tokens"
                raise ValueError(f"{where} do not fit into a batch of max_tokens={max_tokens:,}")
        self._iterator = BucketIterator(
            dataset,
            batch_size=max_tokens,
            batch_size_fn=padded_size,
            sort_key=_width,
            train=train,
            sort_within_batch=True,
        )
        self._iterator.random_shuffler = RandomShuffler(random.Random(seed).getstate())

    def __iter__(self) -> Iterator[Batch]:
        return (Batch(batch.src, batch.tgt, PAD, lines=list(batch.line)) for batch in self._iterator)


def padded_size(new: Example, count: int, size: int) -> int:
    """Rows times longest, for a batch of that size `size` when `new` joins it as row number `count`."""
    longest = size // (count - 1) if count > 1 else 0
    return count * max(longest, _width(new))


def _field(language: str | None, lower: bool, init_token: str | None) -> Field:
    split = WordTokenizer([], language, lower).split
    return Field(
        tokenize=lambda text: [SPECIALS[UNK] if word in SPECIALS else word for word in split(text)],
        init_token=init_token,
        eos_token=SPECIALS[END],
        pad_token=SPECIALS[PAD],
        unk_token=SPECIALS[UNK],
        batch_first=True,
    )


def _width(example: Example) -> int:
    return max(len(example.src), len(example.tgt)) + 1  # with </s>, or with the <s> that the decoder reads
