# %% [markdown]
# # 18 · Many users, many machines
#
# **You see how a service answers dozens of users from one copy of a model, and how many machines train one
# model as if they were one.**
#
# Previous: [17_since_2017](17_since_2017.ipynb) · Next:
# [19_a_model_of_today](19_a_model_of_today.ipynb) · You can read this lesson right after
# [15_going_fast](15_going_fast.ipynb)
#
# *41 minutes to read, seconds to run.*
#
# - **Before:** you know the cache ([11](11_search.ipynb)) and why a product with few rows is
#   limited by memory ([15](15_going_fast.ipynb)).
# - **After:** you can compute how many users fit on a GPU, explain speculative decoding, pages, shared
#   prefixes and continuous batching, and say what is split and what is sent in data, sharded, tensor,
#   pipeline, context and expert parallelism.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). Everything here is computed or simulated
# on one processor; no GPU is needed. A number after `≈` may differ on yours. You can skip the folded cells:
# *Scaffolding* draws, and *Check* tests what the text claims.

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
# ## What a user costs
#
# The weights of a model are loaded once and serve every user. The cache is different. Each user has a cache
# of her own, with a key and a value for every token, every layer and every head of keys:
#
# $$2 \cdot \text{layers} \cdot \text{heads of keys} \cdot d_k \cdot \text{bytes per number}$$
#
# bytes for each token. The sizes of Llama 3 8B are public (Grattafiori et al., 2024): 32 layers, 32 heads of
# queries, 8 heads of keys and values ([grouped queries](17_since_2017.ipynb)), $d_k = 128$, and two bytes a
# number.
#
# **Before you run this:** how large is the cache of one user with 8,192 tokens: 1 MB, 100 MB, or 1 GB?

# %%
layers, key_heads, d_k, bytes_each = 32, 8, 128, 2
token = 2 * layers * key_heads * d_k * bytes_each
print(f"{token:,} bytes a token; {8192 * token / 2**30:.0f} GiB for 8,192 tokens")
print(f"with a head of keys for each of the 32 heads: {32 // key_heads * 8192 * token / 2**30:.0f} GiB")
free = 80e9 - 8e9 * bytes_each  # a GPU with 80 GB, without the 8 billion weights
users = free // (8192 * token)
print(f"an 80 GB GPU has room for {users:.0f} such users")

# %% tags=["check"]
assert token == 131_072
assert 8192 * token == 2**30
assert users == 59

# %% [markdown]
# So memory decides how many users share the weights. What does that do for speed? Decoding is limited by
# fetching ([15](15_going_fast.ipynb)): in every step, each weight and each cached key and value is fetched
# once. The weights, 16 GB, are fetched for all users together. The caches are not.
#
# **Before you run this:** a GPU fetches at most 3.35 TB a second. By what factor does the number of tokens
# per second grow from one user to 59?


# %%
def tokens_per_second(users):
    fetched = 8e9 * bytes_each + users * 8192 * token  # bytes in a step, in which each user gets a token
    return users * 3.35e12 / fetched


for count in (1, 2, 15, 59):
    caches = count * 8192 * token
    share = caches / (8e9 * bytes_each + caches)
    speed = tokens_per_second(count)
    print(f"{count:2} users: {speed:5,.0f} tokens a second; caches are {share:.0%} of the traffic")

# %% tags=["check"]
assert 12 < tokens_per_second(59) / tokens_per_second(1) < 13
assert tokens_per_second(2) > 1.8 * tokens_per_second(1)

# %% tags=["figure-users", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
counts = range(1, 60)
fig, ax = plt.subplots(figsize=(8, 3.8))
ax.plot(counts, [tokens_per_second(n) for n in counts], label="each with a cache of 1 GiB")
ax.plot(counts, [tokens_per_second(1) * n for n in counts], "--", color="0.5", label="if caches were free")
ax.set(xlabel="users", ylabel="tokens a second, all users together", ylim=(0, 5000))
ax.set_title("The weights are shared, the caches are not")
ax.legend()
plt.show()

# %% [markdown]
# *Figure 1. What the traffic from memory allows. A second user is almost free. With 15 users, half of the
# traffic is caches, and more users hardly raise the number of tokens.*
#
# From one user to 59, the number of tokens per second grows about 13 times, and not 59 times. A smaller cache
# therefore helps twice: more users fit, and each costs less to fetch.
#
# **Remember:** weights are shared by all users. Caches are not, neither in memory nor in traffic.

# %% [markdown]
# ## A single user: speculative decoding
#
# A single user leaves the arithmetic idle: 16 GB of weights are fetched for one row of work, and a few rows
# more would cost next to nothing. But the next token must be known before the one after it can be computed.
# So let a small model guess. In **speculative decoding** (Leviathan et al., 2023), it *drafts* $k$ tokens,
# one after the other. The large model then reads all of them in a single pass, as it reads a prompt, and so
# has its own probabilities at every place. Which drafts may stay, if the text is to be distributed exactly as
# if the large model had written it alone?
#
# **The rule.** The draft $x$ was drawn with probability $q(x)$; the large model would have drawn it with
# $p(x)$. Accept it with probability $\min(1, p(x)/q(x))$. At the first refusal, draw a token from
# $\max(0, p - q)$, divided by its sum, and throw the later drafts away.
#
# **The proof.** Token $x$ is drafted and accepted with probability
# $q(x) \min(1, p(x)/q(x)) = \min(p(x), q(x))$. The probability of a refusal is
# $1 - \sum \min(p, q) = \sum \max(0, p - q)$, the very sum that we divide by, so a refusal followed by $x$
# has probability $\max(0, p(x) - q(x))$. Together, $\min(p, q) + \max(0, p - q) = p$.
#
# **Before you run this:** the small model likes the wrong one of four words best. What share of its drafts
# will be accepted?

# %%
import torch

torch.set_num_threads(1)
_ = torch.manual_seed(0)
p, q = torch.tensor([0.50, 0.30, 0.15, 0.05]), torch.tensor([0.30, 0.50, 0.10, 0.10])
drafts = q.multinomial(100_000, replacement=True)
accepted = torch.rand(100_000) < (p / q)[drafts]
others = (p - q).clamp(min=0).multinomial(100_000, replacement=True)  # divides by the sum itself
written = torch.where(accepted, drafts, others)
print("the large model's p:", *(f"{share:.2f}" for share in p))
print("what was written:  ≈", *(f"{share:.2f}" for share in written.bincount() / 100_000))
print(f"accepted: ≈{accepted.float().mean():.0%}; the sum of min(p, q) is {torch.minimum(p, q).sum():.0%}")

# %% tags=["check"]
assert (written.bincount() / 100_000 - p).abs().max() < 0.006
assert abs(accepted.float().mean() - 0.75) < 0.006

# %% [markdown]
# How much faster is it? Say that each draft is accepted with probability $a$, whatever came before. The first
# draft is kept with probability $a$, the second with $a^2$, and so on, and one token comes from the large
# model in any case: the replacement, or the next token if all drafts were accepted. So a pass brings
#
# $$1 + a + a^2 + \dots + a^k = \frac{1 - a^{k+1}}{1 - a} \quad\text{tokens, and the speed-up is}\quad
# \frac{1 - a^{k+1}}{(1 - a)(1 + k c)}$$
#
# if a draft costs $c$ times as much as a pass of the large model.

# %% tags=["figure-speculation", "scaffold"]
fig, ax = plt.subplots(figsize=(8, 4))
for a, c, style in ((0.85, 0.05, "o-"), (0.75, 0.05, "s-"), (0.75, 0.3, "s--")):
    speedups = [(1 - a ** (k + 1)) / (1 - a) / (1 + k * c) for k in range(13)]
    (line,) = ax.plot(range(13), speedups, style, ms=5)
    best = max(range(13), key=speedups.__getitem__)
    ax.plot(best, speedups[best], "o", ms=13, mfc="none", color=line.get_color())
    told = f"a = {a:.2f}, c = {c:.2f}"
    ax.annotate(
        told, (12, speedups[12]), (8, 0), textcoords="offset points", va="center", color=line.get_color()
    )
ax.axhline(1, color="0.5", lw=1)
ax.set(xlim=(-0.3, 15.2), xticks=range(0, 13, 2), xlabel="drafts k", ylabel="times as fast")
ax.set_title("Speculative decoding for a single user")
plt.show()

# %% [markdown]
# *Figure 2. The share a of accepted drafts, and the cost c of one. Each curve has its best number of drafts
# (circle): with more, most are thrown away. Below the gray line, drafting makes it slower.*
#
# The formula takes for granted that the large model checks $k$ drafts in the time of one token. That is so
# for a single user. With a full batch the arithmetic is busy already, every refused draft is work done in
# vain, and the gain is gone.
#
# **Remember:** accept a draft with probability $\min(1, p/q)$; otherwise draw from the part by which $p$
# exceeds $q$. The text is distributed exactly as the large model's, and drafting pays where a pass waits for
# memory.

# %% [markdown]
# ## Pages
#
# When a question arrives, nobody knows how long the answer will be. A simple server therefore reserves the
# longest cache that it allows. Let us see what that costs. Our questions have 20 to 400 tokens; most answers
# are short, a few are long, and none is longer than 1,600 tokens.

# %%
import random

draw = random.Random(0)
LONGEST, SLOTS = 2000, 20_000  # tokens a request may have, tokens that the memory has room for
requests = [(draw.randint(20, 400), min(1600, 1 + int(draw.expovariate(1 / 200)))) for _ in range(2000)]
lengths = [question + answer for question, answer in requests]
print(f"mean length {sum(lengths) / len(lengths):.0f} tokens; room reserved for each: {LONGEST}")
print(f"{SLOTS // LONGEST} users at once, and {sum(lengths) / len(lengths) / LONGEST:.0%} of the memory used")

# %% tags=["check"]
assert 350 < sum(lengths) / len(lengths) < 450
assert max(lengths) <= LONGEST

# %% [markdown]
# Operating systems solved this problem in the 1960s. Memory is cut into small **pages**. A program gets a
# page when it needs one, from anywhere, and a table says which page comes after which. *PagedAttention* (Kwon
# et al., 2023) does this with the cache: a page holds the keys and values of, say, 16 tokens. Attention does
# not care where its keys lie, as long as the table finds them. This is the bookkeeping:


# %%
class Pages:
    """Room for the keys and values of many users, handed out in pages."""

    def __init__(self, slots, size=16):
        self.size, self.free, self.tables = size, list(range(slots // size)), {}

    def add_token(self, user, position):  # False: there is no room
        table = self.tables.setdefault(user, [])
        if position == len(table) * self.size:  # the last page is full
            if not self.free:
                return False
            table.append(self.free.pop())
        return True

    def slot(self, user, position):  # where this token's keys and values lie
        return self.tables[user][position // self.size] * self.size + position % self.size

    def leave(self, user):
        self.free += self.tables.pop(user)


# %%
pages = Pages(SLOTS)
for user in ("Ann", "Bob"):
    for position in range(20):
        pages.add_token(user, position)
pages.add_token("Ann", 20)
print("Ann's pages:", pages.tables["Ann"], "  Bob's:", pages.tables["Bob"])
print("Ann's token 17 lies in slot", pages.slot("Ann", 17))

# %% tags=["check"]
everywhere = [pages.slot("Ann", i) for i in range(21)] + [pages.slot("Bob", i) for i in range(20)]
assert len(set(everywhere)) == 41
pages.leave("Bob")
assert len(pages.free) == SLOTS // 16 - 2

# %% [markdown]
# How many users fit now? We take requests of the list above, each at a random moment of its life, until the
# memory is full. At any moment a server holds more long answers than short ones, because the long ones stay
# longer, so we draw them accordingly.


# %%
def users_that_fit(pages, requests, draw):
    """Let users in until the memory is full; return how many, and the share of the slots that hold tokens."""
    held = 0
    for user, (question, answer) in enumerate(requests):
        now = question + draw.randrange(answer)
        if not all(pages.add_token(user, position) for position in range(now)):
            break
        held += now
    return user, held / SLOTS


draw = random.Random(1)
present = draw.choices(
    requests, weights=[answer for _, answer in requests], k=2000
)  # the long ones stay longer
for size in (16, 256):
    users, used = users_that_fit(Pages(SLOTS, size), present, random.Random(1))
    print(f"pages of {size:3} tokens: {users} users at once, {used:.0%} of the memory holds tokens")

# %% tags=["check"]
fits = {size: users_that_fit(Pages(SLOTS, size), present, random.Random(1)) for size in (16, 256)}
assert fits[16][0] > 3 * (SLOTS // LONGEST)
assert fits[16][1] > 0.9 > 0.85 > fits[256][1]

# %% [markdown]
# Only the last page of each user has empty slots. (This is one moment, with no room left. A real server must
# expect that the users' answers grow until the memory overflows. It then stops a request, forgets its cache,
# and computes it again later.)
#
# **Remember:** a paged cache reserves what a request has, not what it might need.

# %% [markdown]
# ## Shared beginnings
#
# Many requests begin alike: with the same instructions, the same document, the same examples. With a causal
# mask, the keys and values of a token depend on the token itself and on those *before* it, and on nothing
# that follows. So equal beginnings have equal caches, and a page can serve all of them. A page may be shared
# if it is full, and if **everything up to its end** is the same. Its name can therefore be the whole
# beginning:


# %%
def pages_stored(prompts, size=16):
    """How many pages the prompts take when equal beginnings are stored once."""
    shared, own = set(), 0
    for tokens in prompts:
        full = len(tokens) // size
        shared |= {tuple(tokens[: (i + 1) * size]) for i in range(full)}
        own += len(tokens) % size > 0  # the last page, which its owner still writes into
    return len(shared) + own


draw = random.Random(2)
instructions = [draw.randrange(50_000) for _ in range(300)]
prompts = [instructions + [draw.randrange(50_000) for _ in range(draw.randint(20, 100))] for _ in range(50)]
alone = sum(-(-len(tokens) // 16) for tokens in prompts)
print(f"50 prompts with the same 300 first tokens: {alone} pages alone, {pages_stored(prompts)} shared")

# %% tags=["check"]
assert pages_stored(prompts) == alone - 49 * (300 // 16)
assert pages_stored([[1] * 16 + [2] * 16, [3] * 16 + [2] * 16]) == 4  # an equal page after another beginning

# %% [markdown]
# Time is saved, too: the shared part is computed once. For the same reason, it pays to put the long, fixed
# part of a prompt at the beginning and the part that changes at the end.
#
# **Remember:** with a causal mask, equal beginnings have equal caches, so they are computed and stored once.

# %% [markdown]
# ## Continuous batching
#
# Answers have different lengths. If a batch is kept together until its longest answer is finished, most rows
# are idle most of the time. If a waiting request takes a row as soon as it becomes free, the rows stay busy.
# This is *continuous batching* (Yu et al., 2022, who call it iteration-level scheduling).
#
# **Before you run this:** forty answers are written in eight rows. How many steps does each way take? In each
# step, every row writes one token.


# %%
def schedule(answers, rows, refill):
    """When each answer runs: a list of (row, first step, length), and the number of steps."""
    free_at, plan = [0] * rows, []
    for i, length in enumerate(answers):
        if not refill and i % rows == 0:
            free_at = [max(free_at)] * rows  # all wait for the longest
        row = free_at.index(min(free_at))
        plan.append((row, free_at[row], length))
        free_at[row] += length
    return plan, max(free_at)


answers = [answer for _, answer in requests[:40]]
plans = {name: schedule(answers, 8, name == "continuous") for name in ("static", "continuous")}
for name, (_, steps) in plans.items():
    print(f"{name:10} {steps:5,} steps, {sum(answers) / (8 * steps):.0%} of the rows busy")

# %% tags=["check"]
assert plans["continuous"][1] < 0.7 * plans["static"][1]
assert all(sum(length for _, _, length in plan) == sum(answers) for plan, _ in plans.values())

# %% tags=["figure-batching", "scaffold"]
figure, both = plt.subplots(2, 1, figsize=(8, 5), sharex=True)
for ax, (name, (plan, steps)) in zip(both, plans.items(), strict=True):
    for row, first, length in plan:
        ax.barh(row, length, left=first, height=0.8, color="#0072b2", edgecolor="white")
    ax.axvline(steps, color="black", linestyle="--")
    ax.set(title=f"{name}: {steps:,} steps", ylabel="row of the batch", yticks=range(8))
    ax.invert_yaxis()
both[1].set_xlabel("step")
plt.show()

# %% [markdown]
# *Figure 3. Forty answers in eight rows; each bar is one answer. Above, a batch waits for its longest answer
# before the next one starts. Below, each row takes the next answer at once.*
#
# One problem is left. When a new request enters, its whole question has to be read (*prefill*), which is
# hundreds of rows of work in a step where the others have one row each. Their answers stutter. So servers cut
# a long question into pieces and add one piece to each step (*chunked prefill*), or let other GPUs read the
# questions and send the caches over.
#
# **Remember:** continuous batching refills each row at once; nobody waits for the longest answer.

# %% [markdown]
# ## Data parallelism
#
# > "We trained our models on one machine with 8 NVIDIA P100 GPUs." (section 5.2)
#
# In **data parallelism**, every GPU holds the whole model and takes a part of the batch. All GPUs compute
# their gradients at the same time. Then the gradients are added up over all GPUs (an **all-reduce**), and
# every GPU makes the same update.
#
# ![A batch is cut into three parts; each GPU runs the whole model on its part; the gradients and the counts
# of tokens are added, and the sum is divided by all tokens](../images/data_parallelism.svg)
#
# *Figure 4. Data parallelism. The loss of each part is a sum, and the division by all tokens comes last.*
#
# One detail is easy to get wrong: the loss is a mean over tokens, and the parts have different numbers of
# tokens.
#
# **Before you run this:** one GPU has short sentences, and another has long ones. Each divides its
# gradient by its own number of tokens, and then the two gradients are averaged. Is the result the
# gradient of the mean loss over the whole batch?

# %%
from annotated import Batch, LabelSmoothing, make_model

tiny = make_model(60, 60, N=1, d_model=32, d_ff=64, h=4, dropout=0.0).double()
criterion = LabelSmoothing(60, padding_idx=2, smoothing=0.1)
_ = torch.manual_seed(0)
src, tgt = torch.randint(4, 60, (2, 8, 9))
tgt[:4, 4:] = 2  # the first four targets are short
whole, parts = Batch(src, tgt, pad=2), [Batch(src[:4], tgt[:4], pad=2), Batch(src[4:], tgt[4:], pad=2)]


def gradient(batch):
    """The gradient of the summed loss, all parameters in a row."""
    states = tiny(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    loss = criterion(tiny.generator(states).flatten(0, 1), batch.tgt_y.flatten())
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(tiny.parameters()))])


wanted = gradient(whole) / whole.ntokens
sums, counts = [gradient(part) for part in parts], [int(part.ntokens) for part in parts]
mean_of_means = (sums[0] / counts[0] + sums[1] / counts[1]) / 2
divided_last = (sums[0] + sums[1]) / (counts[0] + counts[1])
for name, each in (("mean of the means", mean_of_means), ("divided last", divided_last)):
    print(f"{name:18} off by ≈{(each - wanted).norm() / wanted.norm():.0%}")

# %% tags=["check"]
assert counts == [12, 32]
assert (mean_of_means - wanted).norm() > 0.1 * wanted.norm()
torch.testing.assert_close(divided_last, wanted)

# %% [markdown]
# No, the mean of the means is wrong, and nothing crashed. The first part has 12 tokens and the second has 32,
# so a token of the first part counted more than twice as much. The remedy is simple, because the gradient of
# a sum is the sum of the gradients. Each GPU computes the gradient of its *summed* loss. The all-reduce adds
# the gradients and the token counts, and the division comes last.
#
# The same rule holds for *gradient accumulation* ([09](09_first_example.ipynb), exercise 2), in which one GPU
# processes the parts one after another. The mistake is old and common: the most widely used library for
# Transformers made it in gradient accumulation until October 2024 (Hugging Face `transformers`, pull request
# 34191). This package's `Trainer` divides last, and `annotated train --help` says how to start it on several
# GPUs.
#
# **Remember:** add the gradients and the token counts over all GPUs, and divide last.

# %% [markdown]
# ## When the model does not fit: sharding
#
# Data parallelism keeps everything on every GPU. In training with Adam and mixed precision, that is more than
# the weights: two bytes for each weight in 16 bits, two for its gradient, and twelve for what the optimizer
# keeps in float32, which is the weight itself and Adam's two means, of the gradient and of its square.
# Rajbhandari et al. (2020) counted these 16 bytes and asked why every GPU should hold the same ones.
#
# In **sharded data parallelism** (ZeRO; in PyTorch `fully_shard`), each GPU keeps only its share of all 16
# bytes. Before a layer is computed, the GPUs collect its weights from each other (*all-gather*), and forget
# them afterwards. In the backward pass, each GPU receives only the sum of its share of the gradients
# (*reduce-scatter*).

# %%
for name, weights in (("base model, 2017", 63e6), ("8 billion", 8e9), ("70 billion", 70e9)):
    whole = 16 * weights / 1e9
    print(f"{name:17} {whole:7,.0f} GB on each GPU, or {whole / 64:6.2f} GB on each of 64 GPUs")

# %% [markdown]
# The price is traffic. An all-reduce is itself made of two parts: a reduce-scatter, after which each GPU has
# its share of the sum, and an all-gather, which gives every GPU all shares. So data parallelism sends as much
# as two passes of the gradients. With sharding, the weights are gathered twice, for the forward and for the
# backward pass, and the gradients are scattered once. That makes three passes instead of two, or 1.5 times
# the traffic. If a layer takes longer to compute than the next layer takes to arrive, the traffic hides
# behind the arithmetic.
#
# **Remember:** sharding keeps a part of weights, gradients and Adam's means on each GPU, and fetches a
# layer's weights when it needs them.

# %% [markdown]
# ## What the backward pass needs: activations
#
# The 16 bytes are not all. The backward pass needs numbers that the forward pass computed, such as the inputs
# of each matrix product, and these grow with the *tokens*. How many are they? We ask a pre-norm layer with
# the paper's proportions, whose fused attention ([15](15_going_fast.ipynb)) keeps no table of attention
# weights. The folded function `numbers_kept` counts what autograd keeps.
#
# The remedy is **recomputation** (activation checkpointing): keep only the input of each layer, and run the
# layer forward once more when the backward pass gets there.


# %% tags=["scaffold"]
def numbers_kept(run, layer, d_model=256, tokens=128):
    """How many numbers autograd keeps, as a multiple of d_model for each token."""
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    held = {}

    def hold(x):
        if x.untyped_storage().data_ptr() not in weights:
            held[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() / 4
        return x

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        run(torch.randn(1, tokens, d_model, requires_grad=True))
    return sum(held.values()) / tokens / d_model


# %%
from torch.utils.checkpoint import checkpoint

layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True, norm_first=True)
everything = numbers_kept(layer, layer)
inputs_only = numbers_kept(lambda x: checkpoint(layer, x, use_reentrant=False), layer)
print(
    f"numbers for each token and layer: {everything:.1f} · d_model, or {inputs_only:.1f} with recomputation"
)
for way, kept in (("all", 12), ("recomputed", 1)):
    size = kept * 4096 * 32 * 2 * 8192  # d_model, layers, bytes, tokens
    print(f"{way:10} {size / 1e9:5.1f} GB for 8,192 tokens, 32 layers of width 4,096, two bytes a number")

# %% tags=["check"]
assert round(everything) == 12
assert inputs_only == 1

# %% [markdown]
# Twelve times $d_{model}$: two inputs of norms and their two outputs, queries, keys and values (3),
# attention's output (1), and the hidden numbers of the network (4). The price of recomputation is one more
# forward pass, two operations for each weight and token. So a step takes 8 instead of the 6 of
# [15](15_going_fast.ipynb), a third more. In practice one recomputes only what is large and cheap to compute.
# FlashAttention does that with the attention weights ([14](14_attention_in_pytorch.ipynb)).
#
# **Remember:** weights cost 16 bytes each, and activations, in a layer such as ours, about $12\, d_{model}$
# numbers for each token and layer. Recomputation keeps one twelfth, for a third more arithmetic.

# %% [markdown]
# ## Splitting a layer: tensor parallelism
#
# A layer itself can be cut, too. **Tensor parallelism** (Shoeybi et al., 2019) cuts the feed-forward network
# of equation 2 so that two GPUs need to talk only once. The first matrix is cut by *columns*: each GPU
# computes half of the hidden numbers and applies ReLU to them. The second matrix is cut by *rows*, so each
# GPU multiplies the half that it has. What the two compute has to be added, and that is the one all-reduce.
#
# **Before you run this:** could we cut the first matrix by rows instead, and add before the ReLU? What more
# would we have to send?

# %%
_ = torch.manual_seed(0)
x, w_1, w_2 = torch.randn(5, 16).double(), torch.randn(16, 64).double(), torch.randn(64, 16).double()
halves = [(x @ w_1[:, part]).relu() @ w_2[part] for part in (slice(0, 32), slice(32, 64))]  # one a GPU
same = torch.allclose(halves[0] + halves[1], (x @ w_1).relu() @ w_2)
print("two halves, added at the end:", same)

# %% tags=["check"]
assert same
parts = [x[:, :8] @ w_1[:8], x[:, 8:] @ w_1[8:]]
assert not torch.allclose(parts[0].relu() + parts[1].relu(), (x @ w_1).relu())  # a sum inside a ReLU

# %% [markdown]
# We could, but the ReLU of a sum is not the sum of the ReLUs, so the GPUs would have to add up the 64 hidden
# numbers of each token before the ReLU. They would then have to add up the outputs of the second matrix as
# well.
#
# For attention the cut is even simpler, and the paper made it possible: the *heads* are independent. Each GPU
# takes some of the heads with their columns of $W^Q$, $W^K$, $W^V$ and their rows of $W^O$, and the results
# are added. So a layer needs two additions over the GPUs in the forward pass. Everything that follows has to
# wait for them, which is why tensor parallelism is used between GPUs with very fast connections.
#
# **Remember:** cut the first matrix by columns and the second by rows, or cut by heads; add once at the end.

# %% [markdown]
# ## Splitting the stack: pipelines
#
# In **pipeline parallelism** (Huang et al., 2019), each GPU holds some of the layers and hands its output to
# the next GPU. Very little is sent: one vector for each token. But while the first GPU works, the last one
# has nothing to do. So the batch is cut into *microbatches* that follow each other. With $p$ GPUs and $m$
# microbatches, the share of the time that is lost is
#
# $$\frac{p - 1}{m + p - 1}$$
#
# It takes $p - 1$ steps to fill the pipeline. The folded cell draws the forward pass.

# %% tags=["figure-pipeline", "scaffold"]
figure, both = plt.subplots(2, 1, figsize=(8, 4.4), sharex=True)
for ax, m in zip(both, (1, 8), strict=True):
    length = 8 / m  # a microbatch is smaller, so it takes less time
    for gpu in range(4):
        for n in range(m):
            ax.barh(gpu, length, left=(gpu + n) * length, height=0.8, color="#0072b2", edgecolor="white")
    ends, bubble = (4 + m - 1) * length, 3 / (m + 3)
    ax.axvline(ends, color="black", linestyle="--")
    ax.set(
        title=f"{m} microbatch{'es' * (m > 1)}: {bubble:.0%} of the time is lost",
        ylabel="GPU",
        yticks=range(4),
    )
    ax.invert_yaxis()
both[1].set_xlabel("time")
plt.show()

# %% [markdown]
# *Figure 5. Four GPUs with a quarter of the layers each. Above, the batch goes through as a whole, and three
# GPUs wait at any time. Below, it is cut into eight parts that follow each other.*
#
# **Remember:** with more microbatches, a pipeline wastes a smaller share of the time:
# $(p - 1) / (m + p - 1)$.

# %% tags=["check"]
assert [3 / (m + 3) for m in (1, 8)] == [0.75, 3 / 11]

# %% [markdown]
# ## Splitting the text, splitting the experts
#
# Two more things can be cut. If a *text* is too long for one GPU, each GPU takes a piece of it (**context
# parallelism**). Norms, networks and all four projections treat each token by itself, so they need nothing
# from elsewhere. Only attention does: a query must meet all earlier keys. In *ring attention* (Liu et al.,
# 2023), the pieces of keys and values travel around a ring of GPUs, and each GPU combines what passes by with
# the running softmax ([15](15_going_fast.ipynb), exercise 2). The alternative is to trade. Before attention,
# each of eight GPUs holds all heads of an eighth of the tokens; after the trade, it holds all tokens of an
# eighth of the heads (Jacobs et al., 2023).
#
# A *mixture of experts* ([19](19_a_model_of_today.ipynb)) has many networks, the *experts*, in the place of
# one, and a *router* that chooses a few of them for each token. Each GPU can hold some of the experts
# (**expert parallelism**). The tokens travel: each vector is sent to the GPUs of its experts, and the results
# are sent back, so that every GPU sends something to every other (*all-to-all*), twice a layer.
#
# **Before you run this:** 131,072 tokens are spread over eight GPUs. What sends more in a layer: the ring, or
# tensor parallelism?

# %%
tokens, gpus, width = 131_072, 8, 4096  # the sizes of Llama 3 8B, two bytes a number
ring = (gpus - 1) * tokens // gpus * 2 * key_heads * d_k * bytes_each  # seven pieces pass through each GPU
tensor = 2 * 2 * (gpus - 1) * tokens * width * bytes_each // gpus  # two all-reduces of two passes
print(f"each GPU sends in a layer: ring {ring / 1e6:,.0f} MB, tensor parallelism {tensor / 1e6:,.0f} MB")
expert = 2 * 8 * 7168 * bytes_each  # DeepSeek-V3: to 8 experts and back, vectors of 7,168 numbers
print(f"DeepSeek-V3: {expert / 1e3:.0f} KB a token and layer, {58 * expert / 1e6:.0f} MB in 58 such layers")

# %% tags=["check"]
assert ring == 7 * 2**14 * 4096
assert tensor == 8 * ring
assert expert == 229_376

# %% [markdown]
# The ring sends an eighth, because grouped queries have made keys and values small, and it computes while it
# sends. (With a causal mask, the GPU with the end of the text has the most to do. So each GPU gets one early
# and one late piece.) Experts cause much traffic for every token, which is why DeepSeek-V3's router first
# chooses four of eight groups of experts, and takes a token's eight experts from these.
#
# Large training runs combine several of these. Dense models often have tensor parallelism within a machine,
# pipelines or sharding between machines, and data parallelism over all. DeepSeek-V3 (2024) was trained with
# pipelines, expert parallelism and sharded optimizer states, and without tensor parallelism.
#
# | | what is split | what is sent in a step | its price |
# |---|---|---|---|
# | data | the batch | all gradients, twice | every GPU holds everything |
# | sharded | batch, weights, gradients, Adam's means | weights twice, gradients once | 1.5 times that |
# | tensor | each matrix | two sums of vectors a layer, forward | needs fast connections |
# | pipeline | the stack of layers | one vector a token between neighbors | idle GPUs at both ends |
# | context | the text | keys and values, around a ring | every GPU holds all weights |
# | expert | the experts | each vector to its experts and back | busy experts make the others wait |
#
# **Remember:** splitting the text sends keys and values; splitting the experts sends the tokens.

# %% [markdown]
# ## What you can now say
#
# - A user's cache takes 2 · layers · heads of keys · $d_k$ numbers per token. Pages and shared beginnings
#   decide how many users fit, and continuous batching keeps the rows busy. A single user is served faster
#   with drafts, which change nothing in what is written.
# - Data parallelism sends gradients, and divides their sum by all tokens last.
# - When a model does not fit, its state is sharded, its matrices are cut, or its layers, its text or its
#   experts are spread over GPUs; each method sends something different.
#
# **Deeper:** [How fast could it be?](evidence/how_fast_could_it_be.ipynb)
#
# **Next:** the code of a current model, line by line, in [19_a_model_of_today](19_a_model_of_today.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** A GPU of 80 GB holds a model of 8 billion weights in 16 bits; its cache takes
# 131,072 bytes a token. Now the weights are stored in 4 bits and the cache in 8. How many users with 8,192
# tokens fit, and how many times as many as before?

# %% tags=["solution"]
room = 80e9 - 8e9 / 2  # half a byte a weight
more_users = room // (8192 * 131_072 / 2)
print(f"{more_users:.0f} users, {more_users / 59:.1f} times as many as 59")
assert more_users == 141

# %% [markdown]
# **Exercise 2 (medium).** Build. A scheduler needs to know how much work a shared beginning saves. Write
# `tokens_to_compute`: prompts arrive one after the other, and full pages of earlier prompts may be reused.
# For how many tokens do keys and values have to be computed in all?


# %% tags=["exercise"]
def tokens_to_compute(prompts, size):
    """Lists of tokens -> how many tokens are computed when full pages of equal beginnings are reused."""
    raise NotImplementedError


# %% tags=["exercise-test"]
def test_tokens_to_compute(tokens_to_compute):
    abc = list(range(12))
    for prompts, right, why in (
        ([abc], 12, "one prompt: all 12 tokens are new"),
        ([abc, abc], 12, "the same prompt again, three full pages: nothing is new"),
        (
            [abc[:10], abc[:10]],
            12,
            "10 tokens twice: the two on the page that is not full are computed again",
        ),
        ([abc, [99, *abc[1:]]], 24, "another first token: all later keys differ, so all 12 are new"),
        ([abc, [*abc[:5], 99, *abc[6:]]], 20, "a difference in the second page: the first page is reused"),
        ([abc[:4], abc, abc], 12, "a longer prompt reuses the page and adds two that the third reuses"),
    ):
        given = tokens_to_compute(prompts, 4)
        assert given == right, f"pages of 4 tokens, {why}: {right} in all, not {given}"


try:
    test_tokens_to_compute(tokens_to_compute)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(prompts, size):
    """Lists of tokens -> how many tokens are computed when full pages of equal beginnings are reused."""
    known, computed = set(), 0
    for tokens in prompts:
        ends = range(size, len(tokens) + 1, size)  # where full pages end
        beginnings = [tuple(tokens[:end]) for end in ends]
        computed += len(tokens) - size * sum(beginning in known for beginning in beginnings)
        known.update(beginnings)
    return computed


test_tokens_to_compute(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore. With continuous batching, the order of the waiting requests matters, too.
# Use `schedule` to find out what happens to the number of steps, and to the mean time until an answer is
# complete, when the shortest answers go first or the longest. Why can a server not simply do this?

# %% tags=["solution"]
orders = {"as they come": answers, "shortest first": sorted(answers), "longest first": sorted(answers)[::-1]}
complete = {}
for which, order in orders.items():
    timeline, total = schedule(order, 8, refill=True)
    complete[which] = sum(first + length for _, first, length in timeline) / len(timeline)
    print(f"{which:15} {total:5,} steps, an answer is complete after {complete[which]:.0f} on average")
assert complete["shortest first"] < complete["as they come"] < complete["longest first"]
# A server doesn't know how long an answer will be, and a long one must not wait forever.
