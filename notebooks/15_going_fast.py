# %% [markdown]
# # 15 · Going fast
#
# **You find out where the time of a training step goes, and you learn three ways to make a Transformer
# faster: more rows in each product, fewer trips to memory, and fewer bytes.**
#
# Previous: [14_attention_in_pytorch](14_attention_in_pytorch.ipynb) · Next:
# [16_another_task](16_another_task.ipynb)
#
# *45 minutes to read, half a minute to run.*
#
# - **Before:** you know the model ([06](06_the_full_model.ipynb)), its loss
#   ([08](08_training_recipe.ipynb)), and decoding with a cache ([11](11_search.ipynb)).
# - **After:** you can say how long a training run will take and whether arithmetic or memory limits a matrix
#   product. You can explain how FlashAttention avoids the table of scores, what is lost with 8 and with 4
#   bits, and what to check when a training run goes wrong.
#
# "The paper" is *Attention Is All You Need* (Vaswani et al., 2017), and this lesson goes with its section
# 5.2. A number after `≈` may differ on your processor, and times certainly will. You can skip the folded
# cells: *Scaffolding* measures and draws, and *Check* tests what the text claims.

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
# ## Ask the profiler
#
# Here is one training step of a small model. The step reads 40 sentences, and the model's vocabulary has
# 6,000 tokens; one table serves as both embeddings and as the output map (`tied_embeddings="all"`). We don't
# have to guess where the time goes: PyTorch's *profiler* records every call and how long it took. We ask it
# what share of the time goes to matrix products.

# %%
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # keeps the profiler's own messages off the page
import torch

from annotated import Batch, LabelSmoothing, make_model

torch.set_num_threads(1)  # one thread: times that can be compared
_ = torch.manual_seed(0)
V = 6000
src, tgt = torch.randint(4, V, (2, 40, 20))
batch = Batch(src, tgt, pad=2)
model = make_model(V, V, N=2, d_model=128, d_ff=256, h=4, dropout=0.1, tied_embeddings="all")
criterion = LabelSmoothing(V, padding_idx=2, smoothing=0.1)
adam = torch.optim.Adam(model.parameters(), lr=1e-4)


def step():
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    log_probs = model.generator(states).flatten(0, 1)  # (tokens, V)
    (criterion(log_probs, batch.tgt_y.flatten()) / batch.ntokens).backward()
    adam.step()
    adam.zero_grad()


# %% [markdown]
# The folded function sorts the calls into three groups. The first holds the matrix products. The second holds
# every other call on a table with one column for each word of the vocabulary: softmax and loss, forward and
# backward. The third is the rest.

# %% tags=["scaffold"]
from torch.profiler import profile


def shares(run):
    """The shares of the time: matrix products, other work on tables (…, V); and the number of calls."""
    run()  # the first run is slower: it makes Adam's means
    with profile(record_shapes=True) as seen:
        run()
    calls = seen.key_averages(group_by_input_shape=True)
    products = tables = 0.0
    for call in calls:
        shapes = [shape for shape in call.input_shapes if isinstance(shape, list) and len(shape) > 1]
        if call.key in ("aten::mm", "aten::addmm", "aten::bmm"):
            products += call.self_cpu_time_total
        elif any(shape[-1] == V for shape in shapes):
            tables += call.self_cpu_time_total
    whole = sum(call.self_cpu_time_total for call in calls)
    return products / whole, tables / whole, sum(call.count for call in calls)


# %% [markdown]
# **Before you run this:** nearly all multiplications of the step are in its matrix products. What share of
# the time do you expect them to take?

# %%
share, table_share, calls = shares(step)
print(f"a step makes {calls:,} calls")
rest = 1 - share - table_share
print(f"matrix products ≈{share:.0%}, tables of the vocabulary ≈{table_share:.0%}, the rest ≈{rest:.0%}")

# %% tags=["check"]
assert 0.1 < share < 0.6
assert 0.1 < table_share < 0.8
assert calls > 500

# %% [markdown]
# Less than half. The table of the loss has 760 rows of 6,000 numbers, and our loss goes through it again and
# again: to smooth the targets, to multiply them by the log-probabilities, to hide padding, and to do the same
# again in the backward pass. Hardly anything is computed on each pass. The rest is dropout, layer norm,
# copies, and Adam.
#
# Why do these calls take so long? The answer needs two numbers for each call: how much it computes, and how
# much it fetches from memory.

# %% [markdown]
# ## How much arithmetic?
#
# > "For our base models using the hyperparameters described throughout the paper, each training step took
# > about 0.4 seconds." (section 5.2)
#
# We count *floating-point operations* (FLOPs). A multiplication is one operation, and so is an addition. In
# the forward pass, each weight takes part in one multiplication and one addition for each token. The
# backward pass does as much work twice: once for the gradient of the input, and once for the gradient of
# the weight. So a step takes about
#
# $$6 \cdot \text{weights} \cdot \text{tokens}$$
#
# operations. The rule leaves out the products inside the attention function, which are small for short
# sentences. PyTorch can count all operations without computing anything. On the device `meta`, a tensor has a
# shape but no content. We take the base model and a batch as large as the paper's: 25,000 tokens on each
# side, for all eight GPUs (NVIDIA P100) together. Each weight matrix meets either the source tokens or the
# target tokens, so we count 25,000 and not 50,000. That holds for the shared table of embeddings, too:
# looking up a row is no product, and as the output map the table meets the target tokens.

# %%
from torch.utils.flop_counter import FlopCounterMode

from annotated import EncoderDecoder, TransformerConfig

with torch.device("meta"):
    base = EncoderDecoder.from_config(TransformerConfig.base(37_000, 37_000))
    tokens = torch.empty(1000, 25, dtype=torch.int64)  # 1,000 sentences of 25
    mask = torch.ones(1000, 1, 25, dtype=torch.bool)
    with FlopCounterMode(display=False) as counter:
        base.generator(base(tokens, tokens, mask, mask)).sum().backward()
weights = sum(p.numel() for p in base.parameters())
counted, rule = counter.get_total_flops(), 6 * weights * 25_000
print(f"counted {counted / 1e12:.2f} TFLOP, by the rule {rule / 1e12:.2f} TFLOP")
reached, P100 = counted / 0.4 / 8, 9.5e12  # eight GPUs; the paper's footnote 5 assumes 9.5 TFLOP/s
print(f"each P100 did {reached / 1e12:.1f} TFLOP/s, {reached / P100:.0%} of what it can do")

# %% tags=["check"]
assert 0 < 1 - rule / counted < 0.01
assert 0.25 < reached / P100 < 0.35

# %% [markdown]
# The rule is within 1% of the count. The share of the possible arithmetic that a program uses is called
# *model FLOPs utilization*. Here it is 31% of what the paper assumes, or 28% of the 10.6 TFLOP/s of the
# P100's data sheet. For PaLM, a much larger model, the authors report 46% (Chowdhery et al., 2022).
#
# **Remember:** a training step takes about six operations per weight and token.

# %% [markdown]
# ## Arithmetic or memory?
#
# A number has to be fetched from memory before it can be multiplied, and fetching is slow. So it matters
# how often each fetched number is used. A call's **arithmetic intensity** is the number of operations
# that it does per byte that it reads or writes.
#
# Suppose that you multiply one row of 4,096 numbers by a matrix of $4096 \times 4096$. Each weight is fetched
# and used once. Now multiply 256 rows by the same matrix. Each fetched weight is used 256 times.
#
# **Before you run this:** 64 rows take 64 times the arithmetic of one row. How many times as long will the
# product take?

# %%
import time
from timeit import repeat


def seconds(run, times=3):
    """The least processor time of a few runs."""
    return min(repeat(run, timer=time.process_time, number=1, repeat=times))


WIDTH, rows = 4096, (1, 4, 16, 64, 256)
matrix, square = torch.randn(WIDTH, WIDTH), torch.randn(1024, 1024)
fetched = {n: 4 * (WIDTH**2 + 2 * n * WIDTH) for n in rows}  # bytes: the matrix, the rows, the results
intensity = {n: 2 * n * WIDTH**2 / fetched[n] for n in rows}  # operations per byte
given = {n: torch.randn(n, WIDTH) for n in rows}
clock = {n: seconds(lambda x=x: x @ matrix) for n, x in given.items()}
rate = {n: 2 * n * WIDTH**2 / clock[n] for n in rows}  # operations per second
copy = torch.empty_like(matrix)
peak = 2 * 1024**3 / seconds(lambda: square @ square)  # a product that reuses every number 1,024 times
bandwidth = 2 * matrix.nbytes / seconds(lambda: copy.copy_(matrix))  # bytes per second
print("operations per byte:", ", ".join(f"{i:.1f} for {n}" for n, i in intensity.items()), "rows")
print(f"64 rows take ≈{clock[64] / clock[1]:.0f} times as long as one")

# %% tags=["check"]
assert clock[64] < 40 * clock[1]
assert intensity[1] < 0.51 < 100 < intensity[256]

# %% tags=["figure-roofline", "scaffold"]
import matplotlib.pyplot as plt
import numpy as np

from annotated.plots import setup_notebook

setup_notebook()
grid = np.sort([*2.0 ** np.arange(-3, 9), peak / bandwidth])
fig, ax = plt.subplots(figsize=(8, 4.4))
ax.loglog(grid, np.minimum(peak, grid * bandwidth) / 1e9, color="black", label="roofline")
ax.loglog([intensity[n] for n in rows], [rate[n] / 1e9 for n in rows], "o", ms=9, label="measured")
for n in rows:
    ax.annotate(
        f"{n} row{'s' * (n > 1)}", (intensity[n], rate[n] / 1e9), (8, -14), textcoords="offset points"
    )
corner = peak / bandwidth, peak / 1e9
ax.annotate("ridge point", corner, (0, 8), textcoords="offset points", ha="center")
ax.set(ylim=(None, 3 * peak / 1e9), xlabel="operations per byte", ylabel="GFLOP/s")
ax.set(title="One core, products with a 4096 × 4096 matrix")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# *Figure 1. The roofline of one core. Memory is the limit on the slope, and arithmetic is the limit under the
# flat roof. The slope comes from copying a matrix, and the roof from a square product of 1,024 rows; the dots
# are other products. Apart from errors of measurement, no dot should lie above the line. A dot far below it
# means that the program uses neither memory nor arithmetic fully: the library's products are not at their
# best with 4 to 64 rows.*
#
# The product of 64 rows takes much less than 64 times as long, because all rows share the fetching of the
# matrix. It still takes longer than the product of one row, because 64 rows are past the ridge: fetching is
# no longer what limits them.
#
# A picture like Figure 1 is called a **roofline**. On the slope, a call is *memory-bound*: it waits for
# bytes, and faster arithmetic would not help. Under the flat roof, a call is *compute-bound*. The two lines
# meet at the *ridge point*. For our core, the figure puts it at a few operations per byte. For an H100 GPU it
# is at about 300: according to its data sheet, the GPU computes 989 TFLOP/s in 16-bit products and reads 3.35
# TB/s from memory.
#
# Now the profile makes sense. The passes over the loss's table do one or two operations for each number that
# they fetch. They lie far to the left in the figure, so they take a large part of the time although they do
# little arithmetic. In a model this small, the fixed cost of each call adds to that. There are three
# remedies:
#
# 1. **more rows** for each fetched weight;
# 2. **fewer trips to memory** for the same work;
# 3. **fewer bytes** for each number.
#
# *How far below the roof are our own training step and decoder? [How fast could it
# be?](evidence/how_fast_could_it_be.ipynb)*
#
# **Remember:** a product with few rows is limited by memory, and a product with many rows by arithmetic.

# %% [markdown]
# ## More rows: batches
#
# In training, the rows are tokens, and there are thousands of them. Translation has two phases. The encoder
# reads all tokens of the source in one pass; in a language model, reading the prompt is called *prefill*.
# Then the decoder writes, and each sentence has one new token per step. A single sentence gives a product
# with one row, the leftmost dot in Figure 1. Twelve sentences give twelve rows for the same fetched weights.

# %%
from annotated import greedy_decode, load_pretrained

captions = """A dog runs through the snow. A man is reading a newspaper on a bench.
Two women wait for the bus. A boy in a red shirt is jumping into the water. Three children play football.
An old woman sells flowers at the market. A girl rides a bicycle. The cook is cutting onions in the kitchen.
A black cat sleeps on the roof of a car. Four people are sitting around a table. A woman paints a picture.
A little girl eats an ice cream."""
translator = load_pretrained("multi30k-en-de")
sentences = [translator.encode(text.strip() + ".") for text in captions.split(".") if text.strip()]


def translate(rows, model=translator.model):
    """Greedy translations of a batch of sentences, with the cache."""
    src = translator.batch(rows)
    mask = (src != translator.src_tokenizer.pad).unsqueeze(1)
    start, end = translator.tgt_tokenizer.start, translator.tgt_tokenizer.end
    return greedy_decode(model, src, mask, 20, start, end)


# %%
speed = {}
for size in (1, 4, 12):
    groups = [sentences[i : i + size] for i in range(0, 12, size)]
    took = seconds(lambda groups=groups: [translate(group) for group in groups])
    speed[size] = 12 / took
    wait = 1e3 * took / len(groups)
    print(f"batches of {size:2}: ≈{speed[size]:.0f} sentences a second, ≈{wait:.0f} ms a batch")

# %% tags=["check"]
assert speed[12] > 2 * speed[1]

# %% [markdown]
# The batch of twelve translates several times as many sentences per second. This rate is called *throughput*.
# But each user waits longer for an answer, because each step takes longer and the batch runs until its
# longest sentence is done. This wait is called *latency*. [18](18_many_users_many_machines.ipynb) shows what
# a service does about both. Our model is small, so much of the gain has another reason: the rows of a batch
# also share the fixed cost of each call.
#
# **Remember:** batches raise throughput, because each fetched weight serves many rows.

# %% [markdown]
# ## Fewer trips: FlashAttention
#
# As written, the paper's equation 1 makes a table of scores with one entry for each query and key, and then
# takes the softmax of each row. For 10,000 tokens, the table has 100 million numbers per head. They are
# written to memory and read again several times. **FlashAttention** (Dao et al., 2022) computes the same
# output without ever storing the table. It computes the scores in blocks that fit into the small, fast
# memory next to the arithmetic units.
#
# The softmax divides by a sum over all scores, so it seems to need all of them at once. A trick that is
# older than FlashAttention avoids this (Milakov and Gimelshein, 2018). Go through the keys in blocks, and
# keep three things for each query: the **largest score** so far, the **sum** of the exponentials, and the
# **weighted sum of the values**. All exponentials are taken relative to the largest score. When a block
# brings a new largest score, both sums are therefore scaled down.
#
# ![Scores arrive in blocks of two: 1 and 3, 2 and 0, 5 and 1. The largest so far is 3, 3, and 5. Each score
# adds e to the power of its difference to the largest so far, and the sums are 1.14, then 1.55. The third
# block has a larger score: the column shrinks to 0.14 of its height, 0.21, and with its own bars the sum is
# 1.23](../images/online_softmax.svg)
#
# *Figure 2. The online softmax. In the third block the maximum rises from 3 to 5, so the earlier sums are
# multiplied by exp(3 − 5) = 0.14.*


# %%
import math


def running_attention(q, k, v, block):
    """One query (d_k,), keys (S, d_k), values (S, d_v) -> (d_v,); only `block` scores exist at a time."""
    largest, total, weighted = torch.tensor(-math.inf), torch.zeros(()), torch.zeros(v.size(-1))
    for keys, values in zip(k.split(block), v.split(block), strict=True):
        scores = keys @ q / math.sqrt(q.numel())  # (block,)
        new = torch.maximum(largest, scores.max())
        shrink, exponentials = (largest - new).exp(), (scores - new).exp()
        total = total * shrink + exponentials.sum()
        weighted = weighted * shrink + exponentials @ values
        largest = new
    return weighted / total


# %%
_ = torch.manual_seed(0)
q, k, v = torch.randn(16), torch.randn(100, 16), torch.randn(100, 8)
with_table = (k @ q / 4).softmax(dim=0) @ v
for block in (1, 7, 100):
    difference = (running_attention(q, k, v, block) - with_table).abs().max()
    print(f"blocks of {block:3}: same output as with the whole table:", bool(difference < 1e-5))

# %% tags=["check"]
for block in (1, 7, 100):
    torch.testing.assert_close(running_attention(q, k, v, block), with_table)
    huge = (1000 * k @ q / 4).softmax(dim=0) @ v  # exp would overflow without the largest score
    torch.testing.assert_close(running_attention(1000 * q, k, v, block), huge)

# %% [markdown]
# PyTorch's `F.scaled_dot_product_attention` has *fused* kernels of this kind: one compiled call takes the
# place of several. They also change how much training must remember: the folded function counts the bytes
# that the forward pass keeps for the backward pass.

# %% tags=["scaffold"]
from torch.nn import functional as F

from annotated import attention


def saved_bytes(attend, n):
    """The bytes that autograd keeps for four heads over n tokens, each piece of memory counted once."""
    held = {}

    def hold(x):
        held[x.untyped_storage().data_ptr()] = x
        return x

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        attend(*(torch.randn(1, 4, n, 16, requires_grad=True) for _ in range(3)))
    return sum(x.untyped_storage().nbytes() for x in held.values())


# %%
for n in (256, 512, 1024):
    table, fused = saved_bytes(attention, n), saved_bytes(F.scaled_dot_product_attention, n)
    print(f"{n:5} tokens: with the table {table / 1e6:5.1f} MB, fused {fused / 1e6:.1f} MB")

# %% tags=["check"]
tables = [saved_bytes(attention, n) for n in (512, 1024)]
fuseds = [saved_bytes(F.scaled_dot_product_attention, n) for n in (512, 1024)]
assert 1.9 < fuseds[1] / fuseds[0] < 2.1
assert tables[1] / tables[0] > 3.2

# %% [markdown]
# When the sentence is twice as long, attention with the table keeps about four times as many bytes, and the
# fused form only twice as many. The fused form does *more* arithmetic, because its backward pass computes the
# scores again ([14](14_attention_in_pytorch.ipynb) works it out). Still, in a recorded benchmark of this
# package's attention on a CPU, it was faster for 128 tokens or more. At 48 tokens, it was slower.
#
# Back to our training step. Its attention is fused already, which saves no time for sentences of some 20
# tokens. Its loss and its Adam are not fused. Our loss builds a table of smoothed targets, with an entry for
# each token and each word of the vocabulary. PyTorch's own loss needs no such table. (It also smooths a
# little differently, so it reports another number: [08](08_training_recipe.ipynb).) PyTorch's fused Adam
# updates all weights in one call.
#
# **Before you run this:** what share of the time will the matrix products take now?

# %% tags=["nbval-ignore-output"]
fused_adam = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)


def fused_step():
    states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    logits = model.generator.proj(states).flatten(0, 1)  # the scores before the softmax
    F.cross_entropy(logits, batch.tgt_y.flatten(), ignore_index=2, label_smoothing=0.1).backward()
    fused_adam.step()
    fused_adam.zero_grad()


fused_share, fused_tables, fused_calls = shares(fused_step)
faster = seconds(step) / seconds(fused_step)
print(f"a step makes {fused_calls:,} calls and is ≈{faster:.1f} times as fast")
print(f"matrix products ≈{fused_share:.0%}, tables of the vocabulary ≈{fused_tables:.0%}")

# %% tags=["check"]
assert fused_share > share
assert fused_tables < table_share
assert fused_calls < calls

# %% [markdown]
# The matrix products are the same, but there are fewer trips to memory. So the products take a larger share
# of a shorter step.
#
# `torch.compile` looks for such fusions by itself, and on a GPU it is usually worth a try. Measure it before
# you believe in it. In our record of a training run on a processor, with batches of all lengths, the first
# two updates of a model of width 128 took three minutes, because PyTorch was compiling. From the 31st update
# on, the compiled step took 1.2 to 1.4 seconds, and the plain one 0.8 to 0.9. We have not looked for the
# reason.
#
# **Remember:** fused calls make fewer trips to memory. FlashAttention goes through the keys block by block
# with a running softmax, so the table of scores never exists.

# %% tags=["check"]
from annotated.recorded import recorded

took = {"eager": [], "compiled": []}  # seconds an update, from the 31st on
for way, runs in recorded("compile")["results"]["tiny"].items():
    took[way] += [(run[-1] - run[30]) / (len(run) - 31) for run in runs]
    assert way == "eager" or min(run[1] for run in runs) > 180
assert 0.75 < min(took["eager"]) < max(took["eager"]) < 0.95
assert 1.15 < min(took["compiled"]) < max(took["compiled"]) < 1.4
for size in ("tiny", "base"):
    raced = {int(each["ours"].split()[-1]): each for each in recorded(f"attention-{size}")["comparisons"]}
    assert raced[48]["low"] > 1 > raced[128]["high"]

# %% [markdown]
# ## Fewer bytes: 16 bits, 8, and 4
#
# Numbers of half the size take half the time to fetch, and many processors also multiply 16-bit numbers
# faster. There are two common ways to spend the 16 bits, float16 and bfloat16:

# %%
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    plus, small, large = (torch.tensor(x, dtype=dtype).item() for x in (1.001, 1e-8, 70_000.0))
    name = str(dtype).removeprefix("torch.")
    print(f"{name:9} 1.001 is {plus:.4f}   0.00000001 is {small:.0e}   70,000 is {large:,.0f}")
total = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    total += 1
print(f"1 + 1 + ... a thousand times in bfloat16: {total.item():.0f}")

# %% tags=["check"]
assert total.item() == 256
assert torch.tensor(1e-8, dtype=torch.float16).item() == 0

# %% [markdown]
# float16 is more exact, but its range is small: small gradients become 0, and large sums become infinity.
# bfloat16 has float32's range, but only two to three digits. Its sum of ones stops at 256, because 257 is not
# a bfloat16 number. The solution is **mixed precision**. Weights, Adam's means and the loss stay in float32.
# For each matrix product, the two factors are rounded to bfloat16, and the sums are computed in float32. In
# this package, the option is `--precision bf16`.
#
# A finished model often needs no more than 8 bits. **Quantization** stores each row of a weight matrix, the
# weights of one output, as whole numbers with one scale for the row. For 8 bits they go from −127 to 127, for
# 4 bits from −7 to 7. With so few values, one scale for a whole row is coarse, so formats of 4 bits have a
# scale for each *group* of, say, 16 weights.
#
# **Before you run this:** twelve captions are translated with weights of 8 bits, of 4 bits, and of 4 bits in
# groups. How many of the translations will be the same as without rounding?

# %%
from copy import deepcopy


def rounded(w, bits, group):
    """The weights (out, in) after rounding, with one scale for each `group` of them."""
    most = 2 ** (bits - 1) - 1  # 127 or 7
    parts = w.unflatten(1, (-1, group))  # (out, in / group, group)
    scale = parts.abs().amax(dim=2, keepdim=True) / most
    return ((parts / scale).round() * scale).flatten(1)


def translations(bits=None, group=None):
    model = deepcopy(translator.model)
    for linear in [module for module in model.modules() if isinstance(module, torch.nn.Linear) and bits]:
        w = linear.weight.data
        linear.weight = torch.nn.Parameter(rounded(w, bits, group or w.size(1)))
    return [translator.tgt_tokenizer.decode(row) for row in translate(sentences, model).tolist()]


exact, same, rounding = translations(), {}, {}
w = translator.model.encoder.layers[0].feed_forward.w_1.weight.detach()  # one of the matrices
for name, (bits, group) in (("8 bits", (8, None)), ("4 bits", (4, None)), ("4 bits, groups of 16", (4, 16))):
    same[name] = sum(a == b for a, b in zip(exact, translations(bits, group), strict=True))
    rounding[name] = (rounded(w, bits, group or w.size(1)) - w).norm() / w.norm()
    print(f"{name:21} weights off by {rounding[name]:4.1%}, ≈{same[name]} of 12 translations are the same")

# %% tags=["check"]
assert same["8 bits"] >= 6
assert same["8 bits"] > same["4 bits"]
assert rounding["8 bits"] < 0.02 < 0.05 < rounding["4 bits, groups of 16"] < rounding["4 bits"] < 0.2

# %% [markdown]
# Twelve captions are too few to tell 4 bits with groups from 4 bits without. The error of the weights is not
# luck. A finished model can be rounded better still than each weight to its nearest value. **GPTQ** (Frantar
# et al., 2022) rounds a matrix one column after another, and changes the columns that are still exact so that
# they make up for the error in the layer's *output*, on some sample text. **AWQ** (Lin et al., 2023) sees in
# such a sample which few entries of the input are large. It multiplies the weights that they meet by a number
# before it rounds, and divides the entries by it. The largest weight of a group, and with it the scale,
# hardly changes by this, so these few weights become larger whole numbers, and their rounding matters less.
#
# **Remember:** matrix products work in 16 bits, sums need 32, and a finished model often needs only 8 or 4,
# with a scale for every few weights.

# %% [markdown]
# ## Rounding the other factor, too
#
# With the weights alone in 8 or 4 bits, there is less to fetch. That is enough when one row at a time is
# decoded. To *multiply* in 8 bits, the *activations*, the numbers that pass from layer to layer, have to be
# rounded as well, and they are less well behaved. In large language models, a few entries, always the same
# ones, are many times larger than the rest (Dettmers et al., 2022). With one scale for all, everything else
# is rounded coarsely, or to nothing.
#
# **SmoothQuant** (Xiao et al., 2022) moves the difficulty to where it does less harm. Divide entry $j$ of
# every input by a number $s_j$, and multiply the weights that this entry meets by the same number: the
# product does not change. With $s_j = \sqrt{\max |x_j| / \max |w_j|}$, where $w_j$ are these weights, the two
# share the difficulty. The division can be done once and for all in the norm before, whose learned gain
# multiplies each entry anyway. (In the code below, the product is `x @ w`, so the weights of entry $j$ are
# *row* $j$ of `w`, and the weights of one output are a column.)
#
# **Before you run this:** one of 64 entries is 60 times as large as the others. How much of what the other 63
# contribute is lost in 8 bits, without and with this?


# %%
def in_8_bits(x, dim=None):
    """Whole numbers from -127 to 127 times one scale, or times one for each column (dim=0)."""
    unit = x.abs().amax(dim=dim, keepdim=True) / 127
    return (x / unit).round() * unit


_ = torch.manual_seed(0)
x, w = torch.randn(256, 64), torch.randn(64, 64) / 8
x[:, 5] *= 60
s = (x.abs().amax(dim=0) / w.abs().amax(dim=1)).sqrt()  # (64,): one for each entry of the input
others = x.clone()
others[:, 5] = 0
lost = {}
for name, a, b in (("as it is", x, w), ("smoothed", x / s, s.unsqueeze(1) * w)):
    error = in_8_bits(a) @ in_8_bits(b, dim=0) - x @ w
    lost[name] = error.norm() / (others @ w).norm()
    print(f"{name}: {lost[name]:3.0%} of the others' part is lost")

# %% tags=["check"]
torch.testing.assert_close((x / s) @ (s.unsqueeze(1) * w), x @ w, atol=1e-3, rtol=1e-3)
assert lost["smoothed"] < 0.08 < 0.4 < lost["as it is"]

# %% [markdown]
# The cache can be rounded, too. In keys the large entries also stay in the same places. So KIVI (Liu et al.,
# 2024) gives each column of $K$, one entry over many tokens, a scale of its own; in $V$, each row, one token,
# has one. It reports almost the same quality with 2 bits.
#
# Another answer to large entries is *floating-point* numbers of 8 bits. `float8_e4m3fn` has four bits for the
# exponent and three for the digits, so its steps are fine near zero and coarse far from it:

# %%
row = torch.tensor([0.01, 0.02, 0.1, 1.0, 60.0])  # one large entry, as in an activation
whole = in_8_bits(row)
floating = row.to(torch.float8_e4m3fn).float()
for name, numbers in (("exact", row), ("int8", whole), ("float8", floating)):
    print(f"{name:7}", *(f"{x:6.3f}" for x in numbers.tolist()))

# %% tags=["check"]
assert whole[:3].tolist() == [0, 0, 0]
assert ((floating - row).abs() / row).max() < 0.07

# %% [markdown]
# The price is precision: with three digits after the leading one, in base two, the error can be as large as
# 6%. Processors like ours have no arithmetic in float8; GPUs of the H100's generation and later do, and newer
# ones also multiply 4-bit floating-point numbers, with a scale for every 16 or 32 of them. Even
# *training* works in 8 bits, with much care for the scales: most products of DeepSeek-V3 (2024) were made in
# float8.
#
# How much quality is lost can depend on the processor, too. We recorded the BLEU of three models in the
# engine CTranslate2, which rounds both factors to 8 bits. It changed by less than 0.3 points with the
# processor's instructions for such products. With older instructions, where intermediate sums can overflow,
# one model lost about a point. So measure the quality where you will translate.
#
# **Remember:** large entries spoil the scale of their neighbors. Give each its own scale, move the
# difficulty to the weights, or use numbers with an exponent.

# %% tags=["check"]
record = recorded("quantization")["scores"]
changes = {
    kind: [x["int8"] - x["float32"] for x in record if x["instructions"] == kind] for kind in ("VNNI", "AVX2")
}
assert max(map(abs, changes["VNNI"])) < 0.3
assert sorted(changes["AVX2"])[0] < -1 < -0.3 < sorted(changes["AVX2"])[2]

# %% [markdown]
# ## When training goes wrong
#
# A faster program that learns nothing is no use. Four checks find most mistakes in minutes.
#
# **1. The first loss.** A new model knows nothing, so its loss should be near $\ln V$, or somewhat above it
# if its first scores are far from equal ([00](00_start_here.ipynb)).
#
# **2. Overfit one batch.** Take two sentences, no dropout, no smoothing, and train on them alone. The loss
# must fall to nearly 0. If it does not, the mistake is in the program and not in the data.
#
# **Before you run this:** PyTorch's `cross_entropy` expects scores and does the softmax itself. We give it
# probabilities instead, a common mistake. The first loss is $\ln V = 6.2$, so check 1 finds nothing. What
# happens then?


# %%
def overfit(loss_of, updates=50):
    """Train a small model on two sentences; return the first loss and the last."""
    _ = torch.manual_seed(0)
    pair = Batch(*torch.randint(4, 500, (2, 2, 12)), pad=2)
    small = make_model(500, 500, N=1, d_model=64, d_ff=128, h=4, dropout=0.0, tied_embeddings="all")
    adam = torch.optim.Adam(small.parameters(), lr=0.003)
    losses = []
    for _ in range(updates):
        states = small(pair.src, pair.tgt, pair.src_mask, pair.tgt_mask)
        loss = loss_of(small.generator.proj(states).flatten(0, 1), pair.tgt_y.flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


right = overfit(F.cross_entropy)
twice = overfit(lambda scores, wanted: F.cross_entropy(scores.softmax(dim=-1), wanted))
for name, (first, last) in (("right", right), ("softmax twice", twice)):
    print(f"{name:13} first ≈{first:.1f}, after 50 updates ≈{last:.1f}")

# %% tags=["check"]
assert 6.0 < twice[0] < 6.4 < right[0] < 7.5
assert right[1] < 0.1 < 5.2 < twice[1]

# %% [markdown]
# The wrong loss cannot fall below $\ln(e + 499) - 1 = 5.2$, even if every answer is right, and a long
# training run would have shown a curve that falls slowly and looks plausible. (If you have written a backward
# pass yourself, `torch.autograd.gradcheck` compares it with small differences.)
#
# **3. The size of numbers.** In float16, gradients below 0.00000003 become 0. So the loss is multiplied by a
# large number before the backward pass, and the gradients are divided by it before the update (*loss
# scaling*; Micikevicius et al., 2018). `torch.amp.GradScaler` searches for the number: it halves it when a
# gradient becomes infinite, and skips that update. bfloat16 needs none of this. Here are the gradients of
# this lesson's model:

# %%
fused_adam.zero_grad()
states = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
F.cross_entropy(model.generator.proj(states).flatten(0, 1), batch.tgt_y.flatten()).backward()
gradients = torch.cat([weight.grad.flatten() for weight in model.parameters()])
gradients = gradients[gradients != 0]
for factor in (1, 2**16, 2**26):
    halves = (gradients * factor).half()
    print(f"times {factor:10,}: ≈{(halves == 0).sum():,} become 0, ≈{halves.isinf().sum():,} become infinite")

# %% tags=["check"]
scaled = [(gradients * factor).half() for factor in (1, 2**16, 2**26)]
assert (scaled[0] == 0).sum() > 100 > (scaled[1] == 0).sum()
assert scaled[1].isinf().sum() == 0 < scaled[2].isinf().sum()

# %% [markdown]
# **4. The length of the gradient.** Log it. A single bad batch can make it a hundred times as long as usual,
# and throw the model far away. So most training runs *clip* it: if its length is above 1, say, it is
# shortened to 1 (`torch.nn.utils.clip_grad_norm_`). That does not cure everything. The training of PaLM, with
# clipping, had some twenty sudden **spikes** of the loss. Its authors went back about 100 updates and skipped
# the next 200 to 500 batches. The same batches did no harm at another time, so it was not the data alone
# (Chowdhery et al., 2022). Bounding the attention scores ([19](19_a_model_of_today.ipynb)) is one answer.
#
# **Remember:** check the first loss, overfit one batch, look at the gradient's length, and clip it.

# %% [markdown]
# ## What you can now say
#
# - A training step takes about six operations per weight and token, and a call with few operations per byte
#   waits for memory.
# - Three things make a Transformer faster: more rows for each fetched weight (batches), fewer trips to
#   memory (fused calls, FlashAttention's running softmax), and fewer bytes (bfloat16, 8 and 4 bits).
# - Before a long run: the first loss is near $\ln V$, one batch can be overfitted, and the gradient is
#   clipped.
#
# **Deeper:** [How fast could it be?](evidence/how_fast_could_it_be.ipynb)
#
# **Next:** the paper's other task, parsing, in [16_another_task](16_another_task.ipynb). How services and
# many GPUs share the work is in [18_many_users_many_machines](18_many_users_many_machines.ipynb).

# %% [markdown]
# ## Exercises
#
# **Exercise 1 (easy).** Predict first. The base model has 63 million weights. It trained for 100,000
# updates of 25,000 tokens on eight P100s, each of which reached 30% of 9.5 TFLOP/s. How many hours does the
# training take? How many hours does it take on a single H100 that reaches 40% of 989 TFLOP/s? Then write
# the function.


# %% tags=["exercise"]
def training_hours(weights, tokens, operations_per_second):
    """Hours of training; `tokens` is the number of all tokens that are trained on."""
    raise NotImplementedError


# %% tags=["exercise-test"]
from random import uniform


def test_training_hours(training_hours):
    larger, longer, faster = (uniform(1, 100) for _ in range(3))
    for right, given in (
        (1 / 3600, (1e6, 1e6, 6e12)),  # 6 operations for each weight and token, in one second
        (1.0, (1e9, 3.6e9, 6e15)),
        (larger * longer / faster, (1e9 * larger, 3.6e9 * longer, 6e15 * faster)),
    ):
        hours = training_hours(*given)
        assert hours is not None, "nothing is returned"
        seconds = f"{right * 3600:g} seconds is right, not {hours * 3600:g}"
        assert abs(hours / right - 1) < 1e-9, (
            "{:g} weights, {:g} tokens, {:g} a second: ".format(*given) + seconds
        )


try:
    test_training_hours(training_hours)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(weights, tokens, operations_per_second):
    """Hours of training; `tokens` is the number of all tokens that are trained on."""
    return 6 * weights * tokens / operations_per_second / 3600


test_training_hours(solution)
# 11.5 hours on eight P100s (the paper says 12), 0.7 on one H100.
assert round(solution(63e6, 100_000 * 25_000, 8 * 0.3 * 9.5e12), 1) == 11.5
assert round(solution(63e6, 100_000 * 25_000, 0.4 * 989e12), 1) == 0.7

# %% [markdown]
# **Exercise 2 (medium).** Two GPUs share the keys of one long text, and each has gone through its half with
# the running softmax. Each holds its largest score, its sum of exponentials and its weighted sum of values.
# Combine them.


# %% tags=["exercise"]
import torch


def combine(one, other):
    """Two triples (largest score, sum, weighted values (d_v,)) -> the triple of all their keys."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import torch


def test_combine(combine):
    torch.manual_seed(0)
    scores, values = 200 * torch.randn(8), torch.randn(8, 3)
    scores[5:] = scores.max() - torch.arange(3)  # some that count beside the largest

    def triple(first, last):
        part = slice(first, last)
        exponentials = (scores[part] - scores[part].max()).exp()
        return scores[part].max(), exponentials.sum(), exponentials @ values[part]

    for cut in (1, 6, 7):
        combined = combine(triple(0, cut), triple(cut, 8))
        assert isinstance(combined, tuple | list), f"a triple is wanted, not {combined!r}"
        names = "largest score", "sum", "weighted values"
        for what, given, right in zip(names, combined, triple(0, 8), strict=True):
            told = f"{cut} keys on one GPU, {8 - cut} on the other: the {what} should be {right}, not {given}"
            assert torch.allclose(given, right, atol=1e-5), told


try:
    test_combine(combine)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(one, other):
    """Two triples (largest score, sum, weighted values (d_v,)) -> the triple of all their keys."""
    largest = torch.maximum(one[0], other[0])
    shrink, shrink_other = (one[0] - largest).exp(), (other[0] - largest).exp()
    return largest, one[1] * shrink + other[1] * shrink_other, one[2] * shrink + other[2] * shrink_other


test_combine(solution)

# %% [markdown]
# **Exercise 3 (medium).** Explore. In a weight matrix, a single weight is 50 times as large as the others.
# Quantize the matrix with one scale for each row, and then with *one* scale for the whole matrix. How large
# is the error in each case? What do they say about a model with a few extreme weights?

# %% tags=["solution"]
_ = torch.manual_seed(0)
plain = torch.randn(256, 256)
plain[0, 0] = 50.0
errors = {}
for how, most in (("one scale", plain.abs().max()), ("one for each row", plain.abs().amax(1, keepdim=True))):
    unit = most / 127
    off = (plain / unit).round() * unit - plain
    errors[how] = (off[1:].norm() / plain[1:].norm()).item()  # without that row
    print(f"{how:17} relative error ≈{errors[how]:.1%}")
assert errors["one scale"] > 5 * errors["one for each row"]
# With a single scale, one extreme weight ruins the whole matrix; with a scale for each row, only its own row.
