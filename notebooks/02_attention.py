# %% [markdown]
# # 02 · Attention
#
# **You turn a Python dictionary into equation 1 of the paper, compute it for *a cat runs*, and hide words
# from it with masks.**
#
# Previous: [01_why_attention](01_why_attention.ipynb) · Next:
# [03_multi_head_attention](03_multi_head_attention.ipynb)
#
# *36 minutes to read, half a minute to run.*
#
# - **Before:** you know tensors, the matrix product, and that `backward()` fills `.grad`.
# - **After:** you can write scaled dot-product attention with masks from memory, and you know what each
#   of its steps is for.
#
# This lesson covers section 3.2.1 of the paper (Vaswani et al., 2017), and the decoder's mask from section
# 3.2.3. Indented sentences are quoted from the paper. A number after `≈` may differ on your computer. You can
# skip the folded cells: the *scaffolding* draws pictures, and the *checks* test what the text claims.

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
# ## A dictionary that can guess
#
# Suppose that somebody counted the cars on a bridge at four different times of day, and that a Python
# dictionary holds the counts. It stores **values** under **keys**. You ask with a **query**, and if the query
# equals a key, you get that key's value.

# %%
cars = {0: 3.0, 6: 14.0, 12: 22.0, 18: 28.0}  # hour of the day: cars per minute
print("at 12:00:", cars.get(12))
print("at 14:00:", cars.get(14))

# %% [markdown]
# At 12:00 there were 22 cars per minute, and at 18:00 there were 28. So for 14:00 you would guess about 24.
# The dictionary has no answer, because 14 is not one of its keys. Let us build one that can guess.
#
# The first step is to measure how well a query fits a key. We put each hour on the dial of a 24-hour clock,
# where it becomes a point with two coordinates. The dot product of two such points is 1 if they are the
# same hour, 0 if they are six hours apart, and −1 if they are twelve hours apart. We call this dot product
# the **score** of the key.

# %%
import math

import torch

torch.set_num_threads(1)  # our matrices are too small for more


def on_the_dial(hours):
    """Hours (n,) -> points on a circle of radius 1, (n, 2)."""
    angle = hours * (2 * math.pi / 24)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


keys = on_the_dial(torch.tensor(list(cars)))  # (4, 2)
values = torch.tensor(list(cars.values()))  # (4,)
query = on_the_dial(torch.tensor([14.0]))  # (1, 2)
scores = query @ keys.T  # (1, 4)
print("scores of", list(cars), "for 14:00:", [round(s, 2) for s in scores[0].tolist()])

# %% [markdown]
# Key 12 fits best, and key 18 comes next. The second step turns the scores into **weights**, which are
# positive and add up to 1. The **softmax** does that:
#
# $$\mathrm{softmax}(s)_i = \frac{e^{s_i}}{\sum_j e^{s_j}}$$
#
# The third step takes the mean of all values with these weights. We can also control how sharply the
# softmax chooses: before the softmax, we divide the scores by a number $\tau$, the **temperature**.
#
# **Before you run this:** with $\tau = 1000$, all scores become nearly 0. What is the answer then? And what
# is it with $\tau = 0.01$?

# %%
for tau in (1000, 1, 0.25, 0.01):
    weights = (query @ keys.T / tau).softmax(dim=-1)  # (1, 4)
    answer = (weights @ values).item()
    print(f"τ = {tau:5}: weights {[round(w, 2) for w in weights[0].tolist()]}, {answer:.1f} cars")

# %% tags=["check"]
assert abs((query @ keys.T / 1000).softmax(dim=-1) @ values - values.mean()).item() < 0.02
assert abs((query @ keys.T / 0.01).softmax(dim=-1) @ values - 22).item() < 0.01
assert abs((keys @ keys.T / 0.01).softmax(dim=-1) @ values - values).max() < 1e-3  # cold: the dictionary
assert round(((keys[0] @ keys.T / 0.25).softmax(dim=-1) @ values).item(), 1) == 3.6

# %% tags=["figure-soft-lookup", "scaffold"]
import altair as alt

from annotated.plots import setup_notebook

setup_notebook()
tau = alt.param(
    name="tau", value=0.25, bind=alt.binding_range(min=0.02, max=3, step=0.01, name="temperature τ ")
)
fits = {f"fit{key}": f"exp(cos((datum.hour - {key}) * PI / 12) / tau)" for key in cars}
asked = alt.Chart(alt.sequence(0, 24.05, 0.1, as_="hour")).transform_calculate(**fits)
mixed = " + ".join(f"datum.fit{key} * {value}" for key, value in cars.items())
asked = asked.transform_calculate(answer=f"({mixed}) / ({' + '.join(f'datum.{fit}' for fit in fits)})")
hour = alt.X("hour:Q", title="hour asked for", axis=alt.Axis(values=list(range(0, 25, 6))))
answers = asked.mark_line(color="#0173b2", strokeWidth=3).encode(
    x=hour, y=alt.Y("answer:Q", title="cars per minute", scale=alt.Scale(domain=[0, 30]))
)
stored = [{"hour": key, "answer": value} for key, value in cars.items()]
dots = alt.Chart(alt.Data(values=stored)).mark_circle(size=120, color="black", opacity=1)
mean = [{"answer": values.mean().item()}]
level = alt.Chart(alt.Data(values=mean)).mark_rule(strokeDash=[5, 4], color="gray").encode(y="answer:Q")
says = alt.Chart(alt.sequence(1)).mark_text(align="left", x=12, y=14, fontSize=14)
says = says.encode(text=alt.value(alt.expr("'τ = ' + format(tau, '.2f')")))
alt.layer(
    level, answers, dots.encode(x="hour:Q", y="answer:Q"), says, title="The soft dictionary"
).properties(width=440, height=260).add_params(tau)

# %% [markdown]
# *Figure 1. The answers for every hour of the day. The dots are in the dictionary, and the dashed line is the
# mean of their values. In a live notebook, move the slider: the higher the temperature, the closer the
# answers come to the mean; the lower it is, the closer each comes to the value of the nearest key.*
#
# At a high temperature, all weights are nearly equal, and every query gets the same answer. At a low
# temperature, one key gets all the weight, and we have a dictionary again. In between, the lookup blends the
# values, and then it is not exact even where it could be: at $\tau = 0.25$, it says 3.6 for 0:00, where 3
# cars were counted. (In a Transformer, nobody has to find the best temperature. It is fixed, and training
# makes the queries and keys as long as they need to be.)
#
# Why is blending worth the trouble? Because it is smooth: if you move the query a little, the answer moves a
# little. So there is a gradient, and a network can *learn* where to look. A dictionary's lookup has no
# gradient, so it cannot be trained.
#
# **Remember:** attention is a soft dictionary. It scores the query against every key, turns the scores
# into weights with a softmax, and returns the weighted mean of the values.

# %% [markdown]
# ## Equation 1 for *a cat runs*
#
# > "An attention function can be described as mapping a query and a set of key-value pairs to an output,
# > where the query, keys, values, and output are all vectors." (section 3.2)
#
# In a Transformer, the words of a sentence take the place of the hours. Each word has a query, a key and a
# value, which three learned matrices compute from the word's vector. In [00_start_here](00_start_here.ipynb)
# we trained a tiny model on eight sentences. Here are the queries, keys and values that its first head
# computes for *a cat runs*, with a row for each word.

# %%
words = ["a", "cat", "runs"]
Q = torch.tensor([[1.58, 0.50], [0.28, -0.53], [-0.09, -0.51]])  # what each word looks for
K = torch.tensor([[0.88, 0.40], [0.08, 0.75], [-1.16, 0.03]])  # what each word offers
V = torch.tensor([[0.88, 0.38], [-1.04, -0.39], [-0.43, -0.62]])  # what each word hands over


def show(title, matrix, rows=words, columns=words, digits=2):
    """Print a matrix with a name for each row and column."""
    print(f"{title}\n{'':10}" + "".join(f"{column:>8}" for column in columns))
    for row, numbers in zip(rows, matrix.tolist(), strict=True):
        print(f"  {row:8}" + "".join(f"{number:8.{digits}f}" for number in numbers))


# %% [markdown]
# Now we take the same three steps as with the hours. The matrix product $QK^\top$ computes all nine
# scores at once. Its entry in row *cat* and column *a* is the dot product of the query of *cat* with the
# key of *a*. The temperature is $\sqrt{d_k}$, where $d_k = 2$ is the number of columns of $Q$ and $K$.
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V \qquad (1)$$

# %%
scores = Q @ K.T / math.sqrt(2)  # (3, 2) @ (2, 3) -> (3, 3)
weights = scores.softmax(dim=-1)  # (3, 3): each row adds up to 1
output = weights @ V  # (3, 3) @ (3, 2) -> (3, 2)
show("scores, divided by the square root of 2", scores)
show("weights", weights)
show("output", output, columns=["", ""])

# %% tags=["check"]
from torch.testing import assert_close

assert [f"{w:.2f}" for w in weights[1]] == ["0.40", "0.30", "0.30"]
assert [f"{number:.2f}" for number in output[1]] == ["-0.09", "-0.15"]
assert_close(weights.sum(dim=-1), torch.ones(3))
for i in range(3):  # equation 1 as a loop
    powers = [math.exp(sum(a * b for a, b in zip(Q[i], K[j], strict=True)) / math.sqrt(2)) for j in range(3)]
    assert_close(output[i], sum(power / sum(powers) * V[j] for j, power in enumerate(powers)))

# %% [markdown]
# These are the weights and the outputs of head 1 in lesson 00.
#
# ![One query of three is compared with four keys, the last of which is hidden; the softmax makes the weights
# 0.1, 0.7, 0.2 and 0; they mix the four values into one output](../images/attention.svg)
#
# *Figure 2. The same steps as a drawing, with three queries and four keys. A mask hides the cells that
# are struck out; masks are the subject of the second half of this lesson.*
#
# As a function, this takes three lines. T is the number of queries and S is the number of keys. In our
# example both are 3, because the sentence looks at itself. But they may differ. When the decoder looks at
# the English sentence, the queries come from the German words, and the keys and values come from the
# English ones. In the shapes below, the three dots stand for any dimensions in front, such as the
# sentences of a batch.


# %%
def attention_without_mask(query, key, value):
    """(..., T, d_k), (..., S, d_k) and (..., S, d_v) -> (..., T, d_v)."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    weights = scores.softmax(dim=-1)  # (..., T, S)
    return weights @ value  # (..., T, d_v)


print("same output as above:", torch.equal(attention_without_mask(Q, K, V), output))

# %% [markdown]
# ### Why a softmax?
#
# There are other ways to make weights from scores. Let us try some of them on the row of *a*, whose
# scores are 1.12, 0.35 and −1.29.

# %%
row = scores[0]
ways = {
    "softmax": row.softmax(dim=-1),
    "score / sum of scores": row / row.sum(),
    "negatives to 0, then / sum": row.relu() / row.relu().sum(),
    "all on the largest": (row == row.max()).float(),
    "sigmoid of each": row.sigmoid(),
}
for name, made in ways.items():
    print(f"{name:27}", [round(w, 2) for w in made.tolist()], f"sum {made.sum():.2f}")

# %% tags=["check"]
assert min(ways["score / sum of scores"]) < 0 < 1 < max(ways["score / sum of scores"])
assert ways["negatives to 0, then / sum"][2] == 0
assert ways["sigmoid of each"].sum() > 1.3
learnable = row.clone().requires_grad_()
(learnable.relu() / learnable.relu().sum())[0].backward()
assert learnable.grad[2] == 0

# %% [markdown]
# - **Dividing by the sum** gives a weight of −6.63 here, because scores can be negative and can cancel.
#   The result is no longer a mean.
# - **Setting negatives to 0** gives *runs* the weight 0 and its score the gradient 0, so from this row the
#   model learns nothing about *runs*. If all scores are negative, this method divides 0 by 0.
# - **All on the largest** is the dictionary again, without a gradient.
# - **A sigmoid** is positive and smooth, but its weights do not add up to 1. In a sentence with twice as
#   many words, the output is about twice as large.
#
# The softmax has none of these faults. The exponential of a score is always positive, dividing by the sum
# makes the weights add up to 1, and every score gets a gradient. It has one more property: if you add the
# same number to all scores, the weights stay the same. Only *differences* between scores matter.
#
# The softmax is not the only choice that can be trained. ReLU and sigmoid work, too, if their weights are
# made smaller in longer sentences ([Wortsman et al., 2023](https://arxiv.org/abs/2309.08586); [Ramapuram
# et al., 2024](https://arxiv.org/abs/2409.04431)).

# %% [markdown]
# ## Attention is a mean, and a mean forgets
#
# Every output is a weighted mean of the values. That tells you what attention cannot do.
#
# **Before you run this:** we let *cat* look at three sentences: *a cat runs*, *runs a cat*, and *a cat
# runs a cat runs*. Which of the three outputs will differ?

# %%
cat = Q[1:2]  # the query of *cat*, (1, 2)
for sentence in ([0, 1, 2], [2, 0, 1], [0, 1, 2, 0, 1, 2]):
    found = attention_without_mask(cat, K[sentence], V[sentence])
    print(f"{' '.join(words[i] for i in sentence):24}", [round(number, 2) for number in found[0].tolist()])

# %% tags=["check"]
for sentence in ([2, 0, 1], [0, 1, 2, 0, 1, 2]):
    assert_close(attention_without_mask(cat, K[sentence], V[sentence]), output[1:2])
_ = torch.manual_seed(0)
q, k, v = torch.randn(50, 16), torch.randn(20, 16), torch.randn(20, 8)
for n, wanted in ((3, 0.25), (6, 0.14), (12, 0.08)):
    ends = torch.tensor([[0.0]] * n + [[1.0]])  # the value 1 marks the only </s>
    assert round(attention_without_mask(torch.zeros(1, 2), torch.ones(n + 1, 2), ends).item(), 2) == wanted
mixed = attention_without_mask(q, k, v)
assert (v.amin(dim=0) <= mixed).all()
assert (mixed <= v.amax(dim=0)).all()

# %% [markdown]
# None of them. All three outputs are the same.
#
# - **Attention does not see order**, because a mean does not depend on the order of its terms. That is why
#   the model adds the position to each word's vector
#   ([05_positional_encoding](05_positional_encoding.ipynb)).
# - **Attention sees proportions, not counts.** If every word occurs twice, each copy gets half the weight,
#   and the mean is the same as before. Without positions, attention can count words only by comparison with a
#   token that is known to occur once. Suppose that all scores are equal and that one `</s>` follows $n$
#   words. Then `</s>` gets the weight $1/(n + 1)$: 0.25 for three words, 0.14 for six, and 0.08 for twelve.
# - **Attention stays within its values.** Every entry of the output lies between the smallest and the largest
#   entry of the same column of $V$. To compute something new from the mean, the model has a feed-forward
#   network ([04_feed_forward_and_embeddings](04_feed_forward_and_embeddings.ipynb)).
#
# **Remember:** attention moves information between words by taking means. It does not see order, and it sees
# proportions instead of counts.

# %% [markdown]
# ## Why divide by √d_k?
#
# Our heads are 2 numbers wide. The paper's heads are 64 numbers wide, so each score is a sum of 64 products
# instead of 2. In lesson 00 you saw that the typical score of random vectors grows like $\sqrt{d_k}$: it was
# about 1.4 for a width of 2, and about 8 for a width of 64. Why the square root?
#
# Let all entries $q_i$ and $k_i$ be independent, with mean 0 and variance 1, as the paper assumes. Then one
# product $q_i k_i$ also has mean 0, so its variance is the mean of its square:
#
# $$\mathrm{Var}(q_i k_i) = E[q_i^2 k_i^2] = E[q_i^2]\, E[k_i^2] = 1 \cdot 1 = 1.$$
#
# A score is the sum of $d_k$ such products, and the variances of independent numbers add up. So
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d_k} \mathrm{Var}(q_i k_i) = d_k,$$
#
# and the typical size, which is the square root of the variance, is $\sqrt{d_k}$. Dividing by $\sqrt{d_k}$
# brings the variance back to 1, whatever the width.
#
# What does a softmax do with scores of size $\sqrt{d_k}$? We let random queries look at nine random keys and
# measure two numbers. The **largest weight** $w$ says how much one key dominates. The **slope** of this
# weight says how much the weight changes when its score changes a little, as in lesson 00. It is $w (1 - w)$,
# which you will show in Exercise 1. So a weight near 1 has almost no slope, and neither does a weight near 0.
#
# **Before you run this:** without the division, which of the two numbers grows with $d_k$, and which shrinks
# in wide heads?


# %%
def largest_and_slope(scores):
    """Scores (n, 9) -> the largest weight of each row and its slope, each as the mean of the n rows."""
    w = scores.softmax(dim=-1).amax(dim=-1)  # (n,)
    return w.mean().item(), (w * (1 - w)).mean().item()


_ = torch.manual_seed(0)
widths = [2**n for n in range(11)]  # 1, 2, 4, ... 1024
measured = {"not divided": [], "divided": []}
for d_k in widths:
    queries, nine_keys = torch.randn(2000, 1, d_k), torch.randn(2000, 9, d_k)
    scores = (queries @ nine_keys.mT).squeeze(1)  # (2000, 9)
    measured["not divided"].append(largest_and_slope(scores))
    measured["divided"].append(largest_and_slope(scores / math.sqrt(d_k)))

# %% tags=["figure-scaling", "scaffold"]
import matplotlib.pyplot as plt

fig, axes = plt.subplots(1, 2, figsize=(11, 3.8))
for name, style in (("not divided", "o-"), ("divided", "s--")):
    for ax, numbers in zip(axes, zip(*measured[name], strict=True), strict=True):
        ax.plot(widths, numbers, style, label=name)
for ax, title in zip(axes, ("largest of nine weights", "its slope"), strict=True):
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths[::2], widths[::2])
    ax.set(title=title, xlabel="$d_k$", ylim=(0, None))
axes[1].legend(loc="lower left", frameon=False)
plt.show()
for d_k in (2, 64, 1024):
    plain, divided = (measured[name][widths.index(d_k)] for name in ("not divided", "divided"))
    print(f"d_k = {d_k:4}: largest weight ≈{plain[0]:.2f}, divided ≈{divided[0]:.2f};", end=" ")
    print(f"slope ≈{plain[1]:.2f}, divided ≈{divided[1]:.2f}")

# %% [markdown]
# *Figure 3. Means over 2,000 random queries. Without the division, one weight dominates in wider heads,
# and its slope is small. With the division, both numbers stay nearly level.*

# %% tags=["check"]
for name, (largest, slope) in {name: pairs[6] for name, pairs in measured.items()}.items():
    assert (largest > 0.8 and slope < 0.1) if name == "not divided" else (largest < 0.4 and slope > 0.15)
for name, (largest, slope) in {name: pairs[10] for name, pairs in measured.items()}.items():
    assert (largest > 0.9 and slope < 0.05) if name == "not divided" else (largest < 0.4 and slope > 0.15)
assert abs(measured["not divided"][1][0] - measured["divided"][1][0]) < 0.2
assert max(slope for _, slope in measured["divided"][1:]) < 1.3 * min(s for _, s in measured["divided"][1:])
row = torch.tensor([0.5, -1.0, 1.0], requires_grad=True)
row.softmax(dim=-1)[2].backward()
assert_close(row.grad[2].item(), largest_and_slope(row.detach().unsqueeze(0))[1])

# %% [markdown]
# At the paper's width of 64, if the scores are not divided, one of nine keys gets most of the weight before
# the model has learned anything (Figure 4). The softmax has picked a winner by chance, and the slope of its
# weight is less than half of what it could be. A softmax whose slope is nearly 0 is called *saturated*. This
# is the paper's reason:
#
# > "We suspect that for large values of $d_k$, the dot products grow large in magnitude, pushing the
# > softmax function into regions where it has extremely small gradients. To counteract this effect, we
# > scale the dot products by $1/\sqrt{d_k}$." (section 3.2.1)

# %% tags=["figure-saturation", "scaffold"]
_ = torch.manual_seed(1)
q, nine = torch.randn(1024), torch.randn(9, 1024)
rows = [
    {"exponent": n, "key": key, "score": round((q[: 2**n] @ nine[key - 1, : 2**n]).item(), 3)}
    for n in range(11)
    for key in range(1, 10)
]
exponent = alt.param(
    name="n", value=6, bind=alt.binding_range(min=0, max=10, step=1, name="d_k = 2 to the power ")
)
base = alt.Chart(alt.Data(values=rows)).transform_filter("datum.exponent == n")
weight = alt.Y("weight:Q", title="weight", scale=alt.Scale(domain=[0, 1]))
bars = []
for title, score in (("not divided", "datum.score"), ("divided", "datum.score / sqrt(pow(2, n))")):
    bar = base.transform_calculate(power=f"exp({score})").transform_joinaggregate(total="sum(power)")
    bar = bar.transform_calculate(weight="datum.power / datum.total").mark_bar(color="#0173b2")
    bar = bar.encode(
        x=alt.X("key:O", title="key", axis=alt.Axis(labelAngle=0)), y=weight, tooltip=["weight:Q"]
    )
    head = alt.Title(alt.expr(f"'d_k = ' + pow(2, n) + ', {title}'"))
    bars.append(bar.properties(width=200, height=180, title=head))
alt.hconcat(*bars, title="One random query, nine random keys").add_params(exponent)

# %% [markdown]
# *Figure 4. The nine weights of one query, for the first 2, 4, 8 ... of its 1,024 numbers. At 64 numbers, the
# undivided scores give almost all of the weight to one key. The picture shows 64 numbers; in a live notebook,
# move the slider to change the width.*
#
# The paper says "we suspect", and rightly so: the slope is not the whole gradient. The gradient that reaches
# a query is also multiplied by the keys, and the division makes it smaller by a factor of $\sqrt{d_k}$. We
# have computed it for random vectors. At width 64, a typical query (the median) gets about as much gradient
# without the division as with it, and a few queries get far more. Only in wider heads does the gradient
# vanish: at width 256, a typical query without the division gets less than a tenth of the gradient that the
# division would give it, and at width 1,024 almost none. So at the paper's width, the division does not make
# the gradients possible; it makes them more uniform. Trained models still gain from it, as the next lines
# say.

# %% tags=["check"]
undivided = torch.tensor([row["score"] for row in rows if row["exponent"] == 6])
assert undivided.softmax(dim=0).max() > 0.9
assert (undivided / 8).softmax(dim=0).max() < 0.5


def at_query(d_k, divisor):
    """The size of the gradient at each of 2,000 random queries that look at nine random keys."""
    q = torch.randn(2000, 1, d_k, requires_grad=True)
    k, v, wanted = torch.randn(2000, 9, d_k), torch.randn(2000, 9, d_k), torch.randn(2000, 1, d_k)
    ((q @ k.mT / divisor).softmax(dim=-1) @ v * wanted).sum().backward()
    return q.grad.norm(dim=-1)


plain, halves = at_query(64, 1), at_query(64, 8)
assert 0.5 < plain.median() / halves.median() < 1.5
assert plain.mean() > 2 * halves.mean()
assert at_query(256, 1).median() < 0.1 * at_query(256, 16).median()
assert at_query(1024, 1).median() < 0.01 * at_query(1024, 32).median()

# %% [markdown]
# **Remember:** wide heads make large scores, large scores make the softmax pick one key too early, and
# dividing by $\sqrt{d_k}$ keeps the scores small.
#
# *Does the division still matter after the first updates? Yes: without it, a small model needs more than
# twice as many updates. The evidence notebook examines the effects of the division one by one: [Does dividing
# by √d_k still matter?](evidence/does_the_division_matter.ipynb)*

# %% [markdown]
# ### The other kind of attention
#
# The score does not have to be a dot product. In lesson 01 you saw how Bahdanau and colleagues compute it
# with a small network: $v^\top \tanh(A q + B k)$. This is called **additive attention**. The paper reports
# that in wide heads, it works better than dot products *without* the division. Why did the authors not use
# it?
#
# > "While the two are similar in theoretical complexity, dot-product attention is much faster and more
# > space-efficient in practice, since it can be implemented using highly optimized matrix multiplication
# > code." (section 3.2.1)
#
# All dot products are one matrix product. Additive attention has to compute and keep a vector for every
# *pair* of a query and a key.

# %% [markdown]
# ## Masks: hiding words
#
# Sentences differ in length, but a tensor is rectangular. So we fill up the short sentences with a filler
# token, the **padding**. We call this token `<blank>`. If the longest sentence of our batch has five words,
# then *a cat runs* becomes *a cat runs `<blank>` `<blank>`*.
#
# The filler means nothing, but the model does not know that. The filler has a vector like every other
# token, and so it has a key and a value. How can we keep *cat* from looking at it? Here are three ideas:
# multiply its *scores* by 0, multiply its *weights* by 0, or set its scores to $-\infty$.
#
# **Before you run this:** one of the three is right. Which one?

# %%
filled = [*words, "<blank>", "<blank>"]
K5 = torch.cat([K, torch.tensor([[1.5, -1.5]]).expand(2, 2)])  # two fillers have keys ...
V5 = torch.cat([V, torch.tensor([[1.0, -1.0]]).expand(2, 2)])  # ... and values
real = torch.tensor([True, True, True, False, False])

scores = Q @ K5.T / math.sqrt(2)  # (3, 5)
ideas = {
    "no mask": scores.softmax(dim=-1),
    "scores times 0": (scores * real).softmax(dim=-1),
    "weights times 0": scores.softmax(dim=-1) * real,
    "scores to -infinity": scores.masked_fill(~real, -math.inf).softmax(dim=-1),
}
for name, w in ideas.items():
    print(f"{name:20} weights of cat {[round(x, 2) for x in w[1].tolist()]}, sum {w[1].sum():.2f}")
print(f"{'without any filler':20} weights of cat {[round(x, 2) for x in weights[1].tolist()]}")

# %% tags=["check"]
weights = (Q @ K.T / math.sqrt(2)).softmax(dim=-1)
for name, w in ideas.items():
    assert torch.allclose(w[:, :3], weights) == (name == "scores to -infinity")
    assert (w[:, 3:] == 0).all() == (name in ("weights times 0", "scores to -infinity"))
    assert torch.allclose(w.sum(dim=-1), torch.ones(3)) == (name != "weights times 0")

# %% [markdown]
# Only the last idea gives the weights that we had without filler. A score of 0 hides nothing, because $e^0 =
# 1$. If we set a weight to 0 only *after* the softmax, it has already taken its share from the others, and
# the remaining weights no longer add up to 1. But with a score of $-\infty$ *before* the softmax, the filler
# gets $e^{-\infty} = 0$, and the real words share all of the weight.
#
# `real` is a **mask**. In this series a mask is boolean, and `True` means "may be looked at".
#
# ### The causal mask
#
# The decoder needs a second kind of mask. In training it reads the correct translation, shifted by one: at
# the position of `<s>` it has to predict *eine*, at *eine* it has to predict *Katze*, and so on. All
# positions are trained at once. So no position is allowed to see what comes after it, because the next word
# is the answer.
#
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive property."
# > (section 3.2.3)
#
# *Leftward* means from later words to earlier ones. The mask that prevents this flow is a triangle, and
# it is called the **causal mask**. Its row *eine* is `True` for `<s>` and *eine*, the tokens that have
# been read so far.

# %%
german = ["<s>", "eine", "Katze", "rennt"]
causal = torch.ones(4, 4, dtype=torch.bool).tril()  # tril keeps the lower triangle
# Other code writes torch.ones(4, 4).triu(diagonal=1) == 0, which is the same mask.
show("1 where the row may look at the column", causal.int(), german, german, digits=0)

# %% [markdown]
# A mask that is off by one raises no error. The model trains, but something is quietly broken. There is a
# simple test: change the key and the value of the last word, and see which outputs change.
#
# **Before you run this:** `tril(diagonal=1)` keeps one diagonal more, and `tril(diagonal=-1)` keeps one
# less. With each of the three masks, which rows will notice that the last word has changed?


# %%
from annotated import attention


def changed_by_last_word(mask):
    """The words whose output changes when the key and the value of the last word do."""
    _ = torch.manual_seed(0)
    x = torch.randn(4, 16)
    other = x.clone()
    other[-1] += 1  # another last word
    old, new = attention(x, x, x, mask)[0], attention(x, other, other, mask)[0]  # each (4, 16)
    return [word for word, changed in zip(german, (old != new).any(dim=-1), strict=True) if changed]


for name, diagonal in (("right", 0), ("one too far", 1), ("one too short", -1)):
    mask = torch.ones(4, 4, dtype=torch.bool).tril(diagonal=diagonal)
    print(f"{name:14} changing rennt changes the output of {changed_by_last_word(mask)}")

# %% tags=["check"]
from annotated import padding_mask, subsequent_mask

ones = torch.ones(4, 4, dtype=torch.bool)
assert changed_by_last_word(causal) == ["rennt"]
assert changed_by_last_word(ones.tril(diagonal=1)) == ["Katze", "rennt"]
assert changed_by_last_word(ones.tril(diagonal=-1)) == []
assert torch.equal(subsequent_mask(4)[0], causal)
assert torch.equal(torch.ones(4, 4).triu(diagonal=1) == 0, causal)


def last_output(x, masks):
    """The last word's output of layers of causal attention without positions, each with a residual."""
    for mask in masks:
        x = x + attention(x, x, x, mask)[0]
    return x[-1]


x = torch.randn(4, 16) / 2  # short vectors, which do not only look at themselves
for layers, mask, sees_order in ((1, causal, False), (2, causal, True), (2, ones, False)):
    change = last_output(x, [mask] * layers) - last_output(x[[2, 0, 1, 3]], [mask] * layers)
    assert (change.abs().max() > 1e-3) == sees_order

# %% [markdown]
# With the right mask, only *rennt* itself notices. With one diagonal too many, *Katze* sees *rennt*, the
# very word that it has to predict. With one diagonal too few, a word does not even see itself.
#
# (A causal mask also lets a little order in, even without positions: the first word sees one word, the second
# two, and so on. In a single layer, the order *among* the words before it still makes no difference, because
# a mean ignores the order of its terms. From the second layer on, it does. Language models can learn
# positions in this way: [Haviv et al., 2022](https://arxiv.org/abs/2203.16634).)
#
# To combine both masks, we use `&`: a position may look where the causal mask *and* the padding mask
# allow it.

# %% tags=["figure-masks"]
from annotated.plots import explore_masks

tokens = [*german, "<blank>", "<blank>"]
padding = torch.tensor([[word != "<blank>" for word in tokens]])  # (1, 6): one row serves every query
causal = torch.ones(6, 6, dtype=torch.bool).tril()
masks = {"padding": padding, "causal": causal, "padding & causal": padding & causal}
explore_masks(masks, tokens, tokens, query=2)

# %% [markdown]
# *Figure 5. Three masks for a German sentence with two fillers. Rows look at columns. The row of Katze is in
# full color; the other rows are in lighter shades of the same colors. In a live notebook, you can point at
# another row.*

# %% tags=["check"]
numbers = torch.tensor([[1, 2, 3, 4, 0, 0]])
assert torch.equal(padding_mask(numbers, pad=0)[0], padding)
assert (padding & causal).sum(dim=-1).tolist() == [1, 2, 3, 4, 4, 4]

# %% [markdown]
# **Remember:** a mask hides a key by giving it the lowest score *before* the softmax. The padding mask
# hides columns, and the causal mask hides a triangle.

# %% [markdown]
# ### Which way around?
#
# You need this paragraph only when you call PyTorch's own attention. In our masks, as in PyTorch's
# `F.scaled_dot_product_attention`, `True` *allows* a position. But in `nn.MultiheadAttention`, `True` *hides*
# a position. And if the mask contains floating-point numbers, PyTorch adds them to the scores, so ones and
# zeros hide nothing. PyTorch cannot tell that a mask is of the wrong kind, and raises no error. That is why
# the package's `attention` accepts only boolean masks.

# %% tags=["check"]
from torch import nn
from torch.nn import functional as F

_ = torch.manual_seed(0)
x, mask = torch.randn(1, 3, 4), torch.tensor([True, True, False])
square, identity = mask.expand(3, 3), torch.eye(3).unsqueeze(0)  # a row of the mask for each query
theirs = nn.MultiheadAttention(4, num_heads=1, batch_first=True)
readings = {
    "ours": attention(x, x, x, mask)[1],
    "F.scaled_dot_product_attention": F.scaled_dot_product_attention(x, x, identity, square),
    "nn.MultiheadAttention, attn_mask": theirs(x, x, x, attn_mask=square)[1],
    "nn.MultiheadAttention, key_padding_mask": theirs(x, x, x, key_padding_mask=mask.unsqueeze(0))[1],
    "F.scaled..., mask.float()": F.scaled_dot_product_attention(x, x, identity, square.float()),
}
looked = [(seen[0, 0] > 0).nonzero().flatten().tolist() for seen in readings.values()]
assert looked == [[0, 1], [0, 1], [2], [2], [0, 1, 2]]

# %% [markdown]
# ## A query that may look at nothing
#
# *You need this section when you write attention yourself, as in Exercise 2. On a first reading, you may skip
# it.*
#
# One case is left. What if a query is not allowed to look at anything? This does happen: the mask that was
# "one too short" hid everything from the row `<s>`, and a batch may contain an empty sentence. Then all
# scores of the row are $-\infty$, and the softmax divides 0 by 0. The result is NaN, "not a number". Is this
# harmless if nobody uses the row?
#
# **Before you run this:** the loss below uses the first two rows only. Will it be NaN? And will the
# gradient be NaN?

# %%
from torch import nn

mask = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])
_ = torch.manual_seed(0)
x = torch.randn(3, 4)
make_values = nn.Linear(4, 4)  # some layer below, whose weights we train
scores = (x @ x.T / 2).masked_fill(~mask, -math.inf)
output = scores.softmax(dim=-1) @ make_values(x)
loss = output[:2].square().mean()  # the empty row is left out
loss.backward()
print(f"loss {loss.item():.2f}")
print("gradient of the layer below:", make_values.weight.grad[0].tolist())

# %% tags=["check"]
assert loss.isfinite()
assert output[2].isnan().all()
assert make_values.weight.grad.isnan().all()

# %% [markdown]
# The loss is a number, but **the gradient is NaN**. After one update, all weights of that layer are NaN, and
# the model is lost. Why? Each output is a sum of weights times values. So in `backward`, the gradient of each
# value is also a sum. It has one term for each query: the gradient of the query's output times the weight
# that the query gave to this value. In the term of the empty row, the gradient is 0, because the loss leaves
# this row out. But the weight is NaN, and 0 times NaN is NaN, which turns the whole sum into NaN.
#
# The solution has two halves. First, we use the lowest *finite* number instead of $-\infty$. In ordinary rows
# this changes nothing. In an empty row, the softmax now gives equal weights instead of NaN, so a query that
# may see nothing would see everything. Therefore, second, we set the hidden weights to 0 after the softmax.
# The output of an empty row is then 0, and the model's residual connection simply adds it to the word's
# vector. Here is the whole function, as the package has it:

# %%
from annotated.plots import show_source

show_source(attention, docstring=False)

# %% [markdown]
# Only two lines are new to you. `check_mask` refuses a mask that is not boolean. `dropout` can set random
# weights to 0 during training; the paper mentions this only for parsing (section 6.3), and our models do not
# use it.

# %%
output, weights = attention(x, x, make_values(x), mask)
make_values.weight.grad = None
output.square().sum().backward()
print("weights of the empty row:", weights[2].tolist())
print("gradients that are NaN:", make_values.weight.grad.isnan().sum().item())

# %% tags=["check"]
assert (weights[2] == 0).all()
assert_close(attention(Q, K, V)[0], attention_without_mask(Q, K, V))
q, k, v = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
assert_close(attention(q, k, v, mask)[0][:2], F.scaled_dot_product_attention(q, k, v, mask)[:2])
with_row = torch.autograd.grad(attention(q, k, v, mask)[0].square().sum(), (q, k, v))
without = torch.autograd.grad(attention(q[:2], k, v, mask[:2])[0].square().sum(), (q, k, v))
assert_close(with_row, without)  # all gradients are as if that query had never been asked

# %% [markdown]
# **Remember:** one empty row with $-\infty$ fills a model with NaN, even if nobody uses that row. Use the
# lowest finite number before the softmax, and set the hidden weights to 0 after it.

# %% [markdown]
# ## What you can now say
#
# - Attention is a soft dictionary: scores, softmax, weighted mean. Since its output is a mean, it does not
#   see order, and it sees proportions instead of counts.
# - The scores are divided by $\sqrt{d_k}$, because otherwise wide heads would make them large, and the
#   softmax would pick one key before the model has learned anything. The variance of a score is $d_k$.
# - A mask gives hidden keys the lowest score before the softmax. Even if it hides every key from a query, no
#   gradient must be allowed to become NaN, and the output for this query should be a row of zeros.
#
# **Deeper:** [Does dividing by √d_k still matter after the first
# updates?](evidence/does_the_division_matter.ipynb)
#
# **Next:** [03_multi_head_attention](03_multi_head_attention.ipynb): why one attention head is not enough,
# and how eight of them run side by side.

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (medium).** With pencil and paper: differentiate the softmax $w_i = e^{s_i} / \sum_j e^{s_j}$.
# Show that $\partial w_i / \partial s_i = w_i (1 - w_i)$ and that $\partial w_i / \partial s_k = -w_i w_k$
# for $k \neq i$. For which $w_i$ is the first of these derivatives largest? What is the sum of the
# derivatives of one weight with respect to all the scores, and which property of the softmax does it express?

# %% tags=["solution"]
# Let Z be the sum of all e^(s_j), so that dZ/ds_k = e^(s_k). The quotient rule gives
#     dw_i/ds_i = (e^(s_i) Z - e^(s_i) e^(s_i)) / Z^2 = w_i - w_i^2 = w_i (1 - w_i),
#     dw_i/ds_k = (0 - e^(s_i) e^(s_k)) / Z^2         = -w_i w_k.
# The first is largest at w_i = 1/2, where it is 1/4. All derivatives of w_i add up to
# w_i (1 - w_i) - w_i (1 - w_i) = 0: the same number added to all scores changes no weight.
by_pencil = row.detach().softmax(dim=0)
by_pencil = by_pencil.diag() - by_pencil.outer(by_pencil)  # w_i on the diagonal, minus w_i w_k everywhere
assert_close(by_pencil, torch.autograd.functional.jacobian(lambda s: s.softmax(dim=0), row.detach()))
assert_close(by_pencil.sum(dim=1), torch.zeros(len(row)))
print("derivatives of the first weight:", [round(number, 2) for number in by_pencil[0].tolist()])

# %% [markdown]
# **Exercise 2 (medium).** Write attention yourself: equation 1 with or without a mask, for any dimensions in
# front. The output for a query that is not allowed to look at anything must be zeros, and no gradient may be
# NaN. The test checks the laws of attention. Where your function breaks one, the report names the likely
# mistake.


# %% tags=["exercise"]
import math

import torch


def my_attention(query, key, value, mask=None):
    """(..., T, d_k), (..., S, d_k), (..., S, d_v) and bool (T, S), True: may look -> (..., T, d_v)."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import check


def test_my_attention(my_attention):
    torch.manual_seed(0)
    tried = [torch.randn(2, 3, *size, requires_grad=True) for size in ((5, 16), (4, 16), (4, 8))]
    allowed = torch.rand(5, 4) < 0.5
    allowed[2] = False  # the third query sees nothing
    output = my_attention(*tried, allowed)
    told = f"the function must return one tensor, the output, not a {type(output).__name__}"
    assert torch.is_tensor(output), told
    report = check.attention(my_attention)
    assert report.passed, report
    assert not output[..., 2, :].any(), "a query that sees nothing gets zeros"
    output.sum().backward()
    assert all(t.grad is not None for t in tried), "no gradient reaches the query, the key or the value"
    assert all(t.grad.isfinite().all() for t in tried), "a gradient is NaN where a query sees nothing"


try:
    test_my_attention(my_attention)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(query, key, value, mask=None):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is None:
        return scores.softmax(dim=-1) @ value
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # -1e9 does not exist in float16
    weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value


test_my_attention(solution)

# %% [markdown]
# **Exercise 3 (hard).** Explore. Among $n$ keys, one is the right one, and all others have the same,
# lower score. How much higher must the right key's score be for its weight to be one half? Find the
# formula and see how it grows with $n$. What does this growth mean for a model that was trained on
# sentences of 30 words and now reads 3,000?


# %% tags=["exercise"]
import math


def lead_needed(n):
    """The difference of scores that gives one of n keys the weight 0.5."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import randint

import torch


def test_lead_needed(lead_needed):
    for n in (2, 10, 1000, randint(11, 999)):
        lead = lead_needed(n)
        assert lead is not None, "nothing is returned"
        scores = torch.zeros(n, dtype=torch.float64)
        scores[0] = lead
        weight = scores.softmax(dim=0)[0].item()
        told = (
            f"with {n} keys and your lead of {lead:.4g}, the right key's weight is {weight:.3f}, not one half"
        )
        assert abs(weight - 0.5) < 1e-6, told


try:
    test_lead_needed(lead_needed)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(n):
    return math.log(n - 1)  # e^lead / (e^lead + n - 1) = 1/2


test_lead_needed(solution)
assert [round(solution(n), 1) for n in (3, 30, 300, 3000)] == [0.7, 3.4, 5.7, 8.0]
# Ten times as many keys need a lead that is larger by 2.3. A lead of 3.4 gives the right key half of the
# weight among 30 words, but only 1% among 3,000: the right word drowns in the crowd. In lesson 01, attention
# found the marked word among 4,096 nevertheless, because training had given it a much larger lead.
