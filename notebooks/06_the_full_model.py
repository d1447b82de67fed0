# %% [markdown]
# # 06 · The full model
#
# **We stack the sub-layers of the earlier notebooks with and without residuals and norms, follow a gradient
# out through a door, and count every parameter of the finished model.**
#
# Previous: [05_positional_encoding](05_positional_encoding.ipynb) · Next:
# [07_batches_and_masks](07_batches_and_masks.ipynb)
#
# *24 minutes to read, under a minute to run, the exercises extra.*
#
# - **Before:** you know attention and its masks (02, 03), the feed-forward network and embeddings (04), and
#   positions (05).
# - **After:** you know what a residual connection and a layer norm are for; where the paper puts the norm,
#   where the authors' later code puts it, and what changes; and where the 63 million parameters are.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). This is its section 3.1. Numbers after
# `≈` may differ a little on another processor.

# %% tags=["install"]
from importlib.util import find_spec

if not find_spec("annotated"):
    get_ipython().run_line_magic("pip", "install -q 'annotated-transformer[colab]'")

# %%
import math
from functools import partial

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

# %%
from annotated import (
    Batch,
    Decoder,
    DecoderLayer,
    Embeddings,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    Generator,
    LabelSmoothing,
    MultiHeadedAttention,
    PositionalEncoding,
    PositionwiseFeedForward,
    SimpleLossCompute,
    SublayerConnection,
    TransformerConfig,
    data_gen,
    evaluating,
    make_model,
    run_epoch,
    subsequent_mask,
)

# %%
from annotated.plots import (
    count_parameters,
    plot_gradient_norms,
    plot_model_flow,
    setup_notebook,
    show_source,
)

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## The figure
#
# ![The Transformer: encoder on the left, decoder on the right](../images/architecture.svg)
#
# *Figure 1. The paper's Figure 1, drawn anew and from top to bottom (the paper's goes up). Each stack has
# one vertical line, the residual stream; every sub-layer reads it and adds to it.*
#
# This notebook is about what stands between them: the **plus signs** and the **norms**.
#
# ## Twelve sub-layers in a row
#
# An encoder has six layers of two *sub-layers* each, attention and feed-forward network. What happens if we
# just put these twelve in a row? We take untrained ones and eight random sentences of twenty words.

# %%
_ = torch.manual_seed(0)
untrained = make_model(1000, 1000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0)


def attend_to_itself(attend: nn.Module, x: Tensor) -> Tensor:
    return attend(x, x, x)  # queries, keys and values from the same sentence


parts = []
for layer in untrained.encoder.layers:
    parts += [partial(attend_to_itself, layer.self_attn), layer.feed_forward]
with torch.no_grad():
    words = untrained.src_embed(torch.randint(4, 1000, (8, 20)))  # (8, 20, 128)

# %% [markdown]
# After each sub-layer we measure how *alike* the words of a sentence are (the mean cosine of two of them),
# how *large* they are (the standard deviation of their entries), and how much is *left* of each word (its
# cosine with the vector that went in).


# %%
def alike(x: Tensor) -> float:
    """Mean cosine between two different words of a sentence: (batch, len, d_model) -> a number."""
    unit, length = F.normalize(x, dim=-1), x.size(1)
    together = (unit @ unit.mT).sum(dim=(-2, -1)) - length  # without each word's 1 with itself
    return (together.mean() / (length * (length - 1))).item()


@torch.no_grad()
def through(wrap) -> tuple[list[float], list[float], list[float]]:
    """After each of the parts, applied as `wrap(x, part)`: likeness, size, cosine with the first x."""
    states = [words]
    for part in parts:
        states.append(wrap(states[-1], part))
    left = [F.cosine_similarity(x, words, dim=-1).mean().item() for x in states]
    return [alike(x) for x in states], [x.std().item() for x in states], left


ways = {"bare": through(lambda x, part: part(x)), "residual": through(lambda x, part: x + part(x))}
for name, (likeness, size, _) in ways.items():
    print(f"{name:8}  alike: ≈{likeness[0]:.2f}, after three ≈{likeness[3]:.2f};", end=" ")
    print(f"size: ≈{size[0]:.1f}, after twelve ≈{size[-1]:.2g}")
assert ways["bare"][0][3] > 0.99 > 0.01 > ways["bare"][1][-1]
assert ways["residual"][0][3] < 0.65
assert ways["residual"][1][-1] > 5 * ways["residual"][1][0]

# %% [markdown]
# **Bare**, all twenty words point the same way after three sub-layers. Attention takes means, and untrained
# it takes nearly the same mean for every word. This is called *rank collapse* (Dong et al., 2021).
#
# > "We employ a residual connection around each of the two sub-layers, followed by layer normalization."
# > (section 3.1)
#
# With a **residual connection** (He et al., 2016) a sub-layer does not *replace* a vector, it *adds* to it:
# $x + \mathrm{Sublayer}(x)$. The vector that is added to, from the embedding to the top, is called the
# **residual stream**. The words now stay different for longer. (Only equal widths can be added, so every
# sub-layer returns $d_{model}$ numbers.) But the vectors grow like compound interest, because a sub-layer
# adds about twice as much when its input is twice as large. Something has to limit it.
#
# ## A norm for one word
#
# **Layer normalisation** (Ba et al., 2016) takes one vector of $d$ numbers, subtracts their mean and
# divides by their standard deviation. The gain $g$ and the bias $b$ are learned; they start at 1 and 0. A
# small $\epsilon$ prevents a division by zero.
#
# $$\mathrm{LayerNorm}(x) = g\odot\frac{x-\mu}{\sqrt{\sigma^2+\epsilon}} + b, \qquad
# \mu = \frac1d\sum_i x_i, \quad \sigma^2 = \frac1d\sum_i (x_i-\mu)^2$$

# %%
x = torch.tensor([1.0, 2.0, 3.0, 6.0])
mean = sum(x) / 4  # 3
variance = sum((x - mean) ** 2) / 4  # (4 + 1 + 0 + 9) / 4 = 3.5
by_hand = (x - mean) / (variance + 1e-5).sqrt()
print([f"{number:.2f}" for number in by_hand.tolist()])
assert_close(nn.LayerNorm(4)(x), by_hand)
assert_close(nn.LayerNorm(4)(10 * x + 500), by_hand, rtol=1e-4, atol=1e-4)  # size and level are forgotten

# %% [markdown]
# Why not *batch* normalisation, the usual choice for images? In training it takes mean and standard
# deviation over all words of the batch. So every word would depend on padding, on other sentences, and on
# words that come *later*, which a causal mask should hide.
#
# **Exercise 1 (easy).** Write layer normalisation yourself. Then look at the test's last line: the input
# can move in 8 independent directions. How many of them change the output?


# %% tags=["exercise"]
def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each vector (..., d) to mean 0 and variance 1, times gain (d,), plus bias (d,)."""
    raise NotImplementedError


# %% tags=["solution"]
def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each vector (..., d) to mean 0 and variance 1, times gain (d,), plus bias (d,)."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)  # over d, not d - 1; eps inside the root
    return gain * centred / (variance + eps).sqrt() + bias


print("6 of 8: adding a constant to all entries, or stretching the vector about its mean, changes nothing")

# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
x, gain, bias = torch.randn(5, 8).double(), torch.randn(8).double(), torch.randn(8).double()
assert_close(layer_norm(x, gain, bias), F.layer_norm(x, [8], gain, bias))
one = partial(layer_norm, gain=torch.ones(8).double(), bias=torch.zeros(8).double(), eps=0.0)
jacobian = torch.autograd.functional.jacobian(one, x[0])  # (8, 8): all derivatives
print("directions noticed:", int(torch.linalg.matrix_rank(jacobian, rtol=1e-9)), "of 8")

# %% [markdown]
# ## Before the sum or after it
#
# > "That is, the output of each sub-layer is LayerNorm(x + Sublayer(x)) ..." (section 3.1)
#
# That is **post-norm**. Most large language models since GPT-2 use **pre-norm** instead,
# $x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$, often with *RMSNorm*, a layer norm that does not subtract
# the mean (Zhang and Sennrich, 2019).
#
# ![Post-norm and pre-norm as blocks](../images/norm_orders.svg)
#
# *Figure 2. One encoder layer both ways. Follow the vertical line, the residual stream. In post-norm it
# passes through a norm after every sum. In pre-norm the norms stand on the side branches, and nothing but
# sums happens to the stream.*

# %%
show_source(SublayerConnection.forward, docstring=False)
_ = torch.manual_seed(0)
post, pre = SublayerConnection(128, dropout=0.0), SublayerConnection(128, dropout=0.0, norm_first=True)
part = parts[1]  # a feed-forward network
for connection in (post, pre):
    nn.init.normal_(connection.norm.weight)  # a gain that is not 1 and a bias that is not 0
    nn.init.normal_(connection.norm.bias)
assert_close(post(words, part), post.norm(words + part(words)))
assert_close(pre(words, part), words + part(pre.norm(words)))
assert SublayerConnection(128, 0.0).norm_first is False  # the default is the paper's

# %% tags=["figure-orders"]
norm = partial(F.layer_norm, normalized_shape=[128])
ways["post-norm"] = through(lambda x, part: norm(x + part(x)))
ways["pre-norm"] = through(lambda x, part: x + part(norm(x)))
figure, axes = plt.subplots(1, 3, figsize=(16, 4.5))
for (name, measured), style in zip(ways.items(), ("D:C3", "^--C4", "o-C0", "s-C1"), strict=True):
    for ax, values in zip(axes, measured, strict=True):
        ax.plot(range(13), values, style, label=name)
axes[0].set(title="How alike words are", ylabel="mean cosine of two words")
axes[1].set(title="How large", ylabel="standard deviation of the entries", yscale="log")
axes[2].set(title="How much of a word is left", ylabel="cosine with where it began")
for ax in axes:
    ax.set_xlabel("sub-layers passed")
axes[1].legend(loc="lower left", frameon=False)
plt.show()
post_way, pre_way = ways["post-norm"], ways["pre-norm"]
print(f"size after twelve: post-norm ≈{post_way[1][-1]:.2f}, pre-norm ≈{pre_way[1][-1]:.2f}")
print(f"left of a word: post-norm ≈{post_way[2][-1]:.2f}, pre-norm ≈{pre_way[2][-1]:.2f}")
assert max(abs(size - 1) for size in post_way[1][1:]) < 1e-3
assert 1.8 < pre_way[1][-1] < 2.3
assert post_way[2][-1] < 0.25 < 0.5 < pre_way[2][-1]

# %% [markdown]
# *Figure 3. Four ways to stack twelve untrained sub-layers. Left: bare, all words become alike at once.
# Middle: residuals alone grow; post-norm keeps the size at 1. Right: the cosine with the first vector
# falls to ≈0.20 in post-norm, to ≈0.57 in pre-norm. From about seven sub-layers on, post-norm and residual
# nearly coincide on the left.*
#
# Apart from the first norm, post-norm rescales the sum but hardly changes its direction, so a sub-layer's
# output keeps its weight relative to the residual stream. In pre-norm the stream grows while each addition
# stays about the same size, so later sub-layers change it less and less. Post-norm ends with words as
# alike as ≈0.86. That alone does not prevent training: the paper's model is post-norm.
#
# **Exercise 2 (medium).** The *sandwich norm* (Ding et al., 2021) uses both:
# $x + \mathrm{LayerNorm}(\mathrm{Sublayer}(\mathrm{LayerNorm}(x)))$. How large is the stream after twelve
# sub-layers, if it begins at a standard deviation of $s_0$? Find a formula, then run it.

# %% tags=["solution"]
_, size_both, _ = through(lambda x, part: x + norm(part(norm(x))))
guess = math.sqrt(size_both[0] ** 2 + 12)  # each adds variance 1, in a direction that has little to do with x
print(f"√(s₀² + 12) = ≈{guess:.2f}, run: ≈{size_both[-1]:.2f}")
assert abs(size_both[-1] - guess) < 0.15

# %% [markdown]
# ### Why is the authors' later code pre-norm?
#
# Their `transformer_base` (tensor2tensor) soon became pre-norm; a comment in `common_hparams.py` calls
# post-norm "the published version of the transformer", and says that pre-norm "seems better for
# harder-to-learn models, so it should probably be the default".
#
# ### One final norm, or none, never two
#
# A pre-norm stack ends in a sum, and sums grow. So it needs a norm at the end; the authors' code has it
# "since the output can grow very large" (a comment in `models/transformer.py`). A post-norm stack needs
# none, because it ends in a norm already.

# %%
raw_sure, sure = [], []  # probability of the likeliest of 1,000 tokens, without and with the final norm
tokens = torch.randint(4, 1000, (2, 8, 20))
for N in (2, 6, 12):
    _ = torch.manual_seed(0)
    deep = make_model(1000, 1000, N=N, d_model=64, d_ff=128, h=4, dropout=0.0, norm_first=True)
    with evaluating(deep):
        normed = deep(*tokens, None, subsequent_mask(20))
        deep.decoder.norm = nn.Identity()
        raw = deep(*tokens, None, subsequent_mask(20))
        for found, states in ((raw_sure, raw), (sure, normed)):
            found.append(deep.generator(states).exp().amax(dim=-1).mean().item())
    print(f"pre-norm, {N:2} layers: without the final norm size ≈{raw.std():.1f}, likeliest", end=" ")
    print(f"≈{raw_sure[-1]:.1%}; with it size ≈{normed.std():.1f}, likeliest ≈{sure[-1]:.1%}")
    assert abs(normed.std() - 1) < 0.01 < 1 < raw.std()
assert max(sure) < 0.008 < raw_sure[1] < raw_sure[2]

# %% [markdown]
# Without the final norm, a deeper untrained model is more confident, although it knows nothing. With it,
# depth makes no difference: ≈0.3%, where 0.1% would be right.
#
# Why not two? `nn.Transformer` is post-norm by default and *still* ends each stack in a second norm.
# Untrained, that changes nothing: the vector is normalised already.

# %% [markdown]
# ## The gradient that leaves through the door
#
# It is often said that in a post-norm stack the gradient *vanishes* on its way down from the loss to the
# first layer. We run one backward pass through untrained models of the paper's depth, and measure the
# gradient of each layer's parameters. It matters how large attention's matrices are at the start, and the
# paper does not say. The package draws $W^Q$, $W^K$ and $W^V$ by Xavier's rule (random numbers, scaled to
# the matrix's shape) as *one* matrix, as PyTorch does. Much code draws each alone. The variance is
# 2 / (rows + columns), so $2/4d$ becomes $2/2d$ and the numbers are $\sqrt2$ larger. We try both.


# %%
def new_model(norm_first: bool = False, factor: float = 1.0) -> EncoderDecoder:
    """An untrained model of the paper's depth; its three attention matrices are multiplied by `factor`."""
    torch.manual_seed(0)
    model = make_model(1000, 1000, N=6, d_model=128, d_ff=512, h=8, dropout=0.0, norm_first=norm_first)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            for linear in module.linears[:3]:
                linear.weight.data *= factor
    return model


def backward(model: EncoderDecoder) -> EncoderDecoder:
    """One backward pass from eight random sentence pairs."""
    torch.manual_seed(1)  # a `Batch` (07) makes masks, and `tgt_y`: the words that should come next
    batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    F.nll_loss(model.generator(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
    return model


def by_layer(stack: Encoder | Decoder) -> list[float]:
    """The norm of the gradient of each layer's parameters, the first layer first."""
    return [torch.cat([p.grad.flatten() for p in layer.parameters()]).norm().item() for layer in stack.layers]


# %% tags=["figure-gradients"]
LARGER = "post-norm, W^Q W^K W^V × √2"
kinds = {"post-norm": {}, "pre-norm": {"norm_first": True}, LARGER: {"factor": math.sqrt(2)}}
models = {name: backward(new_model(**settings)) for name, settings in kinds.items()}
figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), sharey=True)
arrives = {}
for ax, side in zip(axes, ("encoder", "decoder"), strict=True):
    norms = {name: by_layer(getattr(model, side)) for name, model in models.items()}
    plot_gradient_norms(norms, ax=ax).set_title(f"{side.capitalize()}: gradient in each layer, untrained")
    arrives[side] = {name: values[0] / values[-1] for name, values in norms.items()}
    print(f"{side}, first layer / last:", "; ".join(f"{n} ≈{x:.2f}" for n, x in arrives[side].items()))
    ax.label_outer()
axes[0].set(ylim=(0.1, 1), yticks=[0.1, 0.2, 0.4, 0.8], yticklabels=["0.1", "0.2", "0.4", "0.8"])
axes[0].minorticks_off()
axes[1].legend_.remove()
plt.show()
assert min(arrives["encoder"].values()) > 0.55
assert arrives["decoder"]["post-norm"] < 0.5 < 1 < arrives["decoder"]["pre-norm"]
assert arrives["decoder"][LARGER] < 0.22

# %% [markdown]
# *Figure 4. The size of the gradient by layer. In the post-norm decoder the first layer's parameters get
# ≈0.38 of the last layer's gradient, with larger matrices ≈0.16. In the encoder, with the same norms, they
# get two thirds.*
#
# What does a decoder layer have that an encoder layer does not? We follow the gradient of the residual
# stream backwards through each kind of sub-layer, and measure how much of it arrives on the other side.
# (*Cross-attention* is short for the paper's encoder-decoder attention.)


# %%
def passed_on(model: EncoderDecoder) -> tuple[dict[str, float], float]:
    """For each kind of sub-layer, gradient at its input over that at its output; the size of `src_attn`."""
    passages, sizes = [], []

    def keep(module: nn.Module, given: tuple, out: Tensor) -> None:
        given[0].retain_grad()
        out.retain_grad()
        passages.append((given[0], out))

    for layer in model.decoder.layers:
        layer.src_attn.register_forward_hook(lambda module, given, out: sizes.append(out.std().item()))
        for connection in layer.sublayer:
            connection.register_forward_hook(keep)
    backward(model)
    logs = torch.stack([(before.grad.norm() / behind.grad.norm()).log() for before, behind in passages])
    names = ("self-attention", "cross-attention", "feed-forward")
    means = logs.view(6, 3).mean(dim=0).exp()  # geometric, over the six layers
    return dict(zip(names, means.tolist(), strict=True)), sum(sizes) / 6


# %%
results = {name: passed_on(new_model(**settings)) for name, settings in kinds.items()}
for name, (passed, s) in results.items():
    print(f"{name:27}", ", ".join(f"{kind} ≈{share:.2f}" for kind, share in passed.items()))
    if name != "pre-norm":
        print(f"{'':27} cross-attention adds s ≈ {s:.2f}: 1/√(1 + s²) ≈ {1 / math.sqrt(1 + s**2):.2f}")
        assert abs(1 / math.sqrt(1 + s**2) - passed["cross-attention"]) < 0.06
        assert 0.88 < passed["self-attention"] < 0.95 < passed["feed-forward"] < 1.05
assert min(results["pre-norm"][0].values()) > 0.97

# %% [markdown]
# **It leaves through the door to the encoder.** A sub-layer adds a vector of size $s$, nearly at a right
# angle to the stream, so the sum has size $\sqrt{1+s^2}$. The norm divides it by this, and the gradient
# with it. Self-attention and the feed-forward network read the same stream, so what flows through them
# *returns* to it. In the feed-forward network that replaces all that was taken, in self-attention most of
# it. Cross-attention gets its values from the encoder, so what flows through it goes to the encoder. What
# stays is about $1/\sqrt{1+s^2}$: ≈0.83 predicted, ≈0.86 measured.
#
# The product, 0.92 · 0.86 · 1.00 ≈ 0.79 a layer, is 0.31 over five layers; Figure 4, for parameters, has
# ≈0.38. In logarithms about a third of this is self-attention's (one seed).
#
# Is it the door, or the norm? Two controls have the same numbers in the forward pass, and so the same
# $s$ and the same norms. Only the way back differs: what flows through cross-attention **returns** to the
# decoder's stream, or what flows through self-attention is **lost**.


# %%
def returns(module: nn.Module, given: tuple) -> tuple:
    """The numbers of the memory; the gradient goes to the queries, the decoder's own stream."""
    query, memory, _, *masks = given
    same = memory.detach() + (query - query.detach())  # memory's value, the query's gradient
    return query, same, same, *masks


def lost(module: nn.Module, given: tuple) -> tuple:
    """The same numbers; no gradient goes through keys and values."""
    query, key, value, *masks = given
    return query, key.detach(), value.detach(), *masks


# %%
controls = {"cross-attention": (returns, 0.65, 1.4), "self-attention": (lost, 0, 0.25)}
for name in ("post-norm", LARGER):
    for kind, (way, low, high) in controls.items():
        model = new_model(**kinds[name])
        for layer in model.decoder.layers:
            (layer.src_attn if way is returns else layer.self_attn).register_forward_pre_hook(way)
        passed, s = passed_on(model)
        norms = by_layer(model.decoder)
        print(f"{name:27} {kind} {way.__name__}: it passes ≈{passed[kind]:.2f},", end=" ")
        print(f"first layer / last ≈{norms[0] / norms[-1]:.2f}")
        assert abs(s - results[name][1]) < 1e-4  # the forward pass is the same
        assert low < norms[0] / norms[-1] < high

# %% [markdown]
# If self-attention gives nothing back, it passes only $1/\sqrt{1+s^2}$, and the loss is as predicted:
# $(0.83 \cdot 0.86)^5 = 0.19$. With a door that leads back, the first layer's *parameters* get about as
# much as the last's, but the stream gains little, because cross-attention gives back less than it got: a
# parameter's gradient is a sum over positions, and no measure of the stream. How much the door alone
# costs, this control does not say. In pre-norm no norm divides the stream. Takase et al. (2022) blame the
# norm; Liu et al. (2020, "Admin") find the gradient vanishing in the decoder, not in the encoder.
#
# ### Does it matter for learning?
#
# Adam, the optimizer ([08](08_training_recipe.ipynb)), divides each gradient by its size, so a *small*
# gradient alone does little harm: the first steps move every weight by about the learning rate all the
# same. 08 shows that these steps are too **long**, and that *warm-up*, a rate that begins low and rises,
# shortens them. Liu et al. find that a step of the same length moves a post-norm model further
# (*amplification*). Xiong et al. (2020) find post-norm's gradients large near the output, and train
# pre-norm without warm-up. We train a model as deep as the paper's, but very narrow, to copy rows of
# symbols ([09](09_first_example.ipynb)), two seeds each.


# %%
def train(norm_first: bool, warmup: int, peak: float, seed: int, updates: int = 100) -> list[float]:
    """The loss of each batch; the learning rate rises to `peak` over `warmup` updates and then stays."""
    torch.manual_seed(seed)
    model = make_model(11, 11, N=6, d_model=32, d_ff=64, h=4, dropout=0.0, norm_first=norm_first)
    optimizer = torch.optim.Adam(model.parameters(), lr=peak, betas=(0.9, 0.98), eps=1e-9, fused=True)
    rise = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1, (done + 1) / warmup))
    loss_compute = SimpleLossCompute(model.generator, LabelSmoothing(11, padding_idx=0, smoothing=0.0))
    batches = data_gen(11, 32, updates)
    return [run_epoch([batch], model, loss_compute, optimizer, rise)[0] for batch in batches]


orders = {"post-norm": (False, 1, 0.01), "pre-norm": (True, 1, 0.01)}
orders |= {"post-norm, warm-up of 60": (False, 60, 0.01), "post-norm at 0.001": (False, 1, 0.001)}
orders["pre-norm, warm-up of 60"] = (True, 60, 0.01)
runs = {name: [train(*settings, seed) for seed in (0, 1)] for name, settings in orders.items()}

# %% tags=["figure-training"]
no_idea = math.log(10)  # one of ten symbols, all equally likely
figure, ax = plt.subplots(figsize=(9, 5))
for (name, both), style in zip(runs.items(), ("-", "--", ":", "-.", (0, (5, 1))), strict=True):
    ax.plot(range(1, 101), both[0], linestyle=style, label=name)
    ends = [sum(losses[-20:]) / 20 for losses in both]
    print(f"{name:24} mean loss of the last 20 updates: ≈{ends[0]:.2f} and ≈{ends[1]:.2f}")
    assert (min(ends) > no_idea - 0.03) if name == "post-norm" else (max(ends) < no_idea - 0.1)
ax.axhline(no_idea, color="grey", lw=1, zorder=0, label="no idea")
ax.set(title="Copying, six layers a side, learning rate 0.01 (one seed)")
ax.set(xlabel="update", ylabel="loss per symbol (nats)", ylim=(1, 2.8))
ax.legend(frameon=False, loc="lower left")
plt.show()

# %% [markdown]
# *Figure 5. Post-norm at 0.01 from the first update stays at the loss of guessing, ln 10 ≈ 2.30, for these
# 100 updates. Pre-norm leaves it after about 35. Warm-up helps both, and 0.001 helps post-norm as well
# (pre-norm at 0.001 was not run).*
#
# At 0.01 post-norm needs short first steps, and pre-norm gains by them.
# Warm-up is one cure, a lower rate another.
#
# ## Six of each
#
# A stack is $N$ copies of one layer, made by `deepcopy` ([03](03_multi_head_attention.ipynb)). What is
# shared *inside* the copied layer stays shared:


# %%
def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


one, other = (MultiHeadedAttention(4, 32, dropout=0.0) for _ in range(2))
for uses in ((one, other), (one, one)):
    network = PositionwiseFeedForward(32, 64, dropout=0.0)
    decoder = Decoder(DecoderLayer(32, *uses, network, dropout=0.0), N=6)
    print(f"{len(set(uses))} attention objects for two uses: {size(decoder):,} parameters")

# %% [markdown]
# The second decoder runs without an error, and lacks a third of the parameters.
#
# ## The whole model
#
# One encoder layer and one decoder layer are written out below. The second attention of *every* decoder
# layer reads the **memory**, the output of the *last* encoder layer.


# %%
def encoder_layer(layer: EncoderLayer, x: Tensor, mask: Tensor) -> Tensor:
    after_attention, after_network = (connection.norm for connection in layer.sublayer)
    x = after_attention(x + layer.self_attn(x, x, x, mask))  # (B, src_len, d_model)
    return after_network(x + layer.feed_forward(x))


def decoder_layer(
    layer: DecoderLayer, y: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor
) -> Tensor:
    after_attention, after_cross, after_network = (connection.norm for connection in layer.sublayer)
    y = after_attention(y + layer.self_attn(y, y, y, tgt_mask))  # (B, tgt_len, d_model)
    y = after_cross(y + layer.src_attn(y, memory, memory, src_mask))  # keys and values: the encoder's
    return after_network(y + layer.feed_forward(y))


# %%
batch = Batch(torch.randint(4, 1000, (8, 20)), torch.randint(4, 1000, (8, 21)))
inputs = batch.src, batch.tgt, batch.src_mask, batch.tgt_mask
with evaluating(untrained):
    x, y = untrained.src_embed(batch.src), untrained.tgt_embed(batch.tgt)  # embeddings and positions
    for layer in untrained.encoder.layers:
        x = encoder_layer(layer, x, batch.src_mask)
    for layer in untrained.decoder.layers:
        y = decoder_layer(layer, y, x, batch.src_mask, batch.tgt_mask)
    ours, package = untrained.generator(y), untrained.generator(untrained(*inputs))  # linear, log-softmax
    difference = (ours - package).abs().max()
print(tuple(ours.shape), f"log-probabilities; ours and the package's differ by at most ≈{difference:.0e}")
assert difference < 1e-4

# %% [markdown]
# Now the real size: the base model with the 37,000 tokens of section 5.1. A *forward hook*, a function that
# PyTorch calls after a module has run, records the shape of what each module returns.

# %%
_ = torch.manual_seed(0)
base = EncoderDecoder.from_config(TransformerConfig.base(37_000, 37_000))
batch = Batch(torch.randint(4, 37_000, (2, 9)), torch.randint(4, 37_000, (2, 11)))  # the decoder reads 10

# %% tags=["figure-shapes"]
given, gave = {}, {}  # by a module's name


def listen(name: str, module: nn.Module, inputs: tuple, output: Tensor) -> None:
    given[name], gave[name] = inputs, output


for name, module in base.named_modules():
    if name and not isinstance(module, nn.Identity):
        module.register_forward_hook(partial(listen, name))
with evaluating(base):
    base.generator(base(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask))
connections = [name for name in gave if ".sublayer." in name and f"{name}.norm" in gave]
for name in connections:  # each norm was given x + Sublayer(x), and nothing came after it
    assert_close(given[f"{name}.norm"][0], given[name][0] + gave[f"{name}.dropout"], rtol=0, atol=0)
    assert_close(gave[f"{name}.norm"], gave[name], rtol=0, atol=0)
memory = gave["encoder.layers.5"]
assert all(given[f"decoder.layers.{i}.src_attn"][1] is memory for i in range(6))
plot_model_flow({name: tuple(output.shape) for name, output in gave.items()}, title="The base model")
plt.show()

# %% [markdown]
# *Figure 6. Two sentence pairs in the base model, 9 source and 10 target tokens. The stream is the line
# that goes round each sub-layer to the plus sign (in Figure 1, the straight one). Its shape stays the same.*
#
# ## Where the parameters are
#
# "Attention is all you need": so are most of the 63 million parameters in attention?

# %%
configs = {"base": TransformerConfig.base(37_000, 37_000), "big": TransformerConfig.big(37_000, 37_000)}
counts = {name: count_parameters(config) for name, config in configs.items()}
assert sum(counts["base"].values()) == size(base)  # counted from the settings = counted in the model
for name, count in counts.items():
    total, attended = sum(count.values()), sum(n for part, n in count.items() if "attention" in part)
    shares = {"attention": attended, **{part: count[part] for part in ("feed-forward", "embeddings")}}
    print(f"{name:4} {total:11,}:", ", ".join(f"{part} {n / total:.0%}" for part, n in shares.items()))
    assert attended < count["feed-forward"]
body = size(base.encoder) + size(base.decoder)
print(f"base: both stacks {body:,}, and 168 d² is {168 * 512**2:,}")
assert 0.997 < 168 * 512**2 / body < 1

# %% [markdown]
# No, about a third. The feed-forward networks hold more, and in the base model one table of 37,000 vectors,
# shared by source, target and output ([04](04_feed_forward_and_embeddings.ipynb)), holds as much as
# attention. One attention has $4d^2$ weights, a feed-forward network $8d^2$. So an encoder layer has
# $12d^2$, a decoder layer $16d^2$, and both stacks $168\,d^2$ and little else.
#
# Table 3 prints 65 million for base and 213 for big; we count 63.1 and 214.3 (see *Further*).
#
# **Exercise 3 (hard).** GPT and its like are *decoder-only*: no encoder, no cross-attention, a
# causal mask. Build one from the package's classes (`Encoder` has the right sub-layers). How many layers
# can it have with as many parameters as the base model's two stacks?


# %% tags=["exercise"]
class DecoderOnly(nn.Module):
    """Tokens (B, len) -> log-probabilities of the next token at each position (B, len, vocabulary)."""

    def __init__(self, vocabulary: int, N: int, d_model: int, d_ff: int, h: int):
        super().__init__()
        raise NotImplementedError


# %% tags=["solution"]
class DecoderOnly(nn.Module):
    """Tokens (B, len) -> log-probabilities of the next token at each position (B, len, vocabulary)."""

    def __init__(self, vocabulary: int, N: int, d_model: int, d_ff: int, h: int):
        super().__init__()
        attend, network = MultiHeadedAttention(h, d_model, 0.0), PositionwiseFeedForward(d_model, d_ff, 0.0)
        self.embed = nn.Sequential(Embeddings(d_model, vocabulary), PositionalEncoding(d_model, 0.0))
        self.layers = Encoder(EncoderLayer(d_model, attend, network, 0.0), N)
        self.generator = Generator(d_model, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.generator(self.layers(self.embed(tokens), subsequent_mask(tokens.size(1))))


with torch.device("meta"):  # shapes without numbers: costs nothing
    fourteen = DecoderOnly(11, N=14, d_model=512, d_ff=2048, h=8).layers
print(f"168 d² / 12 d² = 14 layers: {sum(p.numel() for p in fourteen.parameters()):,} parameters")

# %% tags=["exercise-test"]
_ = torch.manual_seed(0)
gpt = DecoderOnly(11, N=2, d_model=32, d_ff=64, h=4).eval()
row = torch.randint(11, (1, 8))
other_row = row.clone()
other_row[0, 5] = (row[0, 5] + 1) % 11
moved = (gpt(row) != gpt(other_row)).any(dim=-1)[0]
assert moved.tolist() == [False] * 5 + [True] * 3
assert_close(gpt(row).exp().sum(dim=-1), torch.ones(1, 8))

# %% [markdown]
# <details><summary>Further: the vocabulary of Table 3</summary>
#
# Ten of its eleven printed counts (base, and rows (B) and (C)) agree on a
# vocabulary of 40,860 to 41,080 tokens; section 5.1 says "about 37000". But no vocabulary gives both base
# and big. Big's table is twice as large as base's, so in *twice base minus big* the tables cancel: we get
# −88.0 million, Table 3 has $2 \cdot 65 - 213 = -83$, and rounding explains 1.5. The paper does not say
# how the parameters were counted.
#
# </details>
