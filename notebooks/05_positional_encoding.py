# %% [markdown]
# # 05 · Positional encoding
#
# **You take the positions out of a translator and see what is lost. Then you build the encoding from clocks,
# and you build, by hand, an attention head that always looks one word back, even at position 100,000.**
#
# Previous: [04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb) · Next:
# [06_the_full_model](06_the_full_model.ipynb)
#
# *23 minutes to read, a few seconds to run.*
#
# - **Before:** you know attention with its queries and keys ([02](02_attention.ipynb)), and how words become
#   vectors ([04](04_feed_forward_and_embeddings.ipynb)).
# - **After:** you can write the encoding, and say what its sines and cosines are good for.
#
# This is section 3.5 of the paper (Vaswani et al., 2017, [arXiv
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
# ## A translator without positions
#
# We load the package's English-to-German translator twice. In the second copy, the *blind* one, we set the
# encoder's positions to zero.
#
# **Before you run this:** what will the blind translator make of two sentences that have the same words in
# a different order?

# %%
from annotated import load_pretrained

translator, blind = load_pretrained("multi30k-en-de"), load_pretrained("multi30k-en-de")
_ = blind.model.src_embed[1].pe.zero_()
for sentence in ("A man looks at a dog.", "A dog looks at a man."):
    print(f"{sentence}  with positions: {translator(sentence):30} without: {blind(sentence)}")

# %% tags=["check"]
first, second = "A man looks at a dog.", "A dog looks at a man."
assert translator(first) != translator(second)
assert blind(first) == blind(second)

# %% [markdown]
# Without positions, both sentences get the same translation. This is not because the model is bad. It
# *cannot* know the difference. In [00](00_start_here.ipynb) you saw why: attention is a weighted mean,
# and a mean does not depend on the order of its terms. If you shuffle the words that go into the encoder,
# the same vectors come out, shuffled. The decoder takes weighted means of these vectors, so it cannot see
# a difference.
#
# > "Since our model contains no recurrence and no convolution, in order for the model to make use of the
# > order of the sequence, we must inject some information about the relative or absolute position of the
# > tokens in the sequence." (section 3.5)
#
# Only a causal mask reveals something about the order, because a later position sees more words than an
# earlier one. A decoder can learn to use this (Haviv et al., [2022](https://arxiv.org/abs/2203.16634)), but
# an encoder has no such mask.
#
# **Remember:** attention without a mask sees a bag of words, so the model must be told each word's position.

# %% [markdown]
# ## What could we add?
#
# The model adds to each word's vector a second vector that depends only on the position. Which one?
#
# **The number itself.** We could add 0 to all entries of the first word, 1 to all entries of the second,
# and so on. But at position 500, the number would be hundreds of times as large as the word's own
# entries, and it would swamp them.
#
# **Binary digits.** A better idea is to write the position in binary: position 6 is `0110`, and position 7 is
# `0111`. All entries are small, every position has its own pattern, and 16 digits are enough to count to
# 65,535. The last digit changes at every step, and each of the others changes half as often as the digit to
# its right. So the fast digits tell near positions apart, and the slow digits tell far positions apart. But
# binary digits *jump*. From 7 (`0111`) to 8 (`1000`) all four digits change, although the positions are
# neighbors.
#
# What we want is a binary counter that moves smoothly. A set of waves, each half as fast as the one before,
# is such a counter:

# %%
import math

import torch

position = torch.arange(64).unsqueeze(1)  # (64, 1)
digits = position // 2 ** torch.arange(6) % 2 * 1.0  # (64, 6), the fastest first
speeds = 0.5 ** torch.arange(6)  # 1, 1/2, 1/4 ...
waves = torch.cat([(position * speeds).sin(), (position * speeds).cos()], dim=1)  # (64, 12)
for name, table in (("digits", digits), ("waves", waves)):
    steps = (table[1:] - table[:-1]).norm(dim=1)
    print(f"{name}: the steps from one position to the next are {steps.min():.2f} to {steps.max():.2f} long")

# %% tags=["figure-counter", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
fine = torch.arange(0, 63.1, 0.1).unsqueeze(1)  # between the positions, too: (631, 1)
fig, axes = plt.subplots(3, 2, figsize=(11, 5.4), sharex=True)
for row, place in zip(axes, (0, 2, 4), strict=True):
    row[0].step(position, digits[:, place], where="post", color="C1")
    row[1].plot(fine, (fine * speeds[place]).sin(), color="C0")
    row[1].plot(position, (position * speeds[place]).sin(), "o", color="C0", markersize=4)
    row[0].set(yticks=[0, 1], ylabel=f"digit {place + 1}")
    row[1].set(yticks=[-1, 1], ylabel=f"wave {place + 1}")
axes[0, 0].set(title="Binary digits jump")
axes[0, 1].set(title="Waves move smoothly")
for ax in axes[-1]:
    ax.set(xlabel="position")
plt.show()

# %% [markdown]
# *Figure 1. Counting from 0 to 63 with digits 1, 3 and 5 of six (left) and with waves 1, 3 and 5 of six
# (right), the fastest first. The dots are the values at whole positions.*

# %% tags=["check"]
assert digits[13].tolist() == [1, 0, 1, 1, 0, 0]
lengths = (waves[1:] - waves[:-1]).norm(dim=1)
assert 1.115 < lengths.min() < lengths.max() < 1.125

# %% [markdown]
# The figure shows the sine of each wave, and the code takes its cosine, too. With all six pairs, every step
# from one position to the next has the same length, 1.12. With the digits, the longest step is more than
# twice as long as the shortest.

# %% [markdown]
# ## Clocks
#
# > "In this work, we use sine and cosine functions of different frequencies [...]." (section 3.5)
#
# $$PE_{(pos,\,2i)} = \sin\!\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE_{(pos,\,2i+1)} = \cos\!\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# Here $pos$ is the word's position, and $i$ counts *pairs* of entries. Entries $2i$ and $2i + 1$ are the sine
# and the cosine of one angle. The angle is the position times a number that belongs to the pair, its
# **frequency** $\omega_i = 10000^{-2i/d_{model}}$. From pair to pair, the exponent changes by $-2/d_{model}$,
# so each frequency is the previous one times the same constant. The frequencies fall from 1 to almost
# 1/10000. An angle that grows steadily is like the hand of a clock: the sine says how far to the right the
# tip of the hand is, and the cosine says how far up it is.
#
# In code, this takes four lines. We compute the angles in float64, because in float32 the fourth decimal
# would be wrong at position 5,000.


# %%
def sinusoids(length, d_model, base=10000.0):
    """The positional encodings: (length, d_model), d_model even."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = base ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # sine, cosine, sine, cosine ...


for word, row in zip(("a", "cat", "runs"), sinusoids(3, 4).tolist(), strict=True):
    print(f"{word:5}", "".join(f"{value:7.2f}" for value in row))

# %% tags=["check"]
import annotated

assert torch.allclose(sinusoids(5000, 512).float(), annotated.sinusoids(5000, 512))
assert torch.allclose(sinusoids(3, 4)[1, :2], torch.tensor([math.sin(1), math.cos(1)]).double())

# %% [markdown]
# These are the numbers that you saw in 00. With $d_{model} = 4$ there are two hands, and the first turns
# 100 times as fast as the second. With six entries there are three hands. Here they are on one clock:

# %% tags=["figure-clocks", "scaffold"]
import altair as alt

pos = alt.param(name="pos", value=10, bind=alt.binding_range(min=0, max=100, step=1, name="position "))
hands = [{"speed": 10000 ** (-2 * i / 6), "hand": f"entries {2 * i}, {2 * i + 1}", "i": i} for i in range(3)]
turned = alt.Chart(alt.Data(values=hands)).transform_calculate(  # drawn shorter, to tell them apart
    x="(1 - 0.25 * datum.i) * sin(pos * datum.speed)", y="(1 - 0.25 * datum.i) * cos(pos * datum.speed)"
)
inside = {"scale": alt.Scale(domain=[-1.1, 1.1]), "axis": None}
hand = turned.mark_rule(strokeCap="round").encode(
    x=alt.X("x:Q", **inside),
    y=alt.Y("y:Q", **inside),
    x2=alt.datum(0),
    y2=alt.datum(0),
    color=alt.Color("hand:N", title=None),
    strokeWidth=alt.StrokeWidth("i:O", scale=alt.Scale(range=[3, 5, 7]), legend=None),
)
dial = alt.Chart(alt.sequence(0, 6.3, 0.05, as_="angle")).transform_calculate(
    x="1.05 * sin(datum.angle)", y="1.05 * cos(datum.angle)"
)
dial = dial.mark_line(color="gray", strokeWidth=1).encode(
    x=alt.X("x:Q", **inside), y=alt.Y("y:Q", **inside), order="angle:Q"
)
read = turned.transform_calculate(sine="sin(pos * datum.speed)", cosine="cos(pos * datum.speed)")
read = (
    read.transform_fold(["sine", "cosine"], as_=["what", "value"])
    .mark_bar()
    .encode(
        x=alt.X("value:Q", title="entry", scale=alt.Scale(domain=[-1, 1])),
        y=alt.Y("what:N", title=None, sort=["sine", "cosine"]),
        row=alt.Row("hand:N", title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
        color=alt.Color("hand:N", legend=None),
    )
)
alt.hconcat(
    (dial + hand).properties(width=220, height=220, title=alt.Title(alt.expr("'position ' + pos"))),
    read.properties(width=180, height=44),
    title="Three hands of one clock",
).add_params(pos)

# %% [markdown]
# *Figure 2. Position 10 as a clock, and its six entries. In a live notebook, move the slider: the long
# hand turns by one radian at every position, the middle hand by 0.046, and the short hand by 0.002. No two
# positions show the same time.*
#
# The long hand completes a turn after about six positions, so by itself it would soon repeat. The short
# hand needs about 2,900 positions for a turn, but from one position to the next it hardly moves. Together,
# the hands tell both near and far positions apart.
#
# Why both a sine and a cosine? With the sine alone you would know how far to the right the tip is, but not
# whether it is in the upper or the lower half. One reading would belong to two different times.
#
# **Remember:** each pair of entries is one hand of a clock, the hands have different speeds, and together
# they tell the position.

# %% [markdown]
# ### Reading other people's code
#
# Many implementations compute $10000^{-2i/d}$ as `exp(-(2i/d) * log(10000))`. It is the same number, because
# $a^b = e^{b \log a}$, and it is no more exact. The form comes from the authors' code, which first computes
# the step from one hand to the next: the logarithms of the frequencies go down in equal steps.
#
# If you load somebody's weights, check two things. The authors' own code (tensor2tensor) puts all sines
# before all cosines, and its exponents differ slightly from those of the formula.

# %% [markdown]
# ## Only the distance counts
#
# Attention compares vectors by their dot product. So what is the dot product of two positions? Take one
# hand. At the first position its angle is $a$, and at the second position its angle is $b$. This hand's
# part of the dot product is $\sin a \sin b + \cos a \cos b$, which is $\cos(a - b)$. Only the difference
# is left.

# %% tags=["figure-similarity"]
pe = sinusoids(60, 512)
similarity = pe @ pe.T  # (60, 60)
fig, ax = plt.subplots(figsize=(6, 4.8))
fig.colorbar(ax.imshow(similarity, cmap="Blues", vmin=0), label="dot product")
ax.set(title="Two positions compared", xlabel="position", ylabel="position")
plt.show()
print("dot products of neighbors:", [round(similarity[i, i + 1].item(), 3) for i in (0, 10, 50)])

# %% [markdown]
# *Figure 3. The dot products of the first 60 positions. Every diagonal has one color: how similar two
# positions are depends only on how far apart they are.*

# %% tags=["check"]
for k in range(60):
    diagonal = similarity.diagonal(k)
    assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal))
assert abs(similarity[0, 0] - 256) < 1e-6

# %% [markdown]
# The dot product of a position with itself is 256, because each of the 256 hands adds $\cos 0 = 1$. With each
# of its neighbors it is 249.
#
# Why 10000? The paper gives no reason. We try other bases, and divide the dot products by 256, so that the
# dot product of a position with itself becomes 1.
#
# **Before you run this:** a small base makes all hands fast. Which positions can you no longer tell apart?

# %%
for base in (10, 100, 10_000, 1_000_000):
    pe = sinusoids(1001, 512, base)
    compared = (pe[[1, 10, 100, 1000]] @ pe[0] / 256).tolist()
    print(f"base {base:9,}: 1, 10, 100, 1000 apart:", " ".join(f"{value:5.2f}" for value in compared))

# %% tags=["check"]
compared = {base: sinusoids(1001, 512, base) @ sinusoids(1, 512)[0] / 256 for base in (10, 10_000, 1_000_000)}
assert max(abs(compared[10][[100, 1000]])) < 0.05
assert all(compared[10_000][[1, 10, 100]] > compared[10_000][[10, 100, 1000]] + 0.2)
assert compared[1_000_000][1] > compared[10_000][1]

# %% [markdown]
# With a base of 10, positions that are 100 and 1,000 apart look equally unlike. With 10000, the similarity
# still decreases from the first of these distances to the second. With a million it falls farther out, but
# neighbors look more alike, because most hands hardly move. So the base decides which distances the hands can
# distinguish best. Models that read long texts use a larger base ([19](19_a_model_of_today.ipynb)).
#
# Whatever the base, the dot product cannot tell forward from backward. How, then, can a head ask for the word
# *before*?

# %% [markdown]
# ## One matrix moves every position
#
# > "We chose this function because we hypothesized it would allow the model to easily learn to attend by
# > relative positions, since for any fixed offset $k$, $PE_{pos+k}$ can be represented as a linear function
# > of $PE_{pos}$." (section 3.5)
#
# In plain words: to set a clock forward by $k$ positions, turn each hand by a fixed angle. A fast hand turns
# far and a slow hand only a little, but how far a hand turns does not depend on the time that the clock
# shows. Turning a hand is a *rotation*, and a rotation is a multiplication by a matrix. If a hand shows the
# angle $a$ and has to turn by $b = k\,\omega_i$, then
#
# $$\begin{pmatrix} \sin(a + b) \\ \cos(a + b) \end{pmatrix} =
# \begin{pmatrix} \cos b & \sin b \\ -\sin b & \cos b \end{pmatrix}
# \begin{pmatrix} \sin a \\ \cos a \end{pmatrix}$$
#
# The matrix contains only $b$, not $a$. (You will derive it in Exercise 1.) One such block for each hand
# makes a matrix that sets every clock forward:


# %%
def rotation(k, d_model):
    """The matrix that takes the encoding of any position to that of k positions later."""
    angles = k * 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    blocks = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles.tolist()]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))  # a 2 x 2 block for each hand


encodings = sinusoids(4003, 64)
moved = encodings[:4000] @ rotation(3, 64).T
print(f"4,000 positions moved by 3 with one matrix; largest error: {(moved - encodings[3:]).abs().max():.6f}")

# %% tags=["check"]
assert torch.allclose(moved, encodings[3:], atol=1e-9)
backwards = encodings[100:4000] @ rotation(-100, 64).T
assert torch.allclose(backwards, encodings[:3900], atol=1e-9)

# %% [markdown]
# What is this good for? We can now build a head *by hand* that looks at the word before. Its keys are the
# encodings of the positions. Its queries are the same encodings, set back by one. So the query of position
# 7 points the same way as the key of position 6, and their dot product is the largest in the row.
#
# **Before you run this:** nothing is trained. Will the head still work at position 100,000?

# %%
from annotated import attention

d = 512  # the head is as wide as the encodings
back = math.sqrt(d) * rotation(-1, d)  # attention divides by the root of d; without this, the row is flatter
far = sinusoids(100_200, d)
for first in (0, 100_000):
    places = far[first : first + 200]  # 200 positions in a row
    weights = attention(places @ back.T, places, places)[1]  # (200, 200)
    print(f"from position {first:7,}: the word before gets at least {weights.diagonal(-1).min():.3f}")

# %% tags=["check"]
for first in (0, 100_000):
    places = far[first : first + 200]
    assert attention(places @ back.T, places, places)[1].diagonal(-1).min() > 0.99

# %% [markdown]
# It works anywhere, because one matrix serves every position. In a model, this matrix would be part of $W^Q$.
# The head can tell *before* from *after* because its queries and its keys have different matrices, $W^Q$ and
# $W^K$.
#
# **Remember:** one matrix sets all clocks back by $k$ positions, so a head can learn "look $k$ words back"
# once for all positions.

# %% [markdown]
# ## Added to the word
#
# > "The positional encodings have the same dimension $d_{model}$ as the embeddings, so that the two can be
# > summed." (section 3.5)
#
# So far our head has seen only positions. In the model, it sees the *sum* of a word's vector and a
# position's. Does it still work? We add the vectors of 200 random words. Their entries have variance 1,
# like those of embeddings at the start of training:

# %%
_ = torch.manual_seed(0)
words, places = torch.randn(200, d, dtype=torch.float64), sinusoids(200, d)
x = words + places
weights = attention(x @ back.T, x, x)[1]
before, itself = weights.diagonal(-1).mean(), weights.diagonal().mean()
print(f"the word before gets ≈{before:.2f}, the word itself ≈{itself:.2f}")

# %% tags=["check"]
assert before < 0.1
assert itself > 0.9

# %% [markdown]
# Now every word looks at itself. The matrix `back` turns the word's entries, too, but it turns three quarters
# of the pairs by less than a tenth of a radian. So the query of a word is still very similar to the word's
# own key, and their dot product is the largest in the row.
#
# The sum blurs words and positions. A model can undo this, because it has 512 entries to share out. It could
# learn, for example, to keep the first 64 entries of all words at 0. Then only the positions are left in
# them: the 32 fastest hands. A head in the paper's model is 64 numbers wide, just wide enough to read these
# entries:

# %%
words[:, :64] = 0.0
x = words + places
seen = x[:, :64]  # (200, 64): what the head reads
turn = math.sqrt(64) * rotation(-1, d)[:64, :64]  # the blocks of these 32 hands
weights = attention(seen @ turn.T, seen, x)[1]
print(f"the word before gets at least {weights.diagonal(-1).min():.3f}")

# %% tags=["check"]
assert weights.diagonal(-1).min() > 0.99

# %% [markdown]
# It works again. Does a trained model keep entries free like this? Not so neatly: in our translator, the
# words use all entries. But one head of its second encoder layer has learned to look at the word before, and
# a comparison with the blind copy shows that this head relies on the positions:

# %%
from annotated import capture_attention

tokenizer = translator.src_tokenizer
english = tokenizer.encode("A man in a red jacket throws a ball to a brown dog.")
for name, model in (("with", translator.model), ("without", blind.model)):
    with torch.no_grad(), capture_attention(model) as maps:
        _ = model.encode(torch.tensor([[*english, tokenizer.end]]), None)
    head = maps["encoder", 1][0, 2]  # layer 2, head 3: (14, 14)
    print(f"{name:7} positions: the word before gets ≈{head.diagonal(-1).mean():.2f} on average")

# %% tags=["check"]
assert head.diagonal(-1).mean() < 0.3
with torch.no_grad(), capture_attention(translator.model) as maps:
    _ = translator.model.encode(torch.tensor([[*english, tokenizer.end]]), None)
assert maps["encoder", 1][0, 2].diagonal(-1).mean() > 0.6
fast = translator.model.src_embed[0].lut.weight[:, :16].std() / translator.model.src_embed[0].lut.weight.std()
assert 0.7 < fast < 1

# %% [markdown]
# **Remember:** word and position are added, and training decides how well the model can still separate them.

# %% [markdown]
# ## Learned positions
#
# > "We also experimented with using learned positional embeddings instead, and found that the two
# > versions produced nearly identical results (see Table 3 row (E))." (section 3.5)
#
# The alternative is a second embedding table, with one learned row for each position. BERT and GPT-2 do
# this. In the paper, the learned table scored 25.7 BLEU, and the sinusoids scored 25.8. In code it is a
# lookup:

# %%
from annotated import LearnedPositions
from annotated.plots import show_source

show_source(LearnedPositions.forward, docstring=False)

# %% [markdown]
# The difference shows beyond the longest training sentence. A row that was never read in training is
# still random. After the last row there is nothing, and the code raises an error. Sinusoids, on the other
# hand, can be computed for every position:
#
# > "We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths longer
# > than the ones encountered during training." (section 3.5)
#
# The authors say *may*, and they show no experiment. Our hand-built head works at position 100,000
# without any training. But a model that is trained on short sentences has no reason to find our solution.
#
# *We measured it: [Do positions beyond the trained ones
# work?](evidence/do_positions_beyond_training_work.ipynb) Not by themselves: a small model that was trained
# at positions 0 to 31 names the previous symbol (one of 16) correctly in only ≈38% of cases at later
# positions. Without any positions, it would be right in ≈25%. It helps to train on more positions, and to let
# the training sentences start at different positions.*
#
# With added positions, a score compares sums: a word and its position with another word and its position. So
# the distance alone does not decide it, and each head has to learn to find the positions in the sum. Most of
# today's language models add no positions to the embeddings. They rotate each query and key by angles that
# depend on its position, just as we turned the hands of the clock. A score then depends on the two positions
# only through the distance between them. This method is called **RoPE**, and you will write it in Exercise 2.

# %% [markdown]
# ## What you can now say
#
# - Attention alone does not know the order of words, so a vector for the position is added to each embedding.
# - Each pair of entries in this vector is the hand of a clock. Fast hands tell near positions apart, and
#   slow hands tell far positions apart.
# - The similarity of two positions' vectors depends only on their distance, and one matrix moves all
#   positions by $k$. So a head can learn to look $k$ words back.
# - Sinusoids exist for every position, but a model does not automatically know how to use those beyond its
#   training.
#
# **Deeper:** [Do positions beyond the trained ones work?](evidence/do_positions_beyond_training_work.ipynb)
#
# **Next:** [06_the_full_model](06_the_full_model.ipynb), where all the parts come together.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With pencil and paper: derive the $2 \times 2$ matrix above from the angle addition
# formulas $\sin(a + b) = \sin a \cos b + \cos a \sin b$ and $\cos(a + b) = \cos a \cos b - \sin a \sin b$.
# Which matrix turns the hand *back* by $b$? Show that it is the transpose of the first. What follows for the
# length of a vector that is turned, and for the dot product of two vectors that are turned by the same angle?

# %% tags=["solution"]
# Each row of the matrix is one addition formula. To turn back by b, substitute -b for b: cos stays and sin
# changes its sign, which exchanges the two off-diagonal entries. So R(-b) = R(b)^T, and R(b)^T R(b) = R(-b)
# R(b) = I. Therefore (R x) . (R y) = x^T R^T R y = x . y: turning changes neither lengths nor dot products.
# That is why the dot product of two positions depends on their distance alone, and RoPE (next exercise)
# builds on it.
forward = rotation(3, 64)
assert torch.allclose(forward.T, rotation(-3, 64))
assert torch.allclose(forward.T @ forward, torch.eye(64, dtype=torch.float64))
print(
    "one hand, turned by 3 radians:",
    [[f"{number:+.2f}" for number in line] for line in forward[:2, :2].tolist()],
)

# %% [markdown]
# **Exercise 2 (medium).** Rotary positions (RoPE; Su et al., 2021) add nothing to the words. They turn
# each pair of entries, read as a point $(x, y)$, counterclockwise by an angle: the position times the pair's
# frequency.
# Write this function, with the frequencies of this lesson. The test looks at each pair's angle. Then it
# checks that the score of a query and a key depends only on their offset: how many positions the key is
# before or after the query.


# %% tags=["exercise"]
import torch


def rotate(x, positions):
    """Vectors (n, d) -> the same, each pair (2i, 2i + 1) turned by its position (n,) times frequency i."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import math

import torch


def test_rotate(rotate):
    torch.manual_seed(0)
    at = torch.arange(20, dtype=torch.float64)
    hands = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(20, 32)  # each pair points along its axis
    turned = rotate(hands, at)
    shape = getattr(turned, "shape", turned)
    assert shape == (20, 64), f"the shape must be (20, 64), not {shape}"
    for i in range(32):
        angle = 10000.0 ** (-2 * i / 64)  # frequency i, at position 1
        wanted, pair = (math.cos(angle), math.sin(angle)), turned[1, 2 * i : 2 * i + 2].tolist()
        told = "entries {} and {} are (1, 0); at position 1 they turn by {:.3f}, to ({:.3f}, {:.3f}), "
        told += "and yours are ({:.3f}, {:.3f})"
        assert math.dist(wanted, pair) < 1e-6, told.format(2 * i, 2 * i + 1, angle, *wanted, *pair)
    query, key = torch.randn(2, 64, dtype=torch.float64)
    scores = rotate(query.expand(20, 64), at) @ rotate(key.expand(20, 64), at).T  # (20, 20)
    assert torch.allclose(scores[0, 0], query @ key), "at position 0, nothing is turned"
    for offset in range(-19, 20):
        stripe = scores.diagonal(offset)
        told = f"the scores of offset {offset} differ: {stripe.min():.2f} to {stripe.max():.2f}"
        assert torch.allclose(stripe, stripe[:1].expand_as(stripe)), told
    assert (scores.diagonal(1)[0] - scores.diagonal(-1)[0]).abs() > 0.1, "before has the same score as after"


try:
    test_rotate(rotate)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(x, positions):
    """Vectors (n, d) -> the same, each pair (2i, 2i + 1) turned by its position (n,) times frequency i."""
    d = x.size(-1)
    angles = positions.unsqueeze(1) * 10000.0 ** (-torch.arange(0, d, 2).to(x) / d)  # (n, d / 2)
    first, second = x[:, 0::2], x[:, 1::2]
    turned = (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos())
    return torch.stack(turned, dim=-1).flatten(1)


test_rotate(solution)

# %% [markdown]
# **Exercise 3 (hard).** Tell the time. You are given an encoding of width 64 with noise of standard deviation
# 0.02 on each entry. Find its position, which is between 1,000 and 40,000, *without* searching a table. The
# slowest hand gives the position roughly. The fastest hand gives the position precisely within a turn, but
# does not show how many whole turns it has made. What do the hands in between do?


# %% tags=["exercise"]
import math

import torch


def tell_the_time(encodings):
    """Noisy encodings (n, d_model) -> their positions, whole numbers (n,)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import sinusoids as table_of


def test_tell_the_time(tell_the_time):
    torch.manual_seed(0)
    asked = torch.randint(1000, 40_000, (2000,))
    clean = table_of(40_000, 64)[asked].double()
    for noise, least in (0.0, 1.0), (0.02, 0.99):
        found = tell_the_time(clean + noise * torch.randn_like(clean))
        shape = getattr(found, "shape", found)
        assert shape == (2000,), f"for 2000 encodings, the shape must be (2000,), not {shape}"
        right = found == asked
        share, worst = right.double().mean(), (found - asked).abs().argmax()
        told = f"noise {noise}: {share:.1%} are right; position {asked[worst]} is read as {found[worst]}"
        assert share >= least, told


try:
    test_tell_the_time(tell_the_time)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(encodings):
    """Noisy encodings (n, d_model) -> their positions, whole numbers (n,)."""
    d = encodings.size(-1)
    frequencies = 10000.0 ** (-torch.arange(0, d, 2).to(encodings) / d)
    angles = torch.atan2(encodings[:, 0::2], encodings[:, 1::2]) % (2 * math.pi)  # (n, d / 2)
    position = angles[:, -1] / frequencies[-1]  # near 0, noise could turn it back past twelve
    for i in reversed(range(d // 2 - 1)):
        turns = torch.round((position * frequencies[i] - angles[:, i]) / (2 * math.pi))
        position = (angles[:, i] + 2 * math.pi * turns) / frequencies[i]  # a faster hand, a finer reading
    return position.round().long()


test_tell_the_time(solution)
