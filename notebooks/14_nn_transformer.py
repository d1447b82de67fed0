# %% [markdown]
# # 14 · PyTorch's own Transformer
#
# **You build a working translator around `nn.Transformer`, and you learn to catch three mistakes that raise
# no error.**
#
# Previous: [13_reading_attention](13_reading_attention.ipynb) · Next:
# [15_going_fast](15_going_fast.ipynb) · The model that we compare with:
# [06_the_full_model](06_the_full_model.ipynb)
#
# *18 minutes to read, half a minute to run.*
#
# - **Before:** you know the whole model ([06](06_the_full_model.ipynb)), masks
#   ([02](02_attention.ipynb), [07](07_batches_and_masks.ipynb)) and the training loop
#   ([09](09_first_example.ipynb)).
# - **After:** you can use `nn.Transformer` without falling into its traps, test that a decoder does not see
#   its answers, and move weights between `nn.Transformer` and this package.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). A number after `≈` may differ on your
# processor. You can skip the folded cells: *Scaffolding* prepares data, and *Check* tests what the text
# claims.

# %% tags=["install"]
import sys
from importlib.metadata import distributions
from pathlib import Path


class NotInstalledError(Exception):
    def _render_traceback_(self):  # the sentence alone
        return [str(self)]


if not any(distributions(name="annotated-transformer")):
    here = Path.cwd()
    clones = [str(at) for at in (here, *here.parents) if (at / "annotated/transformer").is_dir()]
    requirements = [f'-e "{clone}[colab]"' for clone in clones]
    if requirements:
        get_ipython().run_line_magic("pip", f"install -q {requirements[0]}")
    sys.path += clones  # where the next kernel looks by itself
if not any(distributions(name="annotated-transformer")):
    raise NotInstalledError(
        "This notebook needs the project that it belongs to: take all of it, not this file alone, "
        "run `make setup` in its folder, and open the notebook there with `make lab`."
    )

# %% [markdown]
# ## What is in the box
#
# PyTorch comes with a Transformer. Why did we write our own? Let us see what each of the two models
# contains:

# %%
import warnings

import torch
from torch import nn

from annotated import make_model

warnings.filterwarnings("ignore", message=".*nested.tensor")  # a message about PyTorch's fast path
torch.set_num_threads(1)  # our matrices are too small for more
sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 128, "dropout": 0.0}
theirs = nn.Transformer(64, nhead=4, **sizes, batch_first=True)
ours = make_model(40, 40, N=1, d_model=64, d_ff=128, h=4, dropout=0.0)
print("theirs:", *(name for name, _ in theirs.named_children()))
print("ours:  ", *(name for name, _ in ours.named_children()))

# %% [markdown]
# PyTorch's module holds the two stacks of the paper's Figure 1. It takes vectors and returns vectors.
# **Embeddings, positions, the output map, the masks and the decoding are left to you.** It has no cache for
# decoding either ([11](11_search_and_averaging.ipynb)). PyTorch's documentation calls the module a
# reference implementation for understanding, with limited features.
#
# To use the module, we need something to translate. We take German numbers, because a model learns them in
# seconds. The German word for 47 is *siebenundvierzig*, "seven and forty". We split it into its three parts.
# English turns the order around and drops the "and". The folded cell draws rows of one to four such numbers.

# %% tags=["scaffold"]
import random

UNITS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five"}
UNITS |= {"sechs": "six", "sieben": "seven", "acht": "eight", "neun": "nine"}
TENS = {"zwanzig": "twenty", "dreißig": "thirty", "vierzig": "forty", "fünfzig": "fifty"}
TENS |= {"sechzig": "sixty", "siebzig": "seventy", "achtzig": "eighty", "neunzig": "ninety"}


def row(draw):
    """One to four numbers in German and in English."""
    german, english = [], []
    for _ in range(draw.randint(1, 4)):
        unit, ten = draw.choice([*UNITS]), draw.choice([*TENS])
        if draw.random() < 0.5:
            german, english = [*german, unit], [*english, UNITS[unit]]
        else:
            german, english = [*german, unit, "und", ten], [*english, TENS[ten], UNITS[unit]]
    return " ".join(german), " ".join(english)


# %%
draw = random.Random(0)
pairs = [row(draw) for _ in range(6400)]
unseen = [pair for pair in (row(draw) for _ in range(400)) if pair not in set(pairs)][:100]
print(*unseen[0], sep="  →  ")

# %% [markdown]
# ## A translator around it
#
# The next class contains everything that `nn.Transformer` leaves to us, except the decoding. Look at the
# masks, because we will break them later in this lesson. In the masks of `nn.Transformer`, **`True` means
# hidden**. In this package and in PyTorch's own `F.scaled_dot_product_attention`, `True` means the
# opposite: the position *may be looked at*.

# %%
from annotated import sinusoids
from annotated.translation.tokenizers import PAD


class NumberTranslator(nn.Module):
    """Embeddings, positions, nn.Transformer, and a linear map to the English words."""

    def __init__(self, german, english, d_model=64):
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(german, d_model), nn.Embedding(english, d_model)
        self.register_buffer("positions", sinusoids(32, d_model))
        self.transformer = nn.Transformer(d_model, nhead=4, **sizes, batch_first=True)
        self.output = nn.Linear(d_model, english)

    def forward(self, src, tgt, **other_masks):  # tokens (B, S) and (B, T) -> logits (B, T, english)
        x = self.src_embed(src) + self.positions[: src.size(1)]
        y = self.tgt_embed(tgt) + self.positions[: tgt.size(1)]
        padding = src == PAD  # (B, S), True: hidden
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)  # (T, T), True: hidden
        masks = {
            "tgt_mask": future,
            "src_key_padding_mask": padding,  # in the encoder
            "memory_key_padding_mask": padding,  # once more, in the decoder
        }
        return self.output(self.transformer(x, y, **{**masks, **other_masks}))


# %% [markdown]
# The training loop is like that of [09](09_first_example.ipynb), with plain cross-entropy and a constant
# learning rate. The decoder reads the target without its last token, `tgt[:, :-1]`. It must predict the
# target without its first token, `tgt[:, 1:]`.

# %%
from annotated import WordTokenizer
from annotated.translation.data import pad_rows
from annotated.translation.tokenizers import END, START

german = WordTokenizer.train([source for source, _ in pairs], language=None)
english = WordTokenizer.train([target for _, target in pairs], language=None)


def batch_of(pairs):
    """Sources (B, S) and targets (B, T), padded on the right."""
    src = [[*german.encode(source), END] for source, _ in pairs]
    tgt = [[START, *english.encode(target), END] for _, target in pairs]
    return pad_rows(src, PAD), pad_rows(tgt, PAD)


# %%
_ = torch.manual_seed(0)
model = NumberTranslator(len(german), len(english))
adam = torch.optim.Adam(model.parameters(), lr=0.002)
for begin in range(0, len(pairs), 32):
    src, tgt = batch_of(pairs[begin : begin + 32])
    logits = model(src, tgt[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
    adam.zero_grad()
    loss.backward()
    adam.step()
print(f"loss after {len(pairs) // 32} updates ≈{loss.item():.2f}")

# %% tags=["check"]
assert loss.item() < 0.6

# %% [markdown]
# The module does not decode, so we write greedy decoding ourselves. There is no cache, so each step reads
# all earlier tokens again.


# %%
@torch.no_grad()
def translate(model, sentences):
    src, _ = batch_of([(sentence, "") for sentence in sentences])
    tgt = torch.full((len(src), 1), START)
    for _ in range(10):
        tgt = torch.cat([tgt, model(src, tgt)[:, -1:].argmax(dim=-1)], dim=1)  # one more column
    rows = [row[1 : row.index(END)] if END in row else row[1:] for row in tgt.tolist()]
    return [english.decode(row) for row in rows]


answers = translate(model.eval(), [source for source, _ in unseen])
right = sum(answer == target for answer, (_, target) in zip(answers, unseen, strict=True))
print(unseen[0][0], "→", answers[0])
print(f"≈{right} of 100 right")

# %% tags=["check"]
assert right > 40

# %% [markdown]
# After a few seconds of training, about three translations out of four are entirely right. Now we break the
# translator in ways that raise no error.
#
# **To keep:** `nn.Transformer` contains only the two stacks. You write the rest of the model and every
# mask.

# %% [markdown]
# ## Trap 1: which axis is the batch?
#
# **Before you run this:** we give the module three sentences of five words, with a vector of 64 numbers for
# each word. Then we change only the second sentence, whose index is 1. Which outputs should change?


# %%
def changed_outputs(transformer):
    """The numbers of the sentences whose output changes when the source of sentence 1 does."""
    _ = torch.manual_seed(0)
    src, tgt = torch.randn(2, 3, 5, 64)
    other = src.clone()
    other[1] += torch.randn(5, 64)
    moves = (transformer(src, tgt) - transformer(other, tgt)).abs().amax(dim=(1, 2))
    return [n for n, move in enumerate(moves.tolist()) if move > 1e-5]


as_it_comes = nn.Transformer(64, nhead=4, **sizes)
print("batch_first=True:", changed_outputs(theirs))
print("as it comes:     ", changed_outputs(as_it_comes))

# %% tags=["check"]
assert changed_outputs(theirs) == [1]
assert changed_outputs(as_it_comes) == [0, 1, 2]

# %% [markdown]
# By default the module expects the shape `(length, batch, d_model)`. It read our tensor as five sentences
# of three words, so words of different sentences attended to each other. Why was there no error? Without
# masks, the module checks only that every vector has `d_model` numbers, and that source and target have the
# same number of sentences. Here it took our tensors for five sentences on each side.
#
# **To keep:** always write `batch_first=True`.

# %% [markdown]
# ## Trap 2: the decoder sees its answer
#
# > "We also modify the self-attention sub-layer in the decoder stack to prevent positions from attending to
# > subsequent positions." (section 3.1)
#
# `nn.Transformer` does not prevent this unless you tell it to: the default of `tgt_mask` is `None`. A mask
# from a package with the other convention hides the past and shows the future. In both cases the decoder
# can copy its answer. The loss falls *faster* than it should, and the model learns nothing useful
# ([07](07_batches_and_masks.ipynb)).
#
# You can check this without any training. Prediction $t$ is about token $t + 1$. So it must not depend on
# token $t + 1$, nor on any token after it. Replace these tokens in the data, and see whether the prediction
# changes. A model with random weights is good enough for this check.


# %%
from annotated.translation.tokenizers import UNK


def overheard(predict, tgt):
    """How many predictions change when their answer and all later tokens are replaced."""
    moved = 0
    for t in range(tgt.size(1) - 1):
        replaced = tgt.clone()
        replaced[:, t + 1 :] = UNK
        moved += not torch.allclose(predict(tgt)[:, t], predict(replaced)[:, t], atol=1e-5)
    return moved


untrained = NumberTranslator(len(german), len(english))
src, tgt = batch_of([max(unseen, key=lambda pair: len(pair[1].split()))])
past = torch.ones(tgt.size(1) - 1, tgt.size(1) - 1, dtype=torch.bool).tril()  # the other convention
ways = {
    "right": lambda tgt: untrained(src, tgt[:, :-1]),
    "no mask": lambda tgt: untrained(src, tgt[:, :-1], tgt_mask=None),
    "inverted mask": lambda tgt: untrained(src, tgt[:, :-1], tgt_mask=past),
    "no shift": lambda tgt: untrained(src, tgt[:, 1:]),
}
for name, predict in ways.items():
    print(f"{name:14} {overheard(predict, tgt)} of {tgt.size(1) - 1} predictions depend on their own answer")

# %% tags=["check"]
heard = [overheard(predict, tgt) for predict in ways.values()]
n = tgt.size(1) - 1
assert heard == [0, n - 1, n - 1, n]

# %% [markdown]
# Why 8 and not 9? The decoder reads `tgt[:, :-1]`, which leaves out the last answer. The last line of the
# output shows a different mistake: without the shift, the decoder reads `tgt[:, 1:]`, the very tokens that
# it should predict. Put this check into the tests of every program that trains a decoder.
#
# **To keep:** replace the future tokens in the data. If a prediction changes, the decoder has read its
# answer.

# %% [markdown]
# ## Trap 3: padding, twice
#
# In the encoder, `src_key_padding_mask` hides the padding of the source. This is not enough, because the
# encoder still outputs a vector for each padded position, and the decoder looks at all of the encoder's
# output. A second mask, `memory_key_padding_mask`, hides these vectors from the decoder.
#
# **Before you run this:** we add three padding tokens to a source. How much do the logits change with both
# masks, and how much without `memory_key_padding_mask`?

# %%
longer = nn.functional.pad(src, (0, 3), value=PAD)
given = tgt[:, :-1]
both = (untrained(longer, given) - untrained(src, given)).abs().max()
once = (untrained(longer, given, memory_key_padding_mask=None) - untrained(src, given)).abs().max()
print(f"hidden twice: {both:.4f}")
print(f"hidden from the encoder only: ≈{once:.2f}")

# %% tags=["check"]
assert both < 5e-5
assert once > 0.02

# %% [markdown]
# Without the second mask, the translation of a sentence depends on how long the other sentences in its
# batch are. The target's own padding needs no mask as long as it stands on the right. The causal mask
# already hides it from every real word, and the loss ignores what the model predicts there.
#
# *Which flags override your mask? And what happens to a sentence that consists only of padding? See [What
# does nn.Transformer do with your masks?](evidence/what_does_nn_transformer_do_with_your_masks.ipynb)*
#
# **To keep:** pass the source's padding mask twice, once for the encoder and once for the decoder.

# %% [markdown]
# ## It is not quite the paper's model
#
# Two things differ from the paper's text. First, the encoder and the decoder each end in one more layer norm.
# Second, one number, `dropout`, sets the rate in three places: after each sub-layer, inside the feed-forward
# network, and on the attention weights. The paper mentions only the first of these (section 5.4).

# %% tags=["check"]
layer = nn.Transformer(64, nhead=4, dropout=0.1, batch_first=True).encoder.layers[0]
assert layer.self_attn.dropout == layer.dropout.p == layer.dropout1.p == 0.1
assert None not in (theirs.encoder.norm, theirs.decoder.norm)

# %% [markdown]
# Is everything else the same as in our model? To test that, we copy the weights and compare the outputs.
# PyTorch keeps the matrices $W^Q$, $W^K$ and $W^V$ of all heads in one matrix, `in_proj_weight`. The other
# weights differ only in their names. The package's function `to_torch` builds an `nn.Transformer` that has
# a model's weights and lacks the two additional norms. The function `from_torch` does the reverse.

# %%
from annotated.translation.interop import from_torch, to_torch

_ = torch.manual_seed(0)
for parameter in ours.parameters():
    nn.init.normal_(parameter, std=0.3)  # a new model's biases are all 0: a swap would not be noticed
ours.eval()
copied = to_torch(ours)
src, tgt = torch.randint(4, 40, (2, 6)), torch.randint(4, 40, (2, 5))
causal = torch.ones(1, 5, 5, dtype=torch.bool).tril()
with torch.no_grad():
    mine = ours(src, tgt, None, causal)
    other = copied(ours.src_embed(src), ours.tgt_embed(tgt), tgt_mask=~causal[0])
print(f"largest difference of the two models: {(mine - other).abs().max():.4f}")
print("in_proj_weight:", tuple(copied.encoder.layers[0].self_attn.in_proj_weight.shape))

# %% tags=["check"]
torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
back = from_torch(copied, 40, 40).state_dict()
for name, weight in ours.state_dict().items():
    if name.startswith(("encoder.", "decoder.")):
        assert torch.equal(back[name], weight)

# %% [markdown]
# The two models compute the same numbers. So you can train the module that `to_torch` returns and then move
# its weights back into this package, which has beam search, the cache and the pictures of attention. Only
# the embeddings and the output map are left for you to copy.
#
# **To keep:** to test a model, copy its weights into another implementation and compare the outputs.

# %% [markdown]
# ## What you can now say
#
# - `nn.Transformer` holds the two stacks. You add the embeddings, the positions, the masks, the output map
#   and the decoding.
# - In its masks `True` means hidden. By default, it applies no mask, and you must pass the source's padding
#   mask twice.
# - A check without training finds a decoder that sees its answer. Copied weights show that two
#   implementations compute the same numbers.
#
# **Deeper:** [What does nn.Transformer do with your
# masks?](evidence/what_does_nn_transformer_do_with_your_masks.ipynb)
#
# **Next:** where the time goes, in [15_going_fast](15_going_fast.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Predict first. We set the rate of every `nn.Dropout` in an `nn.Transformer` to 0
# and leave the model in training mode. Do two calls with the same input agree? Then find out, and if the
# calls do not agree, change the model so that they do.

# %% tags=["solution"]
noisy, x = nn.Transformer(64, nhead=4, dropout=0.1, batch_first=True), torch.randn(2, 5, 64)
for module in noisy.modules():
    if isinstance(module, nn.Dropout):
        module.p = 0.0
print(f"still apart by ≈{(noisy(x, x) - noisy(x, x)).abs().max():.1f}")
for module in noisy.modules():
    if isinstance(module, nn.MultiheadAttention):
        module.dropout = 0.0  # a plain number, not an nn.Dropout
assert torch.equal(noisy(x, x), noisy(x, x))

# %% [markdown]
# **Exercise 2 (medium).** A classifier averages the encoder's states over the words of a sentence. Write
# this mean so that it leaves out padding. For a sentence that consists only of padding, return zeros.


# %% tags=["exercise"]
def mean_of_words(states, padding):
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
def test_mean_of_words(mean_of_words):
    torch.manual_seed(0)
    states, padding = torch.randn(3, 6, 8), torch.arange(6) >= torch.tensor([[6], [2], [0]])
    right = torch.stack([states[0].mean(dim=0), states[1, :2].mean(dim=0), torch.zeros(8)])
    for hidden in (9.0, torch.nan):  # PyTorch may put NaN where there is padding
        given = mean_of_words(states.masked_fill(padding.unsqueeze(-1), hidden), padding)
        shape = getattr(given, "shape", given)
        assert shape == (3, 8), f"for 3 sentences, (3, 8) is wanted, not {shape}"
        for words, row, wanted in zip((6, 2, 0), given, right, strict=True):
            told = (
                f"{words} words, {hidden} at padding: the mean begins with {wanted[0]:.3f}, not {row[0]:.3f}"
            )
            assert torch.allclose(row, wanted, atol=1e-6), told


try:
    test_mean_of_words(mean_of_words)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(states, padding):
    """States (B, S, d_model), True at padding (B, S) -> (B, d_model)."""
    words = (~padding).unsqueeze(-1)  # (B, S, 1)
    return states.masked_fill(~words, 0.0).sum(dim=1) / words.sum(dim=1).clamp(min=1)


test_mean_of_words(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. `overheard` finds a mask that shows too much. Does it also find a mask
# that shows too little, such as one under which each position sees only itself? Write a check that does.

# %% tags=["solution"]
source, target = batch_of([max(unseen, key=lambda pair: len(pair[1].split()))])
itself = ~torch.eye(target.size(1) - 1, dtype=torch.bool)


def too_little(tgt):
    return untrained(source, tgt[:, :-1], tgt_mask=itself)


def right_mask(tgt):
    return untrained(source, tgt[:, :-1])


print("overheard:", overheard(too_little, target))  # nothing


def deaf(predict, tgt):
    """How many predictions do not change when the first word is replaced."""
    replaced = tgt.clone()
    replaced[:, 1] = UNK
    same = [torch.allclose(predict(tgt)[:, t], predict(replaced)[:, t]) for t in range(1, tgt.size(1) - 1)]
    return sum(same)


print("deaf:", deaf(too_little, target), "and with the right mask:", deaf(right_mask, target))
assert overheard(too_little, target) == 0 == deaf(right_mask, target) < deaf(too_little, target)
