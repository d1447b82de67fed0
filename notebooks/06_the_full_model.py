# %% [markdown]
# # 06 · The full model
#
# **You run the whole Transformer in ten lines, and watch a translation take shape layer by layer. Then you
# find out why a layer adds to its input instead of replacing it, what the norm is for, and where the
# parameters are.**
#
# Previous: [05_positional_encoding](05_positional_encoding.ipynb) · Next:
# [07_batches_and_masks](07_batches_and_masks.ipynb)
#
# *26 minutes to read, half a minute to run.*
#
# - **Before:** you know attention and its masks ([02](02_attention.ipynb),
#   [03](03_multi_head_attention.ipynb)), the feed-forward network and embeddings
#   ([04](04_feed_forward_and_embeddings.ipynb)), and positions ([05](05_positional_encoding.ipynb)).
# - **After:** you can put these parts together, and you do so in the last exercise. You can say what the
#   residual connections and the norms are for.
#
# This lesson covers section 3.1 of the paper (Vaswani et al., 2017, [arXiv
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
# ## The whole model in ten lines
#
# Here is the translator that comes with the package. It has four layers on each side.

# %%
from annotated import load_pretrained

translator = load_pretrained("multi30k-en-de")
model, tokenizer = translator.model, translator.src_tokenizer
print(translator("A cat runs."))

# %% tags=["check"]
assert translator("A cat runs.") == "Eine Katze rennt."

# %% [markdown]
# What happens between the English sentence and the German one? You know all the parts. Now we connect them.
# The **encoder** turns the tokens into vectors, adds positions, and sends the vectors through its layers.
# What comes out at the end is called the **memory**:

# %%
import torch

from annotated import subsequent_mask

english = torch.tensor([[*tokenizer.encode("A cat runs."), tokenizer.end]])  # (1, 5)
german = torch.tensor([[tokenizer.start, *tokenizer.encode("Eine Katze rennt.")]])  # (1, 5)

with torch.no_grad():
    x = model.src_embed(english)  # embeddings and positions, (1, 5, 128)
    for layer in model.encoder.layers:
        x = layer(x, None)  # (1, 5, 128) again
    memory = x

# %% [markdown]
# The `None` stands for the source mask. One sentence alone has no padding, so it needs no mask.
#
# The **decoder** does the same with the German tokens, with two differences. A causal mask hides later
# tokens, and every layer also looks at the memory. At the end, the **generator** turns each vector into a
# log-probability for each token of the vocabulary. We also keep the vectors after every layer, so that we can
# look at them:

# %%
with torch.no_grad():
    y = model.tgt_embed(german)  # (1, 5, 128)
    stream = [y]
    for layer in model.decoder.layers:
        y = layer(y, memory, None, subsequent_mask(5))  # (1, 5, 128) again
        stream.append(y)
    log_probs = model.generator(y)  # (1, 5, 10000)
print("decoder reads ", *tokenizer.pieces(german[0].tolist()))
print("and predicts  ", *tokenizer.pieces(log_probs[0].argmax(dim=-1).tolist()))

# %% tags=["check"]
from annotated import evaluating

with evaluating(model):
    theirs = model.generator(model(english, german, None, subsequent_mask(5)))
assert torch.allclose(log_probs, theirs, atol=1e-5)
wanted = [*german[0, 1:].tolist(), tokenizer.end]
assert log_probs[0].argmax(dim=-1).tolist() == wanted

# %% [markdown]
# That is the whole Transformer. It reads `<s> Eine Katze rennt .`, and at each position it predicts the next
# token. You built the same model in [00](00_start_here.ipynb). For some parts, the package uses different
# names, taken from "The Annotated Transformer":
#
# | in 00 | in the package |
# | --- | --- |
# | `model(...)` and `decode` return log-probabilities | they return vectors; you call `model.generator` |
# | `causal_mask` | `subsequent_mask` |
# | `AddNorm` gets the output of a sub-layer | `SublayerConnection` gets the sub-layer, and calls it |
# | `FeedForward` | `PositionwiseFeedForward` |
#
# **Before you run this:** we now give the generator the *earlier* vectors, too, from the embeddings up to
# the output of the third layer. The generator was never trained on them. What will it say about the vectors
# that *enter* the decoder?

# %%
for depth, states in enumerate(stream):
    with torch.no_grad():
        likeliest = model.generator(states)[0].argmax(dim=-1).tolist()
    print(f"layers: {depth}  " + "".join(f"{piece:14}" for piece in tokenizer.pieces(likeliest)))

# %% tags=["check"]
with torch.no_grad():
    guesses = [model.generator(states)[0].argmax(dim=-1).tolist() for states in stream]
assert guesses[0][1:] == german[0, 1:].tolist()
assert guesses[-1] == wanted
assert [tokenizer.pieces([row[2]])[0] for row in guesses[2:4]] == ["▁läuft", "▁rennt"]

# %% [markdown]
# Look at the third column of tokens, where the decoder reads *Katze*. At first, the generator's guess is
# *Katze* itself. After two layers it is *läuft*, which also means *runs*, and at the end it is the next word,
# *rennt*. Each layer changes the draft that the layer before it made.
#
# Some drafts are odd: *Gruppe* (group), *spazieren* (to stroll), and in the first column `</s>` and
# *angehalten* (stopped). At layer 0, most tokens are simply copied: the two tables of this model are one
# ([04](04_feed_forward_and_embeddings.ipynb)), so a vector that no layer has changed is usually closest to
# its own token. Besides, nothing in training asks the intermediate layers for good drafts. Training has
# tested the generator only on the last layer's vectors.
#
# The vectors on their way from the embedding to the generator are called the **residual stream**.
#
# **Remember:** every layer takes the stream of vectors and changes it, but keeps its shape.

# %% [markdown]
# ## One layer from the inside
#
# > "The encoder is composed of a stack of N = 6 identical layers. Each layer has two sub-layers. The first is
# > a multi-head self-attention mechanism, and the second is a simple, position-wise fully connected
# > feed-forward network." (section 3.1)
#
# *Identical* means identical in structure. Each layer still has weights of its own. Even if all layers
# started with the same weights, training would make them different, because each layer reads different
# vectors and gets a different gradient. Here is a layer of each kind, written out. A `norm` is a layer
# normalization, which we explain below.


# %%
def encoder_layer(layer, x, mask):
    """Self-attention, then the feed-forward network: (B, S, d_model) -> (B, S, d_model)."""
    norms = [connection.norm for connection in layer.sublayer]
    x = norms[0](x + layer.self_attn(x, x, x, mask))
    return norms[1](x + layer.feed_forward(x))


def decoder_layer(layer, y, memory, src_mask, tgt_mask):
    """The same with cross-attention in between: (B, T, d_model) -> (B, T, d_model)."""
    norms = [connection.norm for connection in layer.sublayer]
    y = norms[0](y + layer.self_attn(y, y, y, tgt_mask))
    y = norms[1](y + layer.src_attn(y, memory, memory, src_mask))  # keys and values: the encoder's
    return norms[2](y + layer.feed_forward(y))


# %%
with torch.no_grad():
    x, y = model.src_embed(english), model.tgt_embed(german)
    for layer in model.encoder.layers:
        x = encoder_layer(layer, x, None)
    for layer in model.decoder.layers:
        y = decoder_layer(layer, y, x, None, subsequent_mask(5))
print("predicts", *tokenizer.pieces(model.generator(y)[0].argmax(dim=-1).tolist()))

# %% tags=["check"]
from annotated import make_model

assert torch.allclose(y, stream[-1], atol=1e-5)
twins = make_model(10_000, 10_000, N=2, d_model=32, d_ff=64, h=4, dropout=0.0).encoder  # two equal layers
_ = twins.layers[1].load_state_dict(twins.layers[0].state_dict())
twins(torch.randn(1, 5, 32), None).square().sum().backward()
for lower, upper in zip(*(layer.parameters() for layer in twins.layers), strict=True):
    assert lower.grad is not None
    assert (lower.grad - upper.grad).abs().max() > 0.01 * upper.grad.abs().max()

# %% [markdown]
# The same tokens come out. In all four decoder layers, the second attention reads the *same* memory, which is
# the output of the last encoder layer. In training, the gradient reaches the encoder by the same four paths.
# Here is the whole model once more, with the shapes on the way:
#
# ![Top to bottom. Left, the encoder: embedding, plus positions, then N times self-attention and feed-forward,
# each added to the stream and normed. Right, the decoder: the same with masked self-attention,
# cross-attention, which takes keys and values from the memory, and feed-forward; then a linear map and the
# softmax](../images/architecture.svg)
#
# *Figure 1. The model, from top to bottom. Each sub-layer reads the stream, the gray line, and its result is
# added to the stream, whose shape never changes inside a stack. For our sentence, S and T are 5, d is 128,
# N is 4, and V is 10,000. The other numbers in the drawing are those of the paper's base model.*

# %% tags=["check"]
assert x.shape == y.shape == (1, 5, 128)
assert model.generator(y).shape == (1, 5, 10_000)
assert len(model.encoder.layers) == len(model.decoder.layers) == 4

# %% [markdown]
# ## Why add?
#
# In the code above, a sub-layer never replaces `x`. It computes something from `x`, and the result is
# *added* to `x`:
#
# > "We employ a residual connection around each of the two sub-layers, followed by layer normalization."
# > (section 3.1)
#
# You have seen this in numbers. In [00](00_start_here.ipynb), the vector of *cat* was (0.84, 1.74, 0.81,
# 0.60). Attention computed (−0.28, 0.05, 0.04, 0.30) from all three words, and the sum was (0.56, 1.79, 0.85,
# 0.90). It is still the vector of *cat*, but now it knows a little about the sentence.
#
# What would happen without the addition? We send one sentence through an untrained encoder as deep as the
# paper's: it has six layers, which makes twelve sub-layers. In the **bare** version, the output of each
# sub-layer replaces its input. In the **residual** version, the output is added to the input. Neither
# version has a norm.

# %%
from annotated import make_model

_ = torch.manual_seed(0)
untrained = make_model(10_000, 10_000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0)
sentence = torch.tensor([tokenizer.encode("A man throws a ball to a dog.")])


def looking_around(layer):
    """The layer's self-attention as a function of the words' vectors."""
    return lambda x: layer.self_attn(x, x, x)


sublayers = [
    part for layer in untrained.encoder.layers for part in (looking_around(layer), layer.feed_forward)
]


@torch.no_grad()
def through(step):
    """The vectors before the first sub-layer and after each one; `step(x, sublayer)` applies one."""
    states = [untrained.src_embed(sentence)]
    for sublayer in sublayers:
        states.append(step(states[-1], sublayer))
    return [x[0] for x in states]


# %% [markdown]
# To compare two words, we use the *cosine* of their vectors. It is 1 if both point the same way, and 0 if
# they have nothing in common. A second number tells how different the words are from one another: the
# distance of a word's vector from the mean of all the words' vectors, divided by the vector's own length and
# averaged over the words. We call it *apart*. At 0, all words have the same vector.
#
# **Before you run this:** attention takes weighted means. What happens to a group of vectors when each
# vector is replaced by a weighted mean of all of them, again and again?


# %%
def apart(x):
    """The words' distance from their mean, as a share of their length: (words, d_model) -> a number."""
    return ((x - x.mean(dim=0)).norm(dim=-1) / x.norm(dim=-1)).mean().item()


bare, residual = through(lambda x, sublayer: sublayer(x)), through(lambda x, sublayer: x + sublayer(x))
for name, states in (("bare", bare), ("residual", residual)):
    for count in (0, 3, 12):
        print(f"{name:8} after {count:2}: apart ≈{apart(states[count]):.2f}, size ≈{states[count].std():.2g}")

# %% tags=["check"]
assert apart(bare[3]) < 0.05
assert bare[12].std() < 0.01
assert apart(residual[3]) > 0.55
assert 0.2 < apart(residual[12]) < 0.4
assert residual[12].std() > 5 * residual[0].std()

# %% tags=["figure-alike", "scaffold"]
import matplotlib.pyplot as plt
import seaborn
from torch.nn import functional as F

from annotated.plots import as_words, setup_notebook

setup_notebook()
fig, axes = plt.subplots(2, 3, figsize=(10.5, 7), sharex=True, sharey=True)
for row, (name, states) in zip(axes, (("bare", bare), ("residual", residual)), strict=True):
    for ax, count in zip(row, (0, 3, 12), strict=True):
        unit = F.normalize(states[count], dim=-1)
        pieces = as_words(tokenizer.pieces(sentence[0].tolist()))
        seaborn.heatmap(
            unit @ unit.T,
            vmin=0,
            vmax=1,
            cmap="Blues",
            square=True,
            cbar=False,
            xticklabels=pieces,
            yticklabels=pieces,
            ax=ax,
        )
        ax.tick_params(length=0)
        ax.set_title(f"{name}, after {count} sub-layers", fontsize=13)
plt.show()

# %% [markdown]
# *Figure 2. The cosines of all pairs of words: white is 0, dark blue is 1. Top: after three bare sub-layers,
# the vectors of all words point the same way. Bottom: with residual connections, they stay different for
# longer. After twelve sub-layers they are much alike, too, but not the same.*

# %% [markdown]
# In the bare version, *apart* is 0.00 after three sub-layers, so a later layer can hardly tell *ball* from
# *dog*. This is called *rank collapse* (Dong et al., 2021). With the residual connection, each word keeps its
# own vector, and the output of attention is added to it. So the words become alike much more slowly: *apart*
# is ≈0.64 after three sub-layers, and ≈0.27 after twelve. The idea is older than the Transformer: residual
# connections made image networks of 152 layers trainable (He et al., 2016).
#
# But look at the size in the last line. It is the standard deviation of the vectors' entries, and it has
# grown from ≈1.2 to ≈8.8. A larger stream makes each sub-layer compute a larger vector, which is then added
# to the stream. So the stream grows like money at compound interest, and something has to limit it.
#
# **Remember:** a sub-layer adds to the stream instead of replacing it, so the words stay different for
# longer.

# %% [markdown]
# ## The norm, by hand
#
# **Layer normalization** (Ba et al., 2016) takes the vector of *one* word. It subtracts the mean $\mu$ of its
# entries and divides by their standard deviation $\sigma$:
#
# $$\mathrm{LayerNorm}(x) = g\odot\frac{x-\mu}{\sqrt{\sigma^2+\epsilon}} + b, \qquad
# \mu = \frac1d\sum_i x_i, \quad \sigma^2 = \frac1d\sum_i (x_i-\mu)^2$$
#
# The gain $g$ and the bias $b$ are learned. They start at 1 and 0, so at first they do nothing. The symbol
# $\odot$ means multiplication entry by entry. The small $\epsilon$ prevents a division by zero.
#
# In [00](00_start_here.ipynb), the vector of *a* was (−1.31, 0.85, −1.38, 0.52) after attention had been
# added. You can check the next lines with a pocket calculator:

# %%
x = torch.tensor([-1.31, 0.85, -1.38, 0.52])
mean = x.mean()  # -0.33
variance = ((x - mean) ** 2).mean()  # 1.04
print([f"{value:.2f}" for value in ((x - mean) / (variance + 1e-5).sqrt()).tolist()])

# %% tags=["check"]
by_hand = (x - mean) / (variance + 1e-5).sqrt()
assert torch.allclose(by_hand, torch.nn.LayerNorm(4)(x))
assert torch.allclose(by_hand, torch.tensor([-0.96, 1.15, -1.03, 0.83]), atol=0.01)
assert torch.allclose(torch.nn.LayerNorm(4)(10 * x + 5), by_hand, atol=1e-4)

# %% [markdown]
# These are the numbers that you saw in 00. If you multiply `x` by 10 or add 5 to all its entries, the
# result stays the same. The norm forgets the size and the level of a vector, and keeps its pattern.
#
# Why not *batch* normalization, the usual choice for images? In training, batch normalization takes the mean
# over all words of a batch. With it, a word's vector would depend on other sentences, on padding, and on
# later words, which the causal mask should hide. Layer normalization looks at one word alone.
#
# **Remember:** before gain and bias, the norm brings each word's vector to mean 0 and variance 1, whatever
# the other words are.

# %% [markdown]
# ## Before the sum or after it?
#
# > "That is, the output of each sub-layer is LayerNorm(x + Sublayer(x)) [...]." (section 3.1)
#
# The paper normalizes the *sum*, which is called **post-norm**. Most language models since GPT-2 instead
# normalize what *enters* the sub-layer, which is called **pre-norm**.
#
# ![Post-norm and pre-norm as blocks](../images/norm_orders.svg)
#
# *Figure 3. One encoder layer, built both ways. Follow the vertical line, the residual stream. In post-norm
# it passes through a norm after every sum. In pre-norm the norms stand on the side branches, and the only
# operation on the stream is addition.*
#
# The package has both. Its class `SublayerConnection` is what `AddNorm` was in 00. It also applies dropout,
# which is part of the training recipe ([08](08_training_recipe.ipynb)):

# %%
from annotated import SublayerConnection
from annotated.plots import show_source

show_source(SublayerConnection.forward, docstring=False)

# %% tags=["check"]
_ = torch.manual_seed(0)
post, pre = SublayerConnection(128, dropout=0.0), SublayerConnection(128, dropout=0.0, norm_first=True)
words, part = untrained.src_embed(sentence), untrained.encoder.layers[0].feed_forward
for connection in (post, pre):
    torch.nn.init.normal_(connection.norm.weight)  # a gain that is not 1 and a bias that is not 0
    torch.nn.init.normal_(connection.norm.bias)
assert torch.allclose(post(words, part), post.norm(words + part(words)))
assert torch.allclose(pre(words, part), words + part(pre.norm(words)))
assert SublayerConnection(128, 0.0).norm_first is False  # the default is the paper's

# %% [markdown]
# **Before you run this:** the stream starts with a size of about 1. How large will it be after twelve
# sub-layers with post-norm? And with pre-norm?

# %%
post_norm = through(lambda x, sublayer: F.layer_norm(x + sublayer(x), (128,)))
pre_norm = through(lambda x, sublayer: x + sublayer(F.layer_norm(x, (128,))))
for name, states in (("residual", residual), ("post-norm", post_norm), ("pre-norm", pre_norm)):
    sizes = ", ".join(f"≈{states[n].std():.2f}" for n in (0, 2, 4, 8, 12))
    print(f"{name:9} size after 0, 2, 4, 8, 12: {sizes}; apart after 12: ≈{apart(states[12]):.2f}")

# %% tags=["check"]
assert max(abs(x.std() - 1) for x in post_norm[1:]) < 0.01
assert 1.5 < pre_norm[12].std() < 3
assert pre_norm[12].std() > pre_norm[4].std() > pre_norm[0].std()
assert residual[12].std() > 3 * pre_norm[12].std()
assert abs(apart(post_norm[12]) - apart(residual[12])) < 0.1
assert apart(pre_norm[12]) > apart(post_norm[12]) + 0.15

# %% [markdown]
# Post-norm holds the size at 1. With pre-norm, the stream still grows, but slowly: every sub-layer reads an
# input of size 1, so each adds about the same amount, however large the stream has become.
# This is why a pre-norm stack needs one more norm after its last layer. A post-norm stack already ends
# with a norm.
#
# The paper's norm does *not* keep the words apart. With post-norm, they become about as alike as with no norm
# at all: *apart* falls to ≈0.23 (without a norm it was ≈0.27). With pre-norm it stays at ≈0.53, because each
# addition is small compared with the stream. Still, 0.23 is enough to begin with. As long as the words are
# not all the same, training can move them apart again. In our translator, which is post-norm, they are as
# different in the memory as they were at the start:

# %%
with torch.no_grad():
    trained = model.src_embed(sentence)
    print(f"trained, before the first layer: apart ≈{apart(trained[0]):.2f}")
    for layer in model.encoder.layers:
        trained = layer(trained, None)
print(f"trained, after eight sub-layers: apart ≈{apart(trained[0]):.2f}")

# %% tags=["check"]
assert apart(trained[0]) > 0.8
assert apart(post_norm[8]) < 0.5

# %% [markdown]
# Which is better, post-norm or pre-norm? Pre-norm works with far more layers (Wang et al.,
# [2019](https://arxiv.org/abs/1906.01787)), and it is easier to train (Xiong et al.,
# [2020](https://arxiv.org/abs/2002.04745)). It often needs no warm-up (a slow start; see
# [08](08_training_recipe.ipynb)). In the authors' own code, tensor2tensor, the base model of the paper is
# `transformer_base_v1`, with post-norm. The next set of hyperparameters, `transformer_base_v2`, uses
# pre-norm, and it became the default. A comment there says that pre-norm "seems better for harder-to-learn
# models" (`common_hparams.py`). The paper's models, and ours, are post-norm.
#
# *What does post-norm do to the gradients? In an untrained decoder of six layers, the gradient that reaches
# the beginning of the stream is only about a fifth of the gradient at its end. One reason is in [What does
# post-norm do to gradients?](evidence/what_does_post_norm_do_to_gradients.ipynb)*
#
# **Remember:** post-norm normalizes the stream after every sum, while pre-norm leaves the stream alone and
# normalizes what the sub-layers read.

# %% [markdown]
# ## Where the parameters are
#
# The paper's base model has six layers on each side, $d_{model} = 512$ and $d_{ff} = 2048$. Its vocabulary
# has about 37,000 tokens.
#
# **Before you run this:** the title says that attention is all you need. What share of the parameters is in
# the attention?

# %%
from collections import Counter

with torch.device("meta"):  # shapes without numbers, so that it costs nothing
    base = make_model(37_000, 37_000, N=6, d_model=512, d_ff=2048, h=8, tied_embeddings="all")
count = Counter()
for name, weights in base.named_parameters():
    kinds = {"attn": "attention", "feed_forward": "feed-forward", "lut": "embeddings"}
    count[next((kind for part, kind in kinds.items() if part in name), "rest")] += weights.numel()
for kind, number in count.most_common():
    print(f"{kind:17} {number:11,}  {number / count.total():4.0%}")
print(f"{'all':17} {count.total():11,}")

# %% tags=["check"]
assert count.total() == sum(weights.numel() for weights in base.parameters())
assert 0.28 < count["attention"] / count.total() < 0.32 < count["feed-forward"] / count.total()
d = 512
assert abs(count["attention"] / (18 * 4 * d**2) - 1) < 0.01
assert abs(count["feed-forward"] / (12 * 8 * d**2) - 1) < 0.01

# %% [markdown]
# Attention holds less than a third of the parameters. A feed-forward network has $8\,d_{model}^2$ weights,
# and an attention block has only half as many, $4\,d_{model}^2$. There are 12 feed-forward networks and 18
# attention blocks, because each decoder layer has two. The embeddings are a single table with one vector
# for each of the 37,000 tokens; the model uses this table in three places
# ([04](04_feed_forward_and_embeddings.ipynb)). The rest are the weights of the norms and the generator's
# bias.
#
# The paper's Table 3 says 65 million parameters, not 63 million, but it does not say how they were
# counted.
#
# **Remember:** attention moves information between words, but most of the weights work on one word at a time.

# %% [markdown]
# ## What you can now say
#
# - The model is two stacks of layers. Every layer reads the residual stream and adds to it. The decoder's
#   layers also look at the memory, which is the output of the last encoder layer.
# - In a new model without the residual connections, all words become alike within a few sub-layers. Without
#   the norm, the stream grows from layer to layer.
# - The norm works on one word's vector. The paper puts it after the sum, which is called post-norm. Most
#   later models put it before the sub-layer, which is called pre-norm.
# - Attention holds less than a third of the parameters, and the feed-forward networks hold 40%.
#
# **Deeper:** [What does post-norm do to gradients?](evidence/what_does_post_norm_do_to_gradients.ipynb)
#
# **Next:** [07_batches_and_masks](07_batches_and_masks.ipynb), where sentences of different lengths share one
# batch.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: the paper's *big* model has $d_{model} = 1024$, $d_{ff} =
# 4096$, six layers on each side and 37,000 tokens. For an attention block, a feed-forward network, a norm,
# and the two ends (the embeddings and the generator), write the number of parameters as a formula in $d =
# d_{model}$. Then add them up for the whole model. Do not forget the biases. The paper says 213 million. Why
# does the number of heads not occur in your formula?

# %% tags=["solution"]
# An attention block has four maps of d x d with biases, which makes 4 d^2 + 4 d; there are 6 + 12 blocks. A
# network has maps of d x 4d and 4d x d with biases, which makes 8 d^2 + 5 d; there are 12 networks. A norm
# has 2 d, and there are 6 * 2 + 6 * 3 = 30. The ends share one table of 37,000 d, and the generator has
# 37,000 biases. The heads only cut the four maps into columns: h heads of width d/h take d columns
# together, whatever h is.
width, tokens = 1024, 37_000
pencil = (
    18 * (4 * width**2 + 4 * width) + 12 * (8 * width**2 + 5 * width) + 30 * 2 * width + tokens * (width + 1)
)
with torch.device("meta"):
    big = make_model(tokens, tokens, N=6, d_model=width, d_ff=4 * width, h=16, tied_embeddings="all")
counted = sum(weights.numel() for weights in big.parameters())
print(f"with a pencil {pencil:,}, counted {counted:,}")
assert pencil == counted

# %% [markdown]
# **Exercise 2 (medium).** Write a *pre-norm* decoder layer, in the manner of `decoder_layer` above. The
# test compares it with the layer of the package. As above, `layer.sublayer[i].norm` is the norm of
# sub-layer i, and you can leave out dropout.


# %% tags=["exercise"]
def pre_norm_decoder_layer(layer, y, memory, src_mask, tgt_mask):
    """Self-attention, cross-attention, feed-forward: (B, T, d_model) -> (B, T, d_model)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from copy import deepcopy

import torch

from annotated import make_model, subsequent_mask


def test_pre_norm_decoder_layer(pre_norm_decoder_layer):
    torch.manual_seed(0)
    theirs = make_model(11, 11, N=1, d_model=32, d_ff=64, h=4, dropout=0.0, norm_first=True).decoder.layers[0]
    for connection in theirs.sublayer:
        torch.nn.init.normal_(connection.norm.weight)
    y, memory = torch.randn(2, 5, 32), torch.randn(2, 7, 32)
    src, tgt = torch.ones(2, 1, 7, dtype=torch.bool), torch.ones(1, 5, 5, dtype=torch.bool)
    padded = (torch.arange(7) < torch.tensor([7, 3])[:, None]).unsqueeze(1)

    def not_itself(*given):
        raise AssertionError("call the layer's parts, not the layer itself")

    for working, masks, what in (
        ([0], (src, tgt), "self-attention, where the other two sub-layers add 0"),
        ([1], (src, tgt), "cross-attention, where the other two sub-layers add 0"),
        ([2], (src, tgt), "the feed-forward network, where the other two sub-layers add 0"),
        ([0, 1, 2], (src, tgt), "all three, one after the other"),
        ([0, 1, 2], (src, subsequent_mask(5)), "tgt_mask, which hides what follows"),
        ([0, 1, 2], (padded, tgt), "src_mask, which hides padding"),
    ):
        layer = deepcopy(theirs)
        ends = layer.self_attn.linears[3], layer.src_attn.linears[3], layer.feed_forward.w_2
        for weights in (p for i, end in enumerate(ends) if i not in working for p in end.parameters()):
            weights.data.zero_()
        wanted, layer.forward = layer(y, memory, *masks), not_itself
        given = pre_norm_decoder_layer(layer, y, memory, *masks)
        shape = getattr(given, "shape", given)
        assert shape == y.shape, f"the shape must be (2, 5, 32), not {shape}"
        gap = (given - wanted).abs().max()
        assert gap < 1e-4, f"look at {what}: the output differs from the package's by up to {gap:.2f}"


try:
    test_pre_norm_decoder_layer(pre_norm_decoder_layer)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(layer, y, memory, src_mask, tgt_mask):
    """Self-attention, cross-attention, feed-forward: (B, T, d_model) -> (B, T, d_model)."""
    norms = [connection.norm for connection in layer.sublayer]
    z = norms[0](y)
    y = y + layer.self_attn(z, z, z, tgt_mask)
    y = y + layer.src_attn(norms[1](y), memory, memory, src_mask)  # the memory has been normalized already
    return y + layer.feed_forward(norms[2](y))


test_pre_norm_decoder_layer(solution)

# %% [markdown]
# **Exercise 3 (medium).** Because a sub-layer only adds, you can leave it out of a trained model, and the
# model still runs. Predict first: which of the decoder's twelve sub-layers will the translator miss most?
# Then leave out one at a time. A sub-layer adds nothing if you set the weights and biases of its last
# linear map to 0. This map is `linears[3]` in an attention block and `w_2` in a feed-forward network. What
# would you do with the result if the model had to become smaller?

# %% tags=["solution"]
who = ["A man", "Two girls", "A brown dog", "An old lady in a red dress"]
what = ["runs across the grass.", "plays in the snow.", "is reading a book on a bench."]
sentences = [f"{a} {b}" for a in who for b in what]
before = translator.translate(sentences, beam=1)
for place, block in enumerate(model.decoder.layers, start=1):
    last = {"self-attention": block.self_attn.linears[3], "cross-attention": block.src_attn.linears[3]}
    for sublayer, linear in {**last, "feed-forward": block.feed_forward.w_2}.items():
        kept = {key: value.clone() for key, value in linear.state_dict().items()}
        for value in linear.parameters():
            value.data.zero_()
        same = sum(a == b for a, b in zip(before, translator.translate(sentences, beam=1), strict=True))
        _ = linear.load_state_dict(kept)
        print(f"layer {place} without its {sublayer:15} ≈{same} of {len(sentences)} translations unchanged")
# It misses the last layer's cross-attention most: without it, most translations change. Without some of
# the other sub-layers, few change. A smaller model could leave these out (*pruning*).
assert translator.translate(sentences, beam=1) == before

# %% [markdown]
# **Exercise 4 (hard).** Assemble the Transformer; plan an evening for it. You wrote its parts in lessons 02
# to 05: attention with its heads, the feed-forward network, the embeddings and the positions. Take your own
# parts or those of the package, which the stub imports. Add layer norms, and build a model that computes what
# the translator's model computes. The test loads the translator's weights into it, name by name, and lets it
# translate. So its parts need the names that you see in `model`: `print(model)` shows them. Leave out
# dropout. `encode` returns the memory, and `decode` the vectors before the generator. The masks are boolean,
# and may be `None`.


# %% tags=["exercise"]
from torch import nn

from annotated import Embeddings, Generator, MultiHeadedAttention, PositionalEncoding, PositionwiseFeedForward


class MyTransformer(nn.Module):
    """Parts src_embed, tgt_embed, encoder.layers, decoder.layers and generator; post-norm."""

    def __init__(self, vocab, N, d_model, d_ff, h):
        super().__init__()
        raise NotImplementedError

    def encode(self, src, src_mask):
        """Tokens (B, S) -> memory (B, S, d_model)."""
        raise NotImplementedError

    def decode(self, memory, src_mask, tgt, tgt_mask):
        """Memory (B, S, d_model) and tokens (B, T) -> vectors (B, T, d_model)."""
        raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import load_pretrained, subsequent_mask


def test_my_transformer(MyTransformer):
    translator = load_pretrained("multi30k-en-de")
    theirs, tokenizer = translator.model, translator.src_tokenizer
    mine = MyTransformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4)
    assert isinstance(getattr(mine, "generator", None), torch.nn.Module), "the part `generator` is missing"
    lacks, adds = mine.load_state_dict(theirs.state_dict(), strict=False)
    told = "the translator has no weights for {} of your parameters; the first is {}"
    assert not lacks, told.format(len(lacks), lacks[0])
    assert not adds, f"your model has no place for {len(adds)} weights; the first is {adds[0]}"
    mine.eval()
    src, tgt = (
        torch.tensor([[20, 21, 22, 23, 1, 1], [30, 31, 32, 33, 34, 35]]),
        torch.tensor([[2, 40, 41]] * 2),
    )
    masks = torch.tensor([[[True] * 4 + [False] * 2], [[True] * 6]]), subsequent_mask(3)
    with torch.no_grad():
        given, wanted = mine.src_embed(src), theirs.src_embed(src)
        gap = (given - wanted).abs().max()
        assert gap < 1e-4, f"your src_embed differs from the translator's by up to {gap:.2f}"
        memory, wanted = mine.encode(src, masks[0]), theirs.encode(src, masks[0])
        shape = getattr(memory, "shape", memory)
        assert shape == (2, 6, 128), f"encode: the shape must be (2, 6, 128), not {shape}"
        gap = (memory - wanted)[masks[0][:, 0]].abs().max()
        assert gap < 1e-4, f"your memory differs from the translator's by up to {gap:.2f}"
        states, wanted = (
            mine.decode(wanted, masks[0], tgt, masks[1]),
            theirs.decode(wanted, masks[0], tgt, masks[1]),
        )
        shape = getattr(states, "shape", states)
        assert shape == (2, 3, 128), f"decode: the shape must be (2, 3, 128), not {shape}"
        gap = (states - wanted).abs().max()
        assert gap < 1e-4, f"from the same memory, your decoder's vectors differ by up to {gap:.2f}"
        english, written = (
            torch.tensor([[*tokenizer.encode("A cat runs."), tokenizer.end]]),
            [tokenizer.start],
        )
        while written[-1] != tokenizer.end and len(written) < 12:
            given = mine.decode(
                mine.encode(english, None), None, torch.tensor([written]), subsequent_mask(len(written))
            )
            written.append(mine.generator(given[:, -1]).argmax().item())
    said = tokenizer.decode(written[1:-1])
    assert said == "Eine Katze rennt.", f"A cat runs. becomes {said!r}"
    print("A cat runs. →", said)


try:
    test_my_transformer(MyTransformer)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
class SolutionAddNorm(nn.Module):
    """Layer normalization of the sum."""

    def __init__(self, d_model):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, output):
        return self.norm(x + output)


# %% tags=["solution"]
class SolutionLayer(nn.Module):
    """An encoder layer, or, with `looks_at_memory`, a decoder layer."""

    def __init__(self, d_model, d_ff, h, looks_at_memory):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model, dropout=0.0)
        if looks_at_memory:
            self.src_attn = MultiHeadedAttention(h, d_model, dropout=0.0)
        self.feed_forward = PositionwiseFeedForward(d_model, d_ff, dropout=0.0)
        self.sublayer = nn.ModuleList(SolutionAddNorm(d_model) for _ in range(3 if looks_at_memory else 2))

    def forward(self, x, mask, memory=None, src_mask=None):
        x = self.sublayer[0](x, self.self_attn(x, x, x, mask))
        if memory is not None:
            x = self.sublayer[1](x, self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[-1](x, self.feed_forward(x))


# %% tags=["solution"]
class SolutionStack(nn.Module):
    """N layers, one after another."""

    def __init__(self, N, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(SolutionLayer(*sizes) for _ in range(N))

    def forward(self, x, *given):
        for layer in self.layers:
            x = layer(x, *given)
        return x


# %% tags=["solution"]
class Solution(nn.Module):
    """Parts src_embed, tgt_embed, encoder.layers, decoder.layers and generator; post-norm."""

    def __init__(self, vocab, N, d_model, d_ff, h):
        super().__init__()
        self.src_embed, self.tgt_embed = (
            nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout=0.0))
            for _ in range(2)
        )
        self.encoder, self.decoder = (
            SolutionStack(N, d_model, d_ff, h, False),
            SolutionStack(N, d_model, d_ff, h, True),
        )
        self.generator = Generator(d_model, vocab)

    def encode(self, src, src_mask):
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        return self.decoder(self.tgt_embed(tgt), tgt_mask, memory, src_mask)


test_my_transformer(Solution)
