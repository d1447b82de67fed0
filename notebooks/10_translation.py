# %% [markdown]
# # 10 · A translator, from text to BLEU
#
# **You train a translator on 20,000 pairs of sentences in two minutes, compute BLEU by hand, and find out
# what a score is worth.**
#
# Previous: [09_first_example](09_first_example.ipynb) · Next: [11_search](11_search.ipynb), or first
# [21_averaging](21_averaging.ipynb)
#
# *36 minutes to read, two to run.*
#
# - **Before:** you know the training loop ([09](09_first_example.ipynb)), and batches with their masks
#   ([07](07_batches_and_masks.ipynb)).
# - **After:** you can train a translator on your own text, judge what a BLEU score tells you, and say how
#   translators are built today.
#
# "The paper" is "Attention Is All You Need" (Vaswani et al., 2017), and this lesson covers its sections 5.1
# and 6.1. A number after `≈` may differ on your processor. Folded cells called *Check* test what the text
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
    requirements = [f'-e "{clone}[colab,words]"' for clone in clones]
    if requirements:
        get_ipython().run_line_magic("pip", f"install -q {requirements[0]}")
    sys.path += clones  # where the next kernel looks by itself
if not any(distributions(name="annotated-transformer")):
    raise NotInstalledError(
        "This notebook needs the project that it belongs to: take all of it, not this file alone, "
        "run `make setup` in its folder, and open the notebook there with `make lab`."
    )

# %% [markdown]
# ## From text to text
#
# A Transformer reads and writes numbers, not text. Here is everything that happens to a sentence in a trained
# translator:

# %%
import torch

from annotated import load_pretrained

translator = load_pretrained("multi30k-de-en")
tokenizer = translator.src_tokenizer
sentence = "Eine Katze rennt durch den Schnee."
numbers = tokenizer.encode(sentence)
[[best]] = translator.search([sentence])
print("text:   ", sentence)
print("pieces: ", *tokenizer.pieces(numbers))
print("numbers:", *numbers)
print("   ... the model and its search ...")
print("numbers:", *best.tokens)
print("pieces: ", *tokenizer.pieces(best.tokens))
print("text:   ", tokenizer.decode(best.tokens))

# %% tags=["check"]
assert tokenizer.decode(best.tokens) == translator(sentence)
assert tokenizer.decode(numbers) == sentence
assert "cat" in translator(sentence)

# %% [markdown]
# Lessons 00 to 09 explained the middle. Now we go from text to text: we choose the pieces, train a
# translator, and measure whether the text that comes out is any good.

# %% [markdown]
# ## Three texts with three jobs
#
# > "We trained on the standard WMT 2014 English-German dataset consisting of about 4.5 million sentence
# > pairs." (section 5.1)
#
# We have only two minutes, so we use a small artificial corpus that comes with the package. A *corpus* is a
# collection of texts. Ours is a collection of sentence pairs. A grammar draws a meaning at random and
# writes it in German and in English. As in real German, the word order differs from the English one, nouns
# have cases, and some verbs split in two.

# %%
from annotated.translation.data import load_corpus

corpus = load_corpus("grammar", pair="de-en")
train, val, test = corpus["train"], corpus["val"], corpus["test"]
print(f"train {len(train):,} pairs, val {len(val)}, test {len(test)}")
for german, english in list(val)[3:6]:
    print(f"{german}\n    {english}")

# %% tags=["check"]
for one, other in ((train, val), (train, test), (val, test)):
    assert set(one.src).isdisjoint(other.src)
    assert set(one.tgt).isdisjoint(other.tgt)

# %% [markdown]
# The corpus has three parts that share no sentence, and each part has its own job.
#
# - The model learns from **train**.
# - We look at **val** (validation) as often as we like, and we make all our choices there.
# - We look at **test** once, at the very end. If you try ten models and keep the one that scores best on
#   test, its score is partly luck. *How much luck? See [How honest is a test
#   score?](evidence/how_honest_is_a_test_score.ipynb)*

# %% [markdown]
# ## A vocabulary
#
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about
# > 37000 tokens." (section 5.1)
#
# In [07](07_batches_and_masks.ipynb) you wrote byte-pair encoding: join the most frequent pair of
# neighbors, and repeat. The library SentencePiece does the same, but much faster. Here it learns 2,000
# pieces from our training text, German and English together.
#
# **Before you run this:** the first word below occurs in the training text hundreds of times, and the last
# three never occur there. Into how many pieces will each word be cut?

# %%
import re
from collections import Counter

from annotated import SentencePieceTokenizer

bpe = SentencePieceTokenizer.train([*train.src, *train.tgt], vocab_size=2000)
words = Counter(word for text in (*train.src, *train.tgt) for word in re.findall(r"\w+", text))
for word in ("Kellner", "gelesen", "Lehrerin", "Kellnerin", "Pinguin"):
    pieces = " ".join(bpe.pieces(bpe.encode(word)))
    print(f"{word:10} {pieces:14} {words[word]:4} times in the training text")

# %% tags=["check"]
cut = {word: bpe.pieces(bpe.encode(word)) for word in ("Kellner", "Lehrerin", "Kellnerin", "Pinguin")}
assert cut["Kellner"] == ["▁Kellner"]
assert cut["Lehrerin"][-1] == cut["Kellnerin"][-1] == "erin"
assert words["Lehrerin"] == words["Kellnerin"] == words["Pinguin"] == 0
assert len(cut["Pinguin"]) > 2
for text in (*val.src, *val.tgt, "Żółw? 🐢 ﷽", "  two  spaces "):
    assert bpe.decode(bpe.encode(text)) == text

# %% [markdown]
# *Kellner* (waiter) is frequent and stays whole. *Lehrerin* (a woman who teaches) never occurs, but its
# ending *erin* does. *Pinguin* (penguin) does not occur either, and it is cut into short pieces that mean
# nothing. A vocabulary of whole words would have to call the last three words *unknown*. Byte-pair encoding
# can spell them. But a model does not understand a word just because it can spell it, as you will see.
#
# **Build the vocabulary from the training text only.** If you also use val, the words of val may stay whole
# more often than the words of other new text, and val no longer tells you what to expect there. In this
# corpus the effect is tiny; with little text and many names, it is not.
#
# How many pieces should there be? We try half as many and three times as many.
#
# **Before you run this:** which vocabulary makes the sentences longest? And in which one does a model meet
# most of the pieces too rarely to learn them?

# %%
lines = [*train.src, *train.tgt]
count = sum(len(line.split()) for line in (*val.src, *val.tgt))
shares, trials = {}, {}
for size in (1000, 2000, 6000):
    trials[size] = trial = SentencePieceTokenizer.train(lines, vocab_size=size)
    seen = Counter(piece for line in lines for piece in trial.encode(line))
    length = sum(len(trial.encode(line)) for line in (*val.src, *val.tgt)) / count
    shares[size] = length, sum(seen[piece] < 20 for piece in range(size)) / size
    print(f"{size:,} pieces: {length:.2f} a word on val; {shares[size][1]:.0%} occur fewer than 20 times")

# %% tags=["check"]
assert shares[1000][0] > 1.3 * shares[2000][0] > 1.5 * shares[6000][0]
assert shares[6000][1] > 0.6 > 0.4 > shares[2000][1]
from statistics import mean

from annotated.recorded import recorded

raced = recorded("vocabulary")["sizes"]
assert [round(mean(run["bleu"] for run in each)) for each in raced.values()] == [17, 38, 64, 72]
longer = {size: each[0]["bleu"] for size, each in recorded("vocabulary-long")["sizes"].items()}
assert longer["6000"] > longer["1000"] + 20

# %% [markdown]
# A small vocabulary makes long sequences, and the time of attention grows with the square of their length. In
# a large one, many pieces are rare, and a vector that is hardly ever updated learns little. So the right size
# grows with the text: the paper took 37,000 pieces for 4.5 million pairs of sentences. (Each of ours also
# holds some 250 single bytes that this text never needs, a quarter of the smallest. That is why its share of
# rare pieces is larger than that of the middle one.)
#
# And here? We raced four sizes in a smaller model, three seeds each, with the same sentences in the same
# batches. With 500, 1,000, 2,000 and 6,000 pieces, the test text had 17, 38, 64 and 72 BLEU. The largest was
# also the best after four times the training. Our text is easy for whole words: it has some 3,000 different
# ones, and hardly any that are unknown. Real text has names and compounds, so try sizes on your own text
# ([the race](evidence/table_3_at_our_size.ipynb)). We go on with
# 2,000 pieces, which shows how words are cut, so the race has chosen nothing for our model.
#
# If you race sizes yourself, which loss do you compare? Not the loss *per token*: the tokens of two
# vocabularies are not the same. Divide the loss of the whole text by something that no vocabulary changes,
# such as its bytes. In bits (1 nat is 1.44 bits), this is **bits per byte**. We try it with the simplest
# language model, which counts how often each piece follows another, and we let it predict the English half of
# val.
#
# **Before you run this:** which vocabulary will have the lowest loss per piece? And per byte?

# %%
import math
from itertools import pairwise


def pairs_of(trial, lines):
    """Each piece after the one before it, with the sentence's start and end."""
    return [pair for line in lines for pair in pairwise([trial.start, *trial.encode(line), trial.end])]


val_bytes, found = sum(len(line.encode()) for line in val.tgt), {}
for size, trial in trials.items():
    pairs = pairs_of(trial, train.tgt)
    both, before, alone = Counter(pairs), Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    nats = [
        -math.log(0.9 * both[a, b] / max(before[a], 1) + 0.1 * (alone[b] + 1) / (len(pairs) + size))
        for a, b in pairs_of(trial, val.tgt)
    ]
    found[size] = sum(nats) / len(nats), sum(nats) / math.log(2) / val_bytes
    print(f"{size:,} pieces: {found[size][0]:.2f} nats a piece, {found[size][1]:.2f} bits a byte")

# %% tags=["check"]
assert found[1000][0] < found[2000][0] < found[6000][0]
assert found[1000][1] > found[2000][1] > found[6000][1]

# %% [markdown]
# The order is reversed. By the loss per piece, the small vocabulary looks best, because its pieces are short
# and easy to guess. By the loss per byte, it is the worst: it needs many more guesses for the same text.
# Compare models with different vocabularies per byte, per sentence, or by their translations.
#
# **Remember:** frequent words are one piece, rare words are several, and only the training text decides
# which.

# %% [markdown]
# ## Training
#
# > "Sentence pairs were batched together by approximate sequence length. Each training batch contained a set
# > of sentence pairs containing approximately 25000 source tokens and 25000 target tokens." (section 5.1)
#
# Our batches have at most 384 tokens on each side, because we want many updates in little time. The model has
# two encoder layers and two decoder layers, and its vectors have 128 numbers. `Trainer` is the loop of
# [09](09_first_example.ipynb) with the things that a long run needs: it saves checkpoints, writes a log, and
# can be resumed. After every *epoch*, which is one pass through the training text, it measures the loss on
# val. One epoch is enough for us.

# %% tags=["nbval-ignore-output"]
import tempfile
from pathlib import Path

from annotated import EncoderDecoder, Trainer, TrainingConfig, TransformerConfig
from annotated.translation.data import TokenBatches, encode_corpus

torch.set_num_threads(1)  # a small model gains little from a second thread
batches = TokenBatches(encode_corpus(train, bpe, bpe), max_tokens=384)
val_batches = TokenBatches(encode_corpus(val, bpe, bpe), max_tokens=768, shuffle=False)
_ = torch.manual_seed(0)
model = EncoderDecoder.from_config(TransformerConfig.tiny(len(bpe), len(bpe), N=2, dropout=0.0))
settings = TrainingConfig(epochs=1, max_tokens=384, warmup=200, average=0, learning_rate=0.003)  # at its peak
folder = Path(tempfile.mkdtemp()) / "run"  # for a run that you want to keep, name a folder of your own
trainer = Trainer(model, (bpe, bpe), batches, val_batches, settings, folder)
_ = trainer.fit()

# %%
from annotated import score_tokens

scored = score_tokens(model, val_batches.epoch(0))
print(f"val: loss ≈{scored.loss:.2f} per token, so perplexity ≈{scored.perplexity:.2f}")

# %% tags=["check"]
assert 0.2 < scored.loss < 0.9

# %% [markdown]
# The folder's `log.jsonl` has a line for every few updates. This is the *learning curve* of our run:

# %% tags=["figure-learning", "scaffold"]
import json

import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
log = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
updates, losses = zip(*((each["step"], each["loss"]) for each in log if "loss" in each), strict=True)
fig, ax = plt.subplots(figsize=(8, 3.6))
ax.plot(updates, losses)
ax.set(xlabel="update", ylabel="training loss per token", title="The loss falls fast, then slowly")
plt.show()

# %% [markdown]
# *Figure 1. The training loss of one epoch, with label smoothing, which keeps it from reaching 0. A curve
# that does not fall within the first few hundred updates is a reason to stop and look for the mistake.*

# %% tags=["check"]
assert losses[-1] < 0.5 * losses[0]

# %% [markdown]
# A perplexity of 2 would mean that the model is as unsure as if it had to choose between two equally likely
# tokens ([08](08_training_recipe.ipynb)). Ours is lower, because this language is simple.
#
# What did it learn? We translate val with greedy decoding and look at mistakes:

# %% tags=["nbval-ignore-output"]
from annotated import Translator

ours = Translator(model, bpe, bpe)
said = ours.translate(val.src, beam=1)
wrong = [i for i in range(len(val)) if said[i] != val.tgt[i]]
for i in wrong[:4]:
    print(f"{val.src[i]}\n    said:  {said[i]}\n    right: {val.tgt[i]}")

# %%
exact = 1 - len(wrong) / len(val)
print(f"tokens right (teacher forcing): ≈{scored.accuracy:.0%}; sentences without a mistake: ≈{exact:.0%}")

# %% tags=["check"]
assert 0.85 < scored.accuracy < 0.97
assert 0.2 < exact < scored.accuracy - 0.1
tokens = sum(len(bpe.encode(line)) + 1 for line in val.tgt) / len(val.tgt)  # with </s>
assert exact > scored.accuracy**tokens + 0.05  # more than independent mistakes would leave

# %% [markdown]
# After two minutes of training, the model gets the word order and most words right. The second number is so
# much lower than the first because a sentence is right only if every token is ([09](09_first_example.ipynb)).
# It is not as low as that lesson's rule predicts, though: the share of right tokens, to the power of the
# sentence's length (here about 13 tokens). The rule assumes that mistakes are independent, but sentences
# differ in difficulty: mistakes *cluster* in the hard ones and leave others untouched.
#
# And the penguin? The second sentence below has a word that never occurs in the training text, and the third
# has no capitals:

# %% tags=["nbval-ignore-output"]
for german in (
    "Der alte Mann liest ein Buch.",
    "Der Pinguin liest ein Buch.",
    "der alte mann liest ein buch",
):
    print(f"{german:32} {ours(german)}")

# %% tags=["check"]
assert "enguin" not in ours("Der Pinguin liest ein Buch.")

# %% [markdown]
# All words of the first sentence occur in the training text, and in our run its translation is right. The
# penguin disappears without a warning, and the sentence without capitals becomes nonsense. A translator can
# only know what was in its training text. The score on val will not tell you that, because val has no
# penguins either.

# %% [markdown]
# ## BLEU by hand
#
# "Sentences without a mistake" is a harsh measure, because most sentences have several good translations. The
# paper uses **BLEU** (Papineni et al., [2002](https://aclanthology.org/P02-1040/)). BLEU compares short runs
# of words in a translation and in a *reference*, which is a translation by a human. A run of *n* words is
# called an **n-gram**. Take this pair:

# %%
hypothesis = ["the", "old", "man", "reads", "a", "big", "book"]
reference = ["the", "old", "man", "is", "reading", "a", "big", "book"]


def ngrams(words, n):
    """How often each run of n words occurs."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


for n in (1, 2, 3, 4):
    found = ngrams(hypothesis, n) & ngrams(reference, n)  # the smaller count of each
    print(
        f"n = {n}: {found.total()} of {ngrams(hypothesis, n).total()} ",
        *(" ".join(gram) for gram in found),
        sep="  ",
    )

# %% tags=["check"]
hits = [(ngrams(hypothesis, n) & ngrams(reference, n)).total() for n in (1, 2, 3, 4)]
assert hits == [6, 4, 2, 0]

# %% [markdown]
# ![Below the translation, a bar for each of its words, pairs, triples and quadruples: six of seven words,
# four of six pairs, two of five triples and none of four quadruples are also in the
# reference](../images/bleu.svg)
#
# *Figure 2. What BLEU counts. A bar is an n-gram of the translation; a full one is also in the reference.*
#
# Six of the seven words are in the reference, and so are four of the six pairs. Longer n-grams reward the
# right order. If an n-gram occurs more often in the translation than in the reference, BLEU takes the
# *smaller* count. Otherwise all the words of *the the the the* would count as right.
#
# The shares for words, pairs, triples and runs of four are called $p_1$ to $p_4$. BLEU is their geometric
# mean, times a factor for length:
#
# $$\mathrm{BLEU} = 100 \cdot \min\left(1, e^{1 - r/c}\right) \cdot (p_1\, p_2\, p_3\, p_4)^{1/4}$$
#
# Here $c$ is the length of the translation and $r$ that of the reference. The first factor is the **brevity
# penalty**. It lowers the score of a translation that is shorter than the reference. Without this penalty,
# a translator could leave out every word that it is unsure of. For our pair, $p_4 = 0$, so BLEU would be 0.
# That is one reason to compute BLEU for a whole text: **we add up the counts of all sentences before we
# divide.**


# %%
def bleu_by_hand(hypotheses, references):
    """BLEU of a text; both are lists of lists of words."""
    pairs = list(zip(hypotheses, references, strict=True))
    precisions = []
    for n in (1, 2, 3, 4):
        right = sum((ngrams(said, n) & ngrams(true, n)).total() for said, true in pairs)
        precisions.append(right / sum(ngrams(said, n).total() for said, _ in pairs))
    c, r = (sum(map(len, texts)) for texts in zip(*pairs, strict=True))
    return 100 * min(1.0, math.exp(1 - r / c)) * math.prod(precisions) ** 0.25


# %% [markdown]
# Before we count, we must cut the text into words. Is *book.* one word or two? The usual tool, **sacreBLEU**
# (Post, [2018](https://aclanthology.org/W18-6319/)), has fixed rules for that, called `13a`. We let sacreBLEU
# cut the text, and we do the counting ourselves:

# %%
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from annotated import bleu

words_of = Tokenizer13a()
score = bleu_by_hand([words_of(text).split() for text in said], [words_of(text).split() for text in val.tgt])
official = bleu(said, val.tgt)
print(f"by hand ≈{score:.2f}, sacreBLEU ≈{official.value:.2f}")
print(official.signature)

# %% tags=["check"]
assert math.isclose(score, official.value, rel_tol=1e-9)
assert 50 < score < 90

# %% [markdown]
# Both give the same number. The second line is sacreBLEU's *signature*. It says that there is one
# reference, that a capital and a small letter count as different, and that `13a` cut the text. **Compare
# two scores only if their signatures are the same.** How much do the rules matter? Here is one output,
# scored in three ways:

# %%
print(f"words cut by 13a         ≈{bleu(said, val.tgt).value:.1f}")
print(f"words cut only at spaces ≈{bleu(said, val.tgt, tokenize='none').value:.1f}")
print(f"cut into characters      ≈{bleu(said, val.tgt, tokenize='char').value:.1f}")

# %% tags=["check"]
assert bleu(said, val.tgt, tokenize="none").value < official.value - 0.5
assert abs(bleu(said, val.tgt, tokenize="char").value - official.value) > 0.5

# %% [markdown]
# The translations are the same each time, but the score is not. That is why you cannot compare the paper's
# BLEU directly with a score that you compute with sacreBLEU today. Lesson [12](12_results.ipynb) says how
# large the difference is.
#
# **Remember:** BLEU is the geometric mean of four shares, one for each length of n-gram: how many of the
# translation's n-grams also occur in the reference, counted over the whole text. A penalty for short output
# comes on top. Always give the signature with the score.

# %% [markdown]
# ## A score needs neighbors and an interval
#
# Is our score good? A number alone cannot tell us. Let us score three simple systems that are not trained.
# The first repeats the German source. The second looks for the most similar training sentence and gives
# *its* translation. The third writes the right English words in German order. It asks the grammar for the
# right word each time, so it chooses words better than any dictionary could.
#
# Beside BLEU we print **chrF** (Popović, [2015](https://aclanthology.org/W15-3049/)), which compares runs of
# 1 to 6 *characters*. It is a mean of precision (how much of the translation is in the reference?) and recall
# (how much of the reference is in the translation?), in which recall counts more. It needs no rules for
# cutting words, and a word with a wrong ending still earns something.
#
# **Before you run this:** which of the two scores will be kinder to the third system, whose words are right
# and whose order is wrong?

# %%
from annotated import chrf
from annotated.translation.data.grammar import sample, word_by_word

meanings = {pair.german: pair for pair in sample(11_000)}  # val and test are among the first 11,000 pairs
bags = [(set(german.split()), english) for german, english in train]


def nearest(german):
    """The translation of the training sentence that shares the largest part of its words."""
    words = set(german.split())
    return max(bags, key=lambda bag: len(words & bag[0]) / len(words | bag[0]))[1]


neighbors = {
    "the source again": val.src,
    "nearest of 20,000": [nearest(german) for german in val.src],
    "right words, German order": [word_by_word(meanings[german]) for german in val.src],
    "our model": said,
}
for name, texts in neighbors.items():
    print(f"{name:26} BLEU ≈{bleu(texts, val.tgt).value:4.1f}  chrF ≈{chrf(texts, val.tgt).value:4.1f}")

# %% tags=["check"]
scores = {name: bleu(texts, val.tgt).value for name, texts in neighbors.items()}
assert scores["the source again"] < 2 < 10 < scores["nearest of 20,000"] < scores["right words, German order"]
assert scores["right words, German order"] < scores["our model"] - 10
by_characters = chrf(neighbors["right words, German order"], val.tgt), chrf(said, val.tgt)
assert 0.85 * by_characters[1].value < by_characters[0].value < by_characters[1].value

# %% [markdown]
# On newspaper text, the 28.4 of the paper's big model was a record. On our artificial corpus, a system that
# knows every word but no English word order gets about 36, and nobody would call this system good. **A BLEU
# score means something only beside other scores on the same text.**
#
# And two scores can see different things. By BLEU, the third system is half as good as our model. By chrF, it
# is almost as good: most runs of six characters lie within one word or two, so chrF sees the right words and
# hardly sees their order. Neither score is wrong. If two scores disagree, find out what each of them counts.

#
# Now we look at test, once. We decide beforehand how to score it: greedy decoding and `13a`. How certain is
# the score? Other sentences would give another score. We have no other sentences, but we can imitate them.
# We draw 500 sentences from our 500 *with replacement*, so some of them are drawn several times and others
# not at all. We score the sentences that we have drawn. Then we draw again, many times, and see how much
# the score varies. This is called the **bootstrap**.

# %%
import warnings

from annotated import paired_bootstrap

warnings.filterwarnings("ignore", ".* cut at their limit")  # so little trained, a few lines never end
final = ours.translate(test.src, beam=1)
in_order = [word_by_word(meanings[german]) for german in test.src]
compared = paired_bootstrap(final, in_order, test.tgt, samples=500)
for name, s in (
    ("our model", compared.a),
    ("right words, German order", compared.b),
    ("difference", compared.difference),
):
    print(f"{name:26} ≈{s.value:.1f} BLEU, 95% interval ≈{s.low:.1f} to ≈{s.high:.1f}")

# %% tags=["check"]
assert 50 < compared.a.value < 90
assert 2 < compared.a.high - compared.a.low < 12
assert compared.difference.low > 10
assert abs(compared.a.value - official.value) < 8

# %% [markdown]
# The next figure shows 200 such draws, each scored once for either system:

# %% tags=["figure-bootstrap", "scaffold"]
import random

rng, drawn_scores = random.Random(0), {"our model": [], "right words, German order": []}
for _ in range(200):
    drawn = rng.choices(range(len(test)), k=len(test))
    for texts, found in zip((final, in_order), drawn_scores.values(), strict=True):
        found.append(bleu([texts[i] for i in drawn], [test.tgt[i] for i in drawn]).value)
fig, ax = plt.subplots(figsize=(8, 3.4))
for name, found in drawn_scores.items():
    ax.hist(found, bins=20, alpha=0.75, label=name)
ax.set(
    xlabel="BLEU of 500 sentences drawn with replacement", ylabel="draws", title="The luck of the sentences"
)
ax.legend()
plt.show()

# %% [markdown]
# *Figure 3. The same two outputs, scored on 200 draws of the test sentences. The two groups of scores do not
# overlap, so luck with the sentences cannot explain the difference. (Another seed would move our score, too,
# as lesson 12 shows.)*

# %% tags=["check"]
assert min(drawn_scores["our model"]) > max(drawn_scores["right words, German order"])

# %% [markdown]
# Even with 500 sentences, the interval is several points wide. The last line compares two systems on the
# *same* draws. That is the **paired** bootstrap (Koehn, [2004](https://aclanthology.org/W04-3250/)). If a
# sentence is hard for both systems, this part of the luck cancels. These two systems make very different
# mistakes, so little cancels. More cancels between two versions of one model, as in exercise 3. Use the
# paired bootstrap whenever you claim that one system is better than another.
#
# **Remember:** give a score together with the score of a simple system and with an interval, and compare
# systems by a paired bootstrap.

# %% [markdown]
# ## Your own language
#
# You need two text files. Each line of the second file is the translation of the line with the same number
# in the first. Then three commands train a translator, use it and score it:
#
# ```
# annotated train --src mine.eo --tgt mine.en --pair eo-en --out run
# annotated translate --model run < new.eo
# annotated evaluate --model run --src test.eo --tgt test.en
# ```
#
# Read twenty translations before you trust any number. If the loss does not fall within the first few hundred
# updates, lower `--learning-rate`. If the validation loss rises while the training loss falls, the model
# **overfits**. Then use more text or more dropout (`--dropout 0.3`), or stop earlier (`--patience 5`).

# %% [markdown]
# ## Machine translation as it is practiced
#
# If you need a translator for a product today, do not start from random weights. The model is still a
# Transformer. Four things have changed:
#
# - **Back-translation** (Sennrich et al., [2016](https://arxiv.org/abs/1511.06709)) changes the *data*. There
#   is far more text in one language than there are translated pairs. So take text in the target language,
#   translate it *backwards* with a first model, and train on these pairs, too. The target side is then
#   written by people, and it teaches the model fluent writing.
# - **Multilingual models** change the data, too. One model learns many pairs of languages at once, and a
#   token at the beginning says which language to write. Languages with little text benefit from related
#   languages. NLLB ([2022](https://arxiv.org/abs/2207.04672)) reads and writes 200 languages.
# - **Pretrained models** change the *start*. Take weights that were trained on millions of pairs of
#   sentences, and train them a little longer on your own few thousand pairs. This is called fine-tuning.
# - **Language models that translate** change the *model*. A large decoder without an encoder
#   ([17](17_since_2017.ipynb)), trained on text from the web, translates when you ask it to. It can use the
#   whole document and follow instructions about style, but it costs far more per sentence. In 2025, the
#   yearly comparison of systems, WMT, had 60 of them, of which 24 were language models and online services
#   that nobody had submitted; its report is titled "Time to Stop Evaluating on Easy Test Sets" (Kocmi et al.,
#   [2025](https://aclanthology.org/2025.wmt-1.22/)).
#
# For a product with one pair of languages, a good first step is to **fine-tune a Marian model**. The project
# OPUS-MT has published more than a thousand of them. Most are Transformers of the paper's base size, and they
# run on a laptop. In the library `transformers`,
# `MarianMTModel.from_pretrained("Helsinki-NLP/opus-mt-en-de")` is a PyTorch module like ours, and the loop of
# [09](09_first_example.ipynb) trains it once you adapt the line with the forward pass. Take a *small*
# learning rate, 0.00002 or so, without the schedule of the paper: its peak in 09 is more than a hundred times
# higher, and at such a rate the model forgets what it has learned before it learns anything new.
#
# **Then choose among translations.** A search returns its likeliest translation, which is not always the best
# one. *Reranking* lets another model score a handful of candidates. *Minimum Bayes risk* decoding (MBR) draws
# many candidates and takes the one that is most like all the others by some measure. Both spend time to gain
# quality, and the measure by which they choose can no longer be used to report the result
# ([12](12_results.ipynb)).

# %% [markdown]
# ## What you can now say
#
# - The model and the vocabulary learn from train, we make our choices on val, and we look at the test set
#   once.
# - Pieces can spell a word that never occurs in the training text, but the model need not understand it.
# - BLEU is the geometric mean of four n-gram shares of a whole text, times a brevity penalty. Without its
#   signature, you cannot compare a score.
# - A score needs an interval, and the score of a simple system to compare it with. We compare systems by a
#   paired bootstrap.
# - In practice people start from pretrained weights, and they also use text that has no translation.
#
# **Deeper:** [How honest is a test score?](evidence/how_honest_is_a_test_score.ipynb)
#
# **Next:** how to get better translations from the same model, in [11_search](11_search.ipynb); or first, a
# better model from the same training, in [21_averaging](21_averaging.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Take the *right* translations of val and spoil them in each of four ways: write
# everything in lower case, leave out the last character, replace every *the* inside a sentence by *a*, or
# swap the first two words. Predict first: which one costs the most BLEU?

# %% tags=["solution"]
spoiled = {
    "lower case": [text.lower() for text in val.tgt],
    "no period": [text[:-1] for text in val.tgt],
    "a for the": [text.replace(" the ", " a ") for text in val.tgt],
    "two words swapped": [" ".join([*reversed(text.split()[:2]), *text.split()[2:]]) for text in val.tgt],
}
for how, changed in spoiled.items():
    print(f"{how:18} costs {100 - bleu(changed, val.tgt).value:4.1f}")
# A reader would still understand most of them. BLEU compares words, not meanings.

# %% [markdown]
# **Exercise 2 (medium).** In [07](07_batches_and_masks.ipynb), you learned a list of pairs from a text. Now
# use such a list to cut a new word, as real tokenizers do. Begin with characters. Of the pairs of neighbors
# in the word, join the one that was learned *first*. Repeat until no known pair is left.


# %% tags=["exercise"]
def encode(word, merges):
    """The pieces of a word, `▁` before it; `merges` is the list of pairs, in the order they were learned."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import sample


def test_encode(encode):
    pairs = "n n, ▁ r, e nn, ▁r enn, ▁renn t, e n"
    cut = "▁, ▁rennt, ▁renn en, ▁ nn n, ▁ nn enn"
    for letters in "rent", "".join(sample("abdfghik", 4)):  # the same with other letters
        as_drawn = str.maketrans("rent", letters)
        learned = [tuple(pair.split()) for pair in pairs.translate(as_drawn).split(", ")]
        for pieces in map(str.split, cut.translate(as_drawn).split(", ")):
            word = "".join(pieces)[1:]
            given = encode(word, learned)
            assert given == pieces, f"encode({word!r}, ...) gives {given}; right is {pieces}"
    given = encode("ab", [("b", "c"), ("▁a", "b"), ("▁", "a")])
    assert given == ["▁ab"], f"a pair may be joined again after later ones: ['▁ab'] is right, not {given}"


try:
    test_encode(encode)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)

# %% tags=["solution"]
from itertools import pairwise


def solution(word, merges):
    """The pieces of a word, `▁` before it; `merges` is the list of pairs, in the order they were learned."""
    rank = {pair: i for i, pair in enumerate(merges)}
    pieces = list("▁" + word)
    while known := [pair for pair in pairwise(pieces) if pair in rank]:
        first = min(known, key=rank.get)
        merged = []
        for piece in pieces:
            if merged and (merged[-1], piece) == first:
                merged[-1] += piece
            else:
                merged.append(piece)
        pieces = merged
    return pieces


test_encode(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore: does a better search help? Use `paired_bootstrap` to compare greedy
# decoding with the paper's beam search (`ours.translate(texts, beam=4, alpha=0.6)`) on the first 200
# sentences of val. Does the interval of the difference exclude 0? And how wide would the interval be if the
# two searches had been scored on different sentences? (The variances of independent scores add up. So the
# square of that width is the sum of the squares of the two single widths.)

# %% tags=["solution"]
beam = ours.translate(val.src[:200], beam=4, alpha=0.6)
beam_or_greedy = paired_bootstrap(beam, said[:200], val.tgt[:200], samples=300)
gain, widths = (
    beam_or_greedy.difference,
    [s.high - s.low for s in (beam_or_greedy.difference, beam_or_greedy.a, beam_or_greedy.b)],
)
print(f"the beam gains ≈{gain.value:+.1f} BLEU, 95% interval ≈{gain.low:+.1f} to ≈{gain.high:+.1f}")
print(f"width ≈{widths[0]:.1f}; for scores on different sentences ≈{math.hypot(*widths[1:]):.1f}")
assert widths[0] < math.hypot(*widths[1:])
# Where 0 lies inside the interval of the difference, 200 sentences do not decide.
