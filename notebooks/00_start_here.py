# %% [markdown]
# # 00 · Start here
#
# **Ten lines translate a sentence and show where the model looked while it wrote each word. Sixteen
# notebooks take these ten lines apart, until you can write them all yourself.**
#
# Next: [01_why_attention](01_why_attention.ipynb)
#
# *15 minutes to read, 15 seconds to run.*
#
# - **Before:** some Python. What a tensor is, you should know from 01 on.
# - **After:** you have translated sentences of your own, seen what the model does well and where it talks
#   nonsense with a straight face, and you know which notebook answers which question.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017, [arXiv
# 1706.03762](https://arxiv.org/abs/1706.03762)), and its section 1 is where we are. The model that it
# introduced is called the Transformer.

# %%
# Where the package is missing, as in Colab, this installs it. Where it is installed, nothing happens.
import os
import subprocess
import sys

try:
    import annotated

    annotated.make_model  # PyPI has a stranger's `annotated`, which has none
except (ImportError, AttributeError):
    where = os.environ.get("ANNOTATED_SPEC", "")
    if not where:
        todo = "%env ANNOTATED_SPEC=git+https://..."
        raise RuntimeError(f"To say where pip finds annotated, run in a cell above:\n{todo}") from None
    package = f"annotated-transformer[colab] @ {where}"
    command = [sys.executable, "-m", "pip", "install", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        for line in pip.stdout:
            print(line, end="")
    if pip.returncode:
        raise RuntimeError("pip could not install annotated: its reason stands above") from None
    sys.modules.pop("annotated", None)

# %%
import difflib

import matplotlib.pyplot as plt
import torch

from annotated import load_pretrained, subsequent_mask
from annotated.devices import find_device
from annotated.names import NAMES, find
from annotated.plots import count_parameters, plot_attention, plot_parameters, setup_notebook

setup_notebook()
torch.set_num_threads(1)  # matrices as small as ours only wait for a second thread

# %% [markdown]
# ## The reward first
#
# This model reads English and writes German. It came with the package; nothing is downloaded. It has seen
# 29,000 captions of photographs and nothing else, and it was trained on an ordinary processor, in an
# evening.

# %%
translator = load_pretrained("multi30k-en-de")
sentence = "A small dog is running through the deep snow."
translation = translator(sentence)
print(translation)
assert "Hund" in translation

# %% [markdown]
# And this is where it looked. A row is a step: the word on the left (the *query*: who looks) has been read,
# the next one is to be written. A bright cell says that the word below (the *key*: what is looked at) was
# looked at hard. The model looks once more in each of its *layers*, and in each in several ways at once, its
# *heads*. Choose one of each; *cross* is the German side looking at the English one. (The model reads pieces
# of words; `▁` stands for the space before one, `<s>` for the start, `</s>` for the end.)

# %%
translator.show_attention(sentence)

# %% [markdown]
# Those were the lines; with the imports that they need they are not even ten. Now put in a sentence of your
# own, and run the two cells again (without the `assert`, which asks for a dog). Then put the dog back, we go
# on with it. The model has weaknesses, and you may have met the first.
#
# ## The row before
#
# Which head was looking at *dog* when *Hund* was written? First guess: find the row of `Hund`, and see
# which head is bright at `dog`. But when the model has read `Hund`, the word has been written already: a
# head that looks at *dog* now has no say in it. The row that matters is the one **before**.

# %%
seen = translator.attention(sentence)
cross = torch.stack([w for (kind, _), w in seen.maps.items() if kind == "cross"])  # (layers, h, rows, keys)
hund = next(i for i, token in enumerate(seen.tgt_tokens) if token.endswith("Hund"))
dog = next(j for j, token in enumerate(seen.src_tokens) if token.endswith("dog"))
on_dog = cross[:, :, hund - 1, dog]  # (layers, h)
layer, head = divmod(on_dog.argmax().item(), cross.size(1))
print("a head has over 90% of its weight on dog:", bool(on_dog.max() > 0.9))
assert on_dog.max() > 0.9
print("all heads together, over 90%:            ", bool(on_dog.mean() > 0.9))
assert on_dog.mean() < 0.9

# %%
title = f"Cross-attention, layer {layer + 1}, head {head + 1}"
ax = plot_attention(cross[layer, head], seen.tgt_tokens, seen.src_tokens, title=title)
ax.set(xlabel="key: the source", ylabel="query: read last")
ax.add_patch(plt.Rectangle((dog - 0.5, hund - 1.5), 1, 1, fill=False, edgecolor="crimson", linewidth=2.5))
drawn = torch.tensor(ax.images[0].get_array())
assert drawn[hund - 1].argmax() == dog
plt.show()

# %% [markdown]
# One head out of many, one row out of many, chosen because it fits: that proves little. How to read such
# maps, and what they do not prove, is the subject of
# [13_reading_attention](13_reading_attention.ipynb).
#
# ## Who looks at whom
#
# To look at words, to *attend* to them, is to compute a weighted average, and an average does not care about
# order. Give the model two sentences with the very same words. If it only averages, it cannot tell them
# apart.

# %%
pairs = [
    ("A man is looking at a dog.", "A dog is looking at a man."),
    ("A woman is sitting behind a child.", "A child is sitting behind a woman."),
    ("A red car is next to a blue house.", "A blue car is next to a red house."),
]
for one, other in pairs:
    print(f"{translator(one):<50} {translator(other)}")
    assert sorted(one.lower().replace(".", "").split()) == sorted(other.lower().replace(".", "").split())
    assert translator(one) != translator(other)

# %% [markdown]
# It can. Does the German really say who looks at whom? There is a model for the way back.

# %%
back = load_pretrained("multi30k-de-en")
for one, other in pairs:
    returned = [back(translator(text)) for text in (one, other)]
    print(f"{returned[0]:<50} {returned[1]}")
    for text, again in zip((one, other), returned, strict=True):
        left, right = text.split(), again.split()
        kept = [word for word in left if word in right]
        assert kept == [word for word in right if word in left]  # what came back came back in order
        assert len(kept) > len(left) / 2

# %% [markdown]
# Everyone is back in place. Something tells each English word where it stands, and it is not attention:
# [05_positional_encoding](05_positional_encoding.ipynb) leaves it out and lets you watch the order vanish.
#
# ## Fluent, and wrong
#
# The captions say what is to be seen. What becomes of sentences about what is not?

# %%
captions = [
    "A small dog is running through the deep snow.",
    "A man is riding a bicycle down the street.",
    "A woman in a red dress is reading a book.",
    "Three people are sitting at a table in a restaurant.",
    "A boy jumps into the water.",
    "An old man plays the guitar on a bench.",
]
others = [
    "The committee postponed the vote on interest rates.",
    "Please send me the signed contract by Monday.",
    "Light travels faster than sound.",
    "The software must be updated before it is installed.",
    "Her theory was proved wrong a century later.",
    "Why did you not answer my letter?",
]
for sentence in others[:3]:
    print(translator(sentence))
assert not any(word in translator(others[0]) for word in ("Komitee", "Ausschuss", "Kommission", "Zins"))

# %% [markdown]
# Even without German you can tell that no committee is there. It did not refuse. It cannot: it gives each
# possible next word a probability, and these sum to one, so some word is always the likeliest. But it
# *knows*, in a way. The probability of the words that it wrote is at hand.


# %%
def confidence(sentence):
    """Mean log-probability (natural, so in nats) of the tokens of the best translation found."""
    [[best]] = translator.search([sentence])
    return best.log_prob / len(best.tokens)


known = [confidence(sentence) for sentence in captions]
unknown = [confidence(sentence) for sentence in others]
print("the worst caption is above the best of the others:", min(known) > max(unknown))
assert min(known) > max(unknown)

# %%
fig, ax = plt.subplots(figsize=(6.5, 1.9))
ax.plot(known, [1] * len(known), "o", color="C0", markersize=9, alpha=0.7)
ax.plot(unknown, [0] * len(unknown), "s", color="C1", markersize=8, alpha=0.7)
ax.set_yticks([0, 1], ["other sentences", "like captions"])
ax.set(ylim=(-0.6, 1.6), xlabel="mean log-probability of a token (nats)")
ax.set_title("It does not say so, but it knows when it guesses")
drawn = [line.get_xdata() for line in ax.lines]
assert min(drawn[0]) > max(drawn[1])
plt.show()

# %% [markdown]
# A wide gap, between twelve sentences that we chose. Do not lean on it: a model can also be sure and wrong.
#
# It is as good as its data, and a model of yours will be as good as yours:
# [10_translation](10_translation.ipynb) trains one from two text files, in any pair of languages.
#
# **Exercise 1.** Write three captions with a man in them, and put a woman in his place: one word changes in
# English. Guess first which German words do, then let the machine tell you.

# %% tags=["solution"]
for template in ("A {} is riding a bicycle.", "A {} plays the guitar.", "A {} in a red shirt is dancing."):
    his, hers = (translator(template.format(who)).split() for who in ("man", "woman"))
    changes = [c for c in difflib.SequenceMatcher(None, his, hers).get_opcodes() if c[0] != "equal"]
    print([(" ".join(his[a:b]), " ".join(hers[c:d])) for _, a, b, c, d in changes])
    assert his[:2] == ["Ein", "Mann"]
    assert hers[:2] == ["Eine", "Frau"]  # the article follows: German nouns have a gender

# %% [markdown]
# **Exercise 2.** In each caption above, swap the second and the third letter of the longest word: *bicycle*
# becomes *bciycle*. Does the model stumble? Say what you expect of its confidence, and of the number of
# pieces into which the word falls. Why is no word unknown to it?

# %% tags=["solution"]
pieces = translator.src_tokenizer.encode


def misspelt(sentence):
    word = max(sentence.rstrip(".").split(), key=len)
    return sentence.replace(word, word[0] + word[2] + word[1] + word[3:])


wrong = [misspelt(sentence) for sentence in captions]
more_pieces = all(len(pieces(misspelt(sentence))) > len(pieces(sentence)) for sentence in captions)
print("in every caption more pieces:", more_pieces)
print("less confident on average:   ", sum(map(confidence, wrong)) < sum(known))
assert more_pieces
assert sum(map(confidence, wrong)) < sum(known)
# A word is spelt from pieces, down to single letters and bytes if need be: 07_batches_and_masks.

# %% [markdown]
# ## What is in it
#
# The file is a list of numbers. Where do they go, and where are they explained?

# %%
model = translator.model
size = sum(p.numel() for p in model.parameters())  # a matrix that serves three purposes counts once
parts = count_parameters(model.config)
assert sum(parts.values()) == size  # counted from the settings = counted in the model
ax = plot_parameters({"ours": model.config})
plt.show()
print(f"{size:,} parameters, {parts['embeddings'] / size:.0%} of them in the table of word pieces")
print(f"the base model of the paper's Table 3: {65e6 / size:.0f} times as many")
assert max(parts, key=parts.get) == "embeddings"

# %% [markdown]
# The largest part is a dictionary: a row of numbers for each piece of a word
# ([04](04_feed_forward_and_embeddings.ipynb)). Some of the models that you talk to these days are a thousand
# times as big as the paper's, and more. Most of the parts are still the same, and these are the notebooks
# that build them. Read along the arrows; each row is a stage.
#
# ![The map of the series: seventeen notebooks and the order in which to read them](../images/map.svg)
#
# ## How to run them
#
# - **On your machine.** `make lab` in a clone of the repository installs everything and opens JupyterLab.
#   Each notebook runs alone, top to bottom, without a network, on two cores, most of them in half a minute.
# - **In Colab**, or any other Jupyter: the first code cell installs the package if it is not there, and asks
#   you for its address if it knows none.
# - **Not at all.** The notebooks come with their outputs. Sliders and menus work in JupyterLab, and on the
#   pages that `make site` builds.
# - **On a GPU.** Nothing in the code changes but the place where the tensors are. The next cell takes the
#   best device that is there. What becomes faster, and what many GPUs change, is in
#   [15_going_fast](15_going_fast.ipynb).

# %%
device = find_device("auto")
there = load_pretrained("multi30k-en-de", device)
print("the same words, wherever they were computed:", there(captions[0]) == translator(captions[0]))
assert there(captions[0]) == translator(captions[0])

# %% [markdown]
# Most cells that compute something end with an `assert`, and often print the verdict. Where the text says
# what a run shows and it is not so, the cell beside it fails, and with it the project's tests. Try it: turn a
# `<` round.
#
# ## The questions of other readers
#
# They come from readers of earlier texts on this paper. Each is answered by something that runs.
#
# - Why divide by the square root of $d_k$? [02](02_attention.ipynb), *Why divide by the square root of
#   $d_k$*
# - Why does other code write `triu == 0`? [02](02_attention.ipynb), *Masks: who may look at whom*
# - Which way round is a boolean mask? [02](02_attention.ipynb), *Which way round?*
# - Why does a row of attention become NaN? [02](02_attention.ipynb), *A row with nothing to see*
# - Why are there four linear layers in multi-head attention, and not three for each head?
#   [03](03_multi_head_attention.ipynb), *Twenty-five matrices, or four*
# - `clones` makes deep copies. Do all layers start equal? [03](03_multi_head_attention.ipynb), *Equal at
#   birth*
# - Why are embeddings multiplied by the square root of $d_{model}$?
#   [04](04_feed_forward_and_embeddings.ipynb), *From a word to a vector*
# - Why is there an exp(log) in the positional encoding? [05](05_positional_encoding.ipynb), *Why
#   exp(log)?*
# - Why is the text post-norm and the code elsewhere pre-norm? [06](06_the_full_model.ipynb), *Why does
#   the text say one thing and the code another?*
# - Why is there a norm after the last layer, and why not two? [06](06_the_full_model.ipynb), *One final
#   norm, or none, never two*
# - How many parameters does the model have, and where? [06](06_the_full_model.ipynb), *Where the
#   parameters are*
# - What is teacher forcing? [07](07_batches_and_masks.ipynb), *Teacher forcing*
# - Why does a mask hide the columns of the blanks and not their rows? [07](07_batches_and_masks.ipynb),
#   *The half of a mask that does nothing*
# - Why `size - 2` in label smoothing? [08](08_training_recipe.ipynb), *Label smoothing by hand*
# - Why the Kullback-Leibler divergence, and not the cross-entropy? [08](08_training_recipe.ipynb), *Why a
#   divergence, and not the cross-entropy?*
# - What is counted in tokens per second? [09](09_first_example.ipynb), *What is counted in tokens per
#   second*
# - Why does validation need both `eval()` and `no_grad`? [09](09_first_example.ipynb), *Validation: two
#   switches, not one*
# - What is the decoder fed in training, and what when it translates? [09](09_first_example.ipynb),
#   *Decoding: nobody knows the answer any more*
# - Why does the loss not reach zero? [09](09_first_example.ipynb), *Why the loss stops where it stops*
# - Why is the accuracy 98% and the output nonsense? [09](09_first_example.ipynb), *98% of what?*
# - How do I translate my own sentence? [10](10_translation.ipynb), *Your own sentence*
# - And in my own language? [10](10_translation.ipynb), *Your own language*
# - Why divide a hypothesis's score by its length? [11](11_search_and_averaging.ipynb), *Why divide by
#   length?*
# - When does beam search stop? [11](11_search_and_averaging.ipynb), *When does it stop?*
# - What changes on a GPU? [15](15_going_fast.ipynb), *What changes on a GPU*
# - And on many? [15](15_going_fast.ipynb), *Many GPUs*
#
# ## If you know "The Annotated Transformer"
#
# Its names are the names here, with the same arguments in the same order: `make_model`,
# `MultiHeadedAttention`, `subsequent_mask`, `Batch`, `run_epoch`, `greedy_decode` and so on. Three things
# differ. A mask is boolean instead of 0 and 1 (`True`, as 1 there, means *may be looked at*). The layer norm
# comes after the residual sum, as in the paper, unless you ask for `norm_first=True`. And no model is a
# pickle: it is a folder of numbers, and of settings that you can read. What has superseded a name is in
# `annotated.names`:

# %%
where = {name.theirs: name for name in NAMES}
for theirs in ("NoamOpt", "LayerNorm", "MyIterator", "MultiGPULossCompute", "average", "load_vocab"):
    print(f"{theirs:20} annotated.{where[theirs].ours:32} {where[theirs].remark}".rstrip())
    assert find(where[theirs].ours)
print(f"... and {len(NAMES) - 6} more in annotated.names")

# %%
print("norm after the sum:", not model.config.norm_first)
print("True = may look:   ", bool(subsequent_mask(3)[0, 2, 0]))
assert not model.config.norm_first
assert subsequent_mask(3)[0].tolist() == [[True, False, False], [True, True, False], [True, True, True]]

# %% [markdown]
# Now to the beginning: why would anyone want attention, when there were networks that read a sentence word
# by word, as we do? [01_why_attention](01_why_attention.ipynb).
