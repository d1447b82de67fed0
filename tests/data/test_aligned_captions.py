"""The aligned captions."""

from annotated.data.aligned_captions import aligned_captions


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
