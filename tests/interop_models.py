"""Small models whose every weight counts, and tokenizers, for the tests of `interop`."""

import io
from pathlib import Path

import sentencepiece
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from annotated.batches import Batch, padding_mask
from annotated.evaluation_mode import evaluating
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.model import make_model
from annotated.translation.tokenizers import SentencePieceTokenizer

ENGLISH = ["the dog sees a cat", "a cat sees the dog and runs", "the cat runs to the house"]
GERMAN = ["der Hund sieht eine Katze", "eine Katze sieht den Hund und rennt", "die Katze rennt zum Haus"]
SHAPE = {"N": 2, "d_model": 16, "d_ff": 24, "h": 4, "dropout": 0.0}
MISSING = '{} is missing: pip install ".[interop]" in the clone'


class Bomb:
    """A pickle that writes a file when it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def shaken(model, std=0.4):
    """The model with no zeros and ones left in biases and norms, so that none can be forgotten unseen."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model.eval()


def toy(src_vocab=11, tgt_vocab=11, **settings):
    return shaken(make_model(src_vocab, tgt_vocab, **{**SHAPE, **settings}))


def taught(tokenizer, steps=120):
    """A model that has learned three sentences by heart, and so ends its translations of others too."""
    torch.manual_seed(0)
    model = make_model(len(tokenizer), len(tokenizer), N=1, d_model=32, d_ff=64, h=2, tied_embeddings="all")
    src = pad_sequence([torch.tensor([*tokenizer.encode(x), 1]) for x in ENGLISH], True, 2)
    tgt = pad_sequence([torch.tensor([0, *tokenizer.encode(x), 1]) for x in GERMAN], True, 2)
    batch, optimizer = Batch(src, tgt), torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
        loss = nn.functional.nll_loss(log_probs.flatten(0, 1), batch.tgt_y.flatten(), ignore_index=2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def classic_state(model):
    """The weights of `check.right.classic`, with the names of norms that the original has."""
    names = {"norm.gain": "norm.a_2", "norm.bias": "norm.b_2"}
    return {name[:-9] + names.get(name[-9:], name[-9:]): t for name, t in model.state_dict().items()}


def subwords(*sides):
    """A SentencePiece tokenizer of our own kind, of the text given."""
    return SentencePieceTokenizer.train([line for side in sides for line in side], 290)


def spm(lines, size=40):
    """A SentencePiece file as other programs train them: unigrams, its own symbols, text normalized."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def logits(model, src, tgt):
    """What a model says at each target position, padding of the source hidden."""
    with evaluating(model):
        states = model(src, tgt, padding_mask(src, 2), subsequent_mask(tgt.size(1)))
        return model.generator.proj(states)
