# %% [markdown]
# # 19 · A model of today
#
# **You write a Llama in sixty lines, under the names that open models use, and you learn to say what nearly
# every line of a newer model does.**
#
# Previous: [18_many_users_many_machines](18_many_users_many_machines.ipynb) · Next:
# [20_from_text_to_answers](20_from_text_to_answers.ipynb) · You can read this lesson right after
# [17_since_2017](17_since_2017.ipynb)
#
# *45 minutes to read, seconds to run.*
#
# - **Before:** you know RMSNorm, rotary positions, grouped queries and SwiGLU ([17](17_since_2017.ipynb)) and
#   PyTorch's attention ([14](14_attention_in_pytorch.ipynb)).
# - **After:** you can open the code of most open models and name nearly every line: what it is, what it
#   replaced, and which problem it solves (a table of the names is in the last section). You can say how
#   models read long texts, and what that costs.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017). Nothing is trained here. What we say
# about a model's code is based on version 5.23 of the library `transformers`, read in November 2026; such
# code changes. You can skip the folded cells: *Scaffolding* draws, and *Check* tests what the text claims.

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
# ## A Llama, by its own names
#
# Lesson [17](17_since_2017.ipynb) built the parts. Here they are once more, put together with the names that
# you find in checkpoints: `q_proj` is the paper's $W^Q$, `o_proj` is $W^O$, and the network's `gate_proj`,
# `up_proj` and `down_proj` are $W_1$, $W_3$ and $W_2$ of SwiGLU. There are no biases.
#
# One thing differs from our code in 17. We turned *neighboring* entries of a query as a pair: 0 with 1, 2
# with 3. Most open models pair an entry of the first *half* with one of the second: 0 with $d_k/2$, and so
# on. Any pairing will do, as long as training and inference use the same one.

# %%
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)


def rotary(x, base=10_000.0):
    """Turn x (B, heads, T, d_k): entry i of the first half and entry i of the second are a pair."""
    half = x.size(-1) // 2
    frequency = base ** (-torch.arange(half) / half)  # (d_k / 2,)
    angle = torch.arange(x.size(-2)).unsqueeze(1) * frequency  # (T, d_k / 2)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Causal self-attention with rotary positions and grouped queries."""

    def __init__(self, d_model, heads, key_heads):
        super().__init__()
        self.d_k = d_model // heads
        self.q_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(d_model, key_heads * self.d_k, bias=False) for _ in range(2))

    def forward(self, x):  # (B, T, d_model)
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.d_k)).transpose(1, 2)  # (B, heads, T, d_k)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        heads = F.scaled_dot_product_attention(rotary(q), rotary(k), v, is_causal=True, enable_gqa=True)
        return self.o_proj(heads.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(d_model, d_ff, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


# %%
class Layer(nn.Module):
    """x + Sublayer(Norm(x)), twice."""

    def __init__(self, d_model, heads, key_heads, d_ff):
        super().__init__()
        self.self_attn, self.mlp = Attention(d_model, heads, key_heads), MLP(d_model, d_ff)
        self.input_layernorm = nn.RMSNorm(d_model, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(d_model, eps=1e-6)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Tokens (B, T) to logits (B, T, vocab)."""

    def __init__(self, vocab, layers, d_model, heads, key_heads, d_ff):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocab, d_model)
        self.model.layers = nn.ModuleList(Layer(d_model, heads, key_heads, d_ff) for _ in range(layers))
        self.model.norm = nn.RMSNorm(d_model, eps=1e-6)
        self.lm_head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


_ = torch.manual_seed(0)
llama = Llama(vocab=100, layers=2, d_model=32, heads=4, key_heads=2, d_ff=48)
for name, weight in list(llama.state_dict().items())[:10]:
    print(f"{name:48} {tuple(weight.shape)}")

# %% [markdown]
# Is this really a Llama? If the library `transformers` is installed, we can ask it. The folded cell builds
# its `LlamaForCausalLM` with the same sizes, **loads our weights into it by their names**, and compares the
# logits.

# %% tags=["check"]
from importlib.util import find_spec

if find_spec("transformers"):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=100,
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    )
    theirs = LlamaForCausalLM(config).eval()
    theirs.load_state_dict(llama.state_dict())
    tokens = torch.randint(100, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, llama(tokens), atol=1e-4, rtol=1e-4)

# %% [markdown]
# They agree. So these sixty lines are the model of Llama 1 to 3.0, apart from its sizes, its rotary base and
# its norms' epsilon. Llama 3.1 also changes the angles of the slow pairs, as the next section explains. The
# next folded cell builds the model with the sizes of Llama 3 8B (Grattafiori et al., 2024), on the device
# `meta`, where a tensor has a shape but no content, and counts its weights.
#
# **Before you run this:** which has more weights, attention or the networks?

# %% tags=["scaffold"]
with torch.device("meta"):
    large = Llama(vocab=128_256, layers=32, d_model=4096, heads=32, key_heads=8, d_ff=14_336)
count = {"attention": 0, "network": 0, "embeddings": 0, "norms": 0}
for name, weight in large.named_parameters():
    kinds = {"self_attn": "attention", "mlp": "network", "embed": "embeddings", "lm_head": "embeddings"}
    kind = next((kind for part, kind in kinds.items() if part in name), "norms")
    count[kind] += weight.numel()
print(f"{sum(count.values()) / 1e9:.2f} billion weights:", {k: f"{n / 1e9:.2f}" for k, n in count.items()})

# %% tags=["check"]
assert round(sum(count.values()) / 1e9, 2) == 8.03
assert count["network"] > 4 * count["attention"]

# %% [markdown]
# **Remember:** a Llama is the paper's decoder without cross-attention, with RMSNorm before each sub-layer,
# rotary positions, grouped queries and SwiGLU.

# %% [markdown]
# ## Longer texts: the base
#
# A model with rotary positions fails soon after the length that it was trained on. Why? Each pair of a head
# turns at its own speed, $\text{base}^{-2i/d_k}$ per position, and the slowest pair turns once around in
# 54,410 positions (base 10,000, $d_k = 128$). After a training on 4,096 positions, the model has seen this
# pair at a thirteenth of its angles. Beyond, it meets angles that no training has shown it. So there are two
# ways to long texts: train on long texts, or squeeze the positions of a long text into the angles that the
# model knows.
#
# Whoever trains on long texts usually takes a larger base, too, which makes the slow pairs slower. By itself
# it shows the model no new angles; on the contrary, each slow pair passes through a smaller part of its
# circle. But it helps a long training in two ways. A pair that has turned around once gives a far token the
# same angle as a near one, so some pairs should not get around within the text. And when a query and a key
# are *far* from each other, their score should not depend much on the exact distance. Figure 1 shows the mean
# score of a query with a copy of itself, as a function of the distance.

# %% tags=["figure-rotary-score", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
centers = torch.logspace(0, 4.5, 46)  # each dot is a mean over distances within 20% of it
fig, ax = plt.subplots(figsize=(8, 4))
for base, style in ((10_000, "o-"), (500_000, "s--")):
    frequency = float(base) ** (-torch.arange(64) / 64)
    near = [torch.linspace(0.8 * center, 1.2 * center, 200) for center in centers.tolist()]
    score = [(distances.unsqueeze(1) * frequency).cos().mean() for distances in near]
    ax.plot(centers, score, style, label=f"base {base:,}", ms=4)
ax.axhline(0, color="0.6", lw=1)
ax.set(xscale="log", xlabel="distance in tokens", ylabel="score / score at distance 0")
ax.set_title("Rotary positions: a query and an equal key")
ax.legend()
plt.show()

# %% [markdown]
# *Figure 1. The mean of the cosines of all 64 pairs. With the larger base, the slow pairs have hardly turned
# after thousands of tokens, so the score falls more slowly.*

# %%
for base in (10_000, 500_000):
    slowest = float(base) ** (-63 / 64)
    print(f"base {base:7,}: the slowest pair turns once around in {2 * torch.pi / slowest:,.0f} tokens")

# %% tags=["check"]
once = [2 * torch.pi * float(base) ** (63 / 64) for base in (10_000, 500_000)]
assert [round(x, -1) for x in once] == [54_410, 2_559_180] or abs(once[0] - 54_410) < 10
x = torch.randn(1, 1, 9, 8)
torch.testing.assert_close(rotary(x, 500_000.0).norm(dim=-1), x.norm(dim=-1))

# %% [markdown]
# Llama 3 was trained with a base of 500,000. To squeeze a finished model, which was trained on 4,096
# positions and is to read 16,384, divide all positions by four (*position interpolation*; Chen et al., 2023).
# This blurs neighbors, which the fast pairs have to tell apart. **YaRN** (Peng et al., 2023) therefore leaves
# the fast pairs alone, squeezes the slow ones, whose full turn is longer than the texts of the training, and
# squeezes those in between in part. Both methods work best with a little further training.
#
# **Remember:** beyond its training, a model meets angles that it has never seen. So train it on long texts,
# with a larger base, or squeeze the positions.

# %% [markdown]
# ## Attention that reads less: sliding windows
#
# With a *sliding window*, a token looks only at the last $w$ tokens ([14](14_attention_in_pytorch.ipynb),
# Figure 3). The cache of such a layer never grows beyond $w$. Does the model become blind to everything
# older? No: the token that it looks at has itself looked at the $w$ tokens before.
#
# **Before you run this:** four layers have a window of 5, counting the token itself. From how far back can
# the last token be influenced? The folded function `reach` finds it with a gradient.


# %% tags=["scaffold"]
def reach(layers, window, length=40):
    """How many tokens back the last position depends on, in a stack of windowed means."""
    x = torch.ones(length, 1, requires_grad=True)
    gap = torch.arange(length).unsqueeze(1) - torch.arange(length)
    weights = ((gap >= 0) & (gap < window)).float()
    y = x
    for _ in range(layers):
        y = weights / weights.sum(dim=1, keepdim=True) @ y
    y[-1].sum().backward()
    return length - 1 - x.grad.flatten().nonzero().min().item()


# %%
for layers in (1, 2, 4):
    print(f"{layers} layers with a window of 5: {reach(layers, 5)} tokens back")

# %% tags=["check"]
assert [reach(n, 5) for n in (1, 2, 4)] == [4, 8, 16]
assert round(100 / 5**4, 2) == 0.16

# %% tags=["figure-windows", "scaffold"]
gap = torch.arange(22).unsqueeze(1) - torch.arange(22)
window = ((gap >= 0) & (gap < 5)).double()
window = window / window.sum(dim=1, keepdim=True)
fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True)
for ax, layers in zip(axes, (1, 2, 4), strict=True):
    influence = torch.linalg.matrix_power(window, layers)
    ax.imshow(influence > 0, cmap="Blues", vmin=0, vmax=3)
    ax.plot(range(22), range(22), "s", ms=4, color="C0")
    ax.set_title(f"{layers} layer{'s' * (layers > 1)}")
    ax.set_xlabel("is influenced by this token")
axes[0].set_ylabel("this token")
plt.show()

# %% [markdown]
# *Figure 2. A window of 5. The first picture is also the mask of each layer. With each further layer, the
# band grows by four tokens to the left. Dark squares: the token itself.*

# %% [markdown]
# Each layer adds $w - 1$. But little arrives from far away: in our stack of means, the farthest token has a
# share of $1/5^4$, or 0.16%. So models mix: in the code of Gemma 3, five layers with a window are followed by
# one that reads everything, and gpt-oss alternates a window of 128 with full attention.
#
# **Sparse attention** chooses instead. In the code of DeepSeek-V3.2 and GLM-5, a small *indexer*, itself a
# cheap kind of attention, gives every earlier token a score, and attention then reads the 2,048 tokens with
# the best scores, wherever they are. That saves most of the arithmetic for long texts. The cache stays whole,
# because nobody knows what a later query will choose.
#
# In our race of small language models ([17](17_since_2017.ipynb)), a window of four tokens in both layers
# changed the loss by −0.03 ± 0.07 nats: no loss that we can see, on sentences of ten tokens, which are easy
# for windows.
#
# **Remember:** a window bounds the cache, and stacked windows pass on little from far away. A few full
# layers, or an indexer that picks what to read, do the rest.

# %% [markdown]
# ## A memory that does not grow: linear attention
#
# A third way keeps something of everything, in a memory of fixed size. Leave the softmax out: replace the
# weight $e^{q \cdot k}$ by a product $q \cdot k$ of vectors that a simple function has made positive
# (Katharopoulos et al., 2020). Then the query can be taken out of the sum over all earlier tokens:
#
# $$o_t = \frac{\sum_{j \le t} (q_t \cdot k_j)\, v_j}{\sum_{j \le t} q_t \cdot k_j}
# = \frac{q_t S_t}{q_t \cdot z_t}, \qquad S_t = S_{t-1} + k_t^\top v_t, \qquad z_t = z_{t-1} + k_t$$
#
# and the sum is a matrix $S$ of $d_k \times d_v$ numbers, to which every token adds one product. So the same
# layer can be computed as attention with a triangle, all tokens at once, or as a *recurrent network*, which
# carries a state from token to token.

# %%
_ = torch.manual_seed(0)
q, k, v = torch.randn(3, 50, 8)
q, k = F.elu(q) + 1, F.elu(k) + 1  # positive

weights = (q @ k.T).tril()  # (50, 50): as attention
at_once = weights / weights.sum(dim=-1, keepdim=True) @ v

S, z, outputs = torch.zeros(8, 8), torch.zeros(8), []  # as a recurrent network
for q_t, k_t, v_t in zip(q, k, v, strict=True):
    S, z = S + torch.outer(k_t, v_t), z + k_t
    outputs.append(q_t @ S / (q_t @ z))
print("the same outputs:", torch.allclose(torch.stack(outputs), at_once, atol=1e-5))
print(f"a head of 128: state {128 * 128:,} numbers, as many as a cache of {128 * 128 // (2 * 128)} tokens")

# %% tags=["check"]
torch.testing.assert_close(torch.stack(outputs), at_once, atol=1e-5, rtol=1e-4)

# %% [markdown]
# The state is as large as the cache of 64 tokens, and stays so for a million. What is the price? Let a head
# store pairs of a key and a value, both random, and then ask for each value with its key.
#
# **Before you run this:** a head is 32 wide. How many pairs can its state hold before it begins to forget?


# %% tags=["figure-recall", "scaffold"]
def recalled(pairs, width, softmax=False):
    """The share of the keys whose own value is the nearest one to what the memory gives."""
    k, v = F.normalize(torch.randn(2, 20, pairs, width), dim=-1)  # 20 trials
    found = (8 * k @ k.mT).softmax(dim=-1) @ v if softmax else k @ (k.mT @ v)
    return (found @ v.mT).argmax(dim=-1).eq(torch.arange(pairs)).float().mean().item()


_ = torch.manual_seed(0)
counts = [4, 8, 16, 32, 64, 128, 256, 512]
memories = {
    "softmax, width 32": (32, True, "o-"),
    "state of 64 × 64": (64, False, "^--"),
    "state of 32 × 32": (32, False, "s--"),
    "state of 16 × 16": (16, False, "v--"),
}
recall = {
    name: [recalled(n, width, softmax) for n in counts] for name, (width, softmax, _) in memories.items()
}
fig, ax = plt.subplots(figsize=(8, 4))
for name, (_, _, style) in memories.items():
    ax.plot(counts, recall[name], style, label=name)
ax.set(xscale="log", xticks=counts, xticklabels=counts, ylim=(0, 1.05))
ax.minorticks_off()
ax.set(xlabel="pairs in memory", ylabel="share recalled", title="A state of fixed size forgets")
ax.legend(loc="lower left")
plt.show()

# %% [markdown]
# *Figure 3. About as many pairs as the head is wide can be stored safely. Softmax attention looks at every
# pair itself and forgets none, but its cache has grown to 512 pairs.*

# %% tags=["check"]
at = {name: dict(zip(counts, shares, strict=True)) for name, shares in recall.items()}
assert min(recall["softmax, width 32"]) > 0.98
assert at["state of 32 × 32"][16] > 0.98 > 0.9 > at["state of 32 × 32"][64]
assert at["state of 16 × 16"][64] < at["state of 32 × 32"][64] < at["state of 64 × 64"][64]

# %% [markdown]
# Later models write into the state more carefully. **State-space models** such as Mamba (Gu and Dao, 2023)
# let it fade by factors that depend on the token, in the simplest form one for the whole state, $S_t = a_t
# S_{t-1} + k_t^\top v_t$, so a token can clear the memory. Asked with $k_t$, the memory now answers $k_t
# S_{t-1}$. The *delta rule* writes only what this answer lacks, $v_t - k_t S_{t-1}$, in the place of $v_t$.
# Gated DeltaNet (Yang et al., 2024) does both. And **hybrids** keep a few layers of softmax attention, which
# can look anything up: every fourth layer in the code of Qwen 3.5 and Kimi Linear, every eighth in that of
# Jamba, whose other layers are Mamba's.
#
# **Is a long context used?** The usual test hides one sentence (a *needle*) in a long text and asks for it.
# Most models find it, but that takes no more than matching words and copying what follows
# ([13](13_reading_attention.ipynb)). RULER (Hsieh et al., 2024) also hides several needles, lets the model
# follow a value from variable to variable, and makes it count words. Of 17 models that claimed 32,000 tokens
# or more, almost all were nearly perfect at the needle, but only half held up at 32,000 in the rest.
#
# **Remember:** linear attention is a recurrent network whose state is a sum of $k^\top v$. Each token
# costs the same at every length, and it forgets.

# %% [markdown]
# ## Scores that stay small: QK-norm
#
# The paper divides by $\sqrt{d_k}$ because vectors with many entries have large products. In training, the
# entries themselves can grow, too. Then the softmax saturates after all ([02](02_attention.ipynb)), and large
# models have been seen to become unstable in this way (Dehghani et al., 2023). **QK-norm** removes the length
# of the vectors from the score. Henry et al. (2020) divided each query and key by its length, and learned one
# scale in place of $1/\sqrt{d_k}$. Today, each query and each key passes through an RMSNorm of its own, over
# its $d_k$ entries, before it is turned.
#
# **Before you run this:** we multiply $W^Q$ and $W^K$ by 5, as they might grow in a training that goes wrong.
# What share does the most attended token get, without and with the norm?

# %%
_ = torch.manual_seed(0)
x = torch.randn(1, 64, 128)
w_q, w_k = (torch.randn(128, 32) / 128**0.5 for _ in range(2))
for scale in (1, 5):
    q, k = scale * x @ w_q, scale * x @ w_k
    for name, a, b in (("as it is", q, k), ("QK-norm", F.rms_norm(q, (32,)), F.rms_norm(k, (32,)))):
        most = (a @ b.transpose(-2, -1) / 32**0.5).softmax(dim=-1).amax(dim=-1).mean()
        print(f"weights times {scale}, {name:8}: largest share ≈{most:.0%} on average")

# %% tags=["check"]
normed = [F.rms_norm(scale * x @ w_q, (32,)) for scale in (1, 5)]
torch.testing.assert_close(*normed, atol=1e-3, rtol=1e-3)

# %% [markdown]
# With the norm, nothing changes, by construction: the scale of $W^Q$ and $W^K$ no longer matters. Scores are
# at most $\sqrt{d_k}$ times the gains of the two norms, so only these learned gains say how sharp attention
# may become. Qwen 3 and Gemma 3 normalize each head; OLMo 2 normalizes all heads together.
#
# OLMo 2 also moved the *other* norm: it computes `x + Norm(Sublayer(x))`, which is neither the paper's
# post-norm, `Norm(x + Sublayer(x))`, nor pre-norm. Gemma 3 has a norm on both sides of each sub-layer. The
# sum `x` itself, the *residual stream*, is not normalized in either ([06](06_the_full_model.ipynb) explains
# why).
#
# In our race, QK-norm was better by 0.04 ± 0.06 nats, which is no difference that four seeds can show. It is
# there for large models and long training.
#
# **Remember:** QK-norm bounds the scores. The sizes of $W^Q$ and $W^K$ can no longer drive them up; only the
# gains can.

# %% [markdown]
# ## A cache of latents: MLA
#
# Grouped queries shrink the cache by having fewer keys and values. DeepSeek-V2 (2024) goes another way: its
# **multi-head latent attention** (MLA) stores one short vector $c$ for each token, and computes all keys and
# values from it.
#
# $$c_j = x_j W^{down}, \quad k_{j} = c_j W^{K}, \quad v_{j} = c_j W^{V}$$
#
# with matrices $W^K$ and $W^V$ for each head. That would be slow if the keys of all old tokens had to be
# recomputed in each step. But they need not be. (The library `transformers` does recompute them; fast servers
# do not.) The score of token $t$ for token $j$ is
# $q_t \cdot k_j = (x_t W^Q)(c_j W^K)^\top = (x_t W^Q W^{K\top})\, c_j^\top$. So the query can be mapped to
# the size of $c$ once, and compared with the stored vectors directly. The values work in the same way: the
# weights average the latents, and $W^V$ is applied once, to the mean.

# %%
_ = torch.manual_seed(0)
d_model, d_k, rank, T = 64, 16, 12, 9
x = torch.randn(T, d_model)
down, w_q = torch.randn(d_model, rank), torch.randn(d_model, d_k)
w_k = torch.randn(rank, d_k)
c = x @ down  # (T, rank): all that is stored
unfolded = (x @ w_q) @ (c @ w_k).T  # keys computed for every token
absorbed = (x @ w_q @ w_k.T) @ c.T  # the query is mapped instead
print("same scores:", torch.allclose(unfolded, absorbed, rtol=1e-3, atol=1e-2))

# %% tags=["check"]
torch.testing.assert_close(unfolded.double(), absorbed.double(), rtol=1e-3, atol=1e-2)

# %% [markdown]
# There is one obstacle: rotary positions. With turned queries and keys, the score is
#
# $$q_t R_t (k_j R_j)^\top = x_t \, \big(W^Q R_t R_j^\top W^{K\top}\big)\, c_j^\top,$$
#
# and $R_t R_j^\top$ is the turn by the distance $t - j$. So every distance would need a product of its own,
# and nothing can be multiplied in advance. The way out is to give each key two parts: one from the latent
# without positions, and a small one with rotary positions that all heads share. In the code of DeepSeek-V3
# the latent has 512 numbers and the shared part 64:

# %%
full = 2 * 128 * 128  # a key and a value of 128 numbers in each of 128 heads
grouped = 2 * 8 * 128  # eight heads of keys and values
latent = 512 + 64
print(f"numbers per token and layer: {full:,} in full, {grouped:,} in 8 groups, {latent} as a latent")

# %% tags=["check"]
assert (full, grouped, latent) == (32_768, 2_048, 576)

# %% [markdown]
# **Remember:** MLA stores one short latent vector per token and layer, and maps the query to it instead of
# mapping every latent to keys.

# %% [markdown]
# ## Many networks, few at a time: mixtures of experts
#
# Seven tenths of our Llama's weights are in its networks, and every token uses all of them. A **mixture of
# experts** has many networks and a *router*, a linear map with a score for each of them. A token goes through
# the few experts with the highest scores, and their outputs are added, weighted by the scores. So, if the
# chosen experts are together as wide as the one network was, the model has many more weights for the same
# *arithmetic* per token.  (The idea is older than the paper, whose Table 2 has a system of that name by
# Shazeer et al., 2017.)


# %%
class Experts(nn.Module):
    """`experts` networks, of which each token uses `active`."""

    def __init__(self, d_model, d_ff, experts=8, active=2):
        super().__init__()
        self.router = nn.Linear(d_model, experts, bias=False)
        self.experts = nn.ModuleList(MLP(d_model, d_ff) for _ in range(experts))
        self.active = active
        self.register_buffer("bias", torch.zeros(experts))  # used below; moves the choice, not the weights

    def forward(self, x):  # (tokens, d_model)
        scores = self.router(x).sigmoid()  # (tokens, experts)
        chosen = (scores + self.bias).topk(self.active).indices  # (tokens, active)
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(dim=1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)  # the tokens that this expert gets
            out.index_add_(0, token, weights[token, place, None] * expert(x[token]))
        return out


# %% [markdown]
# The difficulty is *balance*. If the router prefers some experts early in training, these learn more, are
# preferred even more, and the others are wasted. Where experts lie on different GPUs, a busy one also makes
# all others wait. Some systems give each expert a **capacity**, such as 1.25 times its even share, and drop
# the tokens that come too late: they skip the layer. Many models add a term to the loss (Fedus et al., 2021),
# for $n$ experts
#
# $$\alpha \, n \sum_{i=1}^n f_i P_i$$
#
# where $f_i$ is the share of the choices that fall on expert $i$, and $P_i$ is the mean of its probability,
# which is its part of the router's scores. It is $\alpha$ if all are even, and more if the experts with high
# probabilities are the busy ones. A count has no gradient, but $P_i$ has one, and this gradient is larger for
# busier experts. DeepSeek-V3 hardly needs such a term (only a very small one remains). Instead, it adds a
# number to each expert's score, *for the choice only*. After each batch, it is lowered for experts with too
# many tokens and raised for those with too few.
#
# **Before you run this:** our router is skewed from the start. How many of 1,000 tokens does the busiest
# expert get before and after 100 such corrections? If the two experts of each token were spread evenly, every
# expert would get 250.

# %%
_ = torch.manual_seed(0)
layer = Experts(d_model=16, d_ff=24)
with torch.no_grad():
    layer.router.weight.mul_(3)
    layer.router.weight[0] += 1.0  # a favorite, for inputs whose mean is positive


def load(layer, x):
    chosen = (layer.router(x).sigmoid() + layer.bias).topk(layer.active).indices
    return chosen.flatten().bincount(minlength=8)


with torch.no_grad():
    batch = torch.randn(1000, 16) + 0.3
    skewed = load(layer, batch)
    full = int(1.25 * 1000 * 2 / 8)  # a capacity of 1.25 times the even load
    print(f"before: {skewed.tolist()}; over a capacity of {full}: {(skewed - full).clamp(min=0).sum()}")
    for _ in range(100):
        counts = load(layer, torch.randn(1000, 16) + 0.3)
        layer.bias += 0.01 * (counts.float().mean() - counts).sign()
    print("after: ", load(layer, batch).tolist())

# %% tags=["check"]
with torch.no_grad():
    assert load(layer, batch).max() < 320 < 400 < load(Experts(16, 24).requires_grad_(False), batch + 9).max()
    probs = layer.router(batch).sigmoid()
    probs = (probs / probs.sum(dim=1, keepdim=True)).mean(dim=0)  # P; the shares f are load / 2,000
    terms = [8 * (loads / 2000 * probs).sum().item() for loads in (skewed, load(layer, batch))]
    assert [round(term, 2) for term in terms] == [1.2, 1.0]
    one = Experts(16, 24, experts=1, active=1)
    torch.testing.assert_close(one(batch), one.experts[0](batch))  # a single expert is an ordinary network

# %% tags=["figure-experts", "scaffold"]
fig, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for ax, loads, title in zip(
    axes, (skewed, load(layer, batch)), ("before", "after 100 corrections"), strict=True
):
    ax.bar(range(8), loads)
    ax.axhline(250, color="0.4", linestyle="--", lw=1)
    ax.set(title=title, xlabel="expert", xticks=range(8))
axes[0].set_ylabel("tokens of 1,000")
plt.show()

# %% [markdown]
# *Figure 4. Before, one expert gets three quarters of all tokens, and others get one in ten. The numbers that
# were added for the choice make the load even: without $\alpha$, the term above falls from 1.20 to 1.00.*
#
# In the code of DeepSeek-V3, every layer but the first three has 256 such experts, of which a token uses 8,
# and one more expert that every token uses. How many weights does the model have, and how many does a token
# use? The folded cell counts them. (In this model the queries, too, are computed from a latent, of 1,536
# numbers.)

# %% tags=["scaffold"]
expert = 3 * 7168 * 2048  # three matrices of SwiGLU
dense = 3 * (3 * 7168 * 18_432)  # the networks of the first three layers
attention = 61 * (  # MLA, with 128 heads
    7168 * (1536 + 512 + 64)  # to the latent of the queries, that of keys and values, and the turned part
    + 1536 * 128 * (128 + 64)  # queries, with a turned part
    + 512 * 128 * (128 + 128)  # keys and values
    + 128 * 128 * 7168  # the output
)
tables = 2 * 129_280 * 7168  # the embeddings and the output
for name, experts in (("stored", 256 + 1), ("used by a token", 8 + 1)):
    print(f"{name:15} {(58 * experts * expert + dense + attention + tables) / 1e9:5.0f} billion weights")

# %% tags=["check"]
assert round((58 * 257 * expert + dense + attention + tables) / 1e9) == 671
assert round((58 * 9 * expert + dense + attention + tables) / 1e9) == 37

from statistics import mean, variance

from annotated.recorded import recorded

race = recorded("language_model")


def seeds(name, rate, split):
    runs = race["contestants"][name]
    return [run[split] for run in runs if run["rate"] == rate and run["seed"] in race["seeds"]]


control = seeds("+ SwiGLU", race["rate"]["+ SwiGLU"], "test")
apart = []  # the difference from the control, and half of its 95% interval (t of 3 degrees of freedom)
for name in ("+ window", "+ QK-norm", "+ experts"):
    tested = seeds(name, race["rate"][name], "test")
    half = 3.182 * ((variance(tested) + variance(control)) / 4) ** 0.5
    apart.append((round(mean(tested) - mean(control), 2), round(half, 2)))
assert apart == [(-0.03, 0.07), (-0.04, 0.06), (0.16, 0.34)]
assert race["rate"]["+ experts"] == 4 * 0.02
assert [round(mean(seeds(name, 0.02, "val")), 2) for name in ("+ experts", "+ SwiGLU")] == [3.02, 3.03]

# %% [markdown]
# These are the "671B total, 37B active" of its report. Memory has to hold the first number; the arithmetic of
# a token, and $C = 6ND$ ([17](17_since_2017.ipynb)), count the second.
#
# We raced eight experts, two for each token, against one network with the same arithmetic. At the rate that
# suited one seed, two of four other seeds trained badly (+0.16 ± 0.34 nats), although the load was even. At a
# quarter of that rate, tried afterwards, the two were equal (3.02 and 3.03 on the validation text). Four
# times the weights brought nothing in 300 updates. All three races are in [Which changes since 2017 pay
# here?](evidence/which_changes_since_2017_pay.ipynb)
#
# **Remember:** a mixture of experts has many networks and uses few for each token: memory counts all weights,
# arithmetic the active ones. The router has to be kept balanced.

# %% [markdown]
# ## Another optimizer: Muon
#
# Adam treats each weight by itself. But the weights of a layer form a matrix, and a matrix stretches some
# directions more than others. In an update, a few directions are usually much stronger than all the rest.
# **Muon** (Jordan et al., 2024; `torch.optim.Muon`) makes all directions of an update equally strong. It
# keeps a running mean of the gradients, as Adam does, and replaces that matrix by the nearest *orthogonal*
# one, which turns vectors without stretching any. Every matrix can be written as $G = U \Sigma V^\top$, where
# $U$ and $V$ only turn, and the diagonal $\Sigma$ holds the *singular values*, by which $G$ stretches its
# directions. The nearest orthogonal matrix is then $U V^\top$. A few products approximate it without the
# decomposition (the Newton–Schulz iteration): each step replaces every singular value $s$ by $as+bs^3+cs^5$,
# which brings it near 1.


# %%
def orthogonalize(g, steps=5):
    """Push all singular values of g toward 1 (Newton and Schulz, with Muon's coefficients)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / g.norm()
    for _ in range(steps):
        xxt = x @ x.T
        x = a * x + (b * xxt + c * xxt @ xxt) @ x
    return x


_ = torch.manual_seed(0)
update = torch.randn(16, 4) @ torch.randn(4, 32) + 0.1 * torch.randn(16, 32)  # four strong directions
for name, matrix in (("the update", update / update.norm()), ("made orthogonal", orthogonalize(update))):
    values = torch.linalg.svdvals(matrix)
    print(f"{name:16} singular values from {values.max():.2f} to {values.min():.3f}")

# %% tags=["check"]
values = torch.linalg.svdvals(orthogonalize(update))
assert 0.3 < values.min() < values.max() < 1.3
before = torch.linalg.svdvals(update)
s = before / before.norm()
once = torch.linalg.svdvals(orthogonalize(update, steps=1))
torch.testing.assert_close(once, (3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5).sort(descending=True).values)
assert before.max() > 20 * before.min()

# %% tags=["figure-muon", "scaffold"]
fig, ax = plt.subplots(figsize=(7, 3))
ax.plot(
    range(1, 17), torch.linalg.svdvals(update / update.norm()), "o-", label="the update, divided by its norm"
)
ax.plot(range(1, 17), torch.linalg.svdvals(orthogonalize(update)), "s--", label="made orthogonal")
ax.axhline(1, color="0.6", lw=1)
ax.set(xlabel="direction", ylabel="singular value", ylim=(0, 1.3))
ax.legend(loc="center right", bbox_to_anchor=(1, 0.33))
plt.show()

# %% [markdown]
# *Figure 5. How strong each of the 16 directions of the update is, in order. At first, four directions are
# strong and the others are nearly lost. Afterwards, all of them move the weights about equally far.*
#
# The singular values need not become exactly 1; it is enough that none is left behind. Muon is used for the
# matrices inside the layers, and Adam for the rest. Does it help? In our race of small models it won clearly
# ([17](17_since_2017.ipynb)). Kimi K2 (2025), with a trillion weights, was trained with a form of it.
#
# **Remember:** Muon makes all directions of a matrix's update about equally strong.

# %% [markdown]
# ## Decay, schedule, width
#
# Four more choices are in nearly every recipe.
#
# **Weight decay** pulls every weight toward 0. One could add $\lambda w$ to the gradient. But Adam divides
# the gradient by its usual size, and so the pull is divided, too. *AdamW* (Loshchilov and Hutter, 2019)
# therefore *decouples* it: Adam's update sees the gradient alone, and then the weight is multiplied by
# $1 - \eta\lambda$, with the learning rate $\eta$.
#
# **Before you run this:** a thousand weights get small random gradients, and a thousand get large ones. Which
# shrink more, in either way?

# %%
for optimizer in (torch.optim.Adam, torch.optim.AdamW):
    _ = torch.manual_seed(0)
    w = nn.Parameter(torch.ones(2, 1000))
    adam = optimizer([w], lr=0.001, weight_decay=0.1)
    for _ in range(2000):
        w.grad = torch.randn(2, 1000) * torch.tensor([[0.01], [1.0]])
        adam.step()
    left = w.detach().mean(dim=1)
    print(f"{optimizer.__name__:5}: small gradients ≈{left[0]:.2f} is left, large ones ≈{left[1]:.2f}")
print(f"(1 - 0.001 · 0.1) ** 2000 = {(1 - 0.0001) ** 2000:.2f}")

# %% tags=["check"]
assert (left - 0.9999**2000).abs().max() < 0.01

# %% [markdown]
# With AdamW, all weights shrink by the same factor.
#
# **The schedule.** Half a cosine has to know its end from the beginning, and a model taken before the end is
# worse than it could be: the rate is still high. A **warm-up–stable–decay** schedule (Hu et al., 2024) keeps
# the rate constant, and lowers it only in the last tenth or so. From any point of the constant part, you can
# cool down and have a finished model, or go on with more text ([21](21_averaging.ipynb) cools our own model).
#
# **The width.** The best learning rate changes with the width of a model, and a large model cannot be tuned.
# In *μP* (Yang et al., 2022), the first weights and the rate of each matrix are scaled with the width so that
# an update changes every layer's output by as much in a wide model as in a narrow one. Then the best rate of
# a narrow model is nearly the best rate of a wide one; Yang et al. tuned 40 million weights and trained 6.7
# billion.
#
# **The batch.** A larger batch gives a gradient with less noise. That pays until the noise is as small as the
# gradient itself. Far beyond this *critical batch size*, twice the batch hardly saves updates; it grows while
# the loss falls (McCandlish et al., 2018).
#
# **Remember:** decay the weights beside Adam, not through it. Cool down at the end. In μP, learning rates
# found in a narrow model hold for a wide one.

# %% [markdown]
# ## Reading a model's code
#
# | in the code | what it is | replaced |
# |---|---|---|
# | `input_layernorm` | RMSNorm *before* attention ([06](06_the_full_model.ipynb)) | layer norm after it |
# | `post_attention_layernorm` | Llama, Qwen 3: RMSNorm before the network | layer norm after it |
# | the same name | OLMo 2, Gemma 3: a norm of what attention found, before it is added | – |
# | `apply_rotary_pos_emb`, `rope_parameters` | turned queries and keys, and the base | added sines |
# | `num_key_value_heads` | grouped queries, if fewer than `num_attention_heads` | a key head per query head |
# | `head_dim` | $d_k$, which need not be $d_{model}/h$ any more | $d_{model}/h$ |
# | `gate_proj` or `gate_up_proj`, `hidden_act` | SwiGLU (`silu`), GeGLU (`gelu` instead) | ReLU network |
# | `q_norm`, `k_norm` | QK-norm | – |
# | `sliding_window`, `layer_types` | which layers look how far back | full attention everywhere |
# | `kv_lora_rank` | the size of MLA's latent | keys and values in the cache |
# | `qk_rope_head_dim` | MLA's part with positions | – |
# | `num_experts_per_tok` | a mixture of experts, and how many a token uses | one network |
# | `e_score_correction_bias` | what balances the experts | a term in the loss |
# | `index_topk` | how many keys an indexer picks for each query | all keys |
# | `no_rope_layers` | which layers have no positions at all | – |
# | `sinks` | a learned score per head that takes a share of the softmax but contributes no value | – |
# | `tie_word_embeddings` | the shared table (section 3.4) | – |
#
# One name can mean two things, as the second and third rows show. Read the forward method.
#
# What most of these models share with the paper: a residual stream, heads, the scaled dot product,
# position-wise networks, softmax over the vocabulary, and training to predict the next token. Even this core
# has begun to change. In the code of Qwen 3.5, three of four layers have no softmax (`linear_attention`). In
# the code of DeepSeek-V4, the single stream has become several that are mixed (`HyperConnection`).

# %% [markdown]
# ## What you can now say
#
# - A Llama is sixty lines; its checkpoint's names say which matrix of the paper each one is.
# - Long texts are made possible by training on them with a larger rotary base, or by squeezed positions, and
#   affordable by windows, an indexer, a state of fixed size in most layers, or smaller caches: groups or
#   latents.
# - QK-norm bounds the scores, experts add weights without adding arithmetic per token, and Muon equalizes an
#   update's directions.
# - Weight decay stands beside Adam, the rate falls at the end, and μP carries it from narrow to wide models.
#
# **Deeper:** [Which changes since 2017 pay here?](evidence/which_changes_since_2017_pay.ipynb)
#
# **Next:** how a model that continues text is made to answer, in
# [20_from_text_to_answers](20_from_text_to_answers.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** A model has 48 layers, 8 heads of keys and values, and $d_k = 128$. How many
# numbers per token does its cache hold? Now five of every six layers get a window of 1,024. How many numbers
# are kept for a text of 100,000 tokens, before and after? How many with neither windows nor groups, but with
# the latent of DeepSeek-V3 in every layer? And how many if three of four layers keep a state, 128 × 128 in
# each of 32 heads, in the place of their cache?

# %% tags=["solution"]
per_layer = 2 * 8 * 128
everything = 48 * per_layer * 100_000
with_windows = 8 * per_layer * 100_000 + 40 * per_layer * 1024
latents = 48 * (512 + 64) * 100_000
print(f"{48 * per_layer:,} numbers a token; {everything:,} before, {with_windows:,} after")
hybrid = 12 * per_layer * 100_000 + 36 * 32 * 128 * 128
print(f"with latents {latents:,}: less than a third of the groups', and more than with windows")
print(f"with states {hybrid:,}: a quarter of the groups', nearly all of it in the twelve other layers")
assert 5.4 < everything / with_windows < 5.8
assert with_windows < latents < everything / 3
assert 0.25 < hybrid / everything < 0.26

# %% [markdown]
# **Exercise 2 (medium).** Build. A model was trained with neighboring pairs, as in 17, and you want to run it
# in code that pairs halves. Write `to_halves`, which reorders the rows of `q_proj` or `k_proj` so that the
# scores stay the same.


# %% tags=["exercise"]
def to_halves(weight, d_k):
    """Rows (heads * d_k, d_model) for neighboring pairs -> the same rows in the order that pairs halves."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_to_halves(to_halves):
    torch.manual_seed(0)
    heads, d_k, d_model = 3, 8, 5
    x, w_q, w_k = (
        torch.randn(1, 6, d_model),
        torch.randn(heads * d_k, d_model),
        torch.randn(heads * d_k, d_model),
    )

    def by_neighbors(x):  # (1, heads, T, d_k), turned as in 17
        angle = torch.arange(6).unsqueeze(1) * 10_000.0 ** (-torch.arange(0, d_k, 2) / d_k)
        a, b = x[..., 0::2], x[..., 1::2]
        turned = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.stack(turned, dim=-1).flatten(-2)

    def scores(w_q, w_k, turn):
        q, k = ((x @ w.T).unflatten(-1, (-1, d_k)).transpose(1, 2) for w in (w_q, w_k))
        return turn(q) @ turn(k).transpose(-2, -1)

    def by_halves(x):
        angle = torch.arange(6).unsqueeze(1) * 10_000.0 ** (-torch.arange(0, d_k, 2) / d_k)
        a, b = x[..., : d_k // 2], x[..., d_k // 2 :]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)

    changed = [to_halves(w.clone(), d_k) for w in (w_q, w_k)]
    for new, old in zip(changed, (w_q, w_k), strict=True):
        shape = getattr(new, "shape", new)
        assert shape == old.shape, f"{tuple(old.shape)} is wanted, not {shape}"
        assert torch.equal(new.sort(dim=0).values, old.sort(dim=0).values), "the rows are not the same ones"
    old, new = scores(w_q, w_k, by_neighbors), scores(*changed, by_halves)
    for head in range(heads):
        off = (new - old)[0, head].abs().max().item()
        assert off < 1e-3, f"the scores of head {head} differ by {off:.2f}"


try:
    test_to_halves(to_halves)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(weight, d_k):
    """Rows (heads * d_k, d_model) for neighboring pairs -> the same rows in the order that pairs halves."""
    pairs = weight.unflatten(0, (-1, d_k // 2, 2))  # (heads, pair, which of the two, d_model)
    return pairs.transpose(1, 2).flatten(0, 2)


test_to_halves(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. Open the code of a current model in the library `transformers`, in a file
# named `modeling_….py`, and read its attention and its layer. Name every line with the table above. Which
# lines are not in it? (For Qwen 3, for instance, two lines of `forward` differ from our `Attention`, and its
# `head_dim` is given by the configuration. For gpt-oss, more is different.)

# %% tags=["solution"]
if find_spec("transformers"):
    import inspect

    from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

    code = inspect.getsource(Qwen3Attention.forward)
    assert "self.q_norm(self.q_proj" in code
    assert "self.k_norm(self.k_proj" in code
# Qwen 3 normalizes queries and keys before they are turned; the rest of its forward method is ours.
