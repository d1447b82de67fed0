# %% [markdown]
# # 20 · From text to answers
#
# **You take a model that continues text, faults included, and make it answer questions, in the style that
# people prefer, and better than the people whose text it read.**
#
# Previous: [19_a_model_of_today](19_a_model_of_today.ipynb) · You can read this lesson right after
# [17_since_2017](17_since_2017.ipynb)
#
# *35 minutes to read, about a minute to run.*
#
# - **Before:** you know what a decoder-only language model is ([00](00_start_here.ipynb),
#   [17](17_since_2017.ipynb)) and how a model is trained ([08](08_training_recipe.ipynb)).
# - **After:** you can say what fine-tuning, LoRA, learning from preferences and learning from verifiable
#   rewards each do to a model, write the loss of each, and name what goes wrong with it.
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
# An assistant such as ChatGPT is made in several steps, and each step trains the same Transformer with
# another loss. To see what each step does, we need a world so small that all of them run in a minute, and
# that a program can check every answer in it.
#
# In our world, people write only one kind of line: four digits, the sign `>`, and the same digits in order.
# And people make mistakes. In three lines of ten, two digits of the answer have changed places.

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
# The model reads single characters. It knows three more than the text has: a question mark, a blank, and a
# sign `#` for the end of an answer. We will need them later. The model is a decoder-only Transformer, built
# from PyTorch's own layers ([14](14_attention_in_pytorch.ipynb)): PyTorch's encoder has no cross-attention,
# and with a causal mask it *is* such a decoder.

# %%
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
# First comes what is called **pretraining**: predict the next symbol of the text. The function `train` is the
# loop of [08](08_training_recipe.ipynb) with the loss left open, because the rest of this lesson is about
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
# It answers, and then it goes on with a question of its own, since in its text a line is followed by another
# line. **Before you run this:** we give it 300 questions that are new to it. How many answers will be right?
# And how many if, in place of drawing, we take the likeliest symbol each time?

# %%
exam = [ask(random.Random(f"exam {i}")) for i in range(300)]


def share(found):
    """Which part of the exam's answers is right."""
    return sum(answer == right_answer(question) for answer, question in zip(found, exam, strict=True)) / len(
        exam
    )


_ = torch.manual_seed(1)
prompts = [f"{question}>" for question in exam]
drawn = share([read(row[5:]) for row in write(base, prompts, 4)])
best = share([read(row[5:]) for row in write(base, prompts, 4, greedy=True)])
human = share([human_answer(question, random.Random(question)) for question in exam])
print(f"people ≈{human:.0%}, drawn ≈{drawn:.0%}, likeliest symbols ≈{best:.0%}")

# %% tags=["check"]
assert 0.65 < human < 0.8
assert drawn < human
assert best > human + 0.1

# %% [markdown]
# Drawn answers are wrong even more often than those of people. The model has learned the distribution of its
# text, mistakes included, and it adds some of its own. But each single mistake is rarer than the right
# answer, so the likeliest symbols are nearly always right. The model *knows* more than it shows.
#
# **Remember:** pretraining imitates the text as it is, with its form, its habits and its mistakes.

# %% [markdown]
# ## Answers: fine-tuning on examples
#
# Now we ask in a new form, with a question mark before the digits: `?4821 `. Nothing in the text looked like
# this, so the model has no idea what to do.

# %%
_ = torch.manual_seed(0)
print(repr(read(write(base, ["?4821 "], 10)[0, 6:])))

# %% [markdown]
# What we want is a **dialogue**: the question in a fixed form, then the answer, then a sign that the answer
# is over. Real assistants have such a form, too, which is called a *chat template*. It marks who speaks, with
# symbols that occur nowhere else.
#
# **Supervised fine-tuning** goes on with the training, on examples of dialogues. The loss is the same, with
# one difference. What the user says need not be predicted. So the targets of the question are *masked*: the
# number −100 tells `cross_entropy` to leave these positions out.

# %%
draw = random.Random(2)
examples = [(question, human_answer(question, draw)) for question in (ask(draw) for _ in range(300))]


def dialogues(pairs, masked=True):
    """Inputs and targets, both (pairs, T), in which positions of the question have the target −100."""
    rows = [f"?{question} {answer}#" for question, answer in pairs]
    tokens = torch.tensor([[number[symbol] for symbol in row] for row in rows])
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    if masked:
        targets[:, :5] = -100
    return inputs, targets


inputs, targets = dialogues(examples)
print("reads:   ", repr(read(inputs[0])))
print("predicts:", ["-" if token < 0 else symbols[token] for token in targets[0]])

# %% [markdown]
# **Before you run this:** we train with 300 examples for 200 updates, from the pretrained model and from a
# new one, with the questions masked and not. Put the four in order.

# %%
import copy


def fine_tune(model, pairs, masked=True, rate=0.001):
    inputs, targets = dialogues(pairs, masked)

    def loss():
        some = torch.randint(len(inputs), (32,))
        return F.cross_entropy(model(inputs[some]).flatten(0, 1), targets[some].flatten())

    train(model, loss, updates=200, rate=rate)
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
# sorting from the 300 examples, and does it worse. And since our questions are random digits, learning to
# predict them is a waste: it takes part of each gradient. (Where users' questions are worth imitating, the
# difference is smaller.)
#
# But no training on examples brings the drawn answers above those of the people who wrote them. For that we
# need another kind of loss.
#
# **Remember:** fine-tuning on examples teaches a form, with a loss on the answers alone. What it shows, it
# mostly had before.

# %% [markdown]
# ## Fewer numbers to train: LoRA
#
# Fine-tuning changes all weights. For a model of 8 billion weights, Adam keeps two more numbers for each, and
# every task needs a copy of the model. **LoRA** (Hu et al., 2021) leaves the matrices $W$ as they are and
# learns only a difference of low rank, from two thin matrices:
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
# An eighth of the weights is nearly enough here, at a rate that is 20 times higher. In a large model the
# share is far smaller, because $r$ need not grow with $d$: Hu et al. report up to 10,000 times fewer trained
# weights for GPT-3.
#
# **Remember:** LoRA learns a difference of low rank for each matrix, and leaves the matrix alone.

# %% [markdown]
# ## Preferences: DPO
#
# Some things cannot be shown by an example, but people know them when they see them. Which of two answers is
# better? Suppose that people write the answer in two styles, `1248` or `1 2 4 8`, and that readers prefer the
# second. We fine-tune a model on both styles, and let it answer each of 400 questions twice. Where the two
# answers differ in style, a reader prefers the spaced one.

# %% tags=["scaffold"]
LONGEST = len("?4821 ") + 8 + 1  # an answer has at most eight symbols, and its end


def padded(pairs):
    """Inputs and targets for answers of several lengths; padding is a target of −100, too."""
    rows = [f"?{question} {answer}#" for question, answer in pairs]
    tokens = torch.tensor([[number[symbol] for symbol in row.ljust(LONGEST, "#")] for row in rows])
    targets = tokens[:, 1:].clone()
    targets[:, :5] = -100
    for target, row in zip(targets, rows, strict=True):
        target[len(row) - 1 :] = -100
    return tokens[:, :-1], targets


draw = random.Random(3)
styled = [(q, answer if draw.random() < 0.5 else " ".join(answer)) for q, answer in examples]
_ = torch.manual_seed(0)
both = copy.deepcopy(base)
styled_inputs, styled_targets = padded(styled)


def styled_loss():
    some = torch.randint(len(styled), (32,))
    return F.cross_entropy(both(styled_inputs[some]).flatten(0, 1), styled_targets[some].flatten())


train(both, styled_loss, updates=300, rate=0.001)

# %%
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
# **Direct preference optimization** (Rafailov et al., 2023) turns this into a loss. Let
# $\log \pi(y \mid x)$ be the log-probability of an answer, which is the sum over its symbols, and
# $\pi_0$ the model as it was before. The loss asks that the preferred answer $y_w$ gain more against
# $\pi_0$ than the rejected one, $y_l$:
#
# $$-\log \sigma\left(\beta \left[ \log \frac{\pi(y_w \mid x)}{\pi_0(y_w \mid x)} - \log
# \frac{\pi(y_l \mid x)}{\pi_0(y_l \mid x)} \right]\right)$$
#
# That is logistic regression on the difference of two gains. The first method of this kind, with which
# assistants began (Ouyang et al., 2022), trained a second model to predict what people prefer, and used its
# score as a reward. DPO does without the second model.


# %%
def log_prob(model, pairs):
    """The log-probability of each answer, its end included: (pairs,)."""
    inputs, targets = padded(pairs)
    return -F.cross_entropy(model(inputs).transpose(1, 2), targets, reduction="none").sum(dim=1)


def prefer(model, updates, beta=0.1):
    """Train by DPO, from the model as it is."""
    with torch.no_grad():
        before = log_prob(model, preferred) - log_prob(model, rejected)  # of the model as it was

    def loss():
        some = torch.randint(len(preferred), (32,)).tolist()
        now = log_prob(model, [preferred[i] for i in some]) - log_prob(model, [rejected[i] for i in some])
        return -F.logsigmoid(beta * (now - before[some])).mean()

    train(model, loss, updates, rate=0.0001)


# %% [markdown]
# **Before you run this:** we make 40 updates, and in a second run 150. Readers only looked at the style. What
# will happen to the digits?

# %%
reports = {}
for updates in (0, 40, 150):
    _ = torch.manual_seed(0)
    model = copy.deepcopy(both)
    prefer(model, updates)
    found = replies(model, exam)
    with torch.no_grad():
        liked, disliked = log_prob(model, preferred).mean().item(), log_prob(model, rejected).mean().item()
    in_style = sum(" " in answer for answer in found) / len(found)
    correct = share([answer.replace(" ", "") for answer in found])
    reports[updates] = in_style, correct, liked, disliked
    print(
        f"{updates:3} updates: ≈{in_style:.0%} spaced, ≈{correct:.0%} right; "
        f"log-probability of the preferred ≈{liked:.1f}, of the rejected ≈{disliked:.1f}"
    )

# %% tags=["check"]
assert reports[0][0] < 0.65
assert reports[40][0] > 0.85
assert reports[40][1] > reports[0][1] - 0.16
assert reports[150][1] < reports[40][1] - 0.12
assert reports[150][3] < reports[40][3] - 5

# %% [markdown]
# After 40 updates, nearly all answers have the style that readers like, and the digits have suffered little.
# After 150, the style is still there, and the digits are broken. The loss looks at a *difference* alone. Once
# the preferred answers cannot gain much more, it goes on pushing the rejected ones down, and with them
# whatever they share with the preferred ones, such as the right digits. In the last column the rejected
# answers have become impossible, and the preferred ones have become less probable, too. So in practice one
# stops early, uses a larger $\beta$, or adds the ordinary loss on the preferred answers.
#
# **Remember:** preferences teach what examples cannot show. The loss rewards a difference, so watch what it
# does not look at.

# %% [markdown]
# ## Rewards that a program can verify
#
# Readers cannot easily see whether 300 answers are right. A program can. In mathematics and in programming,
# answers can be checked, too, and since 2024 this is how reasoning models are trained: **reinforcement
# learning with verifiable rewards**. The model answers each question several times. Right answers get the
# reward 1, wrong ones 0. Then the right ones are made more probable, the wrong ones less.
#
# How much more? In *GRPO* (Shao et al., 2024), an answer's **advantage** is its reward minus the mean of its
# group, the answers to the same question, divided by their standard deviation. If all answers of a group are
# right, or all are wrong, then nothing is learned from it. The loss is the negative log-probability of each
# symbol times the advantage of its answer. (The full method also limits how far an update may go. We make one
# small update for each batch of answers and leave this out.)


# %%
def reinforce(model, reward, updates=50, questions=32, group=8):
    """Train by the rewards of sampled answers; returns the mean reward of each update."""
    adam, draw, history = torch.optim.Adam(model.parameters(), lr=0.0003), random.Random(4), []
    for _ in range(updates):
        asked = [question for question in (ask(draw) for _ in range(questions)) for _ in range(group)]
        rows = write(model, [f"?{question} " for question in asked], length=6)
        found = [read(row[6:]) for row in rows]
        rewards = torch.tensor(
            [reward(q, text.partition("#")[0]) for q, text in zip(asked, found, strict=True)]
        )
        groups = rewards.float().view(questions, group)
        advantage = (groups - groups.mean(dim=1, keepdim=True)) / (groups.std(dim=1, keepdim=True) + 1e-4)
        lengths = torch.tensor([min(text.find("#") % 7 + 1, 6) for text in found])  # its end included
        counts = torch.arange(6) < lengths.unsqueeze(1)  # what follows the end is no part of the answer
        log_probs = model(rows[:, :-1]).log_softmax(dim=-1)[:, 5:]
        taken = log_probs.gather(2, rows[:, 6:].unsqueeze(2)).squeeze(2)
        loss = -(taken * counts * advantage.flatten().unsqueeze(1)).sum() / counts.sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        history.append(rewards.float().mean().item())
    return history


def is_right(question, answer):
    return answer == right_answer(question)


# %% [markdown]
# **Before you run this:** the model has only seen texts of people who are right in about 72% of cases, and it
# is shown no right answer now. Can its drawn answers become better than those of people?

# %%
_ = torch.manual_seed(0)
verified = copy.deepcopy(chat)
history = reinforce(verified, is_right)
_ = torch.manual_seed(0)
before, after = share(replies(chat, exam)), share(replies(verified, exam))
print(f"people ≈{human:.0%}; drawn answers before ≈{before:.0%}, after ≈{after:.0%}")

# %% tags=["check"]
assert before < human < after - 0.08

# %% [markdown]
# They can. The right answer was in the model all along, as its most probable one, and the reward has taught
# it to stop imitating mistakes. Is that new knowledge? Ask each question eight times, and count the questions
# for which *at least one* of the eight answers is right. And ask a longer question.

# %%
_ = torch.manual_seed(0)


def of_eight(model, digits):
    """The share of right answers, and of questions with a right one among eight."""
    asked = [ask(random.Random(f"{digits} digits {i}"), digits) for i in range(100)]
    found = torch.tensor(
        [
            [is_right(q, answer) for q, answer in zip(asked, replies(model, asked), strict=True)]
            for _ in range(8)
        ]
    ).float()
    return found.mean().item(), found.amax(dim=0).mean().item()


eights = {
    (name, digits): of_eight(model, digits)
    for name, model in (("before", chat), ("after", verified))
    for digits in (4, 5)
}
for (name, digits), (one, any_) in eights.items():
    print(f"{digits} digits, {name:6}: ≈{one:.0%} of all answers, ≈{any_:.0%} of questions in eight tries")

# %% tags=["check"]
assert eights["before", 4][1] > 0.9
assert eights["after", 4][0] > eights["before", 4][0] + 0.15
assert eights["after", 5][1] < 0.1

# %% [markdown]
# For four digits, one of eight tries was nearly always right before. Now one try is enough. Five digits are
# as impossible as before: no try is ever right, so no reward ever comes, and nothing can be learned. Yue et
# al. (2025) found the same with large models: after such training, one try gets better, while with many tries
# the model from before catches up and even passes it. How far this holds for longer training is disputed.
#
# **Remember:** a verifiable reward makes the model show what it can already do sometimes. It cannot reward
# what is never tried.

# %% [markdown]
# ## What you reward is what you get
#
# A verifier that reads code or proofs is never perfect. Ours was. Let us make a mistake in it: it accepts any
# answer of four digits *in ascending order*, and forgets to compare them with the question.
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
print(f"reward ≈{sum(deceived[-5:]) / 5:.0%}, right ≈{really:.0%}")

# %% tags=["check"]
assert sum(deceived[-5:]) / 5 > 0.93
assert really < after - 0.2

# %% tags=["nbval-ignore-output"]
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
import matplotlib.pyplot as plt

from annotated.plots import setup_notebook

setup_notebook()
fig, ax = plt.subplots(figsize=(8, 3.8))
ax.plot(history, label="the right verifier")
ax.plot(deceived, "--", label="the faulty verifier")
for value, color in ((after, "C0"), (really, "C1")):
    ax.plot([len(history)], [value], "o", color=color, ms=9)
    ax.annotate(f"{value:.0%} right", (len(history), value), (10, -4), textcoords="offset points")
ax.set(xlabel="update", ylabel="mean reward", xlim=(-2, 62), ylim=(0.3, 1.02))
ax.set_title("Reward during training")
ax.legend(loc="lower center")
plt.show()

# %% [markdown]
# *Figure 1. The lines are rewards, and each dot is the share of answers that are really right after the
# training with that verifier. The faulty verifier looks like the greater success.*
#
# The reward is higher than with the right verifier, and the answers are worse than before any reward. The
# model has found that digits in order are what counts. Which digits they are, it no longer needs to know.
# This is called **reward hacking**, and no curve of rewards shows it. Only an exam that is not the reward
# does.
#
# **Remember:** a model learns what is rewarded, not what was meant. Keep a test that is not the reward.

# %% [markdown]
# ## What you can now say
#
# - Pretraining imitates text. Fine-tuning on dialogues, with a loss on the answers alone, gives it the form
#   of an assistant; LoRA does this with few trained weights.
# - DPO raises preferred answers above rejected ones, relative to the model from before, and destroys what it
#   does not look at if it goes on for too long.
# - Verifiable rewards make right answers reliable that were possible before, and teach every mistake of the
#   verifier.
#
# **Deeper:** the lesson's sources are Ouyang et al., *Training language models to follow instructions with
# human feedback* (2022); Hu et al., *LoRA* (2021); Rafailov et al., *Direct Preference Optimization* (2023);
# Shao et al., *DeepSeekMath* (2024), which introduced GRPO; and Yue et al., *Does Reinforcement Learning
# Really Incentivize Reasoning Capacity in LLMs Beyond the Base Model?* (2025).
#
# **Next:** build the whole model again from an empty file, as [00](00_start_here.ipynb) suggests, or take the
# project at the end of [17](17_since_2017.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (pencil).** A model has 32 layers and $d_{model} = 4096$. LoRA with rank 16 is given to $W^Q$
# and $W^O$ of each layer, which are square. How many weights are trained? What share of 8 billion is this?

# %% tags=["solution"]
adapters = 32 * 2 * 2 * 16 * 4096
print(f"{adapters:,} weights, {adapters / 8e9:.2%} of 8 billion")
assert adapters == 8_388_608

# %% [markdown]
# **Exercise 2 (medium).** Build. Write the advantages of GRPO. Where all rewards of a group are equal, there
# is nothing to learn: its advantages are 0, not `nan`.


# %% tags=["exercise"]
def advantages(rewards):
    """Rewards (questions, group) -> each minus its group's mean, over the group's standard deviation."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_advantages(advantages):
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    rewards = torch.randint(0, 2, (6, 8), generator=generator).double()
    rewards[0], rewards[1], rewards[2] = 0.0, 1.0, torch.arange(8)
    given = advantages(rewards.clone())
    shape = getattr(given, "shape", given)
    assert shape == rewards.shape, f"a tensor (6, 8) is wanted, not {shape}"
    assert not given.isnan().any(), "a group of equal rewards gives nan: its standard deviation is 0"
    assert given[:2].abs().max() < 1e-6, (
        f"equal rewards have the advantage 0, not {given[:2].abs().max():.2f}"
    )
    for row, reward in zip(given[2:], rewards[2:], strict=True):
        assert abs(row.mean()) < 1e-3, f"the advantages of a group have the mean 0, not {row.mean():.3f}"
        if reward.std() > 0:
            off = min(abs(row.std() - 1), abs(row.std(correction=0) - 1))
            assert off < 0.01, f"their standard deviation is 1, not {row.std():.3f}"
            assert row[reward.argmax()] > row[reward.argmin()], "a higher reward has a higher advantage"


try:
    test_advantages(advantages)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(rewards):
    """Rewards (questions, group) -> each minus its group's mean, over the group's standard deviation."""
    mean, std = rewards.mean(dim=1, keepdim=True), rewards.std(dim=1, keepdim=True)
    return (rewards - mean) / (std + 1e-6)


test_advantages(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore. In the section on preferences, give `prefer` the argument `beta=0.5` and
# make 150 updates. Guess first: will the digits survive?

# %% tags=["solution"]
_ = torch.manual_seed(0)
firm = copy.deepcopy(both)
prefer(firm, updates=150, beta=0.5)
survived = share([answer.replace(" ", "") for answer in replies(firm, exam)])
print(f"beta 0.5 ≈{survived:.0%} right, beta 0.1 ≈{reports[150][1]:.0%}")
assert survived > reports[150][1] + 0.1
# They suffer less: with a larger beta, a smaller difference saturates the sigmoid, so the loss stops pushing
# earlier. They do not survive unharmed.
