"""Search for translations: greedy and beam search with a key/value cache (section 6.1)."""
