"""The aligned captions, and how maps of subwords become maps of words."""

import pytest
import torch
from torch.testing import assert_close

from annotated.data.captions import aligned_captions, map_words, word_of_piece


def test_the_links_name_words_of_both_sentences() -> None:
    pairs = aligned_captions()
    assert len(pairs) == 24
    for pair in pairs:
        assert pair.english.replace(" ", "") == "".join(pair.english_words)
        assert pair.german.replace(" ", "") == "".join(pair.german_words)
        assert pair.sure
        assert not pair.sure & pair.possible
        for s, t in pair.sure | pair.possible:
            assert 0 <= s < len(pair.english_words)
            assert 0 <= t < len(pair.german_words)


def test_a_question_mark_makes_a_link_only_possible() -> None:
    pair = aligned_captions()[2]
    fed = pair.german_words.index("füttert")
    assert [pair.english_words[s] for s, t in pair.sure if t == fed] == ["feeding"]
    assert [pair.english_words[s] for s, t in pair.possible if t == fed] == ["is"]


def test_each_piece_finds_its_word() -> None:
    pieces, words = ["▁die", "▁Stra", "ßen", "bahn", "."], ["die", "Straßenbahn", "."]
    assert word_of_piece(pieces, words).tolist() == [0, 1, 1, 1, 2]


def test_pieces_of_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="not the pieces"):
        word_of_piece(["▁ein", "▁Hund"], ["ein", "Hut"])


def test_rows_are_averaged_and_columns_added() -> None:
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.0, 0.8, 0.2]])
    found = map_words(weights, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]))
    assert_close(found, torch.tensor([[0.5, 0.5], [0.9, 0.1]]))
    maps = torch.rand(2, 4, 3, 3).softmax(dim=-1)
    assert_close(map_words(maps, torch.arange(3), torch.arange(3)), maps)
