"""Search for translations: greedy and beam search (section 6.1)."""
