"""Greedy and beam search with a cache of keys and values (section 6.1)."""
