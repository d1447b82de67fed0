# %% [markdown]
# # 07 · Batches and masks
#
# **We pack sentences into rectangles without any of them noticing, and meet a model that has every word
# right before it has learned anything.**
#
# Previous: [06_the_full_model](06_the_full_model.ipynb) · Next:
# [08_training_recipe](08_training_recipe.ipynb) · Attention itself: [02_attention](02_attention.ipynb)
#
# *40 minutes to read, half a minute to run.*
#
# - **Before:** you know attention and its two masks (02), and roughly what is in an encoder and a decoder.
# - **After:** you know how text becomes numbers, and what a vocabulary wastes; why the target is there twice;
#   what the decoder is fed in training and in use; why padding is hidden as a key and not as a query; how
#   batches are cut so that little of them is padding; and how to catch a decoder that reads its answers.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 5.1, and from 3.1 and
# 3.2.3 the masked decoder.

# %%
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import os
import subprocess
import sys

try:
    import annotated

    annotated.make_model  # PyPI has a stranger's `annotated`, which has none
except (ImportError, AttributeError):
    where = os.environ.get("ANNOTATED_SPEC", "")
    if not where:
        todo = "%env ANNOTATED_SPEC=git+https://..."
        raise RuntimeError(f"To say where pip finds annotated, run in a cell above:\n{todo}") from None
    package = f"annotated-transformer[colab] @ {where}"
    command = [sys.executable, "-m", "pip", "install", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            print(line, end="")
    if pip.returncode:
        raise RuntimeError("pip could not install annotated: its reason stands above") from None
    sys.modules.pop("annotated", None)

# %%
import math
import re
from collections import Counter
from itertools import pairwise
from random import Random

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from annotated import (
    Batch,
    LabelSmoothing,
    SentencePieceTokenizer,
    SimpleLossCompute,
    WordTokenizer,
    evaluating,
    greedy_decode,
    make_model,
    noam_scheduler,
    padding_mask,
    run_epoch,
    subsequent_mask,
)

# %%
from annotated.data import TokenBatches, encode_corpus, load_corpus, pad_rows
from annotated.plots import (
    explore_masks,
    plot_padding,
    plot_tokens,
    setup_notebook,
    show_source,
    wasted_share,
)
from annotated.tokenizers import END, PAD, START, UNK

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## What is a token?
#
# The package brings a German-English corpus of its own, made by a grammar: 20,000 pairs to train on.

# %%
corpus = load_corpus("grammar", "de-en")
train_text, test_text = corpus["train"], corpus["test"]
for german, english in list(train_text)[:3]:
    print(f"{german}  |  {english}")

# %% [markdown]
# A model takes numbers. The first guess is one number a word, the second one number a character. We count
# three things: how large the vocabulary gets, how long a German sentence gets, and how many of the 500 test
# sentences hold something that training never showed.

# %%
ways = {"words": lambda s: re.findall(r"\w+|[^\w\s]", s), "characters": list}
for name, cut in ways.items():
    known = {token for sentence in train_text.src + train_text.tgt for token in cut(sentence)}
    length = sum(len(cut(sentence)) for sentence in test_text.src) / len(test_text)
    strange = sum(not known.issuperset(cut(sentence)) for sentence in test_text.src)
    print(f"{name:10} {len(known):5,} different, {length:2.0f} in a sentence, {strange:2} with something new")
    assert (strange == 0) == (name == "characters")

# %% [markdown]
# Words leave something unknown even here, where a grammar made all sentences, and real German makes new words
# every day. Characters leave nothing unknown, but a sentence is five times as long, and attention
# compares every token with every other: nearly thirty times the comparisons.
#
# Section 5.1 takes the middle: **byte-pair encoding** (Sennrich et al., 2016). Start from characters. Count
# which two neighbours stand together most often. Make them one. Repeat.


# %%
def merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Join the two wherever they stand side by side."""
    out = []
    for piece in pieces:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return out


def learn(counts: dict[str, int], merges: int) -> list[tuple[str, str]]:
    """The merges, the most frequent pair first; of equal ones the shortest, then by alphabet."""
    words, learned = {word: list(word) for word in counts}, []
    for _ in range(merges):
        pairs = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        learned.append(min(pairs, key=lambda pair: (-pairs[pair], len("".join(pair)), "".join(pair))))
        words = {word: merge(pieces, learned[-1]) for word, pieces in words.items()}
    return learned


# %% [markdown]
# Five German words, as often as they might stand in a text: forms of *sehen*, to see, and of *gehen*, to go.
# Which pair comes first? `e h` is in all but *sieht*, 5 + 4 + 6 + 2 = 17 times.

# %%
counts = {"sehen": 5, "gesehen": 4, "gehen": 6, "geht": 2, "sieht": 3}
merges = learn(counts, 5)
cut = {word: list(word) for word in counts}
for pair in merges:
    cut = {word: merge(pieces, pair) for word, pieces in cut.items()}
    print(f"{' + '.join(pair):11}", "   ".join("·".join(pieces) for pieces in cut.values()))
assert merges[0] == ("e", "h")
assert cut["gesehen"] == ["g", "e", "sehen"]

# %% [markdown]
# Five merges, and the verb *sehen* has been found inside its participle, by nothing but counting.
#
# The real thing is SentencePiece (Kudo and Richardson, 2018). It writes a space as `▁`, at the head of the
# word that follows, so that the spaces can be had back; and it merges neither across words nor letters with
# other signs. Is that all? We let both learn 150 merges from 500 pairs of sentences.


# %%
def words_of(sentence: str) -> list[str]:
    """Within these, merges may happen."""
    return re.findall(r"▁?[^\W\d]+|\d+|[^\w▁]+|▁", "▁" + sentence.replace(" ", "▁"))


MERGES = 150
sentences = train_text.src[:500] + train_text.tgt[:500]
counts = Counter(word for sentence in sentences for word in words_of(sentence))
letters = {letter for word in counts for letter in word}
learned = learn(counts, MERGES)

size = 4 + 256 + MERGES + len(letters)  # special symbols, bytes, merges, letters
small = SentencePieceTokenizer.train(sentences, size, character_coverage=1.0)  # with every letter
theirs = small.pieces(range(260, 260 + MERGES))
print("the first ten:", *theirs[:10])
print("all 150 merges the same, in the same order:", theirs == ["".join(pair) for pair in learned])
assert theirs == ["".join(pair) for pair in learned]

# %% [markdown]
# To encode a new word, the merges are done again *in the order in which they were learned*. And the 256
# bytes? A letter that was not in the training text is spelled in its UTF-8 bytes.

# %%
rank = {pair: n for n, pair in enumerate(learned)}


def spell(word: str) -> list[str]:
    """A word of any text in pieces."""
    pieces = list(word)
    while known := [pair for pair in pairwise(pieces) if pair in rank]:
        pieces = merge(pieces, min(known, key=rank.get))
    return [part for piece in pieces for part in (in_bytes(piece) if piece[0] not in letters else [piece])]


def in_bytes(letter: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in letter.encode()]


for sentence in test_text.src + test_text.tgt + ["Ein Käse für 9 €?"]:
    ours = [piece for word in words_of(sentence) for piece in spell(word)]
    assert ours == small.pieces(small.encode(sentence))
print("1,001 new sentences, the same pieces: True")
print(*ours)

# %% [markdown]
# Some forty lines, and on this text they do what SentencePiece does. Now the package's own, learned from
# all 40,000 sentences, both languages together, as the paper shares one vocabulary between source and target.

# %%
tokenizer = SentencePieceTokenizer.train(train_text.src + train_text.tgt, vocab_size=2000)
for sentence in ("Der Fotograf lachte.", "The photographer laughed.", "They laugh."):
    print(*tokenizer.pieces(tokenizer.encode(sentence)))
in_order = tokenizer.pieces(range(260, len(tokenizer)))
assert in_order.index("he") < 10 < in_order.index("gh") < in_order.index("▁laugh")

# %% [markdown]
# Look at *laughed*. The vocabulary holds `▁laugh` (the last line uses it), and `ed` as well; two would do. It
# takes three. Merges are done in the order learned, and `h` + `e`, one of the very first, has taken the `h`
# before `g` + `h` has its turn. **BPE finds neither the shortest spelling nor the longest pieces.**
#
# **Exercise 1.** Write the encoder that uses as few pieces as the vocabulary allows (try every last piece).
# How many of the words of the training text does BPE cut into more pieces than it needs?

# %% tags=["solution"]
vocabulary = set(tokenizer.pieces(range(260, len(tokenizer))))


def fewest(word: str) -> list[str] | None:
    """The shortest spelling, or None if a letter is missing from the vocabulary."""
    best = [[]]  # best[n]: the shortest spelling of the first n letters
    for end in range(1, len(word) + 1):
        found = [
            best[start] + [word[start:end]]
            for start in range(end)
            if best[start] is not None and word[start:end] in vocabulary
        ]
        best.append(min(found, key=len, default=None))
    return best[-1]


words = {word for sentence in train_text.src + train_text.tgt for word in sentence.split()}
wasteful = [
    word for word in words
    if (short := fewest("▁" + word)) and len(short) < len(tokenizer.encode(word))
]  # fmt: skip
print(f"{len(wasteful)} of {len(words):,} words, their commas counted in; laughed: {fewest('▁laughed')}")
assert "laughed" in wasteful
assert 50 < len(wasteful) < 500

# %% [markdown]
# ### How many pieces?
#
# The paper has about 37,000. A larger vocabulary makes shorter sentences. Does it cost anything but memory?
# We learn several from the first 4,000 pairs, and count in that same text: tokens a sentence, and pieces that
# **never once** come out of the tokenizer. A first guess for the second: none. Each piece was put there
# because it was the most frequent pair.

# %%
text = train_text.src[:4000] + train_text.tgt[:4000]
sizes, lengths, unused = (400, 700, 1000, 1500, 2000, 3000, 4000), [], []
for size in sizes:
    some = SentencePieceTokenizer.train(text, size)
    rows = [some.encode(sentence) for sentence in text]
    used = {token for row in rows for token in row}
    lengths.append(sum(map(len, rows)) / len(rows))
    unused.append(100 * sum(token not in used for token in range(260, size)) / (size - 260))
    print(f"{size:5,} pieces: {lengths[-1]:4.1f} tokens a sentence, {unused[-1]:3.0f}% never used")
assert lengths == sorted(lengths, reverse=True)
idle = some.pieces([token for token in range(260, size) if token not in used])
print("among them:", *idle[:8])
assert {"other", "▁t", "in"} <= set(idle)
assert {"▁brother", "▁mother"} <= set(some.pieces(used))
assert unused[-1] > 25 > unused[1]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
per_word = sum(len(ways["words"](sentence)) for sentence in text) / len(text)
left.plot(sizes, lengths, "o-", label="subwords")
left.axhline(per_word, color="dimgrey", linestyle="--", label="words and signs")
left.set(title="Length of a sentence", ylabel="tokens", ylim=(0, None))
left.legend(frameon=False)
right.plot(sizes, unused, "s-", color="#d55e00")
right.set(title="Pieces that never occur", ylabel="share of those learned (%)", ylim=(0, None))
for ax in (left, right):
    ax.set(xlabel="vocabulary size")
plt.show()
assert max(right.lines[0].get_ydata()) == unused[-1]
assert min(left.lines[0].get_ydata()) > per_word

# %% [markdown]
# Wrong: up to a third of the pieces are scaffolding. `other` was needed to build `▁brother` and `▁mother`,
# and has not been seen alone since in this text. With 4,000 pieces even `▁t` and `in` are built over, two of
# the first merges of all. Each has a row of 512 numbers in the base model's embedding matrix that no sentence
# here reads.
#
# ### Any text survives
#
# "Any text" is a strong claim. We try what breaks tokenizers: other scripts, an emoji, spaces in a row, a
# tab, a line break, the mark `▁` itself, the special symbols spelled out; then a thousand rows of random
# characters.

# %%
odd = ["Straße", "数学", "naïve 😀", "  two  spaces ", "tab\tand\nline", "a▁b", "<s> </s> <blank> <unk>", ""]
torch.manual_seed(0)
points = torch.randint(1, 0x10FFFF, (1000, 20)).tolist()
wild = ["".join(chr(p) for p in row if not 0xD800 <= p < 0xE000) for row in points]  # no half surrogates
for text in odd + wild:
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text
    assert not {START, END, PAD, UNK} & set(tokens)
print(f"{len(odd + wild):,} texts came back, and none of them held a special symbol: True")

by_words = WordTokenizer.train(train_text.src, language=None)
print("and by words:", by_words.decode(by_words.encode("Die naïve  Straße")))

# %% [markdown]
# The last but one of the odd texts matters more than it seems: whoever types `</s>` must not be able to end
# the sentence. As text it is four characters like any others.
#
# One more look at those bytes. This is a sentence of the training corpus. What has happened to its date?

# %%
sentence = next(s for s in train_text.tgt if " 9 " in s)
print(sentence)
print(*tokenizer.pieces(tokenizer.encode(sentence)))
assert "<0x39>" in tokenizer.pieces(tokenizer.encode(sentence))

rare = {letter for sentence in train_text.src + train_text.tgt for letter in sentence} - {" "}
rare = sorted(letter for letter in rare if "<0x" in tokenizer.pieces(tokenizer.encode(letter))[-1])
print("spelled in bytes:", *rare, "- and half an Ü is", repr(tokenizer.decode(tokenizer.encode("Ü")[:-1])))

# %% [markdown]
# The tokenizer learns the letters that make up 99.99% of the text (`character_coverage`), which in Chinese
# saves thousands of rows. Here the three rarest fall through: Ö, Ü, and the nine. A nine is then one byte,
# but an Ü is two tokens, and a model that says only the first of them has said half a letter.
#
# ### The same word, in many pieces
#
# Since merges are done one by one, one can leave some out by chance: **BPE dropout** (Provilkov et al., 2020;
# not in the paper). The model sees a word in ever new pieces, and learns what they have in common.

# %%
sentence = "The photographer laughed."
chance = Random(0)
tries = {p: [tokenizer.encode(sentence, p, chance) for _ in range(200)] for p in (0.0, 0.1, 0.5, 1.0)}
for p, spellings in tries.items():
    mean = sum(map(len, spellings)) / 200
    print(f"dropout {p}: {mean:4.1f} tokens, for example", *tokenizer.pieces(spellings[0]))

# %%
assert all(tokenizer.decode(tokens) == sentence for spellings in tries.values() for tokens in spellings)
different = {p: len(set(map(tuple, spellings))) for p, spellings in tries.items()}
print("different spellings in 200 tries:", different)
assert different[0.0] == different[1.0] == 1 < different[0.1] < different[0.5]
assert len(tries[1.0][0]) == len("▁" + sentence)

# %% [markdown]
# Whatever the spelling, the text comes back. At 0 and at 1 there is only one: all merges, or none, which is
# letters. In use one takes 0.1 in training, and 0 when the model works.
#
# ## One target, twice
#
# Four pairs as numbers. The source ends with `</s>`; the target stands between `<s>` and `</s>`; the short
# ones are filled up with `<blank>`. `Batch` makes the rest.

# %%
by_length = sorted(range(len(test_text)), key=lambda i: len(test_text.tgt[i]))
pairs = encode_corpus(test_text.take(by_length[i] for i in (12, 15, 60, 2)), tokenizer, tokenizer)
src, tgt = pad_rows(pairs.src, PAD), pad_rows(pairs.tgt, PAD)  # (4, longest) each
batch = Batch(src, tgt, pad=PAD)


def names(rows: Tensor) -> list[list[str]]:
    return [tokenizer.pieces(row) for row in rows.tolist()]


row = [name for name in names(tgt)[0] if name != "<blank>"]
print("target          ", *row)
print("decoder reads   ", *names(batch.tgt)[0][: len(row) - 1])
print("decoder must say", *names(batch.tgt_y)[0][: len(row) - 1])
assert torch.equal(batch.tgt[:, 1:], batch.tgt_y[:, :-1])  # what it reads next is what it should have said
assert (batch.tgt[:, 0] == START).all()
assert not (batch.tgt_y == START).any()

# %% [markdown]
# Two rows come out of one, shifted by a place: at each place the decoder reads a token and must say the next.
# It is never asked for `<s>`. (Section 3.1 calls it the output embeddings being offset by one position.) The
# whole batch, with what the encoder reads on top:

# %%
sides = {
    "src: the encoder reads": batch.src,
    "tgt: the decoder reads": batch.tgt,
    f"tgt_y: the decoder must say; ntokens = {batch.ntokens}": batch.tgt_y,
}
figure, axes = plt.subplots(3, 1, figsize=(14, 8.5), sharex=True)
for ax, (title, rows) in zip(axes, sides.items(), strict=True):
    plot_tokens(rows, PAD, names(rows), ax=ax, title=title)
    ax.label_outer()
for ax in axes[1:]:
    ax.get_legend().remove()
plt.show()
blue = torch.tensor(axes[2].images[0].get_array())
assert blue.sum() == batch.ntokens == sum(len(row) - 1 for row in pairs.tgt)

# %% [markdown]
# `ntokens` is the number of blue cells of the last picture: how many questions are asked. The loss is divided
# by it ([09_first_example](09_first_example.ipynb) shows what goes wrong otherwise).
#
# A question about the middle picture. The decoder reads "the target without its last token", as it is
# often put; so it never reads `</s>`. Does it?

# %%
ends_read = (batch.tgt == END).sum(dim=1)
print("how often each row's </s> is read:", ends_read.tolist())
asked_there = batch.tgt_y[batch.tgt == END]
print("and what must be said then:", *tokenizer.pieces(asked_there.tolist()))
lengths = torch.tensor([len(row) for row in pairs.tgt])
assert torch.equal(ends_read, (lengths < lengths.max()).long())
assert (asked_there == PAD).all()

# %% [markdown]
# All rows but the longest read it. What is cut off is the last **column**, and for a short row that is a
# blank. No harm comes of it, since the question behind `</s>` has a blank for its answer, and blanks
# are not counted. But code that takes "the decoder's last token" for the one before `</s>` is wrong in every
# row but the longest.

# %%
show_source(Batch, docstring=False)

# %% [markdown]
# ### Teacher forcing
#
# What is the decoder fed? In training, the middle picture: the *right* tokens, whatever it would have said
# itself. That is **teacher forcing**. In use there are no right tokens. We listen at the door of the decoder,
# its embedding, and write down all that comes in; the model is new and talks nonsense, which does not matter.

# %%
torch.manual_seed(0)
V = len(tokenizer)
model = make_model(V, V, N=2, d_model=32, d_ff=64, h=4, tied_embeddings="all").double()
one = Batch(src[:1], tgt[:1, : len(row)], pad=PAD)
fed = []
hook = model.tgt_embed.register_forward_pre_hook(lambda module, inputs: fed.append(names(inputs[0])[0]))
with evaluating(model):
    model(one.src, one.tgt, one.src_mask, one.tgt_mask)
print("training, all at once:", *fed.pop(), sep="  ")
said = greedy_decode(model, one.src, one.src_mask, max_len=6, start_symbol=START)
print("in use, one by one:   ", *(token for step in fed for token in step), sep="  ")
hook.remove()
assert [len(step) for step in fed] == [1] * 5
assert [token for step in fed for token in step] == names(said)[0][:-1]

# %% [markdown]
# Once, with everything; or once for each word, with the word that it has just said itself. (The words before
# are remembered in a cache, so they need not be fed again.)
#
# How can one pass ask all questions at once, if at each place only the words *before* may be known? The
# causal mask makes each place a decoder of its own. If it does, then the state at place $t$ is the one that
# we would get by feeding the first $t + 1$ tokens alone, and cutting off the rest with scissors:

# %%
with evaluating(model):
    at_once = model(one.src, one.tgt, one.src_mask, one.tgt_mask)  # (1, n, 32)
    for t in range(one.tgt.size(1)):
        beginning = one.tgt[:, : t + 1]
        alone = model(one.src, beginning, one.src_mask, subsequent_mask(t + 1))
        assert_close(alone[:, -1], at_once[:, t])
n = one.tgt.size(1)
print(f"{n} questions in one pass = {n} passes of growing length, {n * (n + 1) // 2} places in all: True")

# %% [markdown]
# That is what the Transformer's decoder gains over a recurrent one in training, and it hangs on one triangle
# of booleans being right.
#
# ## Nobody may notice the rectangle
#
# A sentence must come out the same, alone or among longer ones. Two masks see to it, `True` where attention
# is allowed. (02 has their story: why $-\infty$ and not 0, who reads `True` the other way round.)

# %%
print("tokens of row 1:", *names(src)[1])
print("its src_mask:   ", batch.src_mask[1, 0].int().tolist())
assert torch.equal(batch.src_mask[1, 0], torch.tensor([name != "<blank>" for name in names(src)[1]]))

n = batch.tgt.size(1)
triangle = torch.ones(n, n).triu(diagonal=1) == 0  # triu marks what is forbidden, == 0 turns it round
assert torch.equal(triangle, subsequent_mask(n)[0])
assert torch.equal(batch.tgt_mask, padding_mask(batch.tgt, PAD) & triangle)
print("src_mask", tuple(batch.src_mask.shape), " tgt_mask", tuple(batch.tgt_mask.shape))

# %% [markdown]
# The first has one row a sentence, which serves all its queries: it hides **columns**, blanks as keys. Now
# the claim. Each sentence alone, with no blanks, against the batch under three masks: right, none at all, and
# turned round. How far do the encoder's outputs lie apart, at the real tokens?


# %%
def apart(mask: Tensor | None) -> float:
    """The largest difference at any real token between a sentence in the batch and the same alone."""
    with evaluating(model):
        together = model.encode(batch.src, mask)
        alone = [model.encode(torch.tensor([row]), None)[0] for row in pairs.src]
    return max((together[i, : len(x)] - x).abs().max().item() for i, x in enumerate(alone))


for name, mask in {"right": batch.src_mask, "none": None, "turned round": ~batch.src_mask}.items():
    print(f"{name:13} the same as alone: {apart(mask) < 1e-10}")
assert apart(batch.src_mask) < 1e-10
assert min(apart(None), apart(~batch.src_mask)) > 0.1

# %% [markdown]
# So much for columns. Then the question that everybody asks: **why not hide the rows of the blanks as well?**
# They still ask, look at the real words, and get states. What states?

# %%
with evaluating(model):
    memory = model.encode(batch.src, batch.src_mask)  # (4, n, 32)
real = batch.src != PAD
sizes = [memory[where].norm(dim=-1).mean().item() for where in (real, ~real)]
print(f"mean length of a word's state {sizes[0]:.1f}, of a blank's {sizes[1]:.1f}")
assert abs(sizes[0] / sizes[1] - 1) < 0.05

# %% [markdown]
# By their size they are like any others. The guess "then they must do some harm" is easily tried. We
# overwrite every one of them with a million before the decoder sees the memory, the encoder's last states.
# And we hide the blanks' rows as well, in the target's mask, and compare the gradient of every weight.

# %%
criterion = LabelSmoothing(V, PAD, smoothing=0.1)


def loss_of(batch: Batch) -> Tensor:
    """The loss, summed over the questions."""
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    return criterion(model.generator(states).flatten(0, 1), batch.tgt_y.flatten())


def gradients(batch: Batch) -> list[Tensor]:
    return list(torch.autograd.grad(loss_of(batch), list(model.parameters())))


# %%
model.eval()
spoilt = memory.masked_fill(~real.unsqueeze(-1), 1e6)
with evaluating(model):
    before, after = (model.decode(m, batch.src_mask, batch.tgt, batch.tgt_mask) for m in (memory, spoilt))
assert_close(before, after)
print("the decoder notices a million in every blank:", not torch.allclose(before, after))

rows_too = Batch(src, tgt, pad=PAD)
rows_too.tgt_mask = batch.tgt_mask & (batch.tgt != PAD).unsqueeze(-1)  # blanks see nothing
assert_close(gradients(rows_too), gradients(batch))
changed = int((batch.tgt_mask & ~rows_too.tgt_mask).sum())
print(f"{changed} cells of the target's mask turned to False, all gradients as before: True")

# %% [markdown]
# Nothing changes, neither value nor gradient. A state can act in two ways: another token looks at it, which
# the column mask forbids, or the loss asks it something, and at a blank the loss asks nothing. So a row that
# nobody reads may hold anything. To hide it would cost the source a mask of $n \times n$ where $1 \times n$
# will do, and make rows with nothing to see, which in other code come out as NaN and poison the gradients
# (02).
#
# Anything? NaN, too?

# %%
poison = memory.masked_fill(~real.unsqueeze(-1), math.nan)
with evaluating(model):
    after = model.decode(poison, batch.src_mask, batch.tgt, batch.tgt_mask)
hurt = after.isnan().flatten(1).any(dim=1)
print("rows that hold NaN now:", hurt.tolist(), " rows with blanks:", (~real).any(dim=1).tolist())
assert torch.equal(hurt, (~real).any(dim=1))

# %% [markdown]
# Anything *finite*. A mask does not take a value out of the sum, it multiplies it by a weight of 0, and
# 0 times NaN is NaN. If a single sentence of a batch turns NaN, look at what stands in the padding.
#
# ### The half of a mask that does nothing
#
# The target's mask hides blanks *and* the future. We leave out the first half:

# %%
causal_only = Batch(src, tgt, pad=PAD)
causal_only.tgt_mask = subsequent_mask(n).expand(len(tgt), -1, -1)
assert_close(loss_of(causal_only), loss_of(batch))
assert_close(gradients(causal_only), gradients(batch))
print("without padding in the target's mask, the same loss and gradients: True")

seen = causal_only.tgt_mask & (batch.tgt != PAD).unsqueeze(-1) & (batch.tgt == PAD).unsqueeze(1)
flipped = batch.tgt.flip(1)  # blanks on the left
seen_left = causal_only.tgt_mask & (flipped != PAD).unsqueeze(-1) & (flipped == PAD).unsqueeze(1)
print("words that see a blank: blanks on the right", int(seen.any(-1).sum()), end="; ")
print("on the left", int(seen_left.any(-1).sum()))
assert not seen.any()
assert seen_left.any()

# %% [markdown]
# Blanks stand on the right, so to every word they are the future, and the causal mask hides them already. The
# padding half of `tgt_mask` matters only for rows whose blanks stand on the left, as some code for decoding
# has them. It is there because a mask should say what is meant, and not depend on where the blanks happen
# to be.
#
# ### A batch is the sum of its sentences
#
# All this in one line that can be checked: loss, `ntokens` and every gradient of a batch are the sums of
# those of its sentences alone. It holds only if the masks, the shift and the count of the loss are right.

# %%
singles = [
    Batch(torch.tensor([s]), torch.tensor([t]), pad=PAD) for s, t in zip(pairs.src, pairs.tgt, strict=True)
]
summed = [sum(grads) for grads in zip(*map(gradients, singles), strict=True)]
assert_close(loss_of(batch), sum(map(loss_of, singles)))
assert_close(gradients(batch), summed)
assert batch.ntokens == sum(single.ntokens for single in singles)
print("loss, ntokens and gradients of the batch = their sums, sentence by sentence: True")

# %% [markdown]
# **Exercise 2.** `<blank>` has a row in the embedding matrix. Does it learn anything? Build a model with
# `tied_embeddings="none"`, which has three separate matrices (source, target, output), and look at that row's
# gradient in each. Then think of the paper's model, where the three are one (section 3.4).

# %% tags=["solution"]
shape = {"N": 2, "d_model": 32, "d_ff": 64, "h": 4, "dropout": 0.0}
separate = make_model(V, V, **shape, tied_embeddings="none").double()
states = separate(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
criterion(separate.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
for name, p in separate.named_parameters():
    if len(p) == V and p.dim() == 2:
        print(f"{name:24} learns about <blank>: {bool(p.grad[PAD].any())}")
        assert bool(p.grad[PAD].any()) == name.startswith("generator")
print("as an answer it is pushed down, everywhere; where the three are one, that moves what is read as well")

# %% [markdown]
# ## How many sentences?
#
# Say 64, drawn at random, as much code does. Here are the sources of the first such batch.

# %%
everything = encode_corpus(train_text, tokenizer, tokenizer)
torch.manual_seed(0)
shuffled = torch.randperm(len(everything)).tolist()
fixed = [shuffled[k : k + 64] for k in range(0, len(shuffled), 64)]
tokens = pad_rows([everything.src[i] for i in fixed[0]], PAD)
plot_tokens(tokens, PAD, title="64 sentences drawn at random")
plt.show()
grey = (tokens == PAD).float().mean().item()
print(f"padding: {grey:.0%}")
assert grey > 0.4

# %% [markdown]
# Nearly half of the places that the machine computes are grey. One long sentence sets the width for all. And
# it does not get better with larger batches. "It averages out", one might think; we count, over all 20,000
# pairs and both sides.


# %%
def lengths_of(batches: list[list[int]]) -> list[list[int]]:
    """For each batch the lengths of its sources, and those of its targets as the decoder reads them."""
    return [
        [len(row) - shorter for row in (rows[i] for i in batch)]
        for batch in batches
        for rows, shorter in ((everything.src, 0), (everything.tgt, 1))
    ]


waste = {}
for n in (1, 2, 8, 64, 512):
    cut = [shuffled[k : k + n] for k in range(0, len(shuffled), n)]
    waste[n] = wasted_share(lengths_of(cut))
    print(f"{n:3} sentences a batch: {waste[n]:.0%} padding")
assert list(waste.values()) == sorted(waste.values())
assert waste[1] == 0
assert waste[512] > 0.5

# %% [markdown]
# The waste is 1 minus the *mean* length over the *longest*. A larger sample has the same mean and a longer
# longest. Larger batches, which should make a machine busier, keep it busy with nothing.
#
# Section 5.1 does two things against it. Pairs of **about the same length** go into one batch. And a batch is
# measured **in tokens**, about 25,000 a side, not in sentences: short ones come by the hundred, long ones by
# the dozen. The package's `TokenBatches` sorts all pairs by length, those of equal length in an order drawn
# anew each epoch, and cuts the row wherever a batch is full. Then it shuffles the batches.

# %%
FULL = 1000  # places a side: what 64 sentences of our kind come to
tight = TokenBatches(everything, max_tokens=FULL)
first = tight.collate(tight.batches(0)[0])
figure, axes = plt.subplots(1, 2, figsize=(13, 4.5))
plot_tokens(first.src, PAD, ax=axes[0], title=f"src: {first.src.size(0)} sentences").get_legend().remove()
plot_tokens(first.tgt, PAD, ax=axes[1], title=f"tgt: the decoder reads, ntokens = {first.ntokens}")
plt.show()
for ax, rows in zip(axes, (first.src, first.tgt), strict=True):
    assert torch.equal(torch.tensor(ax.images[0].get_array()), rows != PAD)
assert max(first.src.numel(), first.tgt.numel()) <= FULL

# %% [markdown]
# German and English of one pair are not equally long, so a little grey remains.
#
# If there are too many pairs to sort, millions that stream by, one can fill a **pool** with some thousands
# of them, sort that, and cut. All ways, over one epoch:


# %%
def fill(order: list[int]) -> list[list[int]]:
    """Cut a row of pairs wherever the next one would make the batch larger than FULL."""
    batches, width = [[]], 0
    for i in order:
        width = max(width, len(everything.src[i]), len(everything.tgt[i]) - 1)
        if width * (len(batches[-1]) + 1) > FULL:
            batches.append([])
            width = max(len(everything.src[i]), len(everything.tgt[i]) - 1)
        batches[-1].append(i)
    return batches


def by_width(order: list[int]) -> list[int]:
    return sorted(order, key=lambda i: max(len(everything.src[i]), len(everything.tgt[i]) - 1))


pools = [shuffled[k : k + 2000] for k in range(0, len(shuffled), 2000)]
cuts = {
    "64 at random": fixed,
    "random order, cut by tokens": fill(shuffled),
    "pools of 2,000, sorted": [batch for pool in pools for batch in fill(by_width(pool))],
    "TokenBatches: all sorted": tight.batches(0),
}

# %%
ax = plot_padding({name: lengths_of(batches) for name, batches in cuts.items()})
plt.show()
shares = dict(zip(cuts, (bar.get_width() / 100 for bar in ax.containers[0]), strict=True))
assert math.isclose(shares["TokenBatches: all sorted"], tight.padding_share(0))
assert shares["TokenBatches: all sorted"] < shares["pools of 2,000, sorted"] < 0.15 < shares["64 at random"]
for name, batches in cuts.items():
    assert sorted(i for batch in batches for i in batch) == list(range(len(everything)))
    print(f"{name:28} {len(batches)} batches")

# %% [markdown]
# To measure in tokens alone, without sorting, saves next to nothing. Sorting does it, and a pool of a tenth
# of the corpus is nearly as good as all of it.
#
# So why shuffle at all, why not go through the sorted row from end to end? The padding is the same. Two
# things are not:

# %%
fixed_order = fill(by_width(list(range(len(everything)))))
widths = [max(lengths_of([batch])[0]) for batch in fixed_order]
print("sorted: the longest source of every 40th batch", widths[::40])
shuffled_widths = [max(lengths_of([batch])[0]) for batch in tight.batches(0)]
print("TokenBatches:                                 ", shuffled_widths[::40])
again = {frozenset(batch) for batch in tight.batches(0)} & {frozenset(batch) for batch in tight.batches(1)}
print("batches of epoch 0 that come back in epoch 1: sorted, all;  TokenBatches,", len(again))
assert torch.tensor([range(len(widths)), widths]).double().corrcoef()[0, 1] > 0.9
assert abs(torch.tensor([range(len(shuffled_widths)), shuffled_widths]).double().corrcoef()[0, 1]) < 0.2
assert not again

# %% [markdown]
# Sorted, a model would learn from short sentences for a while and then from long ones, and in each batch the
# same sentences would meet for ever. With a good shuffle nothing of this is left, and the padding
# stays low.
#
# One more thing is gained, which has nothing to do with speed. Sort, but cut by 64 sentences, as much code
# does. The padding is about as low. How many questions does a batch ask?


# %%
def questions(batches: list[list[int]]) -> Tensor:
    """The ntokens of each batch."""
    return torch.tensor([float(sum(len(everything.tgt[i]) - 1 for i in batch)) for batch in batches])


whole_row = by_width(shuffled)
by_64 = [whole_row[k : k + 64] for k in range(0, len(whole_row) - 63, 64)]
for name, batches in (("64 sentences", by_64), ("1,000 places", tight.batches(0)[1:])):
    counted = questions(batches)
    low, high = counted.quantile(0.05), counted.quantile(0.95)
    assert wasted_share(lengths_of(batches)) < 0.1
    print(f"{name}: ninety batches of a hundred ask {low:.0f} to {high:.0f}, a factor of {high / low:.1f}")
assert high / low < 1.3
assert questions(by_64).max() > 4 * questions(by_64).min()

# %% [markdown]
# The loss of a batch is divided by its questions, and every update is about equally large (08 shows how
# literally Adam takes that). So with 64 sentences a word of a short sentence counts for over twice as much as
# one of a long sentence, between the outermost batches four times. Cut by tokens, a word is nearly a word.
#
# ### Who counts the blanks?
#
# Here is the smallest translation model in the world. It answers `<blank>` to everything. We measure its
# accuracy as many do, as the share of right places, on batches made in two ways.

# %%
for name in ("64 at random", "TokenBatches: all sorted"):
    answers = [tight.collate(indices).tgt_y for indices in cuts[name]]
    right = sum(int((rows == PAD).sum()) for rows in answers)
    places = sum(rows.numel() for rows in answers)
    print(f"{name:25} {right / places:.0%} right, blanks counted")
    assert (right / places > 0.4) == (name == "64 at random")
    assert places - right == questions(cuts[name]).sum()  # what is left are the questions: none right

# %% [markdown]
# Forty-six percent for nothing, and another number with another batching. Of the real questions it has none
# right. A loss that is averaged over all places flatters in the same way: it falls as soon as the model has
# learned to say `<blank>` after `</s>`. That is why `ntokens` leaves blanks out and why `LabelSmoothing`
# gives them no target. If accuracy looks good and translations look bad, this is the first suspect. The
# second follows.
#
# **Exercise 3.** `TokenBatches` sorts by the longer side of each pair. Find an order that wastes less than
# half as much. What does it cost?

# %% tags=["solution"]
sides_in_turn = sorted(shuffled, key=lambda i: (len(everything.src[i]), len(everything.tgt[i])))
better = fill(sides_in_turn)
share = wasted_share(lengths_of(better))
print(f"by source, equal ones by target: {share:.1%} padding in {len(better)} batches, not {len(tight)}")
assert share < 0.5 * shares["TokenBatches: all sorted"]
assert len(better) > len(tight)
print("fewer grey places, but a few more batches; and few pairs are left to be drawn by chance")

# %% [markdown]
# ## The model that was right about everything
#
# Two mistakes, both a single line. In the first somebody forgets the shift: the decoder is handed the very
# row that it must say. In the second the mask's triangle has slipped by one, and every place sees one token
# of its future.


# %%
def honest(batch: Batch) -> Batch:
    return batch


def unshifted(batch: Batch) -> Batch:
    batch.tgt = batch.tgt_y
    batch.tgt_mask = Batch.make_std_mask(batch.tgt, PAD)
    return batch


def leaky(batch: Batch) -> Batch:
    n = batch.tgt.size(1)
    slipped = torch.ones(1, n, n, dtype=torch.bool).tril(diagonal=1)
    batch.tgt_mask = padding_mask(batch.tgt, PAD) & slipped
    return batch


# %% [markdown]
# A small model, one layer a side, with one matrix for source, target and output as in section 3.4. The
# vocabulary has 1,000 pieces; a model that has no idea pays $\ln 1000 = 6.91$ nats a token. Before we train
# anything: how does a new model do, the weights just drawn?

# %%
V = 1000
pieces = SentencePieceTokenizer.train(train_text.src + train_text.tgt, V)
training = TokenBatches(encode_corpus(train_text.take(range(6000)), pieces, pieces, max_len=24), 400)
tests = TokenBatches(encode_corpus(test_text.take(range(120)), pieces, pieces, max_len=24), 2000)
plain = LabelSmoothing(V, PAD, smoothing=0.0)  # none: the loss is -log p of the right token


def new_model(N: int = 1, tied: str = "all") -> nn.Module:
    torch.manual_seed(0)
    return make_model(V, V, N=N, d_model=128, d_ff=128, h=4, dropout=0.0, tied_embeddings=tied)


def examine(model: nn.Module, prepare) -> tuple[float, float]:
    """Loss a token and share of tokens right, teacher-forced, on the test pairs."""
    loss = right = asked = 0
    with evaluating(model):
        for batch in map(prepare, tests.epoch(0)):
            log_probs = model.generator(model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
            loss += plain(log_probs.flatten(0, 1), batch.tgt_y.flatten()).item()
            right += int(((log_probs.argmax(dim=-1) == batch.tgt_y) & (batch.tgt_y != PAD)).sum())
            asked += batch.ntokens
    return loss / asked, right / asked


# %%
untrained = {prepare.__name__: examine(new_model(), prepare) for prepare in (honest, unshifted, leaky)}
for name, (loss, right) in untrained.items():
    print(f"{name:10} not trained: {loss:.1f} nats a token, {right:.0%} right")
assert untrained["unshifted"][1] > 0.999
assert max(untrained["honest"][1], untrained["leaky"][1]) < 0.01
assert untrained["unshifted"][0] < 0.5 * math.log(V) < math.log(V) < untrained["honest"][0]

# %% [markdown]
# **Every word right, by a model that has learned nothing at all.** The state begins as the embedding
# of what is read, the residual connections carry it to the top, and there it is multiplied with the same
# matrix: the token most like it is itself. A new tied model says what it reads. If that is the answer, it is
# right.
#
# The honest one, for the same reason, is *worse* than no idea: it bets that every word comes twice. (With
# three separate matrices this is different; see below.) Now we train, the honest one and the leaky one for
# 110 updates, the unshifted for 20. It has little left to learn.


# %%
def train(prepare, updates: int) -> tuple[nn.Module, list[float]]:
    """A new model, trained on batches that `prepare` has had in hand, and the loss of each."""
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    scheduler = noam_scheduler(optimizer, model_size=128, factor=0.5, warmup=60)
    loss_compute = SimpleLossCompute(model.generator, plain)
    losses = []
    for batch in list(training.epoch(0))[:updates]:
        loss, _ = run_epoch([prepare(batch)], model, loss_compute, optimizer, scheduler)
        losses.append(loss)
    return model, losses


# %% tags=["nbval-ignore-output"]
runs = {"honest": train(honest, 110), "unshifted": train(unshifted, 20), "leaky": train(leaky, 110)}
trained = {
    prepare.__name__: examine(runs[prepare.__name__][0], prepare) for prepare in (honest, unshifted, leaky)
}
for name, (loss, right) in trained.items():
    print(f"{name:10} {len(runs[name][1]):3} updates: {loss:.2f} nats a token, {right:.1%} right")

# %%
frequency = Counter(token for row in training.pairs.tgt for token in row[1:])
shares = torch.tensor([float(n) for n in frequency.values()])
frequencies_alone = torch.special.entr(shares / shares.sum()).sum().item()
print("unshifted and leaky, over 95% right:", min(trained["unshifted"][1], trained["leaky"][1]) > 0.95)
print("honest, under 60% right:            ", trained["honest"][1] < 0.6)
print(f"knowing nothing but how frequent each token is costs {frequencies_alone:.1f} nats")
assert min(trained["unshifted"][1], trained["leaky"][1]) > 0.95
assert trained["honest"][1] < 0.6

# %%
figure, ax = plt.subplots()
for (name, (_, losses)), style in zip(runs.items(), ("-", ":", "--"), strict=True):
    ax.plot(range(1, len(losses) + 1), losses, style, label=name)
for height, what in ((math.log(V), "no idea"), (frequencies_alone, "frequencies alone")):
    ax.axhline(height, color="grey", lw=1, zorder=0)
    ax.text(110, height + 0.08, what, color="dimgrey", ha="right")
ax.set(title="Too good, and when it shows", xlabel="update", ylabel="loss a token (nats)", ylim=(0, None))
ax.legend(frameon=False)
plt.show()
drawn = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
assert drawn["unshifted"][0] < frequencies_alone  # the first batch, before any update
early = [abs(a - b) for a, b in zip(drawn["leaky"][:20], drawn["honest"][:20], strict=True)]
assert max(early) < 0.2  # there is nothing to see there yet
assert drawn["leaky"][-1] < 0.5 < 2 < drawn["honest"][-1]

# %% [markdown]
# What do they say, when there is nothing to read the answers from?

# %% tags=["nbval-ignore-output"]
some = tests.collate(tests.batches(0)[-1])
said = {
    name: greedy_decode(model, some.src, some.src_mask, 30, START, END).tolist()
    for name, (model, _) in runs.items()
}
print("source   ", pieces.decode(some.src[0].tolist()))
for name, answers in said.items():
    print(f"{name:10}", *pieces.pieces(answers[0])[:14])

# %%
wanted = [pieces.decode(row) for row in some.tgt_y.tolist()]
for name in ("unshifted", "leaky"):
    right = sum(pieces.decode(row) == text for row, text in zip(said[name], wanted, strict=True))
    print(f"{name}: over 95% of tokens, and {right} of {len(wanted)} sentences")
    assert right == 0

# %% [markdown]
# There it is: **over 95% of all tokens right, and nonsense**. The unshifted model repeats what it reads, and
# what it reads is its own last word. The leaky one has learned to look one place ahead, and at the end of
# what it has said so far there is no place ahead. The honest one knows little yet. But the little it knows is
# about English.
#
# ### How to catch it
#
# *By the loss.* The unshifted run is below "frequencies alone" with its very first batch; no honest model
# begins there. But the leaky run looks like the honest one for twenty updates. And the first symptom hangs on
# the tied matrix:

# %%
for tied in ("all", "none"):
    (honest_loss, _), (cheat_loss, _) = (examine(new_model(tied=tied), p) for p in (honest, unshifted))
    print(f"tied_embeddings={tied!r:6} before training: honest {honest_loss:.1f}, unshifted {cheat_loss:.1f}")
assert abs(honest_loss - cheat_loss) < 0.1

# %% [markdown]
# *By poking it.* The definition of an honest decoder is that its prediction does not depend on the answer, or
# on anything after it. So change a token and see which predictions move. The usual form changes a token
# that the decoder *reads*:


# %%
def moved(prepare, model: nn.Module, src: Tensor, tgt: Tensor, reads: bool = False) -> Tensor:
    """Whether prediction t moves when token s is another one: bool (answers, tokens).

    With `reads`, s counts the tokens that the decoder reads; otherwise those of the target as it came.
    """

    def predict(tgt: Tensor, place: int | None = None) -> Tensor:
        batch = prepare(Batch(src, tgt, pad=PAD))
        if place is not None:
            batch.tgt = batch.tgt.clone()
            batch.tgt[0, place] = UNK
        with evaluating(model):
            return model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)[0]

    before, columns = predict(tgt), []
    for s in range(tgt.size(1) - reads):
        poked = tgt.clone()
        poked[0, s] = UNK
        after = predict(tgt, s) if reads else predict(poked)
        columns.append((after - before).abs().amax(dim=-1) > 1e-9)
    return torch.stack(columns, dim=1)


# %%
pair = encode_corpus(test_text.take([by_length[40]]), pieces, pieces)
pair_src, pair_tgt = torch.tensor(pair.src), torch.tensor(pair.tgt)
fresh = new_model().double()
for prepare in (honest, unshifted, leaky):
    poked = moved(prepare, fresh, pair_src, pair_tgt, reads=True)
    print(f"{prepare.__name__:10} a prediction moves with a token read later: {bool(poked.triu(1).any())}")
    assert poked.triu(1).any() == (prepare is leaky)

# %% [markdown]
# It finds the slipped triangle, and passes the missing shift. No wonder: the mask of the unshifted model is
# in order. It sees no later *place*. What it reads is wrong.
#
# So poke earlier: not what the decoder reads, but the target as it comes from the corpus, before anything has
# been shifted or masked. Now a row is an answer, and a column a token of that target. Prediction $t$ is about
# token $t + 1$ and may hang on tokens 0 to $t$. (The chart is the one that 02 has for masks: read "query" as
# answer, "key" as token of the target, and "may attend" as "hangs on it".)

# %%
grids = {
    prepare.__name__: moved(prepare, fresh, pair_src, pair_tgt) for prepare in (honest, unshifted, leaky)
}
allowed = torch.ones_like(grids["honest"]).tril()  # (answers, tokens)
for name, grid in grids.items():
    caught = int((grid & ~allowed).any(dim=-1).sum())
    print(f"{name:10} predictions that hang on their own answer, or on what follows: {caught} of {len(grid)}")
assert torch.equal(grids["honest"], allowed)
assert all((grids[name] & ~allowed).any() for name in ("unshifted", "leaky"))

tokens = pieces.pieces(pair_tgt[0].tolist())
explore_masks(grids, tokens[1:], tokens, query=2, title="Point at an answer: on which tokens does it hang?")

# %% [markdown]
# One test, no training, and it finds both. The honest grid stops short of its own answer. The unshifted one
# includes it, and has never seen `<s>`. The leaky one includes it too, but for the last row, behind which
# there is no place to look at.
#
# So a triangle that slips by one betrays one token. Ours is a model of one layer. And with more?

# %%
for N in (1, 2, 6):
    deep = new_model(N).double()
    ahead = [int(moved(p, deep, pair_src, pair_tgt).nonzero().diff(dim=1).max()) for p in (honest, leaky)]
    print(
        f"{N} layers: tokens after the one just read that a prediction hangs on: {ahead[0]}, leaky {ahead[1]}"
    )
    assert ahead == [0, N]

# %% [markdown]
# Each layer passes on what the one below has overheard. In the paper's six layers, a triangle that slipped by
# one cell tells every place the next six words.
#
# A third test waits in [09_first_example](09_first_example.ipynb): give each sentence the source of another.
# It needs a trained model, and finds leaks of any kind. With honest batches in hand, the next notebook,
# [08_training_recipe](08_training_recipe.ipynb), asks how large a step to take.
