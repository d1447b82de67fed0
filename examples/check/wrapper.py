"""An adapter for a model whose signatures are its own: annotated check their_file.py --adapter wrapper.py

`mine` is the module of the file that is checked. Here its model is built from a dictionary of settings, wants
masks in which True hides, (B, S) for the source, and returns a dictionary. The wrapper has `encode` and
`decode`; a model that only has `forward(src, tgt)` is fine without.
"""

from torch import nn


class Model(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, pad):
        super().__init__()
        settings = {"layers": N, "width": d_model, "inner": d_ff, "heads": h, "drop": dropout, "pad": pad}
        self.theirs = mine.Translator(settings, src_vocab, tgt_vocab)  # noqa: F821 (`mine` is given)

    def encode(self, src, src_mask):
        """(B, S) and (B, 1, S) -> (B, S, d_model)."""
        return self.theirs.read(src, hidden=~src_mask.squeeze(1))

    def decode(self, memory, src_mask, tgt, tgt_mask):
        """(B, S, d_model), (B, 1, S), (B, T), (B, T, T) -> log-probabilities or logits (B, T, tgt_vocab)."""
        return self.theirs.write(tgt, memory, ~src_mask.squeeze(1), ~tgt_mask)["scores"]


make_model = Model
