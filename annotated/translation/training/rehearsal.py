"""What is tried out before the first update: saving the model, and for a variant its masks and its search."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from annotated.modes import evaluating
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.cache import DecoderCache
from annotated.transformer.model import EncoderDecoder
from annotated.translation.storage.model_folder import (
    check_can_be_saved,
    load_model,
    random_output,
    save_model,
)
from annotated.translation.tokenizers import Tokenizer


def rehearse(folder: Path, model: EncoderDecoder, *tokenizers: Tokenizer) -> None:
    """Save, load and use a model that is to be trained, inside of a folder, where nothing of it stays.

    Raises ValueError where it would come back as another, and as `check_variant` does.
    """
    with TemporaryDirectory(prefix=".rehearsal.", suffix=".partial", dir=folder) as rehearsal:
        save_model(Path(rehearsal), model, *tokenizers)
        loaded, *_ = load_model(rehearsal)
    with torch.no_grad():
        random_output(loaded.train())  # what training changes must come back too
    check_can_be_saved(loaded)
    if loaded.config.variant != "paper":
        check_variant(loaded)


def check_variant(model: EncoderDecoder) -> None:
    """Raise ValueError for a variant that sees what masks hide, or searches otherwise than it is trained.

    The model's weights change: what begins as zero, such as a learned bias or a gate, would hide a fault.
    """
    draw, length = torch.Generator().manual_seed(0), min(6, model.max_positions or 6)
    c = model.config
    src, tgt = (torch.randint(size, (2, length), generator=draw) for size in (c.src_vocab, c.tgt_vocab))
    src_mask, tgt_mask = torch.arange(length).expand(2, 1, -1) < length - 1, subsequent_mask(length)
    padded, later = src.clone(), tgt.clone()  # others than these in what is hidden
    padded[:, -1], later[:, -1] = (src[:, -1] + 1) % c.src_vocab, (tgt[:, -1] + 1) % c.tgt_vocab
    with evaluating(model):
        for weights in model.parameters():
            weights.add_(torch.randn(weights.shape, generator=draw), alpha=0.05)
        whole, other_padding, other_end = (
            model.generator(model(src, tgt, src_mask, tgt_mask))
            for src, tgt in ((src, tgt), (padded, tgt), (src, later))
        )
        memory, cache = model.encode(src, src_mask), DecoderCache(len(model.decoder.layers))
        states = [model.decode(memory, src_mask, token, None, cache) for token in tgt.split(1, dim=1)]
        searched = model.generator(torch.cat(states, dim=1))
    hidden = "attend must hide what is False in its mask, and other parts treat each position by itself"
    for found, expected, fault in (
        (other_padding, whole, f"padding in the source changes its output: {hidden}"),
        (other_end[:, :-1], whole[:, :-1], f"a later target token changes an earlier output: {hidden}"),
        (
            searched,
            whole,
            "a search gives it other probabilities than training: in a search, attend gets one query and all "
            "keys so far (the first query's position is S - T), and positions get that position as start",
        ),
    ):
        if not torch.allclose(found, expected, 1e-3, 1e-3, equal_nan=True):
            raise ValueError(f"the variant {c.variant!r} would not translate as it is trained: {fault}")
