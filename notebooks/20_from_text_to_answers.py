# %% [markdown]
# # 20 · From text to answers
#
# **You take a model that continues text, mistakes included, and train it to answer questions, in the style
# that people prefer, and more accurately than the people who wrote its text.**
#
# Previous: [19_a_model_of_today](19_a_model_of_today.ipynb) · You can read this lesson right after
# [17_since_2017](17_since_2017.ipynb)
#
# *50 minutes to read, about a minute and a half to run.*
#
# - **Before:** you know what a decoder-only language model is ([00](00_start_here.ipynb),
#   [17](17_since_2017.ipynb)) and how a model is trained ([08](08_training_recipe.ipynb)).
# - **After:** you can say what fine-tuning, LoRA, learning from preferences and learning from verifiable
#   rewards each do to a model, write the loss of each, and name what goes wrong with it. You can spend
#   computation on choosing among answers, and you can check whether an exam is to be trusted.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017); nothing in this lesson is from it. A
# number after `≈` may differ on your processor. You can skip the folded cells: *Scaffolding* prepares and
# draws, and *Check* tests what the text claims.

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
# ## A world of one kind of line
#
# An assistant such as ChatGPT is made in several steps. Each step goes on training the same Transformer, with
# other data or another loss. To see what each step does, we need a world so small that every step runs in
# seconds and a program can check every answer.
#
# In our world, people write only one kind of line: four digits, the sign `>`, and the same digits in
# ascending order. And people make mistakes. In three lines out of ten, they swap two digits of the answer.
# (Where the two digits are equal, that does no harm, so 73% of the answers are right.)

# %%
import random


def ask(draw, digits=4):
    """A question: some digits."""
    return "".join(draw.choices("0123456789", k=digits))


def right_answer(question):
    return "".join(sorted(question))


def human_answer(question, draw):
    """The right answer, but in three cases of ten with two of its digits exchanged."""
    digits = sorted(question)
    if draw.random() < 0.3:
        i, j = draw.sample(range(len(digits)), 2)
        digits[i], digits[j] = digits[j], digits[i]
    return "".join(digits)


draw = random.Random(1)
questions = [ask(draw) for _ in range(40_000)]
text = "".join(f"{question}>{human_answer(question, draw)}\n" for question in questions)
print(text[:50])

# %% [markdown]
# The model reads single characters. Its vocabulary has three that the text lacks: a question mark, a space,
# and `#`, which will mark the end of an answer. The model is a decoder-only Transformer, built from PyTorch's
# own layers ([14](14_attention_in_pytorch.ipynb)): PyTorch's encoder has no cross-attention, and with a
# causal mask it *is* such a decoder. The folded cell has its code: width 64, four heads, two layers.

# %% tags=["scaffold"]
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
symbols = "0123456789>\n? #"
number = {symbol: i for i, symbol in enumerate(symbols)}


class Model(nn.Module):
    """Tokens (B, T) to logits (B, T, symbols), for the symbol that follows each."""

    def __init__(self, d_model=64, heads=4, layers=2, longest=32):
        super().__init__()
        self.embed = nn.Embedding(len(symbols), d_model)
        self.positions = nn.Embedding(longest, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, heads, 4 * d_model, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.out = nn.Linear(d_model, len(symbols))

    def forward(self, tokens):
        T = tokens.size(1)
        x = self.embed(tokens) + self.positions.weight[:T]
        causal = nn.Transformer.generate_square_subsequent_mask(T)
        return self.out(self.layers(x, causal, is_causal=True))


# %% [markdown]
# First comes **pretraining**: predict the next symbol of the text. `train` is the training loop of
# [17](17_since_2017.ipynb), and it takes the loss as an argument, because the rest of this lesson is about
# losses.

# %%
import math


def train(model, loss, updates, rate):
    """Make `updates` of the weights that have gradients, by the loss that a call of `loss` returns."""
    adam = torch.optim.AdamW((w for w in model.parameters() if w.requires_grad), lr=rate, betas=(0.9, 0.95))
    for update in range(updates):
        adam.param_groups[0]["lr"] = rate * min(
            (update + 1) / 50, 0.5 + 0.5 * math.cos(math.pi * update / updates)
        )
        adam.zero_grad()
        loss().backward()
        adam.step()


_ = torch.manual_seed(0)
stream = torch.tensor([number[symbol] for symbol in text])
base = Model()


def next_symbol():
    starts = torch.randint(len(stream) - 33, (32,))
    rows = torch.stack([stream[start : start + 33] for start in starts])  # (32, 33)
    return F.cross_entropy(base(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


train(base, next_symbol, updates=1000, rate=0.003)

# %% [markdown]
# The model is trained. We let it continue a line by drawing each next symbol from its distribution. All
# prompts of a batch have the same length, so that we need no padding.


# %%
@torch.no_grad()
def write(model, prompts, length, greedy=False):
    """Continue prompts of the same length: tokens (count, prompt + length)."""
    tokens = torch.tensor([[number[symbol] for symbol in prompt] for prompt in prompts])
    for _ in range(length):
        probs = model(tokens)[:, -1].softmax(dim=-1)  # (count, symbols)
        chosen = probs.argmax(dim=-1, keepdim=True) if greedy else probs.multinomial(1)
        tokens = torch.cat([tokens, chosen], dim=1)
    return tokens


def read(tokens):
    return "".join(symbols[token] for token in tokens)


_ = torch.manual_seed(0)
print(read(write(base, ["4821>"], 17)[0]))

# %% [markdown]
# It answers, and then it goes on with a question of its own, as its text does. **Before you run this:** we
# give it an exam of 300 questions. How many answers will be right? And how many if, in place of drawing, we
# take the likeliest symbol each time?

# %%
exam = [ask(random.Random(f"exam {i}")) for i in range(300)]


def share(found):
    """Which part of the exam's answers is right."""
    right = [answer == right_answer(question) for answer, question in zip(found, exam, strict=True)]
    return sum(right) / len(right)


_ = torch.manual_seed(1)
prompts = [f"{question}>" for question in exam]
drawn = share([read(row[5:]) for row in write(base, prompts, 4)])
best_of_base = share([read(row[5:]) for row in write(base, prompts, 4, greedy=True)])
human = share([human_answer(question, random.Random(question)) for question in exam])
print(f"people ≈{human:.0%}, drawn ≈{drawn:.0%}, likeliest symbols ≈{best_of_base:.0%}")

# %% tags=["check"]
assert 0.65 < human < 0.8
assert drawn < human
assert best_of_base > human + 0.1

# %% [markdown]
# Drawn answers are wrong even more often than people's. The model has learned the distribution of its text,
# mistakes included, and it adds some of its own. But each single mistake is rarer than the right answer, so
# the likeliest symbols are nearly always right. The model *knows* more than it shows. (A low temperature,
# [11](11_search.ipynb), would bring it out. We keep drawing as it is, to see what training does.)
#
# **Remember:** pretraining imitates the text as it is, with its form, its habits and its mistakes.

# %% [markdown]
# ## Answers: fine-tuning on examples
#
# Now we ask in a new form, with a question mark before the digits: `?4821 `. Nothing in the text looked like
# this, so the model does not know what to do.

# %%
_ = torch.manual_seed(0)
print(repr(read(write(base, ["?4821 "], 10)[0, 6:])))

# %% [markdown]
# What we want is a **dialogue**: the question in a fixed form, then the answer, then a sign that the answer
# is over. Real assistants use such a form, too; it is called a *chat template*, and it marks who speaks.
#
# **Supervised fine-tuning** (SFT) continues the training on example dialogues. The loss is the same, with one
# difference. What the user says need not be predicted, so the targets of the question are *masked*: the
# number −100 tells `cross_entropy` to leave these positions out. Padding is left out in the same way.

# %%
draw = random.Random(2)
examples = [(question, human_answer(question, draw)) for question in (ask(draw) for _ in range(300))]
LONGEST = len("?4821 ") + 8 + 1  # an answer has at most eight symbols, and its end


def dialogues(pairs, masked=True):
    """Inputs and targets, both (pairs, T); a target of −100 counts for nothing."""
    rows = [f"?{question} {answer}#" for question, answer in pairs]
    tokens = torch.tensor([[number[symbol] for symbol in row.ljust(LONGEST, "#")] for row in rows])
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    if masked:
        targets[:, :5] = -100
    for target, row in zip(targets, rows, strict=True):
        target[len(row) - 1 :] = -100  # padding
    return inputs, targets


inputs, targets = dialogues(examples)
print("reads:   ", repr(read(inputs[0])))
print("predicts:", ["-" if token < 0 else symbols[token] for token in targets[0]])

# %% [markdown]
# **Before you run this:** we train with 300 examples for 200 updates, from the pretrained model and from a
# new one, each with and without masking the questions. (A new model gets a higher learning rate.) Put the
# four in order, from the best to the worst.

# %%
import copy


def fine_tune(model, pairs, masked=True, rate=0.001, updates=200):
    inputs, targets = dialogues(pairs, masked)

    def loss():
        some = torch.randint(len(inputs), (32,))
        return F.cross_entropy(model(inputs[some]).flatten(0, 1), targets[some].flatten())

    train(model, loss, updates, rate)
    return model


def replies(model, questions, greedy=False, length=8):
    """An answer to each question, up to the sign for its end."""
    rows = write(model, [f"?{question} " for question in questions], length, greedy)
    start = rows.size(1) - length
    return [read(row[start:]).partition("#")[0] for row in rows]


shares = {}
for masked in (True, False):
    for name in ("pretrained", "new"):
        _ = torch.manual_seed(0)
        start, rate = (copy.deepcopy(base), 0.001) if name == "pretrained" else (Model(), 0.003)
        model = fine_tune(start, examples, masked, rate)
        shares[name, masked] = drawn, best = [share(replies(model, exam, greedy)) for greedy in (False, True)]
        form = "answers alone" if masked else "questions, too"
        print(f"{name:10} model, loss on {form:14}: drawn ≈{drawn:.0%} right, likeliest ≈{best:.0%}")
        if name == "pretrained" and masked:
            chat = model

# %% tags=["check"]
assert shares["pretrained", True][0] > shares["pretrained", False][0] > shares["new", False][0] + 0.1
assert shares["pretrained", True][1] > shares["new", True][1] + 0.1
assert shares["new", True][0] > shares["new", False][0]

# %% [markdown]
# The pretrained model already knew how to sort; the examples only taught it *when*. A new model has to learn
# sorting from the 300 examples, and does so less well. Our questions are random digits, so learning to
# predict them uses up a part of each gradient for nothing. For the new model, this waste is expensive. The
# pretrained model's drawn answers are still worse than the examples: they have the writers' mistakes and its
# own. And it has lost a little on the way: in the old form, its likeliest answer was right more often.
#
# How sure are these numbers? The exam has 300 questions, so a share near 60% is uncertain by 6 points (95%),
# and the difference of two such shares by up to 8 (less where two models are right on the same questions).
# And each training is one seed. Do not read more into small differences, here and below.
#
# **Remember:** fine-tuning on examples teaches a form, with a loss on the answers alone. The model imitates
# its examples, mistakes included, and it brings most of what it needs from pretraining.

# %% [markdown]
# ## Fewer numbers to train: LoRA
#
# Fine-tuning changes all weights. With 8 billion of them, Adam keeps 16 billion more numbers, and every task
# needs its own copy of the model. **LoRA** (Hu et al., 2021) leaves a matrix $W$ as it is and learns only a
# difference of low rank, the product of two thin matrices:
#
# $$W' = W + B A, \qquad B \in \mathbb{R}^{d \times r}, \; A \in \mathbb{R}^{r \times d}$$
#
# $B$ is zero at first, so the model begins as it was. Afterwards, $BA$ can be added to $W$ once, and the
# model is as fast as before.


# %%
class LoRA(nn.Module):
    """A linear layer whose matrix stays, plus a learned difference of rank r."""

    def __init__(self, linear, r):
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.randn(r, linear.in_features) / linear.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(linear.out_features, r))

    @property
    def weight(self):
        return self.linear.weight + self.b @ self.a

    @property
    def bias(self):
        return self.linear.bias

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


# %% [markdown]
# The folded cell gives one to the feed-forward layers and to $W^O$ of both layers, with $r = 8$, and trains
# them on the same examples.

# %% tags=["scaffold"]
_ = torch.manual_seed(0)
adapted = copy.deepcopy(base).requires_grad_(False)
for layer in adapted.layers.layers:
    layer.linear1, layer.linear2 = LoRA(layer.linear1, r=8), LoRA(layer.linear2, r=8)
    layer.self_attn.out_proj = LoRA(layer.self_attn.out_proj, r=8)
trained = sum(w.numel() for w in adapted.parameters() if w.requires_grad)
whole = sum(w.numel() for w in base.parameters())
fine_tune(adapted, examples, rate=0.02)
lora = [share(replies(adapted, exam, greedy)) for greedy in (False, True)]
print(f"{trained:,} of {whole:,} weights trained: drawn ≈{lora[0]:.0%} right, likeliest ≈{lora[1]:.0%}")

# %% tags=["check"]
assert trained < whole / 8
assert lora[1] > shares["new", True][1] + 0.1

# %% [markdown]
# An eighth of the weights does as well here, at a rate that is 20 times higher. In a large model the share is
# far smaller, because $r$ need not grow with $d$: Hu et al. report up to 10,000 times fewer trained weights
# for GPT-3.
#
# **Remember:** LoRA learns a difference of low rank for each matrix, and leaves the matrix alone.

# %% [markdown]
# ## Preferences: a reward model
#
# It is often easier to say which of two answers is better than to write a good one. Suppose that people write
# the answer in two styles, `1248` or `1 2 4 8`, and that readers prefer the second. We fine-tune a model on
# both styles, and let it answer each of 400 questions twice. Where the two answers differ in style, a reader
# prefers the spaced one. The reader does not look at the digits.

# %% tags=["scaffold"]
draw = random.Random(3)
styled = [(q, answer if draw.random() < 0.5 else " ".join(answer)) for q, answer in examples]
_ = torch.manual_seed(0)
both = fine_tune(copy.deepcopy(base), styled, updates=300)

_ = torch.manual_seed(0)
asked = [ask(random.Random(f"twice {i}")) for i in range(400)]
preferred, rejected = [], []
for question, one, other in zip(asked, replies(both, asked), replies(both, asked), strict=True):
    if (" " in one) != (" " in other):
        spaced, tight = (one, other) if " " in one else (other, one)
        preferred.append((question, spaced))
        rejected.append((question, tight))
print(len(preferred), "pairs, such as", preferred[0], "before", rejected[0])

# %% [markdown]
# Readers can't judge every answer that a model will ever write. But a second model, the **reward model**, can
# learn to predict what they would say. It gives each answer $y$ to a question $x$ one number, its reward
# $r(x, y)$. How do two numbers become a preference? By an old model of who wins a match (Bradley and Terry,
# 1952): the preferred answer $y_w$ wins against the rejected one, $y_l$, with the probability
#
# $$p(y_w \text{ wins}) = \sigma\left(r(x, y_w) - r(x, y_l)\right), \qquad \sigma(z) = \frac{1}{1 + e^{-z}}$$
#
# The loss is $-\log p$, as always. Only differences count: add the same number to all rewards of a question,
# and nothing changes. The reward model itself is our model with another last layer, which is read at the end
# of the answer.
#
# **Before you run this:** we train it on 100 pairs and test it on the others. Then it sees two answers to
# each question of the exam: the right digits without spaces, and the digits in *descending* order with
# spaces. Which of the two gets the larger reward?


# %%
class RewardModel(nn.Module):
    """Question-answer pairs to rewards (pairs,), read at the last symbol of each answer."""

    def __init__(self, model):
        super().__init__()
        self.model = copy.deepcopy(model)
        self.model.out = nn.Linear(64, 1)

    def forward(self, pairs):
        inputs, targets = dialogues(pairs)
        ends = (targets != -100).cumsum(dim=1).argmax(dim=1)  # where the end is predicted
        return self.model(inputs)[range(len(pairs)), ends, 0]


_ = torch.manual_seed(0)
judge = RewardModel(both)


def bradley_terry():
    some = torch.randint(100, (32,)).tolist()
    difference = judge([preferred[i] for i in some]) - judge([rejected[i] for i in some])
    return -F.logsigmoid(difference).mean()


train(judge, bradley_terry, updates=60, rate=0.001)
judge.requires_grad_(False)
predicted = (judge(preferred[100:]) > judge(rejected[100:])).float().mean()
mixed = [question for question in exam if len(set(question)) > 1]
tight = judge([(question, right_answer(question)) for question in mixed])
spaced = judge([(question, " ".join(right_answer(question)[::-1])) for question in mixed])
fooled = (spaced > tight).float().mean()
print(f"new pairs predicted: ≈{predicted:.0%}; wrong but spaced wins over right: ≈{fooled:.0%}")

# %% tags=["check"]
assert predicted > 0.95
assert fooled > 0.95

# %% [markdown]
# The wrong answer always wins. The reward model has learned what these readers reward, and they never looked
# at the digits.
#
# *Reinforcement learning from human feedback*, RLHF (Christiano et al., 2017), which made the first
# assistants, then trains the model to get high rewards: it draws answers, and an algorithm named PPO makes
# those more probable that got more reward than was expected, in small, clipped steps (Ouyang et al., 2022).
# From each reward it subtracts a **KL penalty**, $\beta$ times the log of how much more probable the answer
# has become than it was at first, because far from the answers that it was trained on, a reward model is
# easily fooled.
#
# **Remember:** a reward model turns comparisons into one number per answer. It knows what the readers looked
# at, and nothing else.

# %% [markdown]
# ## DPO: the reward without its model
#
# **Direct preference optimization**, DPO (Rafailov et al., 2023), reaches the same goal without a reward
# model and without drawing answers. Let $\pi$ be the probabilities of the model that we look for, and
# $\pi_0$ those of the model as it was. Five lines lead from RLHF to DPO:
#
# 1. RLHF maximizes the mean of $r(x, y) - \beta \log \frac{\pi(y \mid x)}{\pi_0(y \mid x)}$ over answers $y$
#   that are drawn from $\pi$.
# 2. Let $\pi^*(y \mid x) = \pi_0(y \mid x)\, e^{r(x, y) / \beta} / Z(x)$, where $Z(x)$ is the sum over all
#   answers that makes the probabilities add up to 1. Solved for $r$, this is $r(x, y) = \beta \log
#   \frac{\pi^*(y \mid x)}{\pi_0(y \mid x)} + \beta \log Z(x)$.
# 3. If we put this into line 1, $\pi_0$ cancels. What remains is $\beta \log Z(x)$, which does not depend on
#   $\pi$, minus $\beta$ times the mean of $\log \frac{\pi(y \mid x)}{\pi^*(y \mid x)}$, which is the KL
#   divergence of $\pi$ from $\pi^*$. That is never negative, and 0 only for $\pi = \pi^*$. So $\pi^*$ is the
#   best model.
# 4. Nobody can compute $Z(x)$, a sum over all possible answers. But Bradley and Terry need only a
#   *difference* of two rewards of one question, and there $\beta \log Z(x)$ cancels.
# 5. So we put line 2 into their loss, with the model that we train in the place of $\pi^*$:
#
# $$-\log \sigma\left(\beta \left[ \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log \frac{\pi(y_l \mid
# x)}{\pi_0(y_l \mid x)} \right]\right)$$
#
# The folded cell checks this with four possible answers. It climbs to
# the maximum of line 1 by gradients alone, and then compares $\beta \log (\pi / \pi_0)$ with the rewards.

# %% tags=["scaffold"]
rewards, first, beta = torch.tensor([1.0, 0.25, -0.5, 0.0]), torch.tensor([0.1, 0.2, 0.3, 0.4]), 0.5
scores = first.log().requires_grad_()
climb = torch.optim.Adam([scores], lr=0.05)
for _ in range(500):
    now = scores.softmax(dim=0)
    climb.zero_grad()
    (-(now * (rewards - beta * (now / first).log())).sum()).backward()
    climb.step()
implied = beta * (scores.detach().softmax(dim=0) / first).log()
print("rewards, minus the first one:     ", *(f"{r:+.2f}" for r in rewards - rewards[0]))
print("beta log(pi / pi_0), in that way: ", *(f"{r:+.2f}" for r in implied - implied[0]))

# %% tags=["check"]
torch.testing.assert_close(implied - implied[0], rewards - rewards[0], atol=0.005, rtol=0)

# %% [markdown]
# They agree. Now the code; $\log \pi(y \mid x)$ is the sum over the symbols of the answer. Suppose that the
# difference in the brackets is 5. With $\beta = 0.1$, the sigmoid is $\sigma(0.5) = 0.62$, so the loss still
# pushes the two answers apart. With $\beta = 1$, it is $\sigma(5) = 0.99$, and the loss hardly pushes any
# more. So a larger $\beta$ keeps the model closer to what it was, as it did in the penalty.


# %%
def log_prob(model, pairs):
    """The log-probability of each answer, its end included: (pairs,)."""
    inputs, targets = dialogues(pairs)
    return -F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none").sum(dim=1)


def prefer(model, updates, beta=0.1):
    """Train by DPO, from the model as it is."""

    def lead(some):  # by how much the preferred answers are more probable, in nats
        pairs = [(preferred[i], rejected[i]) for i in some]
        return log_prob(model, [liked for liked, _ in pairs]) - log_prob(model, [other for _, other in pairs])

    with torch.no_grad():
        at_first = lead(range(len(preferred)))

    def loss():
        some = torch.randint(len(preferred), (32,)).tolist()
        return -F.logsigmoid(beta * (lead(some) - at_first[some])).mean()

    train(model, loss, updates, rate=0.0001)
    return model


# %% [markdown]
# **Before you run this:** we make 40 updates, and in a second run 150. For comparison, we also try something
# simpler: fine-tuning on the preferred answers, at the same rate. What will happen to the style, and what to
# the digits?


# %% tags=["scaffold"]
def report(name, model):
    """The share of spaced answers and of right ones; mean log-probabilities of preferred and rejected."""
    _ = torch.manual_seed(0)
    found = replies(model, exam)
    with torch.no_grad():
        liked, disliked = (log_prob(model, pairs).mean().item() for pairs in (preferred, rejected))
    in_style = sum(" " in answer for answer in found) / len(found)
    correct = share([answer.replace(" ", "") for answer in found])
    print(
        f"{name:15} ≈{in_style:.0%} spaced, ≈{correct:.0%} right; "
        f"log-probability of the preferred ≈{liked:.1f}, of the rejected ≈{disliked:.1f}"
    )
    return in_style, correct, liked, disliked


reports = {0: report("before", both)}
_ = torch.manual_seed(0)
imitated = report("SFT, 40 updates", fine_tune(copy.deepcopy(both), preferred, rate=0.0001, updates=40))
for updates in (40, 150):
    _ = torch.manual_seed(0)
    reports[updates] = report(f"DPO, {updates} updates", prefer(copy.deepcopy(both), updates))

# %% tags=["check"]
assert sum(right_answer(q) == answer.replace(" ", "") for q, answer in preferred) == 66
assert sum(right_answer(q) == answer for q, answer in rejected) == 85
assert reports[0][0] < 0.65
assert reports[40][0] > 0.85
assert 0.75 < imitated[0] <= reports[40][0] + 0.02
assert reports[40][1] > reports[0][1] - 0.16
assert reports[150][1] < reports[40][1] - 0.12
assert reports[150][3] < reports[40][3] - 5

# %% [markdown]
# After 40 updates, nearly all answers have the style that readers like, and the digits have lost some points,
# for a reason: of the 140 preferred answers only 66 are right, and of the rejected ones 85. Whoever prefers a
# style may prefer mistakes with it. Plain fine-tuning on the preferred answers comes close, in our world of
# two styles. DPO also learns from the *rejected* answers: it makes them improbable. So the preferred answers
# do not have to be perfect examples, only better than the others.
#
# This strength is also a danger. After 150 updates, the style is still there, and the digits are broken. The
# loss looks at a *difference* alone. It goes on pushing the rejected answers down, and here the preferred
# ones sink with them, below where they were at first. So in practice one stops early, uses a larger $\beta$,
# or adds the ordinary loss on the preferred answers.
#
# **Remember:** DPO raises preferred answers above rejected ones, relative to the model before DPO. The loss
# sees only the difference, so keep an eye on everything it does not see.

# %% [markdown]
# ## Rewards that a program can verify
#
# Readers cannot easily check 300 answers; a program can. Proofs, sums and programs can be checked, too. The
# simplest use of such a *verifier* is to keep only what passes. Of our 300 examples, that leaves the right
# ones.
#
# **Before you run this:** what happens if we fine-tune on those alone?


# %%
def is_right(question, answer):
    return answer == right_answer(question)


_ = torch.manual_seed(0)
kept = [pair for pair in examples if is_right(*pair)]
filtered = share(replies(fine_tune(copy.deepcopy(base), kept), exam))
print(f"{len(kept)} right examples of {len(examples)}: drawn ≈{filtered:.0%} right; people ≈{human:.0%}")

# %% tags=["check"]
assert filtered > human + 0.04

# %% [markdown]
# The model is now better than the people, because its examples are. But what if nobody has written examples?
# Then the model can write the answers itself. Since DeepSeek-R1 (2025), models that reason at length are
# widely trained in this way, by **reinforcement learning with verifiable rewards**, RLVR (the name is from
# Lambert et al., 2024). The model answers each question several times. Right answers get the reward 1, wrong
# ones 0. Then the right ones are made more probable, and the wrong ones less.
#
# How much more? In *GRPO* (Shao et al., 2024), an answer's **advantage** is its reward minus the mean reward
# of its group (the answers to the same question), all divided by the group's standard deviation. If all
# answers of a group are right, or all are wrong, then nothing is learned from it. The loss is the negative
# log-probability of each drawn symbol times the advantage of its answer. No gradient goes through the drawing
# itself. (The full method also clips each update and adds a KL penalty, which we leave out, and first takes a
# mean over each answer. Liu et al., 2025, show that this mean favors long wrong answers, and leave it out
# together with the standard deviation.)


# %%
def reinforce(model, reward, updates=50, questions=32, group=8, digits=4):
    """Train by the rewards of sampled answers; returns the mean reward of each update."""
    adam, draw, history = torch.optim.Adam(model.parameters(), lr=0.0003), random.Random(4), []
    for _ in range(updates):
        asked = [question for question in (ask(draw, digits) for _ in range(questions)) for _ in range(group)]
        length = digits + 2
        rows = write(model, [f"?{question} " for question in asked], length)  # (questions * group, T)
        answers = [read(row[-length:]).partition("#")[0] for row in rows]
        rewards = torch.tensor([float(reward(*pair)) for pair in zip(asked, answers, strict=True)])
        groups = rewards.view(questions, group)
        advantage = (groups - groups.mean(dim=1, keepdim=True)) / (groups.std(dim=1, keepdim=True) + 1e-4)

        log_probs = model(rows[:, :-1]).log_softmax(dim=-1)  # of what may follow
        drawn = log_probs.gather(2, rows[:, 1:, None]).squeeze(2)[:, -length:]  # of what was drawn
        sizes = torch.tensor([len(answer) + 1 for answer in answers])  # with the end
        belongs = torch.arange(length) < sizes.unsqueeze(1)  # what follows the end is no part of the answer
        loss = -(drawn * belongs * advantage.view(-1, 1)).sum() / belongs.sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        history.append(rewards.mean().item())
    return history


# %% [markdown]
# **Before you run this:** we begin with the model that was fine-tuned on all 300 examples, mistakes included.
# It is shown no answer now, only rewards for its own. Can its drawn answers become better than those of
# people?

# %%
_ = torch.manual_seed(0)
verified = copy.deepcopy(chat)
history = reinforce(verified, is_right)
before, after = (
    [share(replies(model, exam, greedy)) for greedy in (False, True)] for model in (chat, verified)
)
for name, (drawn, best) in (("before", before), ("after", after)):
    print(f"{name:6} drawn ≈{drawn:.0%} right, likeliest symbols ≈{best:.0%}")

# %% tags=["check"]
assert before[0] < human < after[0] - 0.08
assert after[1] > before[1] + 0.02

# %% [markdown]
# They can, and without one more example. For most questions, the right answer was the model's most probable
# one all along: drawn answers are now as good as the likeliest ones were. That much, a low temperature would
# have given for nothing. What is new stands in the second column: nearly all of the likeliest answers are
# right now.
#
# **Remember:** a verifiable reward makes the answers right that the model can find by itself.

# %% [markdown]
# ## More tries, more thought
#
# We have spent all computation on training. It can also be spent on the answer. Let the model try $k$ times.
# If a program can verify answers, take one that passes; this succeeds where at least one try is right, and
# the share of such questions is called **pass@k**. Without a program, let the tries **vote** and take the
# most frequent answer (*self-consistency*, Wang et al., 2022).
#
# **Before you run this:** one drawn answer of the fine-tuned model is right in about six of ten cases. What
# will the vote of 16 tries reach? And what for the model that was trained by rewards?

# %%
from collections import Counter

counts, tried = (1, 2, 4, 8, 16), {}
for name, model in (("before", chat), ("after", verified)):
    _ = torch.manual_seed(0)
    tries = list(zip(*(replies(model, exam, length=5) for _ in range(16)), strict=True))  # of each question
    voted = [share([Counter(answers[:k]).most_common(1)[0][0] for answers in tries]) for k in counts]
    passed = [sum(right_answer(q) in a[:k] for q, a in zip(exam, tries, strict=True)) / 300 for k in counts]
    tried[name] = voted, passed
    print(f"{name:6}: one try ≈{voted[0]:.0%}, vote of 16 ≈{voted[-1]:.0%}, pass@16 ≈{passed[-1]:.0%}")

# %% tags=["check"]
(vote_before, pass_before), (vote_after, pass_after) = tried["before"], tried["after"]
assert vote_before[0] + 0.2 < vote_before[-1] < before[1] + 0.03
assert pass_before[-1] > 0.97 > vote_before[-1] + 0.03
assert vote_after[0] > vote_before[0] + 0.15
assert vote_after[-1] > vote_before[-1] + 0.03

# %% tags=["figure-tries", "scaffold"]
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
fig, ax = plt.subplots(figsize=(8, 3.8))
for name, (color, greedy) in {"before": ("C0", before[1]), "after": ("C1", after[1])}.items():
    voted, passed = tried[name]
    ax.plot(counts, passed, "s-", color=color, label=f"{name} the rewards: a verifier chooses (pass@k)")
    ax.plot(counts, voted, "o--", color=color, label=f"{name} the rewards: a vote")
    ax.axhline(greedy, color=color, lw=1, ls=":")
ax.set(
    xscale="log",
    xlabel="tries, k",
    ylabel="share of right answers",
    title="What more tries buy",
    ylim=(0.55, 1.02),
)
ax.set_xticks(counts, counts)
ax.minorticks_off()
ax.legend(loc="lower right", fontsize=11)
plt.show()

# %% [markdown]
# *Figure 1. The same 300 questions, with more and more tries. The dotted lines show what the likeliest
# symbols give with a single try.*
#
# The vote finds what the model thinks most probable, and with many tries it comes up to the likeliest symbols
# and stops there. The verifier solves every question for which *one* try is right. In large models, too,
# pass@k goes on rising over thousands of tries, while votes and reward models level off after some hundred
# (Brown et al., 2024).
#
# The rewards have moved the same answers into fewer tries: one of 16 was nearly always right before, and now
# one is enough most of the time. Yue et al. (2025) measured this for large models: after such training,
# pass@1 is higher, but for large $k$, the model without the training catches up and even overtakes the
# trained one. (Our pass@16 is too near to 100% to show that.) Whether longer training brings anything new is
# disputed.
#
# The other way to spend computation is one *longer* answer. Each symbol is one more pass through the network,
# and it can read what it wrote before. So a model that writes down its intermediate steps, a *chain of
# thought* (Wei et al., 2022), spends more passes on a question before it answers. **Reasoning models** are
# trained by rewards to do this at length. For DeepSeek-R1-Zero (2025), the rewards looked at nothing but the
# final answer and its format, and the thoughts became longer by themselves. Of o1 (2024), OpenAI reported
# that it becomes better with more time to think, as it does with more training.
#
# A question that is never answered correctly can never bring a reward. Our model was taught to end after four
# digits. Ask it for five:

# %% tags=["scaffold"]
_ = torch.manual_seed(0)
longer = copy.deepcopy(chat)
hopeless = reinforce(longer, is_right, updates=10, digits=5)
changed = max(
    (new - old).abs().max().item() for new, old in zip(longer.parameters(), chat.parameters(), strict=True)
)
print(f"rewards in 10 updates: {sum(hopeless):.0f}; largest change of a weight: {changed:.0f}")

# %% tags=["check"]
assert sum(hopeless) == 0
assert changed == 0

# %% [markdown]
# No answer was right, so all rewards of each group were equal, all advantages 0, and no weight has moved.
#
# **Remember:** a vote finds the most probable answer, and a verifier finds any right one. Rewards make
# reliable what the model can do sometimes, and cannot reward what is never tried.

# %% [markdown]
# ## What you reward is what you get
#
# Our verifier was perfect. Many are not: tests of a program, for instance, try only some of its inputs. Let
# us plant a bug in ours: it accepts any four digits *in ascending order*, and forgets to compare them with
# the question.
#
# **Before you run this:** what happens to the reward, and what happens to the answers?


# %%
def looks_right(question, answer):
    return len(answer) == 4 and answer.isdigit() and list(answer) == sorted(answer)


_ = torch.manual_seed(0)
hacked = copy.deepcopy(chat)
deceived = reinforce(hacked, looks_right)
_ = torch.manual_seed(0)
found = replies(hacked, exam)
really = share(found)
print(f"reward ≈{sum(deceived[-5:]) / 5:.0%}; right ≈{really:.0%}, before any reward ≈{before[0]:.0%}")

# %% tags=["check"]
assert sum(deceived[-5:]) / 5 > 0.93
assert really < after[0] - 0.2
assert really < before[0]

# %% tags=["nbval-ignore-output", "scaffold"]
for question, answer in list(zip(exam, found, strict=True))[:5]:
    print(
        question,
        "->",
        answer,
        ""
        if is_right(question, answer)
        else "(wrong, and rewarded)"
        if looks_right(question, answer)
        else "(wrong)",
    )

# %% tags=["check"]
wrong = [pair for pair in zip(exam, found, strict=True) if looks_right(*pair) and not is_right(*pair)]
assert len(wrong) > 0.2 * len(exam)

# %% tags=["figure-rewards", "scaffold"]
fig, ax = plt.subplots(figsize=(8, 3.8))
ax.plot(history, label="the right verifier")
ax.plot(deceived, "--", label="the faulty verifier")
for value, color in ((after[0], "C0"), (really, "C1")):
    ax.plot([len(history)], [value], "o", color=color, ms=9)
    ax.annotate(f"{value:.0%} right", (len(history), value), (10, -4), textcoords="offset points")
ax.set(xlabel="update", ylabel="mean reward", xlim=(-2, 62), ylim=(0, 1.05))
ax.set_title("Reward during training")
ax.legend(loc="lower center")
plt.show()

# %% [markdown]
# *Figure 2. The lines are rewards, and each dot is the share of the exam's answers that are really right
# after the training with that verifier. By the rewards, the faulty verifier is the greater success.*
#
# The reward is higher than with the right verifier, and the answers are worse than before any reward. The
# model has found that digits in order are what counts. It no longer needs to know which digits they are. This
# is called **reward hacking**, and no curve of rewards shows it. Only an exam that is not the reward does.
#
# **Remember:** a model learns what is rewarded, not what was meant. Keep a test that is not the reward.

# %% [markdown]
# ## Can the exam be trusted?
#
# All our claims rest on an exam of 300 questions. Has the model perhaps seen them before? To find such
# **contamination**, look for n-grams of the exam in the training text. For GPT-3, Brown et al. (2020) looked
# for runs of 13 words; our questions have four digits, so we look for these five symbols: the question and
# the `>`.
#
# **Before you run this:** the exam was drawn independently of the text. How many of its questions occur there
# all the same?

# %%
grams = {text[i : i + 5] for i in range(len(text) - 4)}
known = sum(f"{question}>" in grams for question in exam)
new = [f"{i:04}" for i in range(10_000) if f"{i:04}>" not in grams]
found = [read(row[5:]) for row in write(base, [f"{question}>" for question in new], 4, greedy=True)]
clean = sum(map(is_right, new, found)) / len(new)
print(f"{known} of {len(exam)} questions of the exam occur in the text")
print(f"likeliest symbols: exam ≈{best_of_base:.0%}, the {len(new)} questions that never occur ≈{clean:.0%}")

# %% tags=["check"]
assert known > 285
assert 150 < len(new) < 220
assert abs(clean - best_of_base) < 0.04

# %% [markdown]
# Nearly all of them! There are only 10,000 questions, and the text has 40,000 lines. Does it matter? That,
# too, can be measured: answers to questions that never occur are as good. Our model sorts, and does not
# remember. But we know this only because we asked with clean questions. Report both numbers, as the authors
# of GPT-3 did, and remember that n-grams find only copies: a question in other words escapes them.
#
# Where no program can check the answers, a large language model is often asked to be the **judge**: which of
# these two is better? Zheng et al. (2023) found that a strong judge agrees with people in over 80% of cases,
# as often as people agree with each other. They also name three faults: a judge may prefer an answer for its
# *position*, first or second, for its *length*, and because it is the judge's own. So ask twice, in both
# orders, and count only verdicts that agree. Compare answers of similar length, or correct for length: so
# corrected, one judge's ranking of models agreed better with that of human voters (Spearman's correlation
# 0.98 instead of 0.94; Dubois et al., 2024). Our reward model is a judge, too. It sees each answer alone, so
# it cannot prefer a position, but you saw how it loves length.
#
# **Remember:** look for your exam in the training text, and score the clean questions by themselves. A judge
# is a model, too: test it with answers of which you know the right order.

# %% [markdown]
# ## What you can now say
# - Pretraining imitates text. Fine-tuning on dialogues, with a loss on the answers alone, gives it the form
#   of an assistant, and the mistakes of its examples; LoRA does this with few trained weights.
# - A reward model learns to predict comparisons by the loss of Bradley and Terry. DPO puts the best model for
#   such a reward into the same loss, and can break what the difference does not show.
# - Verifiable rewards need no examples and let the model do reliably what it could do sometimes. They also
#   teach it to exploit every mistake of the verifier that it finds.
# - Several tries and a vote, or a longer thought, buy accuracy with computation. Whatever you measure, look
#   for the exam in the training text, and test the judge.
#
# **Deeper:** Ouyang et al., *Training language models to follow instructions with human feedback* (2022);
# Rafailov et al., *Direct Preference Optimization* (2023); Shao et al., *DeepSeekMath* (2024), which has
# GRPO; DeepSeek-AI, *DeepSeek-R1* (2025); Brown et al., *Large Language Monkeys* (2024); Zheng et al.,
# *Judging LLM-as-a-Judge* (2023).
#
# **Next:** build the whole model again from an empty file, as [00](00_start_here.ipynb) suggests, or take the
# project at the end of [17](17_since_2017.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** A model has 32 layers and $d_{model} = 4096$. LoRA with rank 16 is applied to $W^Q$
# and $W^O$ of each layer, which are square. How many weights are trained? What share of 8 billion is this?

# %% tags=["solution"]
adapters = 32 * 2 * 2 * 16 * 4096  # layers, W^Q and W^O, B and A, rank, width
print(f"{adapters:,} weights, {adapters / 8e9:.2%} of 8 billion")
assert adapters == 8_388_608

# %% [markdown]
# **Exercise 2 (medium).** Build. You drew $n$ answers to a question, and $c$ of them are right. Estimate
# pass@k from them: the share of all choices of $k$ of the $n$ answers in which at least one is right. Predict
# first: with 10 answers of which 5 are right, is pass@2 more or less than $1 - (1 - 0.5)^2$?


# %% tags=["exercise"]
def pass_at_k(n, c, k):
    """The share of choices of k among n answers, c of them right, that hold a right one."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from itertools import combinations
from random import randint


def test_pass_at_k(pass_at_k):
    cases = [(10, 5, 2), (8, 0, 3), (8, 8, 1), (6, 5, 3)]
    for n in (randint(4, 9) for _ in range(6)):
        cases.append((n, randint(0, n), randint(1, n)))
    for n, c, k in cases:
        answers = [True] * c + [False] * (n - c)
        choices = [any(chosen) for chosen in combinations(answers, k)]
        wanted = sum(choices) / len(choices)
        given = pass_at_k(n, c, k)
        assert isinstance(given, int | float), f"a number is wanted, not {given!r}"
        assert abs(given - wanted) < 1e-9, (
            f"{n} answers, {c} right, k = {k}: {sum(choices)} of {len(choices)} choices hold a right one, "
            f"which is {wanted:.3f}, not {given:.3f}"
        )


try:
    test_pass_at_k(pass_at_k)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
from math import comb


def solution(n, c, k):
    """The share of choices of k among n answers, c of them right, that hold a right one."""
    return 1 - comb(n - c, k) / comb(n, k)  # comb is 0 where there are not k wrong ones


test_pass_at_k(solution)
assert solution(10, 5, 2) > 1 - (1 - 0.5) ** 2
# More: two choices from the ten are never the same answer, so two wrong ones are rarer.

# %% [markdown]
# **Exercise 3 (medium).** Explore. Make 150 updates of DPO with `beta=0.5` on a copy of `both`, and look at
# its `report`. Guess first: will more of the digits survive than with 0.1? And what will become of the style?

# %% tags=["solution"]
_ = torch.manual_seed(0)
firm = report("beta 0.5", prefer(copy.deepcopy(both), updates=150, beta=0.5))
assert firm[0] > 0.9
assert reports[150][1] + 0.1 < firm[1] < reports[0][1]
# The style is the same, and more of the digits survive: with a larger beta, a smaller difference
# saturates the sigmoid, so the loss stops pushing earlier. Accuracy still falls.
