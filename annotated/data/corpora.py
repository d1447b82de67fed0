"""Every corpus by its name, and how splits are held out."""

import hashlib
from dataclasses import replace
from pathlib import Path

from annotated.data.iwslt import iwslt
from annotated.data.multi30k import multi30k
from annotated.data.parallel import Corpus, ParallelText, read_tsv

NAMES = ("multi30k", "iwslt", "tatoeba", "grammar")

_HELD_OUT = 0.05
_MOST_HELD_OUT = 2000


def load_corpus(
    name: str, pair: str = "de-en", path: str | Path | None = None, variant: str | None = None
) -> Corpus:
    """The corpus `name` in the direction of `pair`; `path` is its file or folder (`iwslt`, `tatoeba`).

    Raises ValueError for an unknown name, or an argument that the corpus does not take.
    """
    if name not in NAMES:
        raise ValueError(f"unknown corpus {name!r}; known: {', '.join(NAMES)}")
    if variant and name != "multi30k":
        raise ValueError(f"{name} has no variant {variant!r}; only multi30k has variants")
    if path and name in ("multi30k", "grammar"):
        raise ValueError(f"{name} is not read from a path, but {path} was given")
    if name == "multi30k":
        return multi30k(pair, variant or "raw")
    if name == "iwslt":
        return iwslt(path, pair)
    if name == "tatoeba":
        return tatoeba(path, pair)
    from annotated.data.grammar import grammar

    return grammar(pair=pair)


def tatoeba(path: str | Path | None, pair: str = "de-en", first: str = "en") -> Corpus:
    """Sentences of language learners: `english<TAB>translation`, with or without a column of attribution.

    `first` is the language of the first column. 5% of the different source sentences, 2,000 at most,
    become val, as many test: no source sentence stands in two splits, and the same file is always split in
    the same way.
    """
    if path is None:
        raise ValueError("tatoeba needs a path: the tab-separated file of sentence pairs")
    src, tgt = languages(pair)
    text = read_tsv(path, "tatoeba")
    if first == tgt:
        text = ParallelText(text.tgt, text.src, text.lines, text.name, text.dropped)
    elif first != src:
        raise ValueError(f"the first column is {first!r}, which is not in the pair {pair!r}")
    return Corpus("tatoeba", src, tgt, hold_out(text, "val", "test"))


def hold_out(text: ParallelText, *names: str) -> dict[str, ParallelText]:
    """Splits `text` into "train" and each of `names`, so that no source sentence stands in two of them.

    What `text` dropped is reported by train. The choice depends on the sentences alone. Raises ValueError
    if there are too few different ones.
    """
    sources = sorted(set(text.src), key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
    if len(sources) <= len(names):
        wanted = " and ".join(("train", *names))
        raise ValueError(f"{text.name}: {len(sources)} different source sentences are too few for {wanted}")
    size = min(_MOST_HELD_OUT, max(1, int(len(sources) * _HELD_OUT)))
    split_of = {source: name for k, name in enumerate(names) for source in sources[k * size : (k + 1) * size]}
    rows: dict[str, list[int]] = {name: [] for name in ("train", *names)}
    for i, source in enumerate(text.src):
        rows[split_of.get(source, "train")].append(i)
    splits = {name: text.take(indices, name) for name, indices in rows.items()}
    return splits | {"train": replace(splits["train"], dropped=text.dropped)}


def languages(pair: str | None) -> tuple[str | None, str | None]:
    """Source and target language of a pair such as de-en; of None, twice None.

    Raises ValueError for something else.
    """
    if pair is None:
        return None, None
    src, dash, tgt = pair.partition("-")
    if not (src and dash and tgt):
        raise ValueError(f"{pair!r} is no pair of languages such as 'de-en'")
    return src, tgt
