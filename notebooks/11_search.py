# %% [markdown]
# # 11 · Search
#
# **You write beam search for whole batches and with a cache, as in a real translator, and you see what it
# finds and where it fails.**
#
# Previous: [10_translation](10_translation.ipynb) · Next: [12_results](12_results.ipynb) · Alongside this
# lesson: [21_averaging](21_averaging.ipynb)
#
# *45 minutes to read, a minute to run.*
#
# - **Before:** you know the greedy loop and the causal mask ([00](00_start_here.ipynb)), and what BLEU counts
#   ([10](10_translation.ipynb)).
# - **After:** you can write decoding with a key/value cache and a batched beam search. You can test both, and
#   you can say what a beam and a length penalty are good for, and when to draw instead of searching.
#
# This lesson covers section 6.1 of "Attention Is All You Need" (Vaswani et al., 2017), which we call "the
# paper". A number after `≈` may differ on your processor. Folded cells called *Check* test what the text
# claims. A good place for a break is before *Beam search for a batch*. If you do not need the code of such
# a search, skip that section.

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
# ## One model, three searches
#
# A trained model does not output a sentence. It outputs a probability for each possible next token, and a
# *search* turns these probabilities into a sentence. Here is the same trained model with three different
# searches.

# %%
from annotated import load_pretrained

translator = load_pretrained("multi30k-en-de")
searches = {
    "greedy": {"beam": 1},
    "beam 4, the paper's": {"beam": 4, "alpha": 0.6},
    "beam 20, no penalty": {"beam": 20, "alpha": 0.0},
}
for text in ("A man carves wood.", "Two girls want to surprise their sister."):
    print(text)
    for name, settings in searches.items():
        [translation] = translator.translate([text], **settings)
        print(f"    {name:20} {translation!r}")

# %% tags=["check"]
wood, sister = (
    [translator.translate([text], **settings)[0] for settings in searches.values()]
    for text in ("A man carves wood.", "Two girls want to surprise their sister.")
)
assert wood[1] == wood[2] == "Ein Mann schnitzt Holz." != wood[0]
assert sister[2] == ""
assert "" not in sister[:2]

# %% [markdown]
# The weights are the same every time. For the first sentence, greedy decoding writes nonsense about a
# wooden board, and a beam of 4 writes the right translation. The model cannot translate the second
# sentence, and with a beam of 20 it says nothing at all. By the end of this lesson you will know why.

# %% [markdown]
# ## The likeliest word need not begin the likeliest sentence
#
# To see what a search does, we need a model so small that we can look at all of it. Here is a language with
# only fourteen sentences. The table gives the probability of each next word after each beginning of a
# sentence. A beginning that is not in the table is already a whole sentence.

# %%
import math

END = "</s>"
doing = dict.fromkeys(["schläft", "läuft", "springt", "sitzt", "frisst"], 0.2)
LANGUAGE = {
    "": {"ein": 0.40, "eine": 0.35, "der": 0.25},
    "ein": {"Hund": 0.42, "Mann": 0.30, "Tisch": 0.28},
    "eine": {"Katze": 0.5, "Frau": 0.5},
    "der": {"Hund": 1.0},
    "eine Katze": doing,
    "eine Frau": doing,
}


def next_words(said):
    """The log-probability of each next word, after the words `said`."""
    return {word: math.log(p) for word, p in LANGUAGE.get(" ".join(said), {END: 1.0}).items()}


# %% [markdown]
# **Greedy decoding** takes the likeliest word at each step. The probability of a sentence is the product
# of the probabilities of its words, so its *log-probability* is the sum of their log-probabilities.

# %%
said, log_prob = [], 0.0
while END not in said:
    word, log_p = max(next_words(said).items(), key=lambda item: item[1])
    said.append(word)
    log_prob += log_p
print(f"greedy: {' '.join(said)}, probability {math.exp(log_prob):.3f}")

# %% [markdown]
# **Before you run this:** is *ein Hund* the most probable of the fourteen sentences? The next cell computes
# the probability of each.


# %%
def all_sentences(said=(), log_prob=0.0):
    """Every sentence that begins with the words `said`, with its log-probability."""
    if said and said[-1] == END:
        return [(log_prob, said)]
    branches = [all_sentences((*said, word), log_prob + lp) for word, lp in next_words(said).items()]
    return [sentence for branch in branches for sentence in branch]


everything = sorted(all_sentences(), reverse=True)
print(len(everything), "sentences; the most probable are")
for log_prob, words in everything[:3]:
    print(f"    {math.exp(log_prob):.3f}  {' '.join(words)}")

# %% tags=["check"]
assert len(everything) == 14
assert everything[0][1] == ("der", "Hund", END)
assert list(everything[1][1]) == said
assert abs(sum(math.exp(log_prob) for log_prob, _ in everything) - 1) < 1e-9

# %% [markdown]
# No, it is only the second most probable. The sentence *der Hund* is 1.5 times as probable, although *der*
# is the **least** probable first word. After *der* there is only one way to continue, so *der Hund* keeps
# all of its probability. After *ein* there are three ways, and they share it.
#
# With a real model we cannot list all sentences. With a vocabulary of 10,000 tokens, there are
# $10{,}000^{20}$ sequences of 20 tokens. So we need a search that looks at more than one sentence, but at
# far fewer than all.

# %% [markdown]
# ## Beam search: keep k beginnings
#
# > "We used beam search with a beam size of 4 and length penalty α = 0.6 [38]." (section 6.1)
#
# A sentence that the search has begun is called a **hypothesis**, whether it is finished or not. Beam search
# keeps the $k$ likeliest hypotheses at every step. It continues each of them with every word and sorts the
# results. A finished hypothesis among the first $k$ is set aside. The $k$ likeliest unfinished ones are kept
# for the next step. When $k$ hypotheses are finished, the best of them wins. The number $k$ is the **beam
# size**.


# %%
def beam_of(k):
    """The best sentence that a beam of k finds, with its log-probability."""
    beam, finished = [(0.0, ())], []
    while beam and len(finished) < k:
        longer = [(p + lp, (*said, word)) for p, said in beam for word, lp in next_words(said).items()]
        longer.sort(reverse=True)
        finished += [hypothesis for hypothesis in longer[:k] if hypothesis[1][-1] == END]
        beam = [hypothesis for hypothesis in longer if hypothesis[1][-1] != END][:k]
    return max(finished)


for k in (1, 2, 3):
    log_prob, words = beam_of(k)
    print(f"beam {k}: {math.exp(log_prob):.3f}  {' '.join(words)}")

# %% tags=["check"]
assert beam_of(1)[1] == tuple(said)
assert beam_of(2)[0] < beam_of(1)[0] - math.log(4)
assert beam_of(3) == everything[0]

# %% [markdown]
# A beam of one is greedy decoding. A beam of three finds the best sentence. But a beam of **two** does worse
# than greedy decoding: *eine Katze* and *eine Frau* lead to ten equally probable sentences, and each of them
# has only about a fifth of the probability of *ein Hund*. The drawing shows how that happens.
#
# ![A beam of two drops der (0.25) at step 1 and ein Hund (0.168) at step 2; it keeps eine Katze and eine Frau
# (0.175 each), which split into ten sentences of 0.035, of which it keeps two, eine Katze springt and eine
# Katze sitzt. Der Hund, 0.250, was lost at step 1](../images/beam.svg)
#
# *Figure 1. A beam of two. At step 2, "eine Katze" and "eine Frau" are slightly more probable than "ein
# Hund". Then each of them splits into five sentences of probability 0.035, and two of the ten are kept.*
#
# Beam search compares how probable the beginnings are *so far*. It cannot know which of them will have to
# share their probability among many endings. A wider beam usually finds a more probable sentence, but there
# is no guarantee.
#
# **Remember:** beam search keeps the k likeliest beginnings at every step. A beam of one is greedy decoding,
# and a small beam does not guarantee the likeliest sentence.

# %% [markdown]
# ## Do not compute anything twice
#
# Before we search with a real model, we make decoding fast. At each step, the greedy loop of
# [00](00_start_here.ipynb) gave the decoder all tokens written so far. The decoder computed an output vector
# for each of these tokens, and the loop used only the last one. How much of that work was new? We translate
# *A cat runs.* and show the decoder's output when it has read one, two, three and four tokens. Each vector
# has 128 numbers, and we print the first three.

# %%
import torch

from annotated import evaluating, subsequent_mask

torch.set_num_threads(1)  # a second thread does not help with small matrices
model, tokenizer = translator.model.double(), translator.tgt_tokenizer  # float64 makes rounding errors tiny
src = translator.batch([translator.encode("A cat runs.")])  # (1, S)
written = [tokenizer.start, *tokenizer.encode("Eine Katze rennt.")]
pieces = tokenizer.pieces(written)
with evaluating(model):  # no dropout, no gradients
    memory = model.encode(src, None)  # (1, S, 128)
    for length in (1, 2, 3, 4):
        tokens = torch.tensor([written[:length]])  # (1, length)
        states = model.decode(memory, None, tokens, subsequent_mask(length))  # (1, length, 128)
        rows = states[0, :, :3].numpy().round(2)
        print(f"step {length}:", *(f"{piece} {row}" for piece, row in zip(pieces, rows, strict=False)))

# %% tags=["check"]
with evaluating(model):
    first = model.decode(memory, None, torch.tensor([written[:1]]), subsequent_mask(1))
assert torch.allclose(states[:, :1], first, atol=1e-9)

# %% [markdown]
# The vector of `<s>` is the same at every step, and so is the vector of `▁Eine` from step 2 on. The **causal
# mask** is the reason: no position sees what comes later, so a new token cannot change an old position. At
# step 4, three of the four vectors were computed for nothing.
#
# What does the new token need from the old ones? In self-attention it compares its own query with their
# **keys**, and it takes a weighted mean of their **values**. So each self-attention layer can store the old
# keys and values, and at each step it adds the key and the value of one new position. This is the
# **key/value cache**.
#
# ![Without a cache, four steps compute 1 + 2 + 3 + 4 = 10 positions; with a cache, one new position per
# step](../images/cache.svg)
#
# *Figure 2. Keys (k) and values (v) of one layer. Without a cache, each step computes all of them again.*


# %%
class KeyValueCache:
    """The keys and values of one attention layer, (B, h, positions, d_k) each."""

    keys = values = None

    def extend(self, keys, values):
        """Add the new positions, and return all of them."""
        if self.keys is not None:
            keys = torch.cat([self.keys, keys], dim=2)
            values = torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values


# %% [markdown]
# We try it on the first self-attention of our decoder. The four tokens come one at a time, so we need no
# mask: later positions do not exist yet.

# %%
from annotated import attention

self_attention = model.decoder.layers[0].self_attn
w_q, w_k, w_v, w_o = self_attention.linears


def heads_of(x):  # (B, T, 128) -> (B, T, 4, 32) -> (B, 4, T, 32)
    return x.unflatten(-1, (4, 32)).transpose(1, 2)


with evaluating(model):
    x = model.tgt_embed(torch.tensor([written[:4]]))  # (1, 4, 128)
    at_once = self_attention(x, x, x, subsequent_mask(4))  # as in training
    cache, one_by_one = KeyValueCache(), []
    for new in x.split(1, dim=1):  # (1, 1, 128) each
        keys, values = cache.extend(heads_of(w_k(new)), heads_of(w_v(new)))
        found, _ = attention(heads_of(w_q(new)), keys, values)  # (1, 4, 1, 32)
        one_by_one.append(w_o(found.transpose(1, 2).flatten(2)))
difference = (torch.cat(one_by_one, dim=1) - at_once).abs().max()
print("one by one and all at once differ by less than 1e-12:", bool(difference < 1e-12))
print("the cache now holds keys of shape", tuple(cache.keys.shape))

# %% tags=["check"]
assert difference < 1e-12
assert cache.keys.shape == (1, 4, 4, 32)

# %% [markdown]
# The package's `DecoderCache` does the same for all layers. In cross-attention, keys and values come from the
# *memory*, which is the encoder's output. They are computed once, and they never grow. Here is the loop that
# writes token by token, with a cache and without one. With a cache, each step gives the decoder only **one**
# token per sentence, `tokens[:, -1:]`, and needs no mask.

# %%
from time import process_time

from annotated import DecoderCache, padding_mask


def batch_of(texts):
    """English sentences as the encoder reads them, (B, S), and their mask (B, 1, S)."""
    src = translator.batch([translator.encode(text) for text in texts])
    return src, padding_mask(src, translator.src_tokenizer.pad)


def likeliest(log_probs):  # (B, V) -> (B, 1)
    return log_probs.argmax(dim=-1, keepdim=True)


def write(src, src_mask, length, cache=None, choose=likeliest):
    """Write token by token, (B, length); `choose` takes the next tokens from their log-probabilities."""
    with evaluating(model):
        memory, tokens = model.encode(src, src_mask), torch.full((len(src), 1), tokenizer.start)
        while tokens.size(1) < length:
            if cache is None:  # all positions again
                states = model.decode(memory, src_mask, tokens, subsequent_mask(tokens.size(1)))
            else:
                states = model.decode(memory, src_mask, tokens[:, -1:], None, cache)  # (B, 1, d_model)
            tokens = torch.cat([tokens, choose(model.generator(states[:, -1]))], dim=1)
    return tokens


# %% [markdown]
# **Before you run this:** we decode rows of 20, 40 and 80 tokens. When the length doubles, by what factor
# does the time grow without a cache? And with a cache?

# %%
many, many_mask = batch_of(["A man takes a picture of a bridge in the rain."] * 16)
seconds = {}
for length in (20, 40, 80):
    begun = process_time()
    slow = write(many, many_mask, length)
    between = process_time()
    fast = write(many, many_mask, length, DecoderCache(len(model.decoder.layers)))
    seconds[length] = between - begun, process_time() - between
    print(f"{length} tokens: without ≈{seconds[length][0]:.2f} s, with a cache ≈{seconds[length][1]:.2f} s")
print("the same tokens:", torch.equal(slow, fast))

# %% tags=["check"]
from annotated import greedy_decode

assert torch.equal(slow, fast)
assert torch.equal(fast, greedy_decode(model, many, many_mask, 80, tokenizer.start))
assert seconds[80][0] > 2 * seconds[80][1]
assert seconds[80][0] / seconds[20][0] > 1.3 * seconds[80][1] / seconds[20][1]

# %% [markdown]
# The loop without a cache is slower, and its time grows faster. Count the positions that go through the
# layers. For $T$ tokens, the loop with a cache computes $T$ positions, so twice the length means twice as
# many positions. The loop without a cache computes $1 + 2 + \dots + T$, which is about half of $T^2$, so
# twice the length means about four times as many. (The attention itself grows with the square all the same.)
#
# The price is memory. Each of the $N$ layers keeps a key and a value of $d_{model}$ numbers for every token
# of both texts. In the paper's base model, one token of one hypothesis takes $2 \cdot 6 \cdot 512$ numbers,
# or 24 KB in float32. *More in [15_going_fast](15_going_fast.ipynb).*
#
# **Remember:** with a causal mask, old keys and values never change. So each step computes one new
# position and finds the others in the cache.

# %% [markdown]
# ## Beam search for a batch
#
# A real search translates $B$ sentences at once, with $k$ hypotheses each. The decoder should process all
# $B \cdot k$ hypotheses in one pass. Two details need thought.
#
# **Choosing.** For each sentence there are $k \cdot V$ possible continuations, where $V$ is the size of
# the vocabulary. We add the log-probability of each hypothesis so far, its *total*, to the
# log-probabilities of its next tokens. This gives $k$ rows of $V$ numbers. We put them side by side in
# one long row and take the largest numbers. If we divide the index of a number in that row by $V$, the
# quotient says which hypothesis it came from, and the remainder says which token.


# %%
def continuations(totals, log_probs, count):
    """The best continuations: totals (B, k), log_probs (B, k, V) -> three tensors (B, count)."""
    longer = totals.unsqueeze(-1) + log_probs  # (B, k, V)
    best, index = longer.flatten(1).topk(count)  # (B, count), the best first
    return best, index // log_probs.size(-1), index % log_probs.size(-1)


totals = torch.tensor([[0.40, 0.35]]).log()  # one sentence: ein, eine
log_probs = torch.tensor([[[0.42, 0.30, 0.28], [0.50, 0.50, 0.00]]]).log()  # three words after each
best, origin, token = continuations(totals, log_probs, 3)
print("probabilities", best.exp().numpy().round(3), "from", origin.tolist(), "with", token.tolist())

# %% tags=["check"]
assert torch.allclose(best.exp(), torch.tensor([[0.175, 0.175, 0.168]]))
assert sorted(origin[0, :2].tolist()) == [1, 1]
assert (origin[0, 2], token[0, 2]) == (0, 0)

# %% [markdown]
# **Following.** With a beam of two, we keep the best two of these three. Both continue hypothesis 1,
# *eine*, and nothing continues hypothesis 0. So both rows of tokens must now begin with *eine*. The *cache*
# must follow the hypotheses: its row 0 has to become a copy of its row 1. That is what `cache.select(rows)`
# does.
#
# Now we write the whole search. Here are the answers to three questions that you may have when you read it:
#
# - **How many continuations?** Each hypothesis can end in only one way, with `</s>`. So among the $2k$
#   best continuations, at most $k$ are finished, and at least $k$ can be continued.
# - **Which finished hypotheses count?** As in `beam_of`, only those that are among the $k$ best
#   continuations. So `set_aside` looks only at these.
# - **How does the search start?** All $k$ hypotheses are `<s>` alone. If all of them counted, the $k$
#   best continuations would be $k$ copies of one word. So only the first gets a probability of one, and
#   the others get zero.


# %%
def penalty(length, alpha):
    """The length penalty, explained below; it is 1 for alpha 0."""
    return ((5 + length) / 6) ** alpha


def set_aside(finished, tokens, best, origin, token, alpha):
    """Add the hypotheses that end here to `finished`: for each sentence, (score, log-probability, tokens)."""
    k = tokens.size(1)
    for b, j in (token[:, :k] == tokenizer.end).nonzero().tolist():
        if len(finished[b]) < k:
            words = tokens[b, origin[b, j], 1:].tolist()
            log_prob = best[b, j].item()
            finished[b].append((log_prob / penalty(len(words) + 1, alpha), log_prob, words))


# %%
def search(src, src_mask, k=4, alpha=0.6, max_len=60):
    """The best translation of each of B sentences: (score, log-probability, tokens)."""
    B, finished = len(src), [[] for _ in src]
    memory = model.encode(src, src_mask).repeat_interleave(k, dim=0)  # (B * k, S, d_model)
    mask = src_mask.repeat_interleave(k, dim=0)
    cache = DecoderCache(len(model.decoder.layers))
    tokens = torch.full((B, k, 1), tokenizer.start)
    totals = torch.full((B, k), -math.inf, dtype=torch.double)
    totals[:, 0] = 0.0
    while min(map(len, finished)) < k and tokens.size(-1) < max_len:
        newest = tokens[:, :, -1].view(B * k, 1)
        states = model.decode(memory, mask, newest, None, cache)  # (B * k, 1, d_model)
        log_probs = model.generator(states).view(B, k, -1)  # (B, k, V)
        log_probs[..., list(translator.forbidden)] = -math.inf  # padding and start are never written
        best, origin, token = continuations(totals, log_probs, 2 * k)  # (B, 2k)
        set_aside(finished, tokens, best, origin, token, alpha)
        # the k best that have not ended: their totals, origins and newest tokens, (B, k) each
        totals, slot = best.masked_fill(token == tokenizer.end, -math.inf).topk(k)
        origin, token = origin.gather(1, slot), token.gather(1, slot)
        # cache and tokens follow: each row becomes a copy of the row that its hypothesis came from
        rows = (torch.arange(B).unsqueeze(1) * k + origin).flatten()  # (B * k,)
        cache.select(rows)
        tokens = torch.cat([tokens.flatten(0, 1)[rows].view(B, k, -1), token.unsqueeze(-1)], dim=-1)
    return [max(hypotheses) for hypotheses in finished]


# %% [markdown]
# We try it on a dozen captions, in one batch.

# %%
captions = """A man carves wood.
A dog runs through the grass.
Two men are playing chess in the park.
A little girl in a pink dress is jumping over a puddle.
Three children play with a ball on the beach while their mother is reading.
An old man with a white beard sells fruit at a busy market.
A woman with an umbrella crosses the street in the rain.
A bearded man is fixing an old radio.
Two boys throw snowballs at each other.
A skier jumps over a snowy hill.
A cook tastes the soup with a spoon.
A cat runs.""".splitlines()
with evaluating(model):
    translations = search(*batch_of(captions))
for caption, (_, log_prob, words) in zip(captions[:4], translations[:4], strict=True):
    print(f"{caption}\n    {tokenizer.decode(words)}   log-probability {log_prob:.2f}")

# %% tags=["check"]
from annotated import beam_search

for k, alpha in ((1, 0.6), (4, 0.6), (4, 1.0), (8, 0.6)):
    with evaluating(model):
        ours = search(*batch_of(captions), k=k, alpha=alpha)
    settings = {"beam": k, "alpha": alpha, "forbidden": translator.forbidden}
    theirs = beam_search(model, *batch_of(captions), **settings)
    for (score, log_prob, words), [best_of_theirs] in zip(ours, theirs, strict=True):
        assert tuple(words) == best_of_theirs.tokens
        assert abs(score - best_of_theirs.score) < 1e-9
        assert abs(log_prob - best_of_theirs.log_prob) < 1e-9
assert tokenizer.decode(translations[0][2]) == "Ein Mann schnitzt Holz."

# %% [markdown]
# The package's `beam_search` reports each step, and `plot_beam` draws the steps as a tree. Here is the beam
# at work on the first caption.

# %% tags=["figure-tree"]
import matplotlib.pyplot as plt

from annotated import beam_search
from annotated.plots import plot_beam, setup_notebook

setup_notebook()
steps = []
[[winner]] = beam_search(
    model,
    *batch_of(captions[:1]),
    beam=3,
    alpha=0.0,
    forbidden=translator.forbidden,
    on_step=lambda _, candidates: steps.append(candidates),
)
ax = plot_beam(steps, winner.tokens, tokenizer.pieces)
ax.set_yticks(range(6), range(1, 7))
plt.show()

# %% [markdown]
# *Figure 3. The tree of one search with a beam of three, with the six best continuations of each step. A
# box holds a token and the log-probability of the whole hypothesis, and · continues a word. At step 3 the
# comma is the likeliest token, and greedy decoding takes it. The winner is only second at that step. At
# step 6 one of the three best hypotheses ends, so the fourth-best continuation is kept, too.*

# %% tags=["check"]
with evaluating(model):
    [(_, _, greedy_words)] = search(*batch_of(captions[:1]), k=1)
assert steps[2][0].tokens == tuple(greedy_words[:3])
assert steps[2][1].tokens == winner.tokens[:3]

# %% [markdown]
# ### How do you test a search?
#
# A search with a bug rarely crashes. It writes sentences that look fine but are a little worse. A simple
# test finds many of these bugs: give the finished translation to the model **all at once**, as in
# training, without a search and without a cache. The log-probabilities of its tokens must add up to what
# the search reported. This is called **forced decoding**.


# %%
def forced(text, words):
    """The log-probability of a translation that the model reads all at once."""
    src, src_mask = batch_of([text])
    tgt = torch.tensor([[tokenizer.start, *words, tokenizer.end]])
    with evaluating(model):
        states = model(src, tgt[:, :-1], src_mask, subsequent_mask(tgt.size(1) - 1))
        return model.generator(states)[0].gather(1, tgt[0, 1:].unsqueeze(1)).sum().item()


def confirmed(results):
    """How many of the reported log-probabilities are right."""
    pairs = zip(captions, results, strict=True)
    return sum(abs(forced(text, words) - log_prob) < 1e-9 for text, (_, log_prob, words) in pairs)


# %% [markdown]
# Now we plant a typical bug: the cache does not follow its hypotheses. In the output, a translation is
# *confirmed* if forced decoding gives the same log-probability as the search.
#
# **Before you run this:** will the search crash? Will the test find the bug with a beam of 1, and with a beam
# of 4?

# %%
from unittest.mock import patch

with evaluating(model):
    print(f"as it is, beam 4: {confirmed(search(*batch_of(captions)))} of {len(captions)} confirmed")
    with patch.object(DecoderCache, "select", lambda cache, rows: None):  # the fault
        for k in (1, 4):
            faulty = search(*batch_of(captions), k=k)
            print(f"cache does not follow, beam {k}: ≈{confirmed(faulty)} of {len(captions)} confirmed")

# %% tags=["check"]
with evaluating(model):
    assert confirmed(search(*batch_of(captions))) == len(captions)
    with patch.object(DecoderCache, "select", lambda cache, rows: None):
        assert confirmed(search(*batch_of(captions), k=1)) == len(captions)
assert confirmed(faulty) < len(captions)

# %% [markdown]
# Nothing crashes. With a beam of one, all results are even correct, because a single hypothesis never has
# to be reordered. So a test with a beam of one cannot find this bug, but a test with a beam of 4 finds it
# at once.
#
# **Remember:** add totals and log-probabilities, take the best of the k · V continuations, and let tokens and
# cache follow their hypotheses. Test the result by forced decoding.

# %% [markdown]
# ## Why a search needs a length penalty
#
# The log-probability of a sentence is a sum of negative numbers, and each additional token makes it lower.
# So the shorter of two good translations has an advantage that has nothing to do with its quality. Here are
# two translations that a beam of 4 finds for *Two boys throw snowballs at each other.*

# %%
snow = batch_of(["Two boys throw snowballs at each other."])
print(f"{'':48} tokens  log-probability  divided by the penalty")
for alpha in (0.0, 0.6):
    [[found]] = beam_search(model, *snow, beam=4, alpha=alpha, forbidden=translator.forbidden)
    length, log_prob = len(found.tokens) + 1, found.log_prob  # </s> counts
    words = tokenizer.decode(found.tokens)
    print(f"{words:48} {length:6} {log_prob:16.2f} {log_prob / penalty(length, 0.6):23.2f}")

# %% tags=["check"]
[[plain]], [[paper]] = (
    beam_search(model, *snow, alpha=alpha, forbidden=translator.forbidden) for alpha in (0.0, 0.6)
)
assert plain.log_prob > paper.log_prob
assert abs(paper.score - paper.log_prob / penalty(len(paper.tokens) + 1, 0.6)) < 1e-9
assert paper.score > plain.log_prob / penalty(len(plain.tokens) + 1, 0.6)
assert tokenizer.decode(paper.tokens) == "Zwei Jungen werfen Schneeball auf einander."

# %% [markdown]
# The first translation leaves out *at each other*, and it is the more probable one. The paper uses a remedy
# by Wu and colleagues ([2016](https://arxiv.org/abs/1609.08144)), who divide the log-probability by a
# **length penalty**:
#
# $$\mathrm{score}(y) = \frac{\log P(y)}{lp(y)}, \qquad lp(y) = \left(\frac{5 + |y|}{6}\right)^{\alpha}$$
#
# Here $|y|$ is the number of tokens, including `</s>`. Despite its name, the penalty helps *long*
# translations: dividing a negative number by a larger number brings it nearer to 0. With α = 0.6, the
# complete translation wins. With α = 0 the penalty is 1, so it changes nothing. Many programs divide by
# $|y|$ itself, which makes the score the **mean log-probability per token**.

# %% tags=["figure-penalty", "scaffold"]
import altair as alt

alpha = alt.param(name="alpha", value=0.6, bind=alt.binding_range(min=0, max=1.5, step=0.05, name="α "))
rivals = [beam_search(model, *snow, alpha=a, forbidden=translator.forbidden)[0][0] for a in (0.0, 0.6)]
rows = [
    {"words": tokenizer.decode(found.tokens), "length": len(found.tokens) + 1, "log_prob": found.log_prob}
    for found in rivals
]
scored = alt.Chart(alt.Data(values=rows)).transform_calculate(
    score="datum.log_prob / pow((5 + datum.length) / 6, alpha)"
)
scored = scored.transform_joinaggregate(best="max(score)").transform_calculate(
    written="format(datum.score, '.2f') + ' at α = ' + format(alpha, '.2f')"
    " + (datum.score == datum.best ? ', wins' : '')"
)
scored = scored.encode(
    x=alt.X("score:Q", title="score", scale=alt.Scale(domain=[-8, 0])),
    y=alt.Y("words:N", title=None, axis=alt.Axis(labelLimit=360), sort=[row["words"] for row in rows]),
    opacity=alt.condition("datum.score == datum.best", alt.value(1.0), alt.value(0.4)),
)
(
    scored.mark_bar(color="#0173b2") + scored.mark_text(align="right", dx=-4).encode(text="written:N")
).properties(width=320, height=90, title="Which translation wins?").add_params(alpha)

# %% [markdown]
# *Figure 4. The scores of the two translations; the higher one, with the shorter bar, wins. In a live
# notebook, move α and find where the winner changes.*

# %% [markdown]
# The penalty matters only when we compare *finished* hypotheses. Within one step all hypotheses have the same
# length, so it does not change which of them the beam keeps.
#
# Now we can explain the empty translation at the top of this page. The model is so unsure about *Two girls
# want to surprise their sister.* that every complete translation is very improbable. Ending at once is
# improbable, too, but it takes only a *single* improbable token.

# %%
surprise = "Two girls want to surprise their sister."
for k, alpha in ((4, 0.6), (20, 0.0)):
    [[found]] = beam_search(model, *batch_of([surprise]), beam=k, alpha=alpha, forbidden=translator.forbidden)
    odds, words = math.exp(-found.log_prob), tokenizer.decode(found.tokens)
    print(f"beam {k:2}, alpha {alpha}: probability 1 in {odds:8,.0f}  {words!r}")

# %% tags=["check"]
assert found.tokens == ()
assert forced(surprise, []) > forced(surprise, tokenizer.encode(sister[1]))
wide = []
_ = beam_search(
    model,
    *batch_of([surprise]),
    beam=20,
    alpha=0.0,
    forbidden=translator.forbidden,
    on_step=lambda _, candidates: wide.append([candidate.tokens for candidate in candidates]),
)
assert 4 <= wide[0].index((tokenizer.end,)) < 20  # how many first words are likelier than ending at once

# %% [markdown]
# The beam of 4 dropped the empty translation at step 1, because at least four first words were likelier. The
# beam of 20 kept it, and without a length penalty it won. The search is not to blame: it was asked for a
# probable sentence, and it found one. Stahlberg and Byrne ([2019](https://arxiv.org/abs/1908.10090)) found
# the same for more than half of the sentences of a large test set. Some blame the model for it, others the
# wish for its most probable sentence (Eikema and Aziz, [2020](https://arxiv.org/abs/2005.10283)). **The most
# probable translation is not always a good one, and a narrow beam hides that.**
#
# ### What search gains in BLEU
#
# We measured greedy decoding and 18 beam searches on the 1,000 captions of a test set. The table shows
# five of these results. In it, "none" means no penalty, "gnmt 0.6" is the paper's penalty, and "length"
# divides by the number of tokens:

# %%
from annotated.recorded import recorded

scores = recorded("search")["multi30k-en-de"]["test_2016_flickr"]
for name in ("greedy", "beam 4, gnmt 0.6", "beam 5, length", "beam 50, none", "beam 50, length"):
    bleu, length = scores[name]["bleu"]["value"], scores[name]["length"]
    print(f"{name:17} {bleu:.1f} BLEU, output {length:.0%} as long as the reference")

# %% tags=["check"]
bleu = {name: score["bleu"]["value"] for name, score in scores.items()}
assert 0 < bleu["beam 4, gnmt 0.6"] - bleu["greedy"] < 0.5 < bleu["beam 5, length"] - bleu["greedy"]
assert bleu["beam 50, none"] < bleu["greedy"] - 1
assert scores["beam 50, none"]["length"] < 0.9

# %% [markdown]
# The best of the 18 on *validation* captions, beam 5 with division by length, gains 0.8 BLEU points over
# greedy decoding here. The beam of 50 without a penalty comes closest to the most probable sentences. It
# scores 1.6 points *less* than greedy decoding, and its output is too short. Koehn and Knowles
# ([2017](https://arxiv.org/abs/1706.03872)) found the same for several language pairs. Later authors call it
# the **beam search curse**.
#
# *Are the 0.2 points of the paper's search more than luck? Which penalty is best? We measured it in [What do
# beam, penalty and averaging bring in BLEU?](evidence/what_do_beam_penalty_and_averaging_bring.ipynb)*
#
# **Remember:** short sentences tend to have higher log-probabilities, a wide beam finds them, and a length
# penalty corrects for that.

# %% [markdown]
# ## Sampling: draw instead of search
#
# All three searches of this lesson look for a *probable* sentence. There is another way to write: at each
# step, **draw** the next token from the distribution that the model predicts. This is called *sampling*, and
# it is how language models write. A distribution has a long *tail* of tokens that are unlikely and often make
# no sense. Each of them is rare, but there are thousands, and one of them can spoil a sentence. Two settings
# keep most of the tail out:
#
# - The **temperature** divides the log-probabilities before a new softmax ([02](02_attention.ipynb)). Below
#   1, it makes likely tokens even likelier.
# - **Top-p** draws only from the likeliest tokens: the smallest set of them whose probabilities add up to at
#   least $p$ (Holtzman et al., 2020).


# %%
def draw(log_probs, temperature=1.0, top_p=1.0):
    """One token for each row of log_probs (B, V): (B, 1)."""
    probs, tokens = (log_probs / temperature).softmax(dim=-1).sort(descending=True)
    before = probs.cumsum(dim=-1) - probs  # the probability of all likelier tokens together
    kept = probs.masked_fill(before >= top_p, 0.0)  # the likelier ones are enough without it
    return tokens.gather(-1, kept.multinomial(1))


# %% [markdown]
# We give `draw` to the loop from above and write 32 translations of each of two captions: the wood carver,
# whom greedy decoding got wrong, and two men who play chess.
#
# **Before you run this:** for which caption will the 32 differ more? And which setting writes the strangest
# German?

# %% tags=["nbval-ignore-output"]
kinds = {"temperature 1": (1.0, 1.0), "top-p 0.3": (1.0, 0.3), "temperature 0.3": (0.3, 1.0)}
different = {}
for caption in ("A man carves wood.", "Two men are playing chess in the park."):
    print(caption)
    for name, setting in kinds.items():
        _ = torch.manual_seed(0)
        cache, rows = DecoderCache(len(model.decoder.layers)), batch_of([caption] * 32)
        tokens = write(*rows, 30, cache, lambda log_probs, setting=setting: draw(log_probs, *setting))
        ended = [[*row[1:], tokenizer.end] for row in tokens.tolist()]
        drawn = [tokenizer.decode(row[: row.index(tokenizer.end)]) for row in ended]
        different[caption, name] = len(set(drawn))
        print(f"  {name:15} {len(set(drawn)):2} different: ", *drawn[:2], sep="  ")

# %% tags=["check"]
for name in kinds:
    assert different["A man carves wood.", name] > different["Two men are playing chess in the park.", name]
assert different["A man carves wood.", "temperature 1"] > 25
assert different["Two men are playing chess in the park.", "temperature 0.3"] < 4
_ = torch.manual_seed(0)
some = (3 * torch.randn(50)).log_softmax(dim=-1)
tried = draw(some.expand(300, -1), top_p=0.7).unique()
assert some.exp()[tried].sum() < 0.7 + some.exp().max()
assert (draw(some.expand(20, -1), temperature=0.01) == some.argmax()).all()

# %% [markdown]
# For the chess players, the model is sure: nearly every draw is the translation that a search finds, and the
# settings hardly matter. For the carver it is not sure, and drawing shows that at once, while a search hides
# it. At temperature 1, the tail joins pieces into words that are not German at all. The figure shows the step
# at which this happens.

# %% tags=["figure-sampling", "scaffold"]
with evaluating(model):
    begun = torch.tensor([[tokenizer.start, *tokenizer.encode("Ein Mann")]])
    states = model(batch_of(["A man carves wood."])[0], begun, None, subsequent_mask(begun.size(1)))
    log_probs = model.generator(states)[0, -1]
probs, tokens = log_probs.exp().sort(descending=True)
cold = (log_probs / 0.3).softmax(dim=-1)[tokens]
inside = probs.cumsum(dim=-1) - probs < 0.3
fig, ax = plt.subplots(figsize=(9, 3.8))
places, colors = torch.arange(14), ["C0" if kept else "0.75" for kept in inside[:14]]
ax.bar(places - 0.2, probs[:14], 0.4, color=colors, label="temperature 1")
ax.bar(0, 0, color="0.75", label="cut off by top-p")
ax.bar(places + 0.2, cold[:14], 0.4, color="C1", label="temperature 0.3")
ax.set_xticks(places, tokenizer.pieces(tokens[:14].tolist()), rotation=45, ha="right")
ax.set(ylabel="probability", title="A man carves wood: the 14 likeliest pieces after “Ein Mann”")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 5. The blue and gray bars are the model's own probabilities. Top-p draws only from the blue pieces.
# Here, p is 0.3. Most of the gray bars lie outside the figure. The orange bars are the probabilities at a
# temperature of 0.3.*

# %% tags=["check"]
assert 4 < inside.sum() < 14
assert cold[:3].sum() > 0.6 > 0.25 > probs[:3].sum()

# %% [markdown]
# When should you draw? A caption has few good translations, and they are much alike, so it makes sense to
# search for the likeliest. A story has thousands of good continuations. A search finds the same one every
# time, and a long text that was written by a search often repeats itself (Holtzman et al., 2020). So language
# models draw, and [17](17_since_2017.ipynb) lets one write.
#
# **Remember:** search when there are few right answers. Draw when there are many, and cut off the tail.

# %% [markdown]
# ## What you can now say
#
# - Greedy decoding takes the likeliest token at each step, and beam search keeps the k likeliest beginnings.
#   Neither is sure to find the likeliest sentence.
# - With a causal mask, the keys and values of old positions never change, so a cache can keep them. The
#   decoder then computes $T$ positions instead of about $T^2 / 2$, and the cache holds $2 \cdot N \cdot
#   d_{model}$ numbers per token and hypothesis.
# - A batched beam search takes the best of k · V continuations, and the tokens and the cache must follow
#   their hypotheses. Forced decoding tests the search.
# - Short sentences tend to have higher log-probabilities, so a wide beam needs a length penalty.
# - Drawing shows how sure a model is. Temperature and top-p keep its unlikely tokens out.
#
# **Deeper:** [What do beam, penalty and averaging bring in
# BLEU?](evidence/what_do_beam_penalty_and_averaging_bring.ipynb) · [Does beam search find the most probable
# translation?](evidence/does_beam_search_find_the_most_probable.ipynb)
#
# **Next:** how to compare whole systems by their scores, in [12_results](12_results.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With a pencil: a beam holds two finished hypotheses. One has 3 tokens and the
# log-probability −2.0, the other has 9 tokens and −3.0. Which one wins at α = 0? From which α on does the
# other win? Then write the formula.


# %% tags=["exercise"]
def turning_alpha(short, long):
    """The alpha at which two hypotheses (tokens, log-probability), short and long, score the same."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import uniform


def test_turning_alpha(turning_alpha):
    def score(tokens, log_prob, alpha):
        return log_prob / ((5 + tokens) / 6) ** alpha

    given = turning_alpha((1, -1.0), (7, -2.0))  # the penalties are 1 and 2 ** alpha
    assert isinstance(given, float), f"a number is wanted, not {given!r}"
    assert abs(given - 1) < 1e-9, f"(1, -1.0) and (7, -2.0) score the same at alpha 1, not at {given:.3f}"
    for _ in range(5):
        short, long = (3, -uniform(1, 2)), (9, -uniform(3, 4))
        alpha = turning_alpha(short, long)
        one, other = score(*short, alpha), score(*long, alpha)
        told = f"at alpha {alpha:.2f}, {short} scores {one:.3f} and {long} scores {other:.3f}"
        assert abs(one - other) < 1e-9, told


try:
    test_turning_alpha(turning_alpha)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
import math


# At alpha 0, the short one wins. The long one wins from alpha 0.72 on, a little above the paper's 0.6.
def solution(short, long):
    """The alpha at which two hypotheses (tokens, log-probability), short and long, score the same."""
    (n, of_short), (m, of_long) = short, long
    return math.log(of_long / of_short) / math.log((5 + m) / (5 + n))


test_turning_alpha(solution)
assert round(solution((3, -2.0), (9, -3.0)), 2) == 0.72

# %% [markdown]
# **Exercise 2 (medium).** A customer wants the name of her product in every translation. Write a beam search
# that obeys a rule: `allowed(said, word)` says whether `word` may follow the words `said`. The test uses the
# rule to force a word into the sentence. `following(said)` stands for the model, as `next_words` does above.


# %% tags=["exercise"]
def constrained_beam(following, allowed, k, end):
    """The best sentence that keeps the rule: its log-probability and its words, `end` among them."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import math
from random import sample


def test_constrained_beam(constrained_beam):
    def following(said):
        toy = {(): {a: 0.6, the: 0.4}, (a,): {dog: 0.7, cat: 0.3}, (the,): {dog: 0.1, cat: 0.9}}
        return {word: math.log(p) for word, p in toy.get(tuple(said), {"</s>": 1.0}).items()}

    def anything(said, word):
        return True

    def with_cat(said, word):  # a sentence may not end before "cat", and no other animal may come
        return word != dog and (word != "</s>" or cat in said)

    for a, the, dog, cat in ("a", "the", "dog", "cat"), sample(["un", "le", "chien", "chat", "loup"], 4):
        for k, rule, words, p in (
            (1, anything, (a, dog, "</s>"), 0.42),
            (2, anything, (a, dog, "</s>"), 0.42),
            (1, with_cat, (a, cat, "</s>"), 0.18),
            (2, with_cat, (the, cat, "</s>"), 0.36),
            (3, with_cat, (the, cat, "</s>"), 0.36),
        ):
            found = constrained_beam(following, rule, k, "</s>")
            assert isinstance(found, tuple | list), f"wanted: log-probability and words, not {found!r}"
            told = f"rule {rule.__name__}, beam {k}: ({math.log(p):.2f}, {words}), not {found}"
            assert tuple(found[1]) == words, told
            assert abs(found[0] - math.log(p)) < 1e-6, told


try:
    test_constrained_beam(constrained_beam)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
# The rule must act *inside* the search, before the beam is cut. A filter over finished hypotheses would find
# nothing if the beam had dropped every sentence that keeps the rule.
def solution(following, allowed, k, end):
    """The best sentence that keeps the rule: its log-probability and its words, `end` among them."""
    beam, finished = [(0.0, ())], []
    while beam and len(finished) < k:
        longer = [
            (total + lp, (*said, word))
            for total, said in beam
            for word, lp in following(said).items()
            if allowed(said, word)
        ]
        longer.sort(reverse=True)
        finished += [hypothesis for hypothesis in longer[:k] if hypothesis[1][-1] == end]
        beam = [hypothesis for hypothesis in longer if hypothesis[1][-1] != end][:k]
    return max(finished)


test_constrained_beam(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore α with `translator.translate(captions, beam=8, alpha=...)`. Guess first:
# how does the length of the output change from α = 0 to α = 3, and do the translations get better?

# %% tags=["solution"]
for a in (0.0, 0.6, 1.0, 3.0):
    outputs = load_pretrained("multi30k-en-de").translate(captions, beam=8, alpha=a)
    print(f"alpha {a}: {sum(len(o.split()) for o in outputs)} words; {outputs[8]}")
# The penalty can only choose among the hypotheses that the beam has finished, so even a large alpha adds few
# words. What it adds is not always right.
