# %% [markdown]
# # 07 · Batches and masks
#
# **You meet a model that gets every word right before any training. To expose it, you turn text into tokens
# and tokens into batches, and you find out what masks are for.**
#
# Previous: [06_the_full_model](06_the_full_model.ipynb) · Next:
# [08_training_recipe](08_training_recipe.ipynb)
#
# *31 minutes to read, a few seconds to run.*
#
# - **Before:** you know attention and its masks ([02](02_attention.ipynb)), and the model
#   ([06](06_the_full_model.ipynb)).
# - **After:** you can write everything between a text file and the model, and you can test whether a model
#   sees what it should predict.
#
# This lesson covers section 5.1 of the paper (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)). Indented sentences are the paper's. A number after `≈` may
# differ on your processor. You can skip the folded cells: *Scaffolding* prepares data and draws pictures, and
# *Check* tests what the text claims.

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
# ## Right about everything
#
# Here is a new model. Its weights are random, and it has never seen a word. We let it read *A cat runs.*
# and ask it for the German translation, one token at each position.

# %%
import torch

from annotated import load_pretrained, make_model, subsequent_mask

tokenizer = load_pretrained("multi30k-en-de").src_tokenizer  # text to tokens, for both languages
_ = torch.manual_seed(0)
untrained = make_model(10_000, 10_000, N=1, d_model=128, d_ff=256, h=4, dropout=0.0, tied_embeddings="all")

source = torch.tensor([[*tokenizer.encode("A cat runs."), tokenizer.end]])  # (1, 5)
target = torch.tensor([[*tokenizer.encode("Eine Katze rennt."), tokenizer.end]])  # (1, 5)
with torch.no_grad():
    log_probs = untrained.generator(untrained(source, target, None, subsequent_mask(5)))  # (1, 5, 10000)
print("must predict", *tokenizer.pieces(target[0].tolist()))
print("predicts    ", *tokenizer.pieces(log_probs[0].argmax(dim=-1).tolist()))

# %% tags=["check"]
assert torch.equal(log_probs.argmax(dim=-1), target)

# %% [markdown]
# It is right about every token. It chose each one from among 10,000, although it has learned nothing.
# Something in this cell is wrong. Can you see what? We will come back to it when you know how a batch is
# made.

# %% [markdown]
# ## What is a token?
#
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about
# > 37000 tokens." (section 5.1)
#
# A model reads numbers. So the text is cut into pieces, which are called **tokens**, and each different
# token has a number, its ID. What should the pieces be? If every piece were a whole word, the model could
# not read a new word, and German makes new compounds every day. Single characters would do, but they make
# sentences several times as long, and attention compares every position with every other.
#
# **Byte-pair encoding** (BPE; Sennrich et al., 2016) lies in between. It starts with characters. It counts
# which two pieces most often stand next to each other, and joins them into one piece. Then it counts again
# and joins the next pair, and so on:


# %%
from collections import Counter
from itertools import pairwise


def merge(pieces, pair):
    """Join the two wherever they are neighbors: ["s", "e", "h"], ("e", "h") -> ["s", "eh"]."""
    joined = []
    for piece in pieces:
        if joined and (joined[-1], piece) == pair:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


# %%
def learn(counts, merges):
    """Learn merges from {word: count}; return the joined pairs, in the order in which they were joined."""
    words, learned = {word: list(word) for word in counts}, []
    for _ in range(merges):
        pairs = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        learned.append(max(pairs, key=pairs.get))
        words = {word: merge(pieces, learned[-1]) for word, pieces in words.items()}
    return learned


# %% [markdown]
# Let us try it on five German words with their counts. They are forms of *sehen* (to see) and *gehen* (to
# go).
#
# **Before you run this:** which two letters are joined first?

# %%
counts = {"sehen": 5, "gesehen": 4, "gehen": 6, "geht": 2, "sieht": 3}
cut = {word: list(word) for word in counts}
for pair in learn(counts, merges=5):
    cut = {word: merge(pieces, pair) for word, pieces in cut.items()}
    print(f"{' + '.join(pair):11}", "   ".join("·".join(pieces) for pieces in cut.values()))

# %% tags=["check"]
assert learn(counts, 5)[0] == ("e", "h")
assert cut["gesehen"] == ["g", "e", "sehen"]

# %% [markdown]
# The letters `e` and `h` are neighbors in all five words, so the pair occurs $5+4+6+2+3=20$ times. Then two
# pairs tie: `eh` followed by `e` occurs 15 times, and so does `e` followed by `n`. Our code takes the pair
# that it met first. After five merges, something remarkable has happened: BPE has found the verb *sehen*
# inside its participle *gesehen*. BPE knows no German. It only counts.
#
# ![gesehen, from top to bottom: e and h are joined (20 times), eh and e (15), ehe and n (15), s and ehen (9);
# what is left is g, e and sehen](../images/merges.svg)
#
# *Figure 1. How gesehen was put together. The number next to each join says how often the pair occurred.*
#
# The translator's vocabulary was made in the same way, with thousands of merges. The symbol `▁` stands for
# the space before a word, so that the text can be put together again:

# %%
for text in ("A cat runs.", "Eine Katze rennt.", "A snowboarder somersaults.", "A 猫 runs."):
    tokens = tokenizer.encode(text)
    print(f"{' '.join(tokenizer.pieces(tokens)):40} {tokens}")

# %% tags=["check"]
for text in ("A cat runs.", "Eine Katze rennt.", "A snowboarder somersaults.", "A 猫 runs."):
    assert tokenizer.decode(tokenizer.encode(text)) == text
assert bytes([0xE7, 0x8C, 0xAB]).decode() == "猫"
assert len(tokenizer.encode("A cat runs.")) == 4

# %% [markdown]
# A frequent word is a single token. A rare word is built from several pieces, so the model can read and write
# words that it has never seen. Even a *character* that the vocabulary lacks gets through: `猫` is spelled
# with the three bytes that encode it in a text file. All 256 bytes are tokens, so no text is impossible to
# write.
#
# **Remember:** byte-pair encoding joins the most frequent pair of neighbors, again and again, so a
# frequent word becomes one token and a rare word several.

# %% [markdown]
# ## One target, two rows
#
# The decoder learns to continue a sentence. At every position it reads a token and must predict the *next*
# token. So a training example needs the target twice: once to be read, and once to be predicted.
#
# ![The decoder reads start, eine, Katze, rennt; it must predict eine, Katze, rennt, end: the same sentence,
# moved by one](../images/shift.svg)
#
# *Figure 2. The target is shifted by one. At each position, the decoder reads one token (solid arrow), may
# also look at the earlier tokens (dashed arrows), and must predict the token below. The words start and end
# stand for the two special tokens.*
#
# The token `<s>` marks the start of a sentence, and `</s>` marks its end. The two rows are the same
# sentence, shifted by one position. The second line below is the most important line of code in this
# lesson:

# %%
whole = torch.tensor([[tokenizer.start, *tokenizer.encode("Eine Katze rennt."), tokenizer.end]])  # (1, 6)
tgt, tgt_y = whole[:, :-1], whole[:, 1:]  # read all but the last; predict all but the first
print("reads   ", *tokenizer.pieces(tgt[0].tolist()))
print("predicts", *tokenizer.pieces(tgt_y[0].tolist()))

# %% [markdown]
# In training, the decoder reads the *right* earlier words, even where it would have chosen others. This is
# called **teacher forcing**. When the model translates, nobody can give it the right words. Then it reads
# what it has written itself, mistakes included.
#
# Teacher forcing has a great advantage. All positions can be trained in one pass, because the **causal mask**
# hides the later tokens from each position:
#
# > "This masking, combined with fact that the output embeddings are offset by one position, ensures that the
# > predictions for position i can depend only on the known outputs at positions less than i." (section 3.1)
#
# Let us test that. We run the decoder once on the whole row. Then we run it five more times, on the first
# token alone, on the first two, and so on.
#
# **Before you run this:** will the last output vector of each short run be the same as the vector at that
# position in the long run?

# %%
with torch.no_grad():
    at_once = untrained(source, tgt, None, subsequent_mask(5))  # (1, 5, 128)
    for n in range(1, 6):
        short = untrained(source, tgt[:, :n], None, subsequent_mask(n))  # (1, n, 128)
        difference = (short[0, -1] - at_once[0, n - 1]).abs().max()
        print(f"tokens read: {n}, differs by {difference:.4f}")

# %% tags=["check"]
with torch.no_grad():
    for n in range(1, 6):
        short = untrained(source, tgt[:, :n], None, subsequent_mask(n))
        assert (short[0, -1] - at_once[0, n - 1]).abs().max() < 5e-5

# %% [markdown]
# They are the same, so training does not need the short runs. One pass over a sentence of 30 tokens trains
# 30 predictions at once. A recurrent network would need 30 steps, one after the other.
#
# **Remember:** the decoder reads the target without its last token, and it predicts the target without its
# first token. The causal mask makes one pass as good as many.

# %% [markdown]
# ## A batch
#
# A GPU wants many sentences at once, in one rectangle of numbers. But sentences differ in length. So the
# shorter ones are filled up with a special token, the **padding**, which is written `<blank>`. Here is
# everything that a batch contains:


# %%
def make_batch(src, target, pad):
    """Tokens (B, S) and (B, T + 1), padded -> what training needs."""
    tgt, tgt_y = target[:, :-1], target[:, 1:]  # (B, T) each
    src_mask = (src != pad).unsqueeze(1)  # (B, 1, S): hide padding
    tgt_mask = (tgt != pad).unsqueeze(1) & subsequent_mask(tgt.size(1))  # (B, T, T): and the future
    ntokens = (tgt_y != pad).sum()  # the loss is divided by this
    return src, tgt, tgt_y, src_mask, tgt_mask, ntokens


texts = [
    ("A cat runs.", "Eine Katze rennt."),
    ("A man throws a ball to a dog.", "Ein Mann wirft einem Hund einen Ball."),
    ("Two girls are singing.", "Zwei Mädchen singen."),
]
english = [[*tokenizer.encode(text), tokenizer.end] for text, _ in texts]
german = [[tokenizer.start, *tokenizer.encode(text), tokenizer.end] for _, text in texts]


# %%
def rectangle(rows):
    """Fill the rows up to one length: lists of tokens -> (B, longest)."""
    rows = [torch.tensor(row) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad)


src, tgt, tgt_y, src_mask, tgt_mask, ntokens = make_batch(
    rectangle(english), rectangle(german), tokenizer.pad
)

# %% tags=["check"]
from annotated import Batch

package = Batch(rectangle(english), rectangle(german), pad=tokenizer.pad)
assert torch.equal(package.src, src)
assert torch.equal(package.tgt, tgt)
assert torch.equal(package.tgt_y, tgt_y)
assert torch.equal(package.src_mask, src_mask)
assert torch.equal(package.tgt_mask, tgt_mask)
assert package.ntokens == ntokens == sum(len(row) - 1 for row in german)

# %% tags=["figure-batch", "scaffold"]
import matplotlib.pyplot as plt
import numpy
import seaborn

from annotated.plots import as_words, setup_notebook

setup_notebook()
style = {"linewidths": 2, "cbar": False, "xticklabels": False, "yticklabels": False}
style["annot_kws"] = {"color": "black"}
fig, axes = plt.subplots(3, 1, figsize=(11, 5.6), sharex=True)
sides = {"src: the encoder reads": src, "tgt: the decoder reads": tgt, "tgt_y: it must predict": tgt_y}
for ax, (title, rows) in zip(axes, sides.items(), strict=True):
    names = numpy.array([as_words(tokenizer.pieces(row)) for row in rows.tolist()])
    names[rows == tokenizer.pad] = ""
    seaborn.heatmap(rows != tokenizer.pad, annot=names, fmt="", cmap=["#dddddd", "#56b4e9"], ax=ax, **style)
    ax.set_xlim(0, src.size(1))
    ax.set_title(title, fontsize=13, loc="left")
plt.show()
print(f"{ntokens} tokens to predict")

# %% [markdown]
# *Figure 3. One batch of three pairs. Blue is a token, gray is padding. In the third block, every position
# holds the next token of the second block. In a short row, the decoder also reads `</s>` and would have to
# predict padding there, but the loss leaves that position out.*
#
# The package's class `Batch` holds the same six items under the same names (`batch.src`, `batch.ntokens` and
# so on), and you will use it in [08](08_training_recipe.ipynb). Here are the two masks for *A cat runs.*, the
# first sentence; a 1 means "may be looked at":

# %%
print("src_mask", tuple(src_mask.shape), src_mask[0].int().tolist())
print("tgt_mask", tuple(tgt_mask.shape))
print(tgt_mask[0].int())

# %% [markdown]
# In a mask, a row is a position that looks, and a column is a position that is looked at. The source mask
# needs only one row per sentence, because all positions may look at the same tokens. The target mask needs
# a row for each position, because each position may look only at itself and at earlier positions.
#
# **Remember:** a batch holds five tensors and a number: the source, the two shifted targets, the two masks,
# and the number of tokens to predict.

# %% [markdown]
# ## Padding must change nothing
#
# A sentence must get the same vectors whether it stands alone or in a batch. That is what the source mask
# is for. We send the batch through the encoder and compare *A cat runs.* in the batch with the same
# sentence alone. We also try two wrong masks.


# %%
@torch.no_grad()
def difference_from_alone(mask):
    """The largest difference between the first sentence in the batch and the same sentence alone."""
    alone = untrained.encode(source, None)[0]  # (5, 128)
    in_batch = untrained.encode(src, mask)[0, :5]  # without the positions of padding
    return (in_batch - alone).abs().max().item()


for name, mask in (("right", src_mask), ("none", None), ("inverted", ~src_mask)):
    print(f"{name:8} mask: differs by ≈{difference_from_alone(mask):.4f}")

# %% tags=["check"]
assert difference_from_alone(src_mask) < 5e-5
assert difference_from_alone(None) > 0.05
assert difference_from_alone(~src_mask) > 0.05

# %% [markdown]
# With the right mask nothing changes. With no mask, every word has taken in some padding. With the inverted
# mask, every word of our sentence has looked at nothing but padding. Neither mistake raises an error.
#
# But look at the mask again. It prevents padding from being *looked at*. The padding positions themselves
# still look at the sentence, and they get vectors. Is that dangerous?
#
# **Before you run this:** in the encoder's output, we overwrite all entries at the padding positions with
# one million, and let the decoder read it. What happens?

# %%
with torch.no_grad():
    memory = untrained.encode(src, src_mask)  # (3, S, 128)
    spoiled = memory.masked_fill((src == tokenizer.pad).unsqueeze(-1), 1e6)
    before, after = (untrained.decode(m, src_mask, tgt, tgt_mask) for m in (memory, spoiled))
print(f"a million in the padding changes the decoder's output by {(after - before).abs().max():.4f}")

# %% tags=["check"]
assert torch.equal(before, after)

# %% [markdown]
# Nothing happens. A vector has an effect only if some position looks at it, or if the loss uses it. The
# mask prevents the first, and the loss leaves padding out. To hide the *rows* of padding as well would gain
# nothing and would be dangerous: if everything in a row is hidden, a careless softmax computes 0/0
# ([02](02_attention.ipynb)).
#
# **Remember:** if you hide the *columns* of padding and leave padding out of the loss, a sentence gets the
# same result in every batch.

# %% tags=["check"]
# The loss and all gradients of a batch are the sums of those of its sentences alone.
from annotated import LabelSmoothing

criterion = LabelSmoothing(10_000, tokenizer.pad, smoothing=0.1)


def gradients(batch):
    states = untrained(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    loss = criterion(untrained.generator(states).flatten(0, 1), batch.tgt_y.flatten())
    return torch.autograd.grad(loss, list(untrained.parameters()))


singles = [
    gradients(Batch(torch.tensor([a]), torch.tensor([b]), pad=tokenizer.pad))
    for a, b in zip(english, german, strict=True)
]
for together, *alone in zip(gradients(package), *singles, strict=True):
    assert torch.allclose(together, sum(alone), rtol=1e-3, atol=1e-3)

# %% [markdown]
# ## How many sentences in a batch?
#
# > "Sentence pairs were batched together by approximate sequence length. Each training batch contained a set
# > of sentence pairs containing approximately 25000 source tokens and 25000 target tokens." (section 5.1)
#
# Why not simply take 64 pairs at random? Because padding costs as much computation as words do. How much of a
# batch is padding? We count the tokens of 5,000 pairs of sentences, on both sides. They come from the corpus
# that is built into the package, whose sentences were drawn from a grammar.

# %%
from annotated.translation.data import load_corpus

pairs = load_corpus("grammar", "en-de")["train"].take(range(5000))
both = zip(pairs.src, pairs.tgt, strict=True)
lengths = torch.tensor([[len(tokenizer.encode(text)) + 1 for text in pair] for pair in both])  # and the end
means, most = lengths.double().mean(dim=0).tolist(), lengths.amax(dim=0).tolist()
for side, mean, longest in zip(("English", "German"), means, most, strict=True):
    print(f"{side:7} {mean:.1f} tokens on average, at most {longest}")

# %% [markdown]
# **Before you run this:** 64 pairs share a batch, and on each side all rows are filled up to the length of
# the longest. What share of the rectangle is padding if the pairs are drawn at random? And if all pairs are
# first sorted by the length of the German sentence?


# %%
def padding(lengths, size=64):
    """The share of padding if neighbors share a batch: (pairs, 2) -> on the English side, on the German."""
    positions = sum(len(batch) * batch.amax(dim=0) for batch in lengths.split(size))
    return (1 - lengths.sum(dim=0) / positions).tolist()


_ = torch.manual_seed(0)
shuffled = lengths[torch.randperm(len(lengths))]
orders = {
    "at random": shuffled,
    "sorted by the German side": shuffled[shuffled[:, 1].argsort(stable=True)],
    "sorted by the longer side": shuffled[shuffled.amax(dim=1).argsort(stable=True)],
}
for name, order in orders.items():
    english_side, german_side = padding(order)
    print(f"{name:26} padding: English ≈{english_side:.0%}, German ≈{german_side:.0%}")

# %% tags=["check"]
shares = {name: padding(order) for name, order in orders.items()}
assert min(shares["at random"]) > 0.4
assert max(shares["at random"]) < 0.55
assert shares["sorted by the German side"][1] < 0.02 < 0.2 < shares["sorted by the German side"][0]
assert max(shares["sorted by the longer side"]) < 0.16
english_of_20 = lengths[lengths[:, 1] == 20, 0]
assert (english_of_20.min(), english_of_20.max()) == (11, 26)

# %% [markdown]
# At random, almost half of the positions are padding. Sorting by the German side helps only that side: among
# the pairs whose German sentence has 20 tokens, the English sentence has between 11 and 26. If we sort by the
# longer side of each pair, little padding is left on either side. The *batches* are then shuffled, so that
# training does not go from short sentences to long ones.
#
# Why does the paper fix the number of *tokens*, and not the number of sentences? With about 25,000 tokens,
# every batch needs about the same memory and trains about the same number of predictions. In the package,
# `TokenBatches` does all this, by the longer side. In Exercise 2 you will write it yourself. Here it makes
# batches of at most 4,096 positions a side:

# %%
from annotated.translation.data import TokenBatches, encode_corpus

batches = list(TokenBatches(encode_corpus(pairs, tokenizer, tokenizer), max_tokens=4096).epoch(0))
for name, side in (("English", "src"), ("German", "tgt")):
    is_padding = [(getattr(batch, side) == tokenizer.pad).flatten() for batch in batches]
    print(f"{name:7} padding in {len(batches)} batches: ≈{torch.cat(is_padding).double().mean():.0%}")

# %% tags=["check"]
for side, most in (("src", 0.16), ("tgt", 0.05)):
    is_padding = torch.cat([(getattr(batch, side) == tokenizer.pad).flatten() for batch in batches])
    assert 0.01 < is_padding.double().mean() < most
    assert max(getattr(batch, side).numel() for batch in batches) <= 4096

# %% [markdown]
# Is it the same with real text? Nearly. If you load `"multi30k"` instead of `"grammar"` above (this downloads
# it) and take all 29,000 of its captions, you get ≈8% and ≈3%.
#
# **Remember:** put sentences of similar length together, measure a batch in tokens, and shuffle the batches.

# %% [markdown]
# ## The model that was right about everything
#
# Now back to the first cell. Compare it with Figure 2. Can you see the mistake?
#
# We forgot to shift the target. The decoder *read* `Eine Katze rennt . </s>`, and it was asked for the same
# row. At each position, the answer was the token that the decoder was reading.
#
# But why is an *untrained* model right? Remember the residual stream of [06](06_the_full_model.ipynb). At
# each position, the stream starts as the embedding of the token that is read. The one layer of this model
# adds something to it. At the end, the generator compares the result with every row of the same embedding
# table, and the most similar row is that of the token itself. So this new model repeats what it reads.
#
# In training, this mistake gives a wonderful loss and a useless model. A second mistake is harder to see:
# if the causal mask slips by one, each position sees one token of its future. Here are the right version
# and the two mistakes:


# %%
def honest(target):
    return target[:, :-1], subsequent_mask(target.size(1) - 1)


def unshifted(target):  # reads what it must predict
    return target[:, 1:], subsequent_mask(target.size(1) - 1)


def leaky(target):  # the mask has slipped by one
    n = target.size(1) - 1
    return target[:, :-1], torch.ones(1, n, n, dtype=torch.bool).tril(diagonal=1)


# %% [markdown]
# How can you catch such mistakes, in your own code or in somebody else's? The loss alone is not enough:
# before training, the leaky model has not learned to use the token that leaks, so its loss is about as
# bad as that of the honest model. There is a better test, and it needs no training. **A prediction must
# not depend on its own answer, nor on anything after it.** So change one token of the target, and look at
# which predictions change.
#
# Change the target *as it comes from the corpus*, before it is shifted. Otherwise you will not notice a wrong
# shift. The function below changes one token after another, and compares the decoder's vectors before and
# after.


# %%
def depends(prepare, model, target):
    """Whether prediction t changes with token s of the target: bool (predictions, tokens)."""

    @torch.no_grad()
    def states(target):
        tgt, tgt_mask = prepare(target)
        return model(source, tgt, None, tgt_mask)[0]  # (T, d_model)

    columns = []
    for s in range(target.size(1)):
        changed = target.clone()
        changed[0, s] = tokenizer.unk  # any other token would do
        columns.append((states(changed) - states(target)).abs().amax(dim=-1) > 1e-4)  # (T,)
    return torch.stack(columns, dim=1)


# %% tags=["figure-dependence", "scaffold"]
allowed = torch.ones(5, 6, dtype=torch.bool).tril()  # prediction t is about token t + 1
names = as_words(tokenizer.pieces(whole[0].tolist()))
fig, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True)
for ax, prepare in zip(axes, (honest, unshifted, leaky), strict=True):
    grid = depends(prepare, untrained, whole)
    seaborn.heatmap(
        grid.int() + (grid & ~allowed).int(),  # 0: does not depend; 1: depends and may; 2: must not
        cmap=["#dddddd", "#0173b2", "#d55e00"],
        vmin=0,
        vmax=2,
        linewidths=2,
        cbar=False,
        square=True,
        xticklabels=names,
        yticklabels=names[1:],
        ax=ax,
    )
    ax.set(title=prepare.__name__, xlabel="changed token")
    ax.tick_params(length=0, labelsize=11)
axes[0].set_ylabel("prediction of")
axes[0].tick_params(axis="y", rotation=0)
plt.show()

# %% [markdown]
# *Figure 4. Each row is a prediction, and each column is a token of the target. Blue: the prediction
# depends on this token. Orange: it depends on this token although it must not.*

# %% tags=["check"]
assert torch.equal(depends(honest, untrained, whole), allowed)
assert (depends(unshifted, untrained, whole) & ~allowed).any(dim=-1).all()
assert (depends(leaky, untrained, whole) & ~allowed).any(dim=-1)[:-1].all()
losses = {}
for prepare in (honest, unshifted, leaky):
    tgt_read, mask = prepare(whole)
    with torch.no_grad():
        log_probs = untrained.generator(untrained(source, tgt_read, None, mask))
    losses[prepare.__name__] = -log_probs.gather(-1, whole[:, 1:, None]).mean()
assert losses["unshifted"] + 3 < min(losses["honest"], losses["leaky"])
assert abs(losses["leaky"] - losses["honest"]) < 1.5

# %% [markdown]
# In the middle, every prediction depends on its own answer. On the right, every prediction but the last
# sees one token too many. The last prediction is honest because the decoder never reads `</s>`. With more
# layers the leak gets worse, because each layer passes on what the layer below has seen:

# %%
for N in (1, 2, 3):
    deep = make_model(10_000, 10_000, N=N, d_model=32, d_ff=64, h=4, dropout=0.0)
    long = torch.tensor([[tokenizer.start, *tokenizer.encode("Ein Mann wirft einem Hund einen Ball.")]])
    rows, columns = depends(leaky, deep, long).nonzero(as_tuple=True)  # prediction t is about token t + 1
    print(f"layers: {N}, tokens of the future that a prediction sees: {(columns - rows).max()}")

# %% tags=["check"]
for N in (1, 2):
    deep = make_model(10_000, 10_000, N=N, d_model=32, d_ff=64, h=4, dropout=0.0).double()
    ahead = max(int(t_s[1] - t_s[0]) for t_s in depends(leaky, deep, long).nonzero())
    assert ahead == N
    assert max(int(t_s[1] - t_s[0]) for t_s in depends(honest, deep, long).nonzero()) == 0

# %% [markdown]
# **Remember:** a loss that is too good is a warning. Change one token of the target, and you see which
# predictions have seen too much.

# %% [markdown]
# ## What you can now say
#
# - Byte-pair encoding joins the most frequent neighbors, so a frequent word is one token and a rare word is
#   several.
# - The target is used twice, shifted by one. With the causal mask, one pass trains all positions.
# - Padding fills a batch up to a rectangle. It changes nothing if no position can look at it and the loss
#   leaves it out.
# - Sentences of similar length share a batch. Otherwise, about half of the work may be spent on padding.
# - If a prediction changes with its own answer, the model is cheating.
#
# **Deeper:** [Exposure bias, counted](evidence/exposure_bias_counted.ipynb): what happens after a mistake of
# the model's own. Under teacher forcing, the model never sees a mistake of its own.
#
# **Next:** [08_training_recipe](08_training_recipe.ipynb), where the batches are used.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: a batch holds two sentences, one of 3 tokens and one of 9,
# padding not counted. The losses of its tokens are 2 each in the short sentence and 1 each in the long one.
# Compute the loss of the batch in three ways: the sum divided by `ntokens`; the mean of the two sentences'
# means; the sum divided by all positions of the rectangle, where padding adds 0. With each method, what share
# of the whole does one token contribute? What happens to the shares of the third method if a sentence of 30
# tokens joins the batch?

# %% tags=["solution"]
# The sum is 3 * 2 + 9 * 1 = 15. Divided by ntokens: 15 / 12 = 1.25, and each token counts 1/12. The mean of
# the means: (2 + 1) / 2 = 1.5; a token counts 1/6 in the short sentence and 1/18 in the long one. Divided by
# all 2 * 9 positions: 15 / 18 = 0.83; each token counts 1/18. If a sentence of 30 tokens joins, the rectangle
# has 90 positions, and the same tokens count 1/90: the gradient would depend on how much padding there is.
each = torch.zeros(2, 9)
each[0, :3], each[1] = 2, 1
real_tokens = torch.tensor([3, 9])
ways = each.sum() / real_tokens.sum(), (each.sum(dim=1) / real_tokens).mean(), each.mean()
print("losses", [f"{way:.2f}" for way in ways])
assert [f"{way:.2f}" for way in ways] == ["1.25", "1.50", "0.83"]

# %% [markdown]
# **Exercise 2 (medium).** Write a batch sampler. It gets the length of each pair and a budget of positions
# per batch, and it returns batches of indices. Each index occurs exactly once. The number of pairs in a batch
# times the longest of their lengths must not exceed the budget. Less than 5% of all positions may be padding,
# and the batches must fill more than 90% of the budget on average. The order of the batches is random, and so
# is which pairs of equal length share a batch.


# %% tags=["exercise"]
import torch


def sample_batches(lengths, max_tokens, generator):
    """Batches of indices, each of at most `max_tokens` positions, padding counted."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from collections import Counter

import torch


def test_sample_batches(sample_batches):
    lengths = torch.randint(3, 60, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    drawn = [sample_batches(lengths, 1000, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    for batches in drawn:
        assert isinstance(batches, list), f"a list of batches is wanted, not {batches!r}"
        assert all(isinstance(batch, list) for batch in batches), f"a batch is a list, not {batches[0]!r}"
        times = Counter(index for batch in batches for index in batch)
        wrong = [index for index in range(2000) if times[index] != 1]
        assert not wrong, f"{len(wrong)} pairs do not occur exactly once; the first is pair {wrong[0]}"
        widths = [max((lengths[i] for i in batch), default=0) for batch in batches]
        sizes = [len(batch) * width for batch, width in zip(batches, widths, strict=True)]
        assert max(sizes) <= 1000, f"a batch has {max(sizes)} positions, padding counted; the limit is 1000"
        padding, filled = 1 - sum(lengths) / sum(sizes), sum(sizes) / len(sizes)
        assert padding < 0.05, f"{padding:.1%} of all positions are padding: put equal lengths together"
        assert filled > 900, f"a batch has {filled:.0f} positions on average: fill it before the next begins"
        told = "the batches come in the order of their lengths; it must be random"
        assert widths not in (sorted(widths), sorted(widths, reverse=True)), told
    told = "two seeds give the same batches: choose at random which pairs of equal length share a batch"
    assert len({frozenset(map(frozenset, batches)) for batches in drawn}) == 2, told


try:
    test_sample_batches(sample_batches)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(lengths, max_tokens, generator):
    """Batches of indices, each of at most `max_tokens` positions, padding counted."""
    shuffled = torch.randperm(len(lengths), generator=generator).tolist()  # so that equal lengths mix
    batches = [[]]
    for i in sorted(shuffled, key=lambda i: -lengths[i]):  # the first of a batch is its longest
        if batches[-1] and lengths[batches[-1][0]] * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
        batches[-1].append(i)
    return [batches[k] for k in torch.randperm(len(batches), generator=generator).tolist()]


test_sample_batches(solution)

# %% [markdown]
# **Exercise 3 (hard).** Language models are often trained with *sequence packing*: several texts share one
# row, so there is hardly any padding. Write the mask for these rows. A token may look at itself and at
# earlier tokens of its *own* text. No row of the mask may be empty. What else must change if the model adds
# positions and predicts the next token?


# %% tags=["exercise"]
from annotated import subsequent_mask


def packed_mask(texts):
    """For each token the number of its text, 0 for padding, (rows, width) -> bool (rows, width, width)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import subsequent_mask


def test_packed_mask(packed_mask):
    torch.manual_seed(0)
    x, numbers = torch.randn(1, 9, 4), torch.tensor([[1, 1, 1, 2, 2, 3, 3, 3, 0]])
    mask = packed_mask(numbers)
    shape = getattr(mask, "shape", mask)
    assert shape == (1, 9, 9), f"for one row of 9 tokens, the shape must be (1, 9, 9), not {shape}"
    assert mask.dtype == torch.bool, f"a mask is bool, True where a token may look, and not {mask.dtype}"
    empty = (~mask[0].any(dim=-1)).nonzero().flatten().tolist()
    assert not empty, f"the rows {empty} of the mask are empty: their softmax is NaN"

    def two_layers(x, mask):
        for _ in range(2):
            x = (x @ x.mT).masked_fill(~mask, -torch.inf).softmax(dim=-1) @ x
        return x

    together = two_layers(x, mask)
    for number in (1, 2, 3):
        mine = (numbers[0] == number).nonzero().flatten()
        gap = (together[:, mine] - two_layers(x[:, mine], subsequent_mask(len(mine)))).abs().max()
        told = f"text {number} differs by {gap:.2f} from the text alone: see rows {mine.tolist()} of the mask"
        assert gap < 1e-5, told


try:
    test_packed_mask(packed_mask)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(texts):
    """For each token the number of its text, 0 for padding, (rows, width) -> bool (rows, width, width)."""
    same_text = texts.unsqueeze(2) == texts.unsqueeze(1)
    return same_text & subsequent_mask(texts.size(1))  # padding is a text of its own: each row sees itself


test_packed_mask(solution)
# The positions: each text counts from 0, or its vectors would depend on the texts that stand before it.
# The targets: at the last token of a text, the loss must not ask for the first token of the next one.
