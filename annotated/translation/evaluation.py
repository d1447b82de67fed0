"""Evaluate a model on a split of a corpus: BLEU and chrF of its translations, perplexity and accuracy."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from annotated.metrics import Score, bleu_metric, bootstrap, chrf
from annotated.perplexity import TokenScores, score_tokens
from annotated.search.config import SearchConfig
from annotated.translation.data import Corpus, ParallelText, TokenBatches, encode_corpus
from annotated.translation.files import read_json
from annotated.translation.languages import bleu_tokenizer, lacks_spaces
from annotated.translation.messages import warn
from annotated.translation.tokenizers import normalize
from annotated.translation.translator import Translator


@dataclass(frozen=True, repr=False)
class Results:
    """Scores of one model on one split, and the search that they hold for."""

    corpus: str
    pair: str | None  # None where nobody named the languages
    split: str
    sentences: int
    beam: int
    alpha: float
    penalty: str
    bleu: Score | None  # cased and detokenized; None where the text itself is tokenized
    tokenized_bleu: Score | None  # lower-cased and tokenized, as tables of public corpora have it
    chrf: Score
    perplexity: float  # per token, without label smoothing
    accuracy: float  # share of reference tokens that were the model's first choice
    left_out: int = 0  # pairs with more tokens than the model has positions, which these two leave out
    no_repeat_ngram: int = 0  # see `SearchConfig`

    def __repr__(self) -> str:
        scores = {"as written": self.bleu, "tokenized, lower-cased beforehand": self.tokenized_bleu}
        lines = [f"{name}: {score}" for name, score in scores.items() if score is not None]
        tokens = f"perplexity = {self.perplexity:.2f} per token, accuracy = {self.accuracy:.1%}, no smoothing"
        if self.left_out:
            tokens += f" (without {self.left_out} pairs that are longer than the model's positions)"
        return "\n".join([*lines, str(self.chrf), tokens])

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Results":
        """Turn back what `dataclasses.asdict` gave."""
        names = [name for name in ("bleu", "tokenized_bleu", "chrf") if values[name] is not None]
        return cls(**{**values, **{name: Score(**values[name]) for name in names}})


def read_scores(folder: Path) -> dict[str, Results]:
    """Read the scores of a released model, by split. Raises as `read_json` does."""
    return {split: Results.from_json(values) for split, values in read_json(folder / "scores.json").items()}


def score_split(
    translator: Translator,
    corpus: Corpus,
    split: str,
    tokenized: bool,
    search: SearchConfig,
    tokenize: str | None = None,
    progress: bool = False,
) -> tuple[Results, list[str]]:
    """Translate a split and score that; returns the scores and the translations.

    `tokenized` text is tokenized and lower-cased already; for other text, `tokenize` names sacreBLEU's
    tokenizer, if not the language's. Raises ValueError for an unknown split, and as `bleu_metric` does.
    """
    text = corpus[split]
    if tokenized and tokenize:
        raise ValueError(f"this text is tokenized already: its BLEU takes no tokenizer {tokenize!r}")
    tokenize = tokenize or bleu_tokenizer(corpus.tgt_language)
    if tokenize == "13a" and not tokenized and lacks_spaces(text.tgt[:1000]):
        advice = "name its pair of languages, or --bleu-tokenize, in Python tokenize, such as zh or char"
        warn(f"BLEU counts words between spaces, which this text lacks; {advice}")
    bleu = bleu_metric(tokenize)
    options = {name: value for name, value in asdict(search).items() if name != "n_best"}
    translations = translator.translate(text.src, **options, numbers=text.lines, progress=progress)
    references = [normalize(line) for line in text.tgt]
    if not bleu(references, references).value:
        warn("BLEU counts runs of four words, and no reference has four; go by chrF")
    language = corpus.tgt_language or ""
    tokenized_text = (translations, references) if tokenized else None
    if not tokenized and corpus.name != "own" and moses_supports(language):
        tokenized_text = moses_tokenized(translations, language), moses_tokenized(references, language)
    tokens, left_out = score_references(translator, text)
    results = Results(
        corpus=corpus.name,
        pair=corpus.pair,
        split=split,
        sentences=len(text),
        bleu=None if tokenized else bootstrap(translations, references, metric=bleu),
        tokenized_bleu=bootstrap(*tokenized_text, tokenize="none") if tokenized_text else None,
        chrf=chrf(translations, references),
        perplexity=tokens.perplexity,
        accuracy=tokens.accuracy,
        left_out=left_out,
        **options,
    )
    return results, translations


def score_references(translator: Translator, text: ParallelText) -> tuple[TokenScores, int]:
    """Score the references' tokens; also count the pairs longer than the positions, which are left out."""
    positions = translator.model.max_positions
    limit = None if positions is None else positions - 1  # the end symbol has a position, too
    pairs = encode_corpus(text, translator.src_tokenizer, translator.tgt_tokenizer, limit)
    longest = int(max(pairs.src.lengths.max(), pairs.tgt.lengths.max()))
    batches = TokenBatches(pairs, max(4096, longest), shuffle=False)
    tokens = score_tokens(translator.model, batches.epoch(0), translator.tgt_tokenizer.unk)
    return tokens, len(text) - len(pairs)


def moses_supports(language: str | None) -> bool:
    """Return whether Moses has rules for a language, and spaces separate its words."""
    from sacremoses.corpus import NonbreakingPrefixes

    return bleu_tokenizer(language) == "13a" and language in NonbreakingPrefixes().available_langs.values()


def moses_tokenized(sentences: Iterable[str], language: str) -> list[str]:
    """Lower-case, normalize and tokenize text of a language such as "de", as Multi30k's `lc.norm.tok` was."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang=language), MosesTokenizer(lang=language)
    return [tokenizer.tokenize(normalizer.normalize(s.lower()), return_str=True) for s in sentences]
