import pytest
import torch
from torch.nn import functional as F

import annotated


def test_each_batch_says_what_its_padding_is():
    """The copy task pads with 0, and 2 is one of its symbols."""
    torch.manual_seed(0)
    model = annotated.make_model(11, 11, N=1, d_model=8, d_ff=8, h=2)
    batches = list(annotated.data_gen(11, 30, 2))
    found = annotated.score_tokens(model, batches)
    with annotated.evaluating(model):
        losses = [
            F.nll_loss(
                model.generator(model(b.src, b.tgt, b.src_mask, b.tgt_mask)).flatten(0, 1), b.tgt_y.flatten()
            )
            for b in batches
        ]
    assert found.loss == pytest.approx(sum(losses).item() / 2, rel=1e-5)
