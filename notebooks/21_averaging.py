# %% [markdown]
# # 21 · Averaging
#
# **You turn the checkpoints of one training run into a better model at no cost, see the same recipe fail with
# two runs, and average predictions instead.**
#
# Previous: [10_translation](10_translation.ipynb), after which you can read this lesson · Next:
# [11_search](11_search.ipynb)
#
# *21 minutes to read, a minute to run.*
#
# - **Before:** you know the training loop ([09](09_first_example.ipynb)), the schedule
#   ([08](08_training_recipe.ipynb)), and the corpus of the grammar ([10](10_translation.ipynb)).
# - **After:** you can average checkpoints, say when that helps and what else does the same, and build an
#   ensemble and say what it costs.
#
# "The paper" is "Attention Is All You Need" (Vaswani et al., 2017), and this lesson covers one sentence of
# its section 6.1. A number after `≈` may differ on your processor. Folded cells called *Check* test what the
# text claims, and *Scaffolding* prepares data and draws.

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
# ## A mean of weights
#
# > "For the base models, we used a single model obtained by averaging the last 5 checkpoints, which were
# > written at 10-minute intervals." (section 6.1)
#
# A *checkpoint* is a copy of the weights during training. The authors add up the last five copies, weight by
# weight, and divide by five. They do not explain why. Let us try the method on a small model, which learns to
# translate the short sentences of the grammar from [10](10_translation.ipynb). It is trained for 300 updates,
# and we keep a checkpoint every 20.

# %% tags=["scaffold"]
import torch

from annotated import SentencePieceTokenizer
from annotated.translation.data import TokenBatches, encode_corpus, load_corpus

torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread
corpus = load_corpus("grammar", pair="de-en")
train, val = (
    corpus[part].take(i for i, english in enumerate(corpus[part].tgt) if len(english.split()) <= 8)
    for part in ("train", "val")
)
bpe = SentencePieceTokenizer.train([*train.src, *train.tgt], vocab_size=800)
batches = TokenBatches(encode_corpus(train, bpe, bpe), max_tokens=400)
validation = list(TokenBatches(encode_corpus(val, bpe, bpe), max_tokens=4000, shuffle=False).epoch(0))

# %%
from itertools import chain, islice

from annotated import LabelSmoothing, SimpleLossCompute, make_model, rate, run_epoch, score_tokens


def noam(step):
    """The paper's learning rate for this model (equation 3)."""
    return rate(step, model_size=64, factor=1.0, warmup=100)


def checkpoints_of(seed, schedule=noam, start=None, count=15):
    """Train a small model; return a copy of its weights after every 20 updates."""
    _ = torch.manual_seed(seed)
    model = make_model(800, 800, N=1, d_model=64, d_ff=128, h=4, dropout=0.0, tied_embeddings="all")
    if start:
        model.load_state_dict(start)
    adam = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    scheduler = torch.optim.lr_scheduler.LambdaLR(adam, schedule)
    loss = SimpleLossCompute(model.generator, LabelSmoothing(800, padding_idx=bpe.pad, smoothing=0.1))
    stream, copies = chain(batches.epoch(2 * seed), batches.epoch(2 * seed + 1)), []  # its own order
    for _ in range(count):
        run_epoch(islice(stream, 20), model, loss, adam, scheduler)
        copies.append({name: weights.clone() for name, weights in model.state_dict().items()})
    return copies


# %%
def mean_of(checkpoints):
    """The mean of several copies of the weights, name by name."""
    return {name: sum(c[name] for c in checkpoints) / len(checkpoints) for name in checkpoints[0]}


small = make_model(800, 800, N=1, d_model=64, d_ff=128, h=4, tied_embeddings="all")


def loss_of(weights):
    """Validation loss of the small model with these weights, in nats per token."""
    small.load_state_dict(weights)
    return score_tokens(small, validation).loss


checkpoints = checkpoints_of(seed=0)
alone = [loss_of(checkpoint) for checkpoint in checkpoints]
print("the last five:", *(f"≈{loss:.2f}" for loss in alone[-5:]))
print(f"their mean:    ≈{loss_of(mean_of(checkpoints[-5:])):.2f}")

# %% tags=["check"]
assert loss_of(mean_of(checkpoints[-5:])) < min(alone) - 0.03

# %% [markdown]
# The mean is better than each of the five, and it cost nothing. That should surprise you. A network is not
# linear in its weights, so why should the mean of five networks be a network that works at all?

# %% [markdown]
# ## A ball in a bowl
#
# Think of a ball that rolls around near the bottom of a bowl. Every batch pushes it a little, so it never
# rests. The pushes point in all directions, so they mostly cancel out when we take the mean of the last
# places where the ball has been. This mean is usually nearer to the bottom than the places themselves. Here
# is such a ball, in two dimensions.
#
# **Before you run this:** the ball starts far from the bottom. Is the mean of its *first* five places also
# better than the last of them?

# %%
_ = torch.manual_seed(0)
place, places = torch.tensor([20.0, 15.0]), []
for _ in range(100):
    gradient = place + torch.randn(2) * 6  # the bowl's own gradient, and the noise of a batch
    place = place - 0.3 * gradient
    places.append(place)


def height(place):
    return place.square().sum().item() / 2


typical = sum(map(height, places[-40:])) / 40
early = height(torch.stack(places[:5]).mean(dim=0))
print(f"after 5 steps: height ≈{height(places[4]):.1f}; the mean of the 5 places has height ≈{early:.1f}")
for last in (5, 40):
    of_last = height(torch.stack(places[-last:]).mean(dim=0))
    print(f"at the end: a typical height ≈{typical:.1f}; the mean of the last {last:2} places ≈{of_last:.1f}")

# %% tags=["check"]
assert early > height(places[4])
assert of_last < typical / 3

# %% [markdown]
# The height of the ball stands for the loss, and its place stands for the weights. Late in training, the mean
# of many places is much lower than a typical place. A mean of five neighbors helps less, because the ball has
# not moved far between them; that is a reason to take checkpoints that are ten minutes apart. Early in
# training, while the ball is still rolling down, the mean lags behind and is higher than the last place.
#
# Does our model behave like the ball? After every 20 updates, we compute the mean of the last five
# checkpoints.

# %% tags=["figure-averaging"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
of_five = [loss_of(mean_of(checkpoints[n - 5 : n])) for n in range(5, 16)]
fig, ax = plt.subplots()
ax.plot(range(80, 301, 20), alone[3:], "o-", label="each checkpoint")
ax.plot(range(100, 301, 20), of_five, "s--", label="mean of the last five")
ax.set(xlabel="update", ylabel="loss per token", title="Validation loss: the mean lags, then leads")
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 1. Early in training, the mean of the last five checkpoints is worse than the last one. At the end
# it is better than each of them.*

# %% tags=["check"]
assert of_five[0] > alone[4] + 0.1
assert of_five[-1] < min(alone[10:])

# %% [markdown]
# **Remember:** the noise of the batches cancels in the mean of several checkpoints. Take the mean late in
# training; early, it lags behind.

# %% [markdown]
# ## A lower learning rate does the same
#
# There is another way to calm the ball: take smaller steps. With a learning rate that falls to 0, the ball
# ends near the bottom by itself. The paper's rate does not do that. It falls like $1/\sqrt{step}$, and after
# 300 updates it is still more than half of its peak. So we train the same model again, from the same seed,
# and let the rate fall to 0 in a straight line over the last 100 updates.
#
# **Before you run this:** will the *last* checkpoint of the new training be about as good as the *mean* of
# the old one? And what will the mean of five do in the new training?


# %%
def cooled(step):
    """The paper's rate, but it falls to 0 during the last 100 of 300 updates."""
    return noam(step) * min(1.0, (300 - step) / 100)


cool = checkpoints_of(seed=0, schedule=cooled)
for name, copies in (("the paper's rate", checkpoints), ("cooled", cool)):
    print(f"{name:17} last ≈{loss_of(copies[-1]):.2f}, mean of five ≈{loss_of(mean_of(copies[-5:])):.2f}")

# %% tags=["check"]
assert abs(loss_of(cool[-1]) - of_five[-1]) < 0.1
assert loss_of(cool[-1]) < alone[-1] - 0.05
assert loss_of(mean_of(cool[-5:])) > loss_of(cool[-1])
assert noam(300) / noam(100) > 0.5

# %% [markdown]
# Cooling gains about as much as averaging, and the two gains do not add up. After cooling, there is hardly
# any noise left to cancel, and the mean only brings back older, worse weights. This is why averaging suits
# training runs whose rate stays high at the end, like the paper's. Its practical advantage is a different
# one: you need not know when the training will end. You can average at any time, and then continue training
# from the last checkpoint as if nothing had happened.
#
# Statistics has known the method since about 1990 (Polyak and Juditsky, 1992), and image recognition uses it
# as *stochastic weight averaging* (Izmailov et al., 2018), with a constant or a cyclic rate. PyTorch has it
# under that name, in `torch.optim.swa_utils`. It also has the variant that needs no files at all, the
# **exponential moving average**: keep a second copy of the weights beside the model, and from time to time
# move it a little toward the model.

# %%
shadow = checkpoints[0]
for checkpoint in checkpoints[1:]:
    shadow = {name: 0.6 * shadow[name] + 0.4 * checkpoint[name] for name in shadow}
print(f"last ≈{alone[-1]:.2f}, mean of five ≈{of_five[-1]:.2f}, moving average ≈{loss_of(shadow):.2f}")

# %% tags=["check"]
assert loss_of(shadow) < alone[-1] - 0.05

# %% [markdown]
# Old weights fade from the shadow: after ten more steps, a checkpoint counts for only $0.6^{10}$, or 0.6%, of
# what it counted at first.
#
# **Remember:** averaging and a falling rate remove the same noise. One of them is nearly enough.

# %% [markdown]
# ## Two training runs: a hill between them
#
# If the mean of five checkpoints is good, why not take the mean of two separate training runs? They have
# different seeds, so they make different mistakes.
#
# **Before you run this:** we walk in a straight line from the weights of one model to those of another, in
# ten steps. The middle of the line is their mean. How high is the loss there, if the two are checkpoints of
# one training, and if they come from two seeds?

# %%
others = [checkpoints_of(seed) for seed in (1, 2)]


def along(start, end):
    """The loss in eleven places on the straight line from one copy of the weights to another."""
    line = [n / 10 for n in range(11)]
    return [loss_of({name: (1 - t) * start[name] + t * end[name] for name in start}) for t in line]


one_run = along(checkpoints[9], checkpoints[-1])
two_runs = along(checkpoints[-1], others[0][-1])

# %% tags=["figure-line"]
fig, ax = plt.subplots()
share = [n / 10 for n in range(11)]
ax.plot(share, two_runs, "s--", color="C1", label="two seeds, after 300 updates each")
ax.plot(share, one_run, "o-", color="C0", label="one seed, after 200 and after 300 updates")
ax.set(
    xlabel="share of the second model", ylabel="loss per token", title="A valley and a hill", ylim=(2, 6.5)
)
ax.legend(frameon=False)
plt.show()

# %% [markdown]
# *Figure 2. The loss of all mixtures of two models. Between two checkpoints of one training it falls below
# both ends. Between two seeds it rises far above them.*

# %% tags=["check"]
assert min(one_run) < min(one_run[0], one_run[-1]) - 0.02
assert two_runs[5] > max(two_runs[0], two_runs[-1]) + 1

# %% [markdown]
# The mean of two seeds is ruined, although both are about equally good. They ended in different bowls. Think
# of the four heads of a layer: nothing decides which of them learns what, so head 1 of one model may do the
# work of head 3 of the other, and the mean of the two does neither. The same holds for every number of every
# hidden layer.
#
# Is that really the reason? If it is, then *one* model and itself must have a hill between them, as soon as
# we put its heads and its hidden units into another order. Each head and each unit takes its rows and columns
# along, so the function stays the same.
#
# **Before you run this:** what is the loss of the reordered model? And that of its mean with the model as it
# was?


# %%
def reordered(weights):
    """The same function, its heads and its hidden units in another order."""
    same = dict(weights)
    for name in (name.removesuffix("w_1.bias") for name in weights if name.endswith("w_1.bias")):
        units = torch.randperm(128)
        for part in ("w_1.weight", "w_1.bias"):
            same[name + part] = weights[name + part][units]
        same[name + "w_2.weight"] = weights[name + "w_2.weight"][:, units]
    for name in (name.removesuffix("0.bias") for name in weights if name.endswith("linears.0.bias")):
        numbers = torch.arange(64).view(4, 16)[torch.randperm(4)].flatten()  # four heads of 16 numbers
        for part in ("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"):
            same[name + part] = weights[name + part][numbers]
        same[name + "3.weight"] = weights[name + "3.weight"][:, numbers]
    return same


_ = torch.manual_seed(0)
itself = along(checkpoints[-1], reordered(checkpoints[-1]))
print(f"as it was ≈{itself[0]:.2f}, reordered ≈{itself[-1]:.2f}, the mean of the two ≈{itself[5]:.2f}")

# %% tags=["check"]
assert abs(itself[0] - itself[-1]) < 1e-4
assert itself[0] + 0.7 < itself[5] < two_runs[5]

# %% [markdown]
# Two copies of one function, and their mean is ruined. So a hill does not even need two different solutions;
# another order is enough. It works the other way, too: if the units of one model are first sorted to match
# those of the other, the hill becomes lower, and in wide networks it can vanish (Ainsworth et al., 2023).
# Between our two seeds the hill is higher than between the model and itself. There, the 64 numbers of the
# stream are in another order, too, and the solutions may really differ.
#
# Without further work, only models with a common past can be averaged. This is not limited to checkpoints of
# one run: fine-tuned models that start from the same pretrained weights often lie in one valley, and their
# mean, a *model soup*, can beat each of them (Wortsman et al., 2022). Exercise 3 tries that.
#
# **Remember:** average the weights of models with a common past. Between two seeds lies a hill.

# %% [markdown]
# ## Average the predictions
#
# There is a way to use two seeds: let both models predict, and average their *probabilities*. Then it does
# not matter which head does what. This is an **ensemble**, and it can translate: at each step of the search,
# every model gives its distribution for the next token, and the search continues with the mean. Three of the
# systems that the Transformer beat in the paper's Table 2 are ensembles.
#
# The folded cell computes the log-probability that a model gives to each right token of the validation text.

# %% tags=["scaffold"]
from annotated import evaluating


def log_probs_of(weights):
    """The log-probability of every right token of the validation text, (tokens,)."""
    small.load_state_dict(weights)
    found = []
    with evaluating(small):
        for batch in validation:
            states = small(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
            chosen = small.generator(states).gather(-1, batch.tgt_y.unsqueeze(-1)).squeeze(-1)
            found.append(chosen[batch.tgt_y != bpe.pad])
    return torch.cat(found)


# %%
members = torch.stack([log_probs_of(copies[-1]) for copies in (checkpoints, *others)])  # (3, tokens)
print("three seeds:", *(f"≈{-of_one.mean():.2f}" for of_one in members))
for size in (2, 3):
    together = members[:size].exp().mean(dim=0).log()  # the log of the mean probability
    print(f"an ensemble of {size}: ≈{-together.mean():.2f}")
of_last_five = torch.stack([log_probs_of(copy) for copy in checkpoints[-5:]]).exp().mean(dim=0).log()
print(
    f"an ensemble of the last five checkpoints: ≈{-of_last_five.mean():.2f}, their mean: ≈{of_five[-1]:.2f}"
)

# %% tags=["check"]
assert -together.mean() < -members.mean(dim=1).max() - 0.05
assert abs(-members[0].mean() - alone[-1]) < 1e-4
assert -together.mean() < of_five[-1] - 0.05

# %% [markdown]
# Three models together are better than the best of them, because their mistakes differ. Part of this is
# certain beforehand: the logarithm is concave, so the loss of the mean probability is never higher than the
# *mean* of the three losses. That it is lower than the *best* of them is not certain, and here it is.
#
# The last line compares the two kinds of mean for the same five checkpoints. Here, five forward passes in an
# ensemble do no better than one pass through the mean of the weights. That is the bargain of the paper: a
# single model, as fast as any other, that does the work of five neighbors.
#
# | | trainings | forward passes | models in memory |
# | --- | --- | --- | --- |
# | mean of checkpoints | 1 | 1 | 1 |
# | ensemble of $n$ seeds | $n$ | $n$ | $n$ |
#
# In BLEU the effect of averaging is small. In three of our runs, the mean of the last five checkpoints scores
# between 0.27 BLEU points less and 0.45 more than the newest checkpoint. On a thousand captions, such
# differences may be luck. *We measured it in [What do beam, penalty and averaging bring in
# BLEU?](evidence/what_do_beam_penalty_and_averaging_bring.ipynb)*
#
# **Remember:** an ensemble averages predictions. It works across seeds, and it costs as many passes as it has
# members.

# %% [markdown]
# ## What you can now say
#
# - The mean of the last checkpoints of one run can be better than each of them, because the noise of the
#   batches cancels. A learning rate that falls to 0 does the same.
# - The weights of two seeds cannot be averaged, because nothing makes the same number do the same work in
#   both: even a model and its own reordered copy have a hill between them. Those of models with a common past
#   can be averaged.
# - An ensemble averages predictions instead of weights. It works across seeds, and costs one pass for each
#   member.
#
# **Deeper:** [What do beam, penalty and averaging bring in
# BLEU?](evidence/what_do_beam_penalty_and_averaging_bring.ipynb)
#
# **Next:** how to get better translations from the same weights, in [11_search](11_search.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** With a pencil: the paper's base model made 100,000 updates in 12 hours and averaged
# the last 5 checkpoints; the big one made 300,000 in 3.5 days and averaged the last 20. Both wrote a
# checkpoint every 10 minutes. How many updates lie between the first and the last checkpoint of such a mean,
# and what share of the training is that? Then write the function.


# %% tags=["exercise"]
def span(updates, hours, checkpoints, minutes=10):
    """How many updates lie between the first and the last of the checkpoints, and their share of all."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import randint


def test_span(span):
    given = span(600, 10, 1)
    assert isinstance(given, tuple | list), f"two numbers are wanted, not {given!r}"
    assert list(given) == [0, 0], f"a single checkpoint spans no updates, not {given}"
    given = span(600, 10, 2)  # 60 updates an hour
    assert abs(given[0] - 10) < 1e-9, f"600 updates in 10 hours, 2 checkpoints: 10 updates, not {given[0]}"
    assert abs(given[1] - 1 / 60) < 1e-9, f"10 of 600 updates are a share of 0.017, not {given[1]:.3f}"
    hours, count, minutes = randint(2, 50), randint(3, 30), randint(1, 9)
    given = span(6000 * hours, hours, count, minutes)
    right = 100 * minutes * (count - 1)
    told = f"100 updates a minute, {count} checkpoints every {minutes} minutes: {right}, not {given[0]}"
    assert abs(given[0] - right) < 1e-6, told


try:
    test_span(span)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(updates, hours, checkpoints, minutes=10):
    """How many updates lie between the first and the last of the checkpoints, and their share of all."""
    between = updates * (checkpoints - 1) * minutes / (60 * hours)
    return between, between / updates


test_span(solution)
assert [round(solution(100_000, 12, 5)[0]), round(solution(300_000, 84, 20)[0])] == [5556, 11310]
# 5.6% of the base model's training, 3.8% of the big one's: late enough for the mean not to lag.

# %% [markdown]
# **Exercise 2 (medium).** Let an ensemble write. Each of `models` is a function from the tokens written so
# far to a dictionary that holds the log-probability of each next token. At each step, take the token whose
# *mean probability* is the largest, and give it to all models.


# %% tags=["exercise"]
def ensemble_greedy(models, end, most):
    """The tokens that the ensemble writes: up to `most`, the last of them `end` if it comes."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import math
from random import shuffle


def test_ensemble_greedy(ensemble_greedy):
    def model(table):
        def following(tokens):
            shares = table.get(tuple(tokens), (0.05, 0.05, 0.9))
            return {token: math.log(p) for token, p in zip((a, b, "</s>"), shares, strict=True)}

        return following

    letters = list("uvwxyz")
    for _ in range(2):
        a, b = letters[:2]
        first = model({(): (0.6, 0.3, 0.1), (b,): (0.3, 0.4, 0.3), (a,): (0.8, 0.1, 0.1)})
        second = model({(): (0.02, 0.9, 0.08), (b,): (0.6, 0.1, 0.3), (a,): (0.8, 0.1, 0.1)})
        third = model({(): (0.55, 0.35, 0.1), (b,): (0.3, 0.4, 0.3), (a,): (0.8, 0.1, 0.1)})
        for members, most, right, why in (
            ([first], 9, [a, a, "</s>"], "one model alone is greedy decoding"),
            ([first, second], 1, [b], f"{b} has the mean probability 0.6, and `most` is 1"),
            ([first, second], 9, [b, a, "</s>"], f"both models must have read {b} before they go on"),
            ([first, second, third], 1, [b], f"two of three prefer {a}, but {b} has the larger mean"),
        ):
            found = ensemble_greedy(members, "</s>", most)
            assert found == right, f"{len(members)} models: {right}, not {found}; {why}"
        wide, narrow = model({(): (0.3, 0.4, 0.3)}), model({(): (0.9, 0.001, 0.099)})
        found = ensemble_greedy([wide, wide, narrow], "</s>", 1)
        assert found == [a], f"the means are 0.50 for {a} and 0.27 for {b}: {[a]}, not {found}"
        sure, unsure = model({(): (0.005, 0.4, 0.595)}), model({(): (0.94, 0.05, 0.01)})
        found = ensemble_greedy([sure, unsure], "</s>", 1)
        told = f"the mean probabilities are 0.47 for {a} and 0.23 for {b}: {[a]}, not {found}"
        assert found == [a], f"{told}; average probabilities, not their logarithms"
        shuffle(letters)


try:
    test_ensemble_greedy(ensemble_greedy)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(models, end, most):
    """The tokens that the ensemble writes: up to `most`, the last of them `end` if it comes."""
    written = []
    while len(written) < most and end not in written:
        distributions = [model(written) for model in models]
        written.append(
            max(distributions[0], key=lambda token: sum(math.exp(d[token]) for d in distributions))
        )
    return written


test_ensemble_greedy(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore: let two training runs *branch off* from one checkpoint. Continue the last
# checkpoint for 60 updates, twice, with different batches and a constant rate of 0.002: `checkpoints_of(1,
# schedule=lambda step: 0.002, start=checkpoints[-1], count=3)`. Guess first: is there a valley or a hill
# between the two ends? Then try an early checkpoint as the start.

# %% tags=["solution"]
for where in (-1, 0):
    ends = [checkpoints_of(s, lambda step: 0.002, checkpoints[where], count=3)[-1] for s in (1, 2)]
    line = along(*ends)
    print(f"from checkpoint {where:2}: ends ≈{line[0]:.2f} and ≈{line[-1]:.2f}, middle ≈{line[5]:.2f}")
    assert line[5] < max(line[0], line[-1])
# A valley, even from the first checkpoint, after only 20 common updates. So different batches do not make the
# hill here; different first weights do.
