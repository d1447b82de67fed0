"""What the scores of a split leave out is said."""

import torch

from annotated.search.config import SearchConfig
from annotated.transformer.config import TransformerConfig
from annotated.transformer.model import EncoderDecoder
from annotated.translation.data import Corpus, ParallelText
from annotated.translation.evaluation import score_split
from annotated.translation.tokenizers import WordTokenizer
from annotated.translation.translator import Translator


def test_pairs_longer_than_the_learned_positions_are_counted():
    torch.manual_seed(0)
    words = WordTokenizer(["a", "b"], None)
    shape = {"N": 1, "d_model": 8, "d_ff": 8, "h": 1, "positions": "learned", "max_len": 6}
    model = EncoderDecoder.from_config(TransformerConfig.base(len(words), len(words), **shape)).eval()
    lines = ["a b", "a " * 9, "b", "b " * 7]
    text = ParallelText(lines, lines, [1, 2, 3, 4], "val")
    corpus = Corpus("mine", None, None, {"val": text})
    found, _ = score_split(Translator(model, words, words), corpus, "val", False, SearchConfig(beam=1))
    assert found.left_out == 2
    assert "without 2 pairs" in str(found)
