# %% [markdown]
# # 00 · 从这里开始：分两次读懂这篇论文
#
# **你将跟着一个句子走完《Attention Is All You Need》中的整个 Transformer，途中的每一个数都摆在眼前。你会读完整个模型的代码，不到 200 行，再看它装上训练好的权重，真的翻译起来。**
#
# 下一课：[01_why_attention](../01_why_attention.ipynb)。本课译自[英文版](../00_start_here.ipynb)，代码和输出与之相同；其余各课目前只有英文版。
#
# 阅读 100 分钟，运行 1 分钟。
#
# - **预备知识**：Python、少许 PyTorch（`nn.Module`）、矩阵乘法、梯度；不需要了解注意力。
# - **学完之后**：你会明白模型中的每个方框做什么、为什么要有它，可以动手搭建了。
#
# 标题中的数字是论文（Vaswani et al., 2017，[arXiv 1706.03762](https://arxiv.org/abs/1706.03762)）的章节号。我们跟着句子在模型里走，走到哪个方框就打开哪个，所以章节的次序与论文不同。缩进的段落引自论文，译文下面附有原文。`≈` 后面的数，在你的电脑上可能略有不同。折叠的单元格都可以跳过：*Scaffolding*（脚手架）用来准备数据和画图，*Check*（检查）用来验证正文的说法。
#
# 建议分两次读。第一次约一小时二十分钟，读到“它真的能翻译”一节为止：那时模型已经搭好，也能翻译了。第二次约二十分钟，讲训练、容易犯的错误，以及后来的发展。
#
# **只有半小时？** 读标有 ▸ 的五节：“先看成果”，“一个小到能打印出来的模型”和其中的 26 步计算，“先看一个词”，“注意力”，“一个查询，三个键”。

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
# ## ▸ 先看成果
#
# 这个 Transformer 读英语，写德语。它是用 29,000 条图片描述和它们的德语译文训练出来的，随本课程的软件包 `annotated` 一起安装。

# %%
from annotated import load_pretrained

translator = load_pretrained("multi30k-en-de")
sentence = "A man throws a ball to a dog"
print(translator(sentence))
print(translator("A cat runs"))

# %% tags=["check"]
assert translator(sentence) == "Ein Mann wirft einem Hund einen Ball."
assert translator("A cat runs") == "Eine Katze rennt."

# %% [markdown]
# 译文正确，而且语序与英语不同：狗移到了球的前面。（句末多了一个句号，因为图片描述几乎都以句号结尾。）模型怎么知道接下来该译哪个英语单词？每写一个词之前，它都要算一算，对每个英语单词各看几分：

# %% tags=["scaffold"]
import matplotlib.pyplot as plt
import seaborn

from annotated.plots import setup_notebook

setup_notebook()
seen = translator.attention(sentence)
looked = seen.maps["cross", 3].mean(dim=0)  # last layer, mean of its heads: (steps, English tokens)
written = [*seen.tgt_tokens[1:], "</s>"]
steps = [f"{read} → {wrote}".replace("▁", "") for read, wrote in zip(seen.tgt_tokens, written, strict=True)]
plt.figure(figsize=(9, 4.6))
ax = seaborn.heatmap(looked, annot=True, fmt=".2f", cmap="Blues", cbar=False)
ax.set_xticklabels([token.replace("▁", "") for token in seen.src_tokens])
ax.set_yticklabels(steps, rotation=0)
ax.set(xlabel="English", ylabel="German: read → wrote", title="Where the model looked while writing")
plt.show()

# %% [markdown]
# **图 1**　每一行对应写译文的一步。行首标出模型刚读入的德语词元（token）和它随后写出的词元。格中的数是每个英语词元分到的注意力，取最后一层四个头的平均，每行之和为 1。`<s>` 表示句子开始，`</s>` 表示句子结束；后面的插图里分别写作 start 和 end。

# %% tags=["check"]
source_of = {german: seen.src_tokens[row.argmax()] for german, row in zip(written, looked, strict=True)}
assert source_of["▁Hund"] == "▁dog"
assert source_of["▁Ball"] == "▁ball"
assert source_of["▁wirft"] == "▁throws"
of_ball, of_dog = (round(looked[written.index("▁einem"), column].item(), 2) for column in (3, 6))
assert [seen.src_tokens[column] for column in (3, 6)] == ["▁a", "▁a"]
assert (of_ball, of_dog) == (0.25, 0.16)
assert written.index("▁Hund") < written.index("▁Ball")

# %% [markdown]
# 写 *wirft* 时，模型主要看 *throws*；写 *Hund* 时，它跳到 *dog*；写 *Ball* 时，又跳回 *ball*。没有人告诉过它哪些词互相对应。并不是每一行都这么清楚：写 *einem*（*dog* 前面的 *a*）时，模型看 *ball* 前面的 *a* 反而更多（0.25 对 0.16）。而且每一行加起来必须是 1，所以总有一些注意力落在 *to*、`</s>` 这类没有多少内容的词元上。这样的“看”就叫**注意力**（attention），很快你就会亲手算一遍。

# %% [markdown]
# ## 摘要、1 引言、2 背景
#
# > “我们提出一种新的、简单的网络架构 Transformer。它完全基于注意力机制，彻底摒弃了循环和卷积。”
# >
# > "We propose a new simple network architecture, the Transformer, based solely on attention mechanisms, dispensing with recurrence and convolutions entirely."
#
# 2017 年以前，神经翻译模型大多由**循环神经网络**（recurrent neural network, RNN）构成。RNN 读句子时一次读一个词元，把读过的内容都存在一个向量里，这个向量称为**隐状态**（hidden state）。这样做有两个代价。
#
# - **时间**：第 50 个词的状态，要等第 49 个词的状态算完才能算。GPU 本可以同时处理所有的词，却只能等着。
# - **距离**：如果第 50 个词与第 1 个词有关，信息就得熬过 49 次更新而不丢失。梯度往回传时也是如此。
#
# 当时的翻译模型有两个 RNN：**编码器**（encoder）读源语言的句子，**解码器**（decoder）写目标语言的句子。起初，两者之间只有一个向量，整句话都得装进去。后来，Bahdanau 等人（[2014](https://arxiv.org/abs/1409.0473)）让解码器回头看编码器的所有状态，取它们的加权平均。这就是注意力。Transformer 保留了它，去掉了 RNN。
#
# ![由 RNN 构成的编码器和解码器，两者之间只有一个向量；加上注意力之后；没有循环的 Transformer 编码器](../../images/before.svg)
#
# **图 2**　左：整句话装在一个向量里。中：解码器回头看所有状态。右：每个位置直接看所有位置。
#
# 右图就是**自注意力**（self-attention）：一个句子看它自己。在 *the cat slept because it was tired*（猫睡着了，因为它累了）里，*it* 的向量可以从 *cat* 那里取得信息，不管两者相隔多远。
#
# 详见 [01_why_attention](../01_why_attention.ipynb)。

# %% [markdown]
# ## 3 模型架构
#
# ![Transformer：左边是编码器，右边是解码器](../../images/architecture.svg)
#
# **图 3**　论文的图 1（重绘），请从上往下看。灰色的粗线称为流（stream），是一个词的向量走过模型的路线。
#
# 句子是一串**词元**。词元是一个单词或单词的一部分，每个词元有一个编号。每个词元先变成由 $d_{model} = 512$ 个数组成的向量，再加上一个表示位置的向量。**编码器**让这些向量互相看，一层接一层，共六层。它为每个源词元输出一个向量，里面已经含有句子其余部分的信息。这些向量合称**记忆**（memory）。
#
# **解码器**读入已经写出的德语单词，结合记忆，为词表（vocabulary）中的每个词元算出一个概率。从中选定一个词元，把它接到读入的内容后面，解码器再运行一次。
#
# 写成代码，整个模型只有三行。掩码说明哪些词元可以看。
#
# ```
# memory = encoder(src_embed(src), src_mask)                    # 读英语句子
# states = decoder(tgt_embed(tgt), memory, src_mask, tgt_mask)  # 读已经写出的德语单词
# log_probs = generator(states)                                 # 给每个词元作为下一个词元的可能性打分
# ```
#
# 这一页要逐一打开这五个部分：`src_embed`、`encoder`、`tgt_embed`、`decoder` 和 `generator`。
#
# 代码中的注释标出了形状：B 是模型一次读入的句子数，S 是源词元数，T 是目标词元数。有些部分两种语言都读，那里的 S 或 T 写作 `length`。

# %% [markdown]
# ### ▸ 一个小到能打印出来的模型
#
# 论文的模型里，每个向量有 512 个数，多得没法看。所以我们训练一个微型模型：向量只有**四个**数，编码器和解码器各一层，两个注意力头。它只学八个句子。句子虽短，却离不开注意力：英语的 *a* 在 *Hund*（狗）前面译成 *ein*，在 *Katze*（猫）前面译成 *eine*。下面是其中三句。`english`、`read` 和 `write` 三个张量存放全部八句的词元编号：`english[2]` 是 *a cat runs*；`read[2]` 是解码器读入的 `<s> eine Katze rennt`；`write[2]` 是它要写出的 `eine Katze rennt </s>`。

# %% tags=["scaffold"]
import math

import torch
from torch import nn

articles = {("a", "dog"): "ein", ("a", "cat"): "eine", ("the", "dog"): "der", ("the", "cat"): "die"}
german = {"dog": "Hund", "cat": "Katze", "runs": "rennt", "sleeps": "schläft"}
pairs = [
    ([article, noun, verb], [gender, german[noun], german[verb]])
    for (article, noun), gender in articles.items()
    for verb in ("runs", "sleeps")
]
vocab = ["<s>", "</s>", *sorted({word for pair in pairs for side in pair for word in side})]
number = {word: i for i, word in enumerate(vocab)}
english = torch.tensor([[number[w] for w in source] for source, _ in pairs])  # (8, 3)
read = torch.tensor([[number[w] for w in ["<s>", *target]] for _, target in pairs])  # (8, 4)
write = torch.tensor([[number[w] for w in [*target, "</s>"]] for _, target in pairs])  # (8, 4)
for source, target in pairs[::3]:
    print(" ".join(source), "→", " ".join(target))
print(len(vocab), "tokens:", *vocab)

# %% [markdown]
# 下一个单元格训练这个模型，做 200 次**更新**（update）。每一次，模型先预测所有的德语单词，再用一个数衡量它错得有多厉害，这个数就是**损失**（loss）。然后，`backward()` 算出**梯度**（gradient）：对每个权重来说，是调大还是调小才能降低损失。最后，**优化器**（optimizer，这里用 Adam）把每个权重朝好的方向挪动一点。
#
# 训练完以后，再把所有权重四舍五入到一位小数，这样后面的计算用计算器就能核对。打印出来的数也经过四舍五入，所以你算出的末位可能略有出入。（训练从随机的权重开始。我们试了四十种起点，留下了注意力最容易看懂的一种。）

# %% tags=["scaffold"]
import copy

from annotated import make_model

_ = torch.manual_seed(4)  # chosen among forty seeds, because its attention is easy to read
tiny = make_model(16, 16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0, tied_embeddings="all").double()
matrices = [weights for weights in tiny.parameters() if weights.dim() > 1]  # the biases stay 0
for weights in matrices:
    weights.data = weights.data.round(decimals=3)  # the same start on every processor
adam = torch.optim.Adam(matrices, lr=0.03)


def tiny_losses():
    """The loss of each German token, (8, 4)."""
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())  # before the generator
    return -tiny.generator(states).gather(-1, write.unsqueeze(-1)).squeeze(-1)


past = [copy.deepcopy(tiny)]  # the model before its training and after each update, for section 5
for _ in range(200):
    adam.zero_grad()
    tiny_losses().mean().backward()
    adam.step()
    past.append(copy.deepcopy(tiny))
for weights in matrices:
    weights.data = weights.data.round(decimals=1)
size = sum(weights.numel() for weights in matrices)
print(f"{size} weights in {len(matrices)} matrices, loss {tiny_losses().mean().item():.2f}")

# %% tags=["check"]
with torch.no_grad():
    states = tiny(english, read, None, torch.ones(1, 4, 4, dtype=torch.bool).tril())
    assert (tiny.generator(states).argmax(dim=-1) == write).all()


# %% tags=["scaffold"]
def show(title, matrix, rows=("a", "cat", "runs"), columns=(), digits=2):
    """Print a matrix, with a name for each row."""
    print(title)
    if columns:
        print(" " * 10 + "".join(f"{column:>8}" for column in columns))
    for row, values in zip(rows, matrix.tolist(), strict=True):
        print(f"  {row:8}" + "".join(f"{round(value, digits) + 0.0:8.{digits}f}" for value in values))


# %% [markdown]
# 我们要跟踪的句子是 ***a cat runs***（一只猫在跑）。它的三个词元编号如下：

# %%
words, cat_runs = ["a", "cat", "runs"], english[2]
print(words, "→", cat_runs.tolist())

# %% [markdown]
# 下图是这个句子走过模型、写出第一个德语词的路线。图中的数，以及中间的所有数，下面都会一一算出。
#
# ![a cat runs 走过模型。在编码器中，每个词起初是一个由四个数组成的向量；cat 主要看 a。编码器的向量就是记忆。在解码器中，start 主要看记忆中的 cat，它的新向量是 (0.15, 0.40, 1.08, −1.63)。下一个词的概率是：eine 0.66，ein 0.31。其余步骤略去。](../../images/cat_whole.svg)
#
# **图 4**　编码器的注意力，以及解码器看记忆的注意力。两处都只画了头 2，其他步骤从略。线的粗细表示权重。
#
# 下一个单元格把整个计算分成 26 步，供你随意翻看。用方向键前进或后退；点击一个数，可以看到它是由哪些数算出来的。现在不必全看懂：后面的各节会一步一步讲解，你随时可以回到这里对照，也可以换掉一个词，或者拿掉模型的一个部分。

# %%
from annotated.plots import step_through

step_through(tiny, vocab, [words, *(source for source, _ in pairs)])

# %% [markdown]
# ### 3.4 嵌入
#
# > “[……]我们用学到的嵌入，把输入词元和输出词元转换为 $d_{model}$ 维的向量。[……]在嵌入层中，我们把这些权重乘以 $\sqrt{d_{model}}$。”
# >
# > "[...] we use learned embeddings to convert the input tokens and output tokens to vectors of dimension $d_{model}$. [...] In the embedding layers, we multiply those weights by $\sqrt{d_{model}}$."
#
# 词元的编号只是名字，不是数量：*cat* 的编号是 5，*a* 的编号是 4，可 *cat* 并不是 *a* 加一。所以，每个词元在一张表里占一行，这一行就是它的**嵌入**（embedding），表中的数由训练得来。这个方框查出一行，再乘以 $\sqrt{d_{model}}$。在我们的模型里，这个系数是 $\sqrt 4 = 2$。


# %%
class Embeddings(nn.Module):
    """A vector for each token, times the square root of d_model."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)  # the lookup table
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):  # (B, length) -> (B, length, d_model)
        return self.lut(tokens) * self.scale


# %%
table = tiny.src_embed[0].lut.weight.detach()  # (16, 4)
embedded = table[cat_runs] * 2
show("rows of the table", table[cat_runs])
show("times 2", embedded)

# %% tags=["check"]
assert torch.allclose(embedded, tiny.src_embed[0](cat_runs))


def product(a, b):
    """A matrix product as with a pocket calculator: of what is printed, one number at a time."""
    a, b = ([[round(number, 2) for number in row] for row in matrix.tolist()] for matrix in (a, b))
    rows = [
        [sum(p * q for p, q in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]
    return torch.tensor(rows, dtype=torch.float64)


def near(ours, printed, within=0.03):
    """Whether what one finds by hand is what the page prints."""
    return bool((ours - printed).abs().max() < within)


def normalize(rows):
    centered = rows.round(decimals=2) - rows.round(decimals=2).mean(dim=-1, keepdim=True)
    return centered / centered.square().mean(dim=-1, keepdim=True).sqrt()


# %% [markdown]
# 为什么要乘这个系数，论文没有给出理由。训练之前，表中的数都很小。不乘这个系数，它们就会淹没在后面要加的位置向量里，因为位置向量的元素可以大到 1。

# %% [markdown]
# ### ▸ 先看一个词
#
# *cat* 起初的向量称为它的嵌入，是从一张表里查来的，不管在哪个句子里都一样。可是要译好 *cat*，模型得知道它周围是些什么词。所以，模型给 *cat* 一个新的向量，把其他的词也混合进去。整篇论文的思想，用这一个词就能说清楚，连学到的矩阵都不需要。
#
# 1. **比较**：把 *cat* 的向量与每个词的向量作比较，方法是求点积（dot product）：对应的数相乘，再加起来。结果称为**分数**（score）；两个向量越长、方向越一致，分数越大。
# 2. **加权**：**softmax** 把分数变成权重，权重都是正数，加起来等于 1。它的做法是，每个 $\exp(\text{score})$ 都除以三者的总和。
# 3. **混合**：按这些权重求三个向量的平均值。
#
# ![用点积把 cat 的向量与 a、cat、runs 的向量作比较：a −0.72，cat 2.24，runs 0.72。softmax 把它们变成权重：a 0.04，cat 0.79，runs 0.17。按这些权重求三个向量的平均值，得到 (−0.08, 1.01, 0.66, −0.31)。](../../images/cat_word.svg)
#
# **图 5**　*cat* 从三个词得到什么。格子的颜色表示数的正负和大小，线的粗细表示权重。

# %%
cat = embedded[1]
scores = [(cat * word).sum().item() for word in embedded]
powers = [math.exp(score) for score in scores]
shares = [power / sum(powers) for power in powers]
mean = sum(share * word for share, word in zip(shares, embedded, strict=True))
show("scores and weights", torch.tensor([scores, shares]), rows=["scores", "weights"], columns=words)
show("what cat gets", mean[None], rows=["cat"])

# %% tags=["check"]
assert near(product(embedded, cat[:, None]).flatten(), torch.tensor(scores))
assert [f"{share:.2f}" for share in shares] == ["0.04", "0.79", "0.17"]
assert near(product(torch.tensor([shares]), embedded)[0], mean)
built_in = nn.functional.scaled_dot_product_attention
assert torch.allclose(mean, built_in(cat[None], embedded, embedded, scale=1.0)[0])

# %% [markdown]
# 比较、加权、混合，这就是注意力。不过还缺两样东西。
#
# 第一是选择。在这里，*cat* 主要看的是自己，权重是 0.79，因为它的向量与自己最相似。可是它真正需要的词是 *a*：有了 *a*，德语的冠词才是 *eine*，而不是 *die*。所以，*cat* 该找什么，*a* 能提供什么，都要由模型去**学**。
#
# 第二是次序。平均值与各项的次序无关，所以向量自己就要说明它在句子里的位置。我们先解决次序。

# %% [markdown]
# ### 3.5 位置编码
#
# > “[……]为了让模型利用序列的顺序，我们必须注入一些信息，说明词元在序列中的相对位置或绝对位置。”
# >
# > "[...] in order for the model to make use of the order of the sequence, we must inject some information about the relative or absolute position of the tokens in the sequence."
#
# 对平均值来说，*dog bites man*（狗咬人）和 *man bites dog*（人咬狗）是一回事。所以，模型给每个嵌入加上一个只取决于位置的向量，这就是**位置编码**（positional encoding）。
#
# 不妨想象一座有好几根指针的钟。第一根指针每过一个位置转 1 弧度，后面的指针一根比一根慢。它们合在一起就能报时，而时间就是位置。指针的方向用两个数表示，即角度的正弦和余弦，所以四个数的向量正好放得下两根指针。在位置 $pos$，它们的角度分别是 $pos$ 和 $pos / 100$。
#
# ![嵌入加位置，就是送入编码器的向量。cat：(0.00, 1.20, 0.80, −0.40) 加 (0.84, 0.54, 0.01, 1.00)，得 (0.84, 1.74, 0.81, 0.60)。位置向量中每两个数是一根指针：快的一根每过一个词转 1 弧度，慢的一根转百分之一弧度。](../../images/cat_position.svg)
#
# **图 6**　嵌入加位置。位置向量中每两个数画成一根指针，它们是指针的正弦和余弦。三个词之内，第二根指针几乎不动。
#
# 宽度任意时，论文的写法如下。第 $i$ 根指针占第 $2i$ 和第 $2i + 1$ 个元素：
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}})$$
# $$PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$


# %%
def sinusoids(length, d_model):
    """The positional encodings, (length, d_model)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    angle = position * frequency  # (length, d_model / 2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # sine, cosine, sine, ...


class PositionalEncoding(nn.Module):
    """Add the position's vector, then dropout (see section 5.4)."""

    def __init__(self, d_model, dropout, max_len=512):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", sinusoids(max_len, d_model), persistent=False)  # kept, but not trained

    def forward(self, x):  # (B, length, d_model) -> (B, length, d_model)
        return self.dropout(x + self.pe[: x.size(1)])


# %%
positions = sinusoids(3, 4)
x = embedded + positions
show("x, what enters the encoder", x)

# %% tags=["check"]
assert torch.allclose(x, tiny.src_embed(english[2:3])[0])
assert torch.allclose(positions[1, :2], torch.tensor([math.sin(1), math.cos(1)]))

# %% [markdown]
# 来核对一个数：*cat* 在位置 1，$\sin(1) = 0.84$。它的嵌入第一个数是 0.00，所以 `x` 中 *cat* 那一行的第一个数就是 0.84。
#
# 为什么要用钟，而不直接用 0、1、2？因为编号会随着句子变长而越来越大，正弦和余弦却始终在 −1 和 1 之间。而且，无论在句中哪里，往后走两个词，同一根指针转过的角度总是一样的。作者希望，这样模型更容易学会“往回看两个词”之类的本领。
#
# 详见 [05_positional_encoding](../05_positional_encoding.ipynb)。

# %% [markdown]
# ### ▸ 3.2 注意力
#
# > “输出是各个值的加权和，其中每个值的权重，由一个衡量查询与对应的键是否匹配的函数算出。”
# >
# > "The output is computed as a weighted sum of the values, where the weight assigned to each value is computed by a compatibility function of the query with the corresponding key."
#
# 想想 Python 的字典。你拿一个**查询**（query）去查，字典找到与查询相等的**键**（key），返回这个键的**值**（value）。注意力是一种“软”字典。它返回的是**所有**值的混合，键与查询越匹配，它的值占的比重就越大。混合是有梯度的，所以网络能学会该查什么。
#
# 所以每个词需要三个向量，它的向量 $x$ 分别乘以三个学到的矩阵，就得到它们：
#
# - *cat* 的**查询**说明 *cat* 在找什么；
# - *cat* 的**键**说明 *cat* 能给看它的词提供什么；
# - *cat* 的**值**是 *cat* 交给它们的内容。

# %% [markdown]
# #### ▸ 一个查询，三个键
#
# 现在，*cat* 的向量是它的嵌入与位置之和，即 (0.84, 1.74, 0.81, 0.60)；`x` 存放三个词的向量。我们的模型有两个头，在第二个头里，*cat* 学会了看 *a*。我们就跟着这个头走。它的三个矩阵 $W^Q$、$W^K$ 和 $W^V$ 给出查询、键和值，宽度都是 $d_k = 2$。查询的每个数是四个乘积之和：*cat* 的四个数，乘以 $W^Q$ 的一列。
#
# ![三个矩阵把 cat 的向量 (0.84, 1.74, 0.81, 0.60) 变成查询 (1.62, −0.20)、键 (0.71, 1.28) 和值 (0.30, 0.25)。查询的第一个数是 0.84 · (−0.10) + 1.74 · 0.90 + 0.81 · 0.10 + 0.60 · 0.10 = 1.62。](../../images/cat_roles.svg)
#
# **图 7**　一个向量，三种角色。query 是查询，key 是键，value 是值。最下面一行是标黄的那个数的算式。
#
# 在代码里，一个四列的矩阵供两个头用：前两列属于头 1，后两列属于头 2。（`nn.Linear` 存的是转置后的矩阵，`.T` 再把它转回来。）

# %%
wide_q, wide_k, wide_v, w_o = (m.weight.T.detach() for m in tiny.encoder.layers[0].self_attn.linears)
w_q, w_k, w_v = wide_q[:, 2:], wide_k[:, 2:], wide_v[:, 2:]  # head 2: each (4, 2)
query = x[1] @ w_q  # of cat: (4,) @ (4, 2) -> (2,)
keys, values = x @ w_k, x @ w_v  # of all three words: (3, 4) @ (4, 2) -> (3, 2)
show("query of cat", query[None], rows=["cat"])
show("keys", keys)
show("values", values)

# %% tags=["check"]
assert near(product(x[1:2], w_q)[0], query)
assert near(product(x, w_k), keys)
assert near(product(x, w_v), values)

# %% [markdown]
# 现在像刚才一样，比较、加权、混合。一个词的分数，是 *cat* 的查询与这个词的键的点积。新的只有一步：每个分数都除以 $\sqrt{d_k} = \sqrt 2$，原因见下面的“为什么除以 √d_k？”。
#
# ![cat 的查询 (1.62, −0.20) 乘以 a、cat、runs 的键，得到分数 a 1.48，cat 0.90，runs −1.04。除以根号 2，是 1.05, 0.64, −0.73，softmax 把它们变成权重 0.55, 0.36, 0.09：cat 主要看 a。](../../images/cat_scores.svg)
#
# **图 8**　比较和加权。标黄的一列，是键最匹配的那个词。

# %%
scores = keys @ query  # (3, 2) @ (2,) -> (3,): a score for each word
scaled = scores / math.sqrt(2)
weights = scaled.softmax(dim=-1)
output = weights @ values  # (3,) @ (3, 2) -> (2,)
three = torch.stack([scores, scaled, weights])
show("cat looks at", three, rows=["score", "scaled", "weight"], columns=words)
show("what cat gets", output[None], rows=["cat"])

# %% tags=["check"]
assert near(product(keys, query[:, None]).flatten(), scores)
assert near(scores.round(decimals=2) / 1.41, scaled)
powers = scaled.round(decimals=2).exp()
assert near(powers / powers.sum(), weights)
assert near(product(weights[None], values)[0], output)
assert [f"{w:.2f}" for w in weights] == ["0.55", "0.36", "0.09"]
assert [f"{number:.2f}" for number in output] == ["0.56", "-0.45"]

# %% [markdown]
# 现在 *cat* 主要看 *a*，权重是 0.55。它得到的是三个值的加权平均。
#
# ![a、cat、runs 的值 (0.80, −1.04)、(0.30, 0.25) 和 (0.15, 0.31) 沿着几条线汇到一起，线的粗细就是权重 a 0.55，cat 0.36，runs 0.09。它们的加权平均 (0.56, −0.45) 就是 cat 得到的。](../../images/cat_mean.svg)
#
# **图 9**　混合。每条线的粗细就是它的权重。
#
# 手算第二个数：$0.55 \cdot (-1.04) + 0.36 \cdot 0.25 + 0.09 \cdot 0.31 = -0.45$。

# %% [markdown]
# #### 3.2.1 缩放点积注意力
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V \qquad (1)$$
#
# 另外两个词也这样算，各用各的查询。把三个查询一行一行叠起来，就是矩阵 $Q$；乘积 $Q K^T$ 一次算出全部九个分数：一行对应一个查询，一列对应一个键。softmax 对每一行单独计算。
#
# ![所有词的查询乘以所有词的键，是九个分数组成的矩阵。除以根号 2，再经过 softmax，每一行变成一个词的权重，权重乘以值就是输出。cat 那一行就是刚才单独算过的：分数 1.48, 0.90, −1.04，权重 0.55, 0.36, 0.09，输出 (0.56, −0.45)。](../../images/cat_rows.svg)
#
# **图 10**　所有的词一起算。*cat* 那一行你刚刚算过。图中的 weights 是权重。

# %%
q, k, v = x @ w_q, x @ w_k, x @ w_v  # each (3, 4) @ (4, 2) -> (3, 2)
scores = q @ k.T  # (3, 2) @ (2, 3) -> (3, 3)
weights_2 = (scores / math.sqrt(2)).softmax(dim=-1)
head_2 = weights_2 @ v  # (3, 3) @ (3, 2) -> (3, 2)
show("weights: who looks at whom", weights_2, columns=words)
show("output of head 2", head_2)

# %% tags=["check"]
assert near(product(q, k.T), scores)
powers = (product(q, k.T) / 1.41).exp()
assert near(powers / powers.sum(dim=-1, keepdim=True), weights_2)
assert near(product(weights_2, v), head_2)
assert torch.allclose(weights_2[1], weights)
assert torch.allclose(head_2[1], output)

# %% [markdown]
# 有时候，有的词不许看。例如，一批句子里较短的要用**填充**（padding）补齐，使所有句子一样长，而填充谁都不该看。所以函数比公式多一个参数，即**掩码**（mask）：不许看的位置，掩码都是 `False`。函数把这些位置的分数换成该数据类型所能表示的最小的数，softmax 再把它变成权重 0。（第二个 `masked_fill` 有什么用，见[第 02 课](../02_attention.ipynb)。）
#
# 函数的注释里，是 T 个词元看 S 个词元。句子看自己时，T 等于 S。


# %%
def attention(query, key, value, mask=None):
    """Equation 1: queries (..., T, d_k), keys and values (..., S, d_k) -> output (..., T, d_k), weights."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:  # True: may be looked at
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (..., T, S), each row adds up to 1
    if mask is not None:  # if all S tokens are hidden, the softmax would look at all of them
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ value, weights


# %% [markdown]
# 现在把 *runs* 遮住，就当它是填充：

# %%
output, masked_weights = attention(q, k, v, mask=torch.tensor([True, True, False]))
show("weights with runs hidden", masked_weights, columns=words)

# %% tags=["check"]
assert torch.equal(attention(q, k, v)[0], head_2)
assert (masked_weights[:, 2] == 0).all()
assert torch.allclose(masked_weights.sum(dim=-1), torch.ones(3).double())
assert attention(q, k, v, torch.tensor([False, False, False]))[0].abs().max() == 0

# %% [markdown]
# **要点**：分数表示键与查询的匹配程度，softmax 把分数变成权重，输出是值的加权平均。

# %% [markdown]
# #### 为什么除以 √d_k？
#
# 论文中的头宽 64，所以一个分数是 64 个乘积的和，不再是 2 个。
#
# **运行之前，先猜一猜**：`query` 和 `key` 的元素是随机数，方差为 1。2 个乘积相加，分数的典型大小，也就是标准差，是 1.4；64 个乘积相加，会是多少？

# %%
_ = torch.manual_seed(0)
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    print(f"d_k = {d_k:3}: a typical score is ≈{typical:.1f}, the square root of d_k is {d_k**0.5:.1f}")

# %% tags=["check"]
for d_k in (2, 64, 512):
    query, key = torch.randn(10_000, d_k), torch.randn(10_000, d_k)
    typical = (query * key).sum(dim=-1).std()
    assert abs(typical / d_k**0.5 - 1) < 0.05

# %% [markdown]
# 分数的典型大小随 $\sqrt{d_k}$ 增长。这有什么不好？下一个单元格计算两次 softmax，第二次的分数是第一次的八倍。**斜率**（slope）表示最后一个分数变化时，它的权重随之变化多少。

# %% tags=["scaffold"]
for scores_of_one_row in ([0.5, -1.0, 1.0], [4.0, -8.0, 8.0]):
    row = torch.tensor(scores_of_one_row, requires_grad=True)
    row.softmax(dim=-1)[2].backward()
    shown = [f"{w:.3f}" for w in row.softmax(dim=-1).tolist()]
    print(f"scores {scores_of_one_row}: weights {shown}, slope of the last {row.grad[2]:.3f}")

# %% tags=["check"]
assert row.grad[2] < 0.02
assert row.softmax(dim=-1)[2] > 0.98

# %% [markdown]
# 分数大的时候，最后一个权重几乎等于 1，而且几乎不随它的分数变化。这时我们说 softmax **饱和**（saturated）了。它几乎不传递梯度，而没有梯度，模型就学不会该往哪里看。
#
# > “我们猜测，$d_k$ 较大时，点积的数值会变得很大，把 softmax 函数推到梯度极小的区域。为了抵消这种影响，我们把点积乘以 $1/\sqrt{d_k}$。”
# >
# > "We suspect that for large values of $d_k$, the dot products grow large in magnitude, pushing the softmax function into regions where it has extremely small gradients. To counteract this effect, we scale the dot products by $1/\sqrt{d_k}$."
#
# **要点**：头一宽，分数就大；分数一大，softmax 就可能饱和；除以 $\sqrt{d_k}$ 可以避免这种情况。
#
# 详见 [02_attention](../02_attention.ipynb)。

# %% [markdown]
# #### 3.2.2 多头注意力
#
# > “多头注意力让模型能够同时关注不同位置上来自不同表示子空间的信息。”
# >
# > "Multi-head attention allows the model to jointly attend to information from different representation subspaces at different positions."
#
# 单个注意力只给每个词**一组**权重。可是，一个动词也许既要看主语，又要看宾语，理由各不相同，混在一起就模糊了。所以模型并排运行几个注意力，每一个称为一个**头**（head），这就是多头注意力（multi-head attention）。每个头有自己的查询、键和值，而且更窄：论文用 $h = 8$ 个头，每个头 $d_k = d_{model} / h = 64$ 个数。最后，还有一个矩阵 $W^O$ 把各个头找到的内容混合起来。
#
# 在我们的模型里，两个头看的词不一样。*cat* 在头 1 里把注意力分散到三个词上；在头 2 里，你已经知道，它主要看 *a*：
#
# ![cat 在头 1 里看 a 0.40，cat 0.30，runs 0.30，在头 2 里看 a 0.55，cat 0.36，runs 0.09。两个结果 (−0.09, −0.15) 和 (0.56, −0.45) 并排放在一起，矩阵 W^O 把这四个数变成 (−0.28, 0.05, 0.04, 0.30)。](../../images/cat_heads.svg)
#
# **图 11**　*cat* 从两个头（head 1 和 head 2）得到什么。每个头给出两个数，最下面的矩阵把这四个数变成四个新的数。

# %%
head_1, weights_1 = attention(x @ wide_q[:, :2], x @ wide_k[:, :2], x @ wide_v[:, :2])  # columns 1 and 2
both = torch.cat([head_1, head_2], dim=-1)  # (3, 4)
show("weights of head 1", weights_1, columns=words)
show("both heads side by side", both)

# %% tags=["check"]
q_1, k_1, v_1 = (product(x, w[:, :2]) for w in (wide_q, wide_k, wide_v))
powers = (product(q_1, k_1.T) / 1.41).exp()
assert near(powers / powers.sum(dim=-1, keepdim=True), weights_1)
assert near(product(weights_1, v_1), head_1)
assert near(product(both, w_o), both @ w_o)
assert [f"{w:.2f}" for w in weights_1[1]] == ["0.40", "0.30", "0.30"]

# %% [markdown]
# 乘过 $W^O$ 之后，每个词又是四个数，与开始时一样多。这些数下面都会看到。
#
# **要点**：每个头有自己的矩阵，所以各个头可以看不同的词。
#
# 在代码里，最好所有的头一次算完。所有头的 $W^Q$ 装在一个宽矩阵里，一次乘法就算出所有的查询，每个词四个数。接着要把它们切给两个头：先用 `view` 把每个词的四个数切成两对，再用 `transpose` 把各个词的第一对收进头 1，第二对收进头 2。
#
# ![上：view 把每个词切成两半，叠成一块，transpose 把各个词的前一半收进头 1，后一半收进头 2。下：只用 view，a 的全部和 cat 的一半进了头 1](../../images/split.svg)
#
# **图 12**　上：三个词，每个词四个数，变成两个头。下：一种错误的写法，即本页末尾的陷阱 1。
#
# 这样，每个头自成一个矩阵，一行对应一个词。PyTorch 一次调用就算出所有头的矩阵乘积，但彼此分开，所以各个头不会混在一起。
#
# 掩码可以对 T 个查询各有一行。填充对所有查询同样要遮住，所以那里一行就够了：注释里的 “1 or T” 就是这个意思。


# %%
class MultiHeadedAttention(nn.Module):
    """h attentions side by side: three linear maps before them, one after."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))  # W^Q, W^K, W^V, W^O

    def split(self, x):  # (B, length, d_model) -> (B, length, h, d_k) -> (B, h, length, d_k)
        return x.view(x.size(0), x.size(1), self.h, self.d_k).transpose(1, 2)

    def forward(self, query, key, value, mask=None):  # (B, T, d_model), two (B, S, d_model), (B, 1 or T, S)
        w_q, w_k, w_v, w_o = self.linears
        q, k, v = self.split(w_q(query)), self.split(w_k(key)), self.split(w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)  # the same for every head: (B, 1, 1 or T, S)
        heads, self.weights = attention(q, k, v, mask)  # (B, h, T, d_k), (B, h, T, S)
        joined = heads.transpose(1, 2).flatten(2)  # undo the split: (B, T, h, d_k) -> (B, T, d_model)
        return w_o(joined)


# %% [markdown]
# `nn.Linear` 还会加上偏置，不过我们的微型模型里偏置都是 0。给这个类装上微型模型的权重，它就算出图 11 中 *cat* 的那四个数，还有另外两个词的：

# %%
attend = MultiHeadedAttention(h=2, d_model=4).double()
print(attend.load_state_dict(tiny.encoder.layers[0].self_attn.state_dict()))
with torch.no_grad():
    attended = attend(x[None], x[None], x[None])[0]  # a batch of one sentence that looks at itself
show("multi-head attention", attended)

# %% tags=["check"]
assert torch.allclose(attended, both @ w_o)
assert torch.allclose(attend.weights[0], torch.stack([weights_1, weights_2]))

# %% [markdown]
# **运行之前，先猜一猜**：我们把三个向量的次序打乱，输出会怎样？

# %%
order = [2, 0, 1]
with torch.no_grad():
    shuffled = attend(x[order][None], x[order][None], x[order][None])[0]
show("output for the shuffled vectors", shuffled, rows=[words[i] for i in order])

# %% tags=["check"]
assert torch.allclose(shuffled, attended[order])

# %% [markdown]
# 得到的还是那几行，只是次序跟着打乱了。注意力看不见一个向量排在第几行。词的顺序，它只能从我们在打乱**之前**加到向量上的位置编码里得知。
#
# 详见 [03_multi_head_attention](../03_multi_head_attention.ipynb)。

# %% [markdown]
# ### 3.1 残差连接和层归一化
#
# > “[……]每个子层的输出是 LayerNorm(x + Sublayer(x))[……]。”
# >
# > "[...] the output of each sub-layer is LayerNorm(x + Sublayer(x)) [...]."
#
# 注意力的输出并不替换 $x$，而是**加**到 $x$ 上，这就是**残差连接**（residual connection）。一层只需学会要改什么，而梯度可以绕开子层（sub-layer），直接往回传。
#
# 一层层加下去，数会越来越大，所以每次相加之后都要做**层归一化**（layer normalization）。它对每个词的向量单独进行：减去各元素的平均值，再除以标准差，然后乘以学到的增益，加上学到的偏置。在我们的微型模型里，增益都是 1，偏置都是 0。
#
# ![cat 的向量 (0.84, 1.74, 0.81, 0.60) 从注意力旁边直接通过，注意力找到的 (−0.28, 0.05, 0.04, 0.30) 加到它上面，得 (0.56, 1.79, 0.85, 0.90)。平均值是 1.03，标准差是 0.46；归一化之后是 (−1.01, 1.66, −0.38, −0.28)，平均值为 0，标准差为 1。](../../images/cat_residual.svg)
#
# **图 13**　*cat* 的向量从注意力旁边直接通过，注意力找到的内容再加到它上面。右边把四个数画在直线上，竖线是平均值 μ，黄色是它两侧各一个标准差 σ。


# %%
class AddNorm(nn.Module):
    """What surrounds each sub-layer: dropout, residual connection, layer normalization."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, output):  # x, and what the sub-layer made of it: both (B, length, d_model)
        return self.norm(x + self.dropout(output))


# %%
added = x + attended
normed = (added - added.mean(dim=-1, keepdim=True)) / added.std(dim=-1, keepdim=True, correction=0)
show("x + attention", added)
show("normalized: each row has mean 0 and variance 1", normed)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(AddNorm(4, 0.0).double()(x, attended), normed, atol=1e-4)
assert near(x + attended, added)
assert near(normalize(added), normed)

# %% [markdown]
# **要点**：子层不替换词的向量，而是往上加；归一化让加出来的数不会越来越大。
#
# 详见 [06_the_full_model](../06_the_full_model.ipynb)。

# %% [markdown]
# ### 3.3 逐位置的前馈网络
#
# > “[……]一个全连接的前馈网络，分别作用于每个位置，作用的方式完全相同。”
# >
# > "[...] a fully connected feed-forward network, which is applied to each position separately and identically."
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2 \qquad (2)$$
#
# 注意力在词与词之间传递信息，**前馈网络**（feed-forward network）则单独加工每个词。它把向量变宽（从 512 个数到 $d_{ff} = 2048$ 个），把负数都置为 0，再恢复原来的宽度。把负数置为 0 的做法称为 **ReLU**。没有它，两层就合成了一层，矩阵为 $W_1 W_2$。
#
# ![cat 的向量 (−1.01, 1.66, −0.38, −0.28) 变成八个数 (−0.37, 0.26, −0.69, 0.68, −1.27, 0.38, −0.22, 0.77)。ReLU 把负数置为 0，其余四个数变成 (−1.42, −0.47, 0.33, 0.26)。](../../images/cat_network.svg)
#
# **图 14**　四个数变成八个，负数被拦下，剩下的再变成四个。


# %%
class FeedForward(nn.Module):
    """Equation 2, the same at every position."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)

    def forward(self, x):  # (B, length, d_model) -> (B, length, d_model)
        return self.w_2(self.w_1(x).relu())


# %%
network = tiny.encoder.layers[0].feed_forward
w_1, w_2 = network.w_1.weight.T.detach(), network.w_2.weight.T.detach()
inner = (normed @ w_1).relu()  # (3, 4) @ (4, 8) -> (3, 8)
memory = nn.functional.layer_norm(normed + inner @ w_2, (4,))
show("inside, after the ReLU", inner)
show("output", inner @ w_2)
show("added and normalized: the memory", memory)

# %% tags=["check"]
with torch.no_grad():
    assert torch.allclose(memory, tiny.encode(english[2:3], None)[0], atol=1e-4)
assert near(product(normed, w_1).clamp(min=0), inner)
assert near(product(inner, w_2), inner @ w_2)
assert near(normalize(normed + product(inner, w_2)), memory, within=0.05)

# %% [markdown]
# 详见 [04_feed_forward_and_embeddings](../04_feed_forward_and_embeddings.ipynb)。

# %% [markdown]
# ### 3.1 编码器
#
# 编码器层的每一步你都已经看过了。下面是它的代码，接着再把 N 层叠起来：


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network (Figure 3, left)."""

    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(AddNorm(d_model, dropout) for _ in range(2))

    def forward(self, x, mask):  # (B, S, d_model) -> (B, S, d_model)
        x = self.sublayer[0](x, self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward(x))


class Encoder(nn.Module):
    """N encoder layers, each with weights of its own."""

    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, mask):  # (B, S, d_model) -> the memory (B, S, d_model)
        for layer in self.layers:
            x = layer(x, mask)
        return x


# %% [markdown]
# ### 3.1 解码器
#
# > “除了编码器层也有的两个子层，解码器还插入了第三个子层，对整个编码器的输出做多头注意力。”
# >
# > "In addition to the two sub-layers in each encoder layer, the decoder inserts a third sub-layer, which performs multi-head attention over the output of the encoder stack."
#
# 解码器层由同样的部件组成，但有三个子层。首先，德语单词互相看。然后，它们去看英语单词：查询来自德语的向量，键和值来自记忆。这称为**交叉注意力**（cross-attention），本页的图 1 画的就是它。最后是前馈网络。


# %%
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, feed-forward (Figure 3, right)."""

    def __init__(self, d_model, d_ff, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.src_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(AddNorm(d_model, dropout) for _ in range(3))

    def forward(self, x, memory, src_mask, tgt_mask):  # x (B, T, d_model), memory (B, S, d_model)
        x = self.sublayer[0](x, self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward(x))


# %%
class Decoder(nn.Module):
    """N decoder layers, each with weights of its own."""

    def __init__(self, N, d_model, d_ff, h, dropout):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, d_ff, h, dropout) for _ in range(N))

    def forward(self, x, memory, src_mask, tgt_mask):  # (B, T, d_model) -> (B, T, d_model)
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return x


# %% [markdown]
# ### 3.2.3 解码器的掩码
#
# 训练时，整个德语句子都是已知的，我们想让其中所有的词同时参与训练。所以，解码器读入 `<s> eine Katze rennt`，在每个位置上都要预测下一个词：`eine Katze rennt </s>`。
#
# ![训练时，解码器读入 start、eine、Katze、rennt，在这四个位置上同时预测 eine、Katze、rennt、end。一个箭头从 start 处要预测的 eine 指向下一个位置读入的 eine：同一个词，晚一个位置。](../../images/cat_shift.svg)
#
# **图 15**　上面是解码器（decoder）读入的，下面是它要预测的；色带连着两个 eine：第一个位置要预测的，就是第二个位置读入的。
#
# 所以，在 `eine` 的位置上，解码器往后看一位就能看到 *Katze*，照抄就行。**因果掩码**（causal mask）不让它这样做。每个位置可以看自己和它前面的内容，但绝不能看后面的。
#
# > “我们必须防止信息在解码器中向左流动，以保持自回归的性质。”
# >
# > "We need to prevent leftward information flow in the decoder to preserve the auto-regressive property."


# %%
def causal_mask(size):
    """bool (1, size, size): row i is True up to column i."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


print(causal_mask(4)[0].int())

# %% [markdown]
# **要点**：有了因果掩码，所有位置可以同时训练，因为哪个位置都看不到自己的答案。

# %% [markdown]
# ### 解码器中的 *a cat runs*
#
# 现在，每一行对应一个位置，行首是在那里读入的德语词元。例如，`eine` 这一行要预测 *eine* 后面的词。德语词元的向量与英语词元的取自同一张表。步骤与编码器相同，权重则是解码器自己的，放在 `layer` 里。

# %%
german_read = ["<s>", "eine", "Katze", "rennt"]
layer = DecoderLayer(d_model=4, d_ff=8, h=2, dropout=0.0).double().requires_grad_(False)
print(layer.load_state_dict(tiny.decoder.layers[0].state_dict()))
y = (table[read[2]] * 2 + sinusoids(4, 4))[None]  # (1, 4, 4): one sentence, four tokens, four numbers
show("y, what enters the decoder", y[0], german_read)

# %% [markdown]
# 训练使德语的向量比英语的长得多。这些向量变回单词的时候，你会看到原因。
#
# **第一个子层**：德语单词互相看，后面的词被掩码遮住：

# %%
found = layer.self_attn(y, y, y, causal_mask(4))
y_1 = layer.sublayer[0](y, found)
looks = layer.self_attn.weights[0]  # (2, 4, 4): two heads, four tokens look at four
show("weights of head 2", looks[1], german_read, columns=german_read)
show("added to y and normalized", y_1[0], german_read)

# %% tags=["check"]
assert (looks.triu(diagonal=1) == 0).all()
assert looks.max(dim=-1).values.min() > 0.94  # one token at a time
_ = torch.manual_seed(4)
start = make_model(16, 16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0, tied_embeddings="all").double()
untrained = DecoderLayer(d_model=4, d_ff=8, h=2, dropout=0.0).double()
_ = untrained.load_state_dict(start.decoder.layers[0].state_dict())
_ = untrained.self_attn(*[start.tgt_embed(read[2:3])] * 3, causal_mask(4))
assert untrained.self_attn.weights[0, :, 1:].max() < 0.7


def by_hand(attend, queries, keys, mask):
    """Two heads of width 2, from the matrices alone."""
    w_q, w_k, w_v, w_o = (linear.weight.T for linear in attend.linears)
    heads = []
    for columns in (slice(0, 2), slice(2, 4)):
        scores = (queries @ w_q[:, columns]) @ (keys @ w_k[:, columns]).T / math.sqrt(2)
        weights = scores.exp() * mask / (scores.exp() * mask).sum(dim=-1, keepdim=True)
        heads.append(weights @ (keys @ w_v[:, columns]))
    return torch.cat(heads, dim=-1) @ w_o


assert torch.allclose(found[0], by_hand(layer.self_attn, y[0], y[0], torch.ones(4, 4).tril()), atol=1e-4)
assert near(normalize(y[0] + found[0]), y_1[0])

# %% [markdown]
# ![每一行是解码器读入的一个词元，每一列是一个可以被看的词元。start 行：1.00。eine 行：0.00, 1.00。Katze 行：0.95, 0.05, 0.00。rennt 行：0.00, 0.00, 0.00, 1.00。对角线右边的格子都关上了。](../../images/cat_causal.svg)
#
# **图 16**　头 2 里谁看谁。灰色的格子被掩码关上了，每一行的横条加起来是 1。右边是这一行要预测的词元。
#
# 对角线上方的 0 来自掩码。其他的 0 是学到的：每个词元几乎只看一个词元，多半是自己。（*Katze* 为什么偏偏看 `<s>`，我们不知道。）这个 softmax 也饱和了，不过是在训练**结束**时，那时已经没有多少可学的了。训练之前，它的权重都不超过 0.7，只有第一行除外，因为那里只有一个词元可看。
#
# **第二个子层**：德语单词通过记忆去看英语单词。
#
# **运行之前，先猜一猜**：`<s>` 这一行要预测 *eine*。为此，解码器需要哪些英语单词？

# %%
found = layer.src_attn(y_1, memory[None], memory[None], None)
y_2 = layer.sublayer[1](y_1, found)
across = layer.src_attn.weights[0]  # (2, 4, 3): two heads, four German tokens look at three English ones
for head in (0, 1):
    show(f"weights of head {head + 1}", across[head], german_read, columns=words)
show("added and normalized", y_2[0], german_read)

# %% tags=["check"]
assert across[1, 0, 1] > 0.95
assert across[0, 0, 0] > across[0, 0, 1] > 0.4
assert across[:, 2, 2].min() > 0.8
assert across[:, 1].argmax(dim=-1).tolist() == [1, 1]
assert torch.allclose(found[0], by_hand(layer.src_attn, y_1[0], memory, torch.ones(4, 3)), atol=1e-4)
assert near(normalize(y_1[0] + found[0]), y_2[0])

# %% [markdown]
# ![在句子开头，解码器看英语单词：头 1 看 a 0.57，cat 0.42，runs 0.01，头 2 看 a 0.02，cat 0.98，runs 0.00。解码器的其余部分由此得出第一个词：eine 0.66，ein 0.31。cat 的德语 Katze 是阴性名词，要用 eine。](../../images/cat_cross.svg)
#
# **图 17**　写第一个词时，两个头各看哪里，模型又会由此写出什么。
#
# 冠词取决于两个词：如果 *a* 换成 *the*，就是 *die*；如果 *cat* 换成 *dog*，就是 *ein*。在 `<s>` 这一行，头 1 把注意力分给 *a* 和 *cat*，头 2 看 *cat*。解码器真的两个词都要看吗？等我们能把向量变成单词，就来试一试。
#
# 在 `eine` 这一行，两个头都主要看 *cat*，以便写出 *Katze*。在 `Katze` 这一行，两个头都看 *runs*，以便写出 *rennt*。`rennt` 这一行仍然主要看 *runs*，尽管已经没有什么可译：它的下一个词元是 `</s>`。这就是图 1 的缩影。
#
# **第三个子层**：前馈网络单独处理每一行：

# %%
found = layer.feed_forward(y_2)
states = layer.sublayer[2](y_2, found)[0]  # (4, 4)
show("added and normalized: what leaves the decoder", states, german_read)

# %% tags=["check"]
w_in, w_out = layer.feed_forward.w_1.weight.T, layer.feed_forward.w_2.weight.T
assert torch.allclose(found[0], (y_2[0] @ w_in).clamp(min=0) @ w_out)
assert near(normalize(y_2[0] + found[0]), states)
assert torch.allclose(states, layer(y, memory[None], None, causal_mask(4))[0])
with torch.no_grad():
    theirs = tiny.decode(tiny.encode(english[2:3], None), None, read[2:3], causal_mask(4))[0]
assert torch.allclose(states, theirs, atol=1e-3)

# %% [markdown]
# 详见 [13_reading_attention](../13_reading_attention.ipynb)。

# %% [markdown]
# ### 3.4 从向量到单词
#
# > “在我们的模型中，两个嵌入层和 softmax 之前的线性变换共用同一个权重矩阵[……]。”
# >
# > "In our model, we share the same weight matrix between the two embedding layers and the pre-softmax linear transformation [...]."
#
# 解码器输出的每一行，都用点积与嵌入表的每一行作比较。结果称为 **logit**，词表中的每个词元各有一个，softmax 再把它们变成概率。所以，同一张表用在三处：英语词元、德语词元和输出。这就是**权重共享**（weight tying）。
#
# ![解码器输出的向量 (0.15, 0.40, 1.08, −1.63) 与嵌入表的各行作比较。logit 是 ein 7.13，eine 7.88，der 4.19，die 0.85，Katze 1.18，rennt −4.29，end −4.86；softmax 把它们变成概率：ein 0.31，eine 0.66，der 0.02，die 0.00，Katze 0.00，rennt 0.00，end 0.00。](../../images/cat_logits.svg)
#
# **图 18**　start 那一行的向量与七个词元的行作比较。（另外九个词元的概率都小于 0.01。）
#
# 现在可以看出，德语单词那几行为什么长。解码器输出的向量经过归一化，四个数的平方的平均值是 1，所以长度是 $\sqrt 4 = 2$，它与长度为 1 的行的点积只能在 −2 和 2 之间。logit 只有这么大，哪个词元也得不到绝大部分的概率。所以，训练把德语词元的行拉长到 4 左右，而英语词元的行都不超过 1.1。
#
# `Generator` 这个类返回的是概率的**对数**，因为损失要用对数来算，下面就会看到。


# %%
class Generator(nn.Module):
    """Logits, then the logarithm of their softmax."""

    def __init__(self, d_model, vocab):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)

    def forward(self, x):  # (B, T, d_model) -> log-probabilities (B, T, vocab)
        return self.proj(x).log_softmax(dim=-1)


# %%
logits = states @ table.T  # (4, 4) @ (4, 16) -> (4, 16)
probabilities = logits.softmax(dim=-1)
some = ["ein", "eine", "der", "die", "Katze", "rennt", "</s>"]
show("probabilities", probabilities[:, [number[w] for w in some]], german_read, columns=some)

# %% tags=["check"]
assert near(product(states, table.T), logits, within=0.06)
lengths = {word: table[i].norm().item() for word, i in number.items()}
assert torch.allclose(states.norm(dim=-1), torch.full((4,), 2.0).double(), atol=1e-3)
assert max(lengths[word] for source, _ in pairs for word in source) < 1.1
assert all(3.7 < lengths[word] < 4.4 for _, target in pairs for word in target)
assert probabilities.argmax(dim=-1).tolist() == write[2].tolist()
assert 0.6 < probabilities[0, number["eine"]] < 0.7
assert probabilities[1:].max(dim=-1).values.min() > 0.9
assert probabilities[0, [i for i, word in enumerate(vocab) if word not in some]].max() < 0.01

# %% [markdown]
# 每个位置模型都答对了。它最没把握的是冠词：给 *eine* 的概率约为三分之二，给 *ein* 的约为三分之一。
#
# 写冠词要看哪些英语单词？我们可以把它们逐个藏起来，不让交叉注意力看见。
#
# **运行之前，先猜一猜**：编码器仍然读入全部三个词。如果解码器不许看 *a*，它还会写 *eine* 吗？不许看 *cat* 呢？再用以 *ein* 开头的 *a dog runs* 问同样的问题。

# %%
articles_of = [number[word] for word in some[:4]]  # ein, eine, der, die
hiding = {}
for source in (["a", "cat", "runs"], ["a", "dog", "runs"]):
    with torch.no_grad():
        encoded = tiny.encode(torch.tensor([[number[word] for word in source]]), None)  # (1, 3, 4)
    for hidden in ("nothing", *source):
        may_look = torch.tensor([[[word != hidden for word in source]]])  # (1, 1, 3): for cross-attention
        instead = layer(y, encoded, may_look, causal_mask(4))[0]
        hiding[source[1], hidden] = (instead @ table.T).softmax(dim=-1)[0, articles_of]  # the row <s>
    found = torch.stack([hiding[source[1], hidden] for hidden in ("nothing", *source)])
    show(" ".join(source) + ": what is hidden", found, rows=["nothing", *source], columns=some[:4])

# %% tags=["check"]
assert torch.allclose(hiding["cat", "nothing"], probabilities[0, articles_of], atol=1e-3)
assert hiding["cat", "a"][1] > hiding["cat", "nothing"][1] + 0.1  # eine, although a is hidden
assert hiding["cat", "cat"][0] > 0.9  # ein
assert hiding["dog", "a"].argmax() == 2  # der
for noun, unneeded in (("cat", "runs"), ("dog", "dog"), ("dog", "runs")):
    assert (hiding[noun, unneeded] - hiding[noun, "nothing"]).abs().max() < 0.02


@torch.no_grad()
def article(head):
    """The article of *a cat runs*, a hidden, if a head of the encoder reads *the* in the place of *a*."""
    part, kept = slice(2 * head - 2, 2 * head), {}

    def exchange(linear, _, out):
        if linear in kept:
            out[:, 0, part] = kept[linear][:, 0, part]
        kept[linear] = out.clone()

    linears = tiny.encoder.layers[0].self_attn.linears[1:3]  # of keys and values
    hooks = [linear.register_forward_hook(exchange) for linear in linears]
    for first in ("the", "a"):
        encoded = tiny.encode(torch.tensor([[number[first], number["cat"], number["runs"]]]), None)
    for hook in hooks:
        hook.remove()
    instead = layer(y, encoded, torch.tensor([[[False, True, True]]]), causal_mask(4))[0]
    return (instead @ table.T).softmax(dim=-1)[0, articles_of]


assert abs(article(2)[1] - 0.77) < 0.01  # eine
assert abs(article(1)[3] - 0.97) < 0.01  # die

# %% [markdown]
# ![解码器能看哪些词，决定了冠词：什么都不藏，eine 0.66，ein 0.31；藏起 a，eine 0.80，ein 0.00；藏起 cat，eine 0.01，ein 0.95；藏起 runs，eine 0.67，ein 0.31。](../../images/cat_hidden.svg)
#
# **图 19**　翻译 a cat runs，解码器看不到某一个词时，eine 和 ein 的概率。
#
# 藏起 *a*，模型仍然写 *eine*，而且比原来更有把握：概率从 0.66 升到 0.80。解码器不必看 *a*，因为 *cat* 的向量里已经含有它。是编码器的哪个头把它放进去的？不是头 2，虽然在头 2 里 *cat* 给 *a* 的权重更大：让头 2 把 *a* 读成 *the*，*eine* 仍有 0.77；让头 1 这样读，*die* 就得到 0.97。藏起 *cat*，模型写的是 *ein*。所以，权重大并不表示那个词非有不可：在 `<s>` 这一行，头 1 看 *a*，而解码器没有它也行。
#
# 对 *a dog runs* 来说，情况正好相反。藏起 *a*，模型写 *der*，就像见到了 *the*；藏起 *dog*，什么都不变。看来，模型见到 *a* 习惯写 *ein*，只有 *cat* 的向量才让它改写 *eine*。两个句子，两个答案：想知道模型需要什么，就得把它藏起来试一试。
#
# **损失**（loss）衡量模型错得有多厉害。对于一个词元，损失是 $-\log p$，其中 $p$ 是模型给正确词元的概率。（本系列中的 $\log$ 都是自然对数，即计算器上的 `ln`。）句子的损失是它各个词元的损失的平均值。如果模型给每个正确词元的概率都是 1，损失就是 0。
#
# ![正确词元的概率是 eine 0.66，Katze 0.96，rennt 0.98，end 0.98。它们的损失是概率的负对数：eine 0.41，Katze 0.04，rennt 0.02，end 0.02；平均值是 0.12。](../../images/cat_loss.svg)
#
# **图 20**　上面是正确词元的概率，下面是它们的损失，横线是平均值。

# %%
p = probabilities[range(4), write[2]]
print("losses", [f"{loss:.2f}" for loss in -p.log()], f"mean {-p.log().mean():.2f}")

# %% tags=["check"]
assert p.argmin() == 0  # the article
assert torch.allclose(logits.exp()[0] / logits.exp()[0].sum(), probabilities[0])

assert f"{tiny_losses().mean():.2f}" == "0.06"
assert (tiny_losses()[2].mean() > tiny_losses().mean(dim=1)).sum() > 4  # harder than most

# %% [markdown]
# 冠词的损失最大，因为模型对它最没把握。全部八个句子的平均损失是 0.06。
#
# ### 模型搭好了
#
# 训练之前，要先给权重赋值。矩阵取随机数，随机数的大小要合适，使向量一层层传下去既不会明显变大，也不会明显变小（**Xavier** 初始化）。偏置取 0。


# %%
def initialize(module):
    """Set the weights of one part of the model before training."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


# %% [markdown]
# 下面就是整个模型。共享的那张表里，数一开始都很小，原因见陷阱 4。


# %%
class Transformer(nn.Module):
    """The paper's Figure 1."""

    def __init__(self, vocab, N=6, d_model=512, d_ff=2048, h=8, dropout=0.1):
        super().__init__()
        self.src_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.encoder = Encoder(N, d_model, d_ff, h, dropout)
        self.decoder = Decoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)
        self.apply(initialize)  # to every part of the model
        table = self.src_embed[0].lut.weight
        nn.init.normal_(table, std=d_model**-0.5)
        self.tgt_embed[0].lut.weight = table
        self.generator.proj.weight = table

    def encode(self, src, src_mask):  # tokens (B, S) -> memory (B, S, d_model)
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory, src_mask, tgt, tgt_mask):  # tokens (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask))

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


# %% [markdown]
# 它算出来的，跟我们一步步算出来的一样吗？我们把微型模型的权重按名字逐一装进去：

# %%
ours = Transformer(vocab=16, N=1, d_model=4, d_ff=8, h=2, dropout=0.0).double()
print(ours.load_state_dict(tiny.state_dict()))
with torch.no_grad():
    log_probs = ours(english[2:3], read[2:3], None, causal_mask(4))[0]  # (4, 16)
print("equal to the result step by step:", torch.allclose(log_probs.exp(), probabilities, atol=1e-3))

# %% tags=["check"]
assert torch.allclose(log_probs.exp(), probabilities, atol=1e-3)
_ = torch.manual_seed(0)
fresh = Transformer(vocab=100, N=1, d_model=64, d_ff=128, h=4)
package = make_model(100, 100, N=1, d_model=64, d_ff=128, h=4, tied_embeddings="all").state_dict()
for name, start in fresh.state_dict().items():
    assert package[name].shape == start.shape
    if "attn.linears" not in name:  # the package sizes W^Q, W^K and W^V as nn.MultiheadAttention does
        assert abs(package[name].std() - start.std()) <= 0.1 * start.std() + 1e-6, name

# %% [markdown]
# ### 一次写一个词
#
# > “模型的每一步都是自回归的：生成下一个符号时，把先前生成的符号作为额外的输入。”
# >
# > "At each step the model is auto-regressive, consuming the previously generated symbols as additional input when generating the next."
#
# 模型写一个词，再把它读进来，然后写下一个。
#
# ![编码器读入 a cat runs 一次，然后解码器运行四次。每一步它读入 start 和已经写出的全部内容，写出一个词元，概率是：eine 0.66，Katze 0.96，rennt 0.98，end 0.98。](../../images/cat_decoding.svg)
#
# **图 21**　编码器（encoder）只运行一次，解码器每写一个词运行一次。图中的数是它写出的词的概率。
#
# 每次都取最可能的词元，称为**贪心解码**（greedy decoding）：


# %%
@torch.no_grad()
def greedy(model, src, src_mask, start, end, max_len, never=()):
    """Translate tokens (B, S) -> (B, up to max_len). Tokens in `never`, such as padding, are not written."""
    memory = model.encode(src, src_mask)  # once
    tgt = torch.full((len(src), 1), start)
    for _ in range(max_len):
        log_probs = model.decode(memory, src_mask, tgt, causal_mask(tgt.size(1)))  # (B, T, vocab)
        last = log_probs[:, -1]  # only the last position predicts a new token
        last[:, list(never)] = -math.inf
        tgt = torch.cat([tgt, last.argmax(dim=-1, keepdim=True)], dim=1)  # (B, T + 1)
        if (tgt == end).any(dim=1).all():
            break
    return tgt[:, 1:]


# %%
for sentence_tokens, (source, _) in zip(english, pairs, strict=True):
    [out] = greedy(ours, sentence_tokens[None], None, number["<s>"], number["</s>"], max_len=6)
    print(f"{' '.join(source):18} {' '.join(vocab[token] for token in out)}")

# %% tags=["check"]
out = greedy(ours, english, None, number["<s>"], number["</s>"], max_len=6)
assert torch.equal(out, write)

# %% [markdown]
# 八句全对。每一步，解码器都把所有位置重新计算一遍，其实只有最后一个位置是新的。用缓存可以省去这些计算，详见 [11_search](../11_search.ipynb)。

# %% [markdown]
# ### 它真的能翻译
#
# 本页开头的翻译器就是这个模型，只是更大：四层，$d_{model} = 128$，10,000 个子词（subword）。它的权重可以直接装进你刚刚读过的类里。

# %%
model = Transformer(vocab=10_000, N=4, d_model=128, d_ff=256, h=4, dropout=0.3)
print(model.load_state_dict(translator.model.state_dict()))
_ = model.eval()  # no dropout

# %% [markdown]
# 五十个句子一次处理。较短的用**填充**词元补齐，再用源掩码把填充遮住。`translator.forbidden` 列出了不许写出的词元，例如填充。

# %% tags=["scaffold"]
tokenizer = translator.src_tokenizer  # text to tokens and back, for both languages


def padded(texts):
    """The tokens of each text and the end token, padded to one length: (texts, tokens)."""
    rows = [torch.tensor([*tokenizer.encode(text), tokenizer.end]) for text in texts]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.pad)


who = ["A man", "A little girl", "A young woman", "A brown dog", "An old lady in a red dress"]
what = ["runs across the grass", "sits on a bench", "plays in the snow", "jumps into the water", "is smiling"]
sentences = [f"{a} {b}{end}" for a in who for b in what for end in (".", " in the rain.")]  # 50

# %%
src = padded(sentences)  # (50, S)
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (50, 1, S)
out = greedy(model, src, src_mask, tokenizer.start, tokenizer.end, 60, never=translator.forbidden)
translations = [tokenizer.decode(row[: row.index(tokenizer.end)]) for row in out.tolist()]
for text, translation in list(zip(sentences, translations, strict=True))[::11]:
    print(f"{text:45} {translation}")
packages = translator.translate(sentences, beam=1)
equal = sum(a == b for a, b in zip(translations, packages, strict=True))
print(f"equal to the package's greedy translations: {equal} of {len(sentences)}")

# %% tags=["check"]
assert equal == len(sentences) == 50

# %% [markdown]
# 这是一个能用的翻译器，而它的模型，每一行你都读过了。
#
# *第一次读到这里为止。第二次大约需要二十分钟。*

# %% [markdown]
# ## 4 为什么用自注意力
#
# | 层 | 计算量 | 必须依次进行的步数 | 两个词之间的最长路径 |
# | --- | --- | --- | --- |
# | 自注意力 | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | 循环 | $O(n d^2)$ | $O(n)$ | $O(n)$ |
#
# 论文表 1 中的两行，其中 $n$ 是词元数，$d$ 是宽度。
#
# 计算量是怎么来的？自注意力拿 $n$ 个词中的每一个与 $n$ 个词逐一比较，一次比较是 $d$ 个数的点积，合计 $n^2 d$。RNN 在 $n$ 个词的每一个上，都用一个 $d \times d$ 的矩阵乘一个向量，合计 $n d^2$。
#
# 后两列就是 RNN 的两个代价：时间和距离。用了自注意力，距离不再是问题。训练时也不必再等待；但翻译时，解码器仍然要一个词一个词地写。自注意力的代价是“计算量”一列里的 $n^2$。对 25 个词的句子来说，这几乎不算什么；对一本书来说，这就是最大的难题。

# %% [markdown]
# ## 5 训练
#
# ### 5.1 训练数据和分批，5.2 硬件
#
# > “句子用字节对编码来编码，源语言和目标语言共用一个词表，约有 37000 个词元。”
# >
# > "Sentences were encoded using byte-pair encoding, which has a shared source-target vocabulary of about 37000 tokens."
#
# **字节对编码**（byte-pair encoding, BPE）的词表由单词的片段组成：常见的词保持完整，罕见的词由片段拼成。作者用 450 万个句对训练，基础模型（base）在八块 GPU 上训练了 12 小时。
#
# 训练用的句对，你已经见过一个：解码器读入 `<s> eine Katze rennt`，预测 `eine Katze rennt </s>`。两者是同一个句子，只是**错开一位**。解码器读入的总是正确的词，哪怕它自己会写成别的词。这称为**教师强制**（teacher forcing）。几个句子组成一批时还有填充，所以解码器的掩码要把因果掩码**和**填充掩码合在一起：

# %%
src = padded(["A cat runs.", "A cat sleeps on a chair."])  # (2, S)
tgt_y = padded(["Eine Katze rennt.", "Eine Katze schläft auf einem Stuhl."])  # (2, T), to be predicted
tgt = torch.cat([torch.full((2, 1), tokenizer.start), tgt_y[:, :-1]], dim=1)  # (2, T), read
src_mask = (src != tokenizer.pad).unsqueeze(1)  # (2, 1, S)
tgt_mask = (tgt != tokenizer.pad).unsqueeze(1) & causal_mask(tgt.size(1))  # (2, T, T)
pieces = tokenizer.pieces(tgt[0].tolist())
show("mask of the shorter sentence", tgt_mask[0].int(), rows=pieces, columns=pieces, digits=0)

# %% tags=["check"]
length = (tgt[0] != tokenizer.pad).sum()
assert not tgt_mask[0, :, length:].any()
assert torch.equal(tgt_mask[1], causal_mask(tgt.size(1))[0])

# %% [markdown]
# `<blank>` 那几列是填充，在每一行都被遮住。因为两个句子同在一批，解码器还会读到较短句子的 `</s>`。在那里已经没有什么要预测，所以损失既不计这个位置，也不计填充。
#
# 详见 [07_batches_and_masks](../07_batches_and_masks.ipynb)。

# %% [markdown]
# ### 5.3 优化器
#
# 优化器是 Adam，取 $\beta_1 = 0.9$、$\beta_2 = 0.98$、$\epsilon = 10^{-9}$。学习率随着训练的进程变化：
#
# $$lrate = d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5}) \qquad (3)$$
#
# 在最初的 *warmup* 步里，学习率直线上升，然后按 $1 / \sqrt{step}$ 下降。


# %%
def rate(step, d_model, warmup):
    """Equation 3; steps count from 1, and step 0 has the rate of step 1."""
    step = max(step, 1)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


for step in (1_000, 4_000, 16_000, 100_000):
    print(f"step {step:6}: learning rate {rate(step, d_model=512, warmup=4_000):.6f}")

# %% tags=["check"]
training_steps = range(1, 20_001)
assert max(training_steps, key=lambda s: rate(s, 512, 4000)) == 4000
assert abs(rate(16_000, 512, 4000) / rate(4000, 512, 4000) - 1 / 2) < 1e-9

# %% [markdown]
# 这种缓慢的起步称为**预热**（warm-up）。没有预热，最初的更新就会过大，模型可能再也恢复不过来。
#
# 详见 [08_training_recipe](../08_training_recipe.ipynb)。

# %% [markdown]
# ### 5.4 正则化
#
# **正则化**（regularization）让模型更难死记硬背训练数据。
#
# **dropout**（暂退法）：训练时，子层输出的每个数以 0.1 的概率变成 0，其余的数除以 0.9。嵌入与位置编码之和也这样处理。这样，网络就不能依赖任何单个的数。模型翻译时，dropout 是关闭的。
#
# **标签平滑**（label smoothing）：普通的损失要求正确词元的概率为 1。平滑的损失只要求 0.9，另外 0.1 分摊给其他所有词元，所以过分自信对模型没有好处。论文说，这样做“会损害困惑度，因为模型学会了更加不确定，但提高了准确率和 BLEU 分数”（hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score）。BLEU 见第 6 节，困惑度见[第 08 课](../08_training_recipe.ipynb)。


# %%
def smoothed_loss(log_probs, target, smoothing=0.1):
    """(..., vocab) and the right tokens (...) -> a loss per token."""
    right = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)  # (...)
    others = (log_probs.sum(dim=-1) - right) / (log_probs.size(-1) - 1)  # mean over the other tokens
    return -(1 - smoothing) * right - smoothing * others


# %% tags=["check"]
with torch.no_grad():
    per_token = smoothed_loss(model(src, tgt, src_mask, tgt_mask), tgt_y)  # (2, T)
real = tgt_y != tokenizer.pad
assert 0.3 < per_token[real].mean() < 6
with torch.no_grad():
    n, m = (src[0] != tokenizer.pad).sum(), real[0].sum()
    alone = smoothed_loss(model(src[:1, :n], tgt[:1, :m], None, causal_mask(m)), tgt_y[:1, :m])
assert torch.allclose(alone[0], per_token[0, :m], atol=1e-3)  # padding changes nothing

# %% [markdown]
# ### 微型模型是怎样学会的
#
# 微型模型也是用 Adam 训练的，只是学习率始终是 0.03，没有 dropout，也没有标签平滑。下图是它在训练之前，以及更新 17、42、115 和 200 次之后的样子：
#
# ![微型模型怎样学会。更新 0 次：损失 2.92，eine 0.04，ein 0.05；cat 主要看 cat，模型写出 cat cat cat cat cat cat。更新 17 次：损失 1.25，eine 0.21，ein 0.18；cat 主要看 runs，模型写出 Hund rennt。更新 42 次：损失 0.54，eine 0.37，ein 0.19；cat 主要看 runs，模型写出 eine Katze rennt。更新 115 次：损失 0.07，eine 0.88，ein 0.05；cat 主要看 a，模型写出 eine Katze rennt。更新 200 次：损失 0.02，eine 0.96，ein 0.01；cat 主要看 a，模型写出 eine Katze rennt。](../../images/cat_learning.svg)
#
# **图 22**　从上到下：损失；头 2 里 cat 看哪里；cat 经过编码器之后的向量；eine 和 ein 作为第一个词的概率（粗体：在所有词中可能性最大）；模型写出的词（粗体的是对的）。
#
# 起初，模型写的不成句子。从第 17 次更新起，*eine* 胜过 *ein*。从第 42 次更新起，*a cat runs* 译对了；从第 68 次更新起，八个句子全部译对。第二个头学得慢一些：直到第 115 次更新，*cat* 才主要看 *a*。可见模型先译对了句子，注意力后来才变成你所看到的样子。
#
# 下一个单元格展示全部 200 次更新。点“播放”，或者拖动滑块；点击一个数，可以看到它是由哪些数算出来的。
#
# **运行之前，先猜一猜**：八个句子里，模型最后学会的是哪一个？

# %%
from annotated.plots import watch_learning

watch_learning(past, vocab, [*pairs[2:], *pairs[:2]])

# %% tags=["check"]
from annotated import capture_attention

chances, looks = [], []
for old in past:
    with torch.no_grad(), capture_attention(old) as maps:
        chances.append(old.generator(old(english, read, None, causal_mask(4))).exp())  # (8, 4, 16)
    looks.append(maps["encoder", 0][2, 1, 1])  # of cat in head 2: (3,)
chances = torch.stack(chances)
right = (chances.argmax(dim=-1) == write).all(dim=-1)  # (201, 8)
eine, ein = (chances[:, 2, 0, number[word]] for word in ("eine", "ein"))
from_then_on = {
    17: eine > ein,
    42: right[:, 2],
    68: right.all(dim=1),
    115: torch.stack(looks).argmax(dim=-1) == 0,
}
for update, holds in from_then_on.items():
    assert holds[update:].all()
    assert not holds[update - 1]
assert [pairs[i][0][:2] for i in (~right[67]).nonzero()] == [["the", "dog"]] * 2
assert [f"{p:.2f}" for p in (eine[-1], probabilities[0, number["eine"]])] == ["0.96", "0.66"]

# %% [markdown]
# 最后学会的是两个含 *the dog* 的句子。训练结束之后，我们把权重舍入到一位小数，代价也看得到：*eine* 从 0.96 降到了你算过的 0.66。

# %% [markdown]
# ### 它在学习
#
# 检验一个新模型，最小的测试是**复制任务**（copy task）：读入八个随机数，再写出同样的八个数。我们训练一个新模型，更新 400 次，损失和学习率都用上面的：

# %%
_ = torch.manual_seed(1)
copier = Transformer(vocab=11, N=2, d_model=32, d_ff=64, h=2, dropout=0.0)
adam = torch.optim.Adam(copier.parameters(), betas=(0.9, 0.98), eps=1e-9)  # as in section 5.3
losses = []
for step in range(1, 401):
    digits = torch.randint(1, 11, (64, 8))  # numbers from 1 to 10
    start = torch.zeros(64, 1, dtype=torch.long)  # 0 is the start token
    reads = torch.cat([start, digits[:, :-1]], dim=1)  # shifted by one
    loss = smoothed_loss(copier(digits, reads, None, causal_mask(8)), digits).mean()
    adam.param_groups[0]["lr"] = rate(step, d_model=32, warmup=100)  # the rate of this step
    adam.zero_grad()
    loss.backward()
    adam.step()
    losses.append(loss.item())
_ = copier.eval()

# %%
new = torch.randint(1, 11, (100, 8))
copied = (greedy(copier, new, None, 0, -1, max_len=8) == new).all(dim=1).sum()
print(f"loss ≈{losses[0]:.2f} at first, ≈{losses[-1]:.2f} at the end")
print(f"≈{copied} of 100 new rows copied without an error")

# %% tags=["check"]
assert losses[-1] < 0.75 < 2 < losses[0]
assert copied >= 80

# %% [markdown]
# 平滑的损失不可能降到 0：在这里，即使是最好的预测，损失也有 0.555。
#
# 详见 [09_first_example](../09_first_example.ipynb)。

# %% [markdown]
# ## 五个陷阱
#
# 这五种错误大多不会报错，所以很难发现。
#
# **陷阱 1：只有 `view`，没有 `transpose`**。`split` 要把 (B, T, d_model) 变成 (B, h, T, d_k)，很容易想到一步到位，直接改成这个形状。这样写，代码能运行，却把词混在了一起，如图 12 的下半部分：

# %%
numbers = torch.tensor([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]])  # a, cat, runs
print("right, head 1:", numbers.view(3, 2, 2).transpose(0, 1)[0].tolist())
print("wrong, head 1:", numbers.view(2, 3, 2)[0].tolist())

# %% tags=["check"]
assert numbers.view(3, 2, 2).transpose(0, 1)[0].tolist() == numbers[:, :2].tolist()
assert numbers.view(2, 3, 2)[0].tolist() == [[10, 11], [12, 13], [20, 21]]

# %% [markdown]
# 头 1 本该得到每个词的前两个数。在错误的写法里，它得到 *a* 的全部和 *cat* 的一半，*runs* 则一个数也没有。把各个头拼回去时也有同样的陷阱：要先转置回来，再展平。
#
# **陷阱 2：掩码的形状**。分数有四维，掩码有三维，所以掩码还要为头添上一维。如果忘了 `mask.unsqueeze(1)`，PyTorch 就会把形状右对齐：
#
# ```
# scores               (B, h, T, S)
# mask.unsqueeze(1)    (B, 1, 1, S)   正确：每个句子有自己的掩码，所有头共用
# mask                    (B, 1, S)   错误：B 跑到了头的位置上
# ```
#
# 如果句子数恰好等于头数，例如都是 2，就不会报错。可是这样一来，每个头取的是某一个句子的掩码：头 2 即使读的是句子 1，遮住的也是句子 2 的填充。只有一个句子时也不会报错，而且结果是对的，所以测试时要用好几个句子组成的批。
#
# **陷阱 3：softmax 的维度错了**。分数是一个矩阵，沿着列做 softmax 与沿着行做一样，不会报错。下面对头 2 的分数两种都做：

# %%
show("right, dim=-1: each row adds up to 1", (scores / math.sqrt(2)).softmax(dim=-1), columns=words)
show("wrong, dim=-2: each column does", (scores / math.sqrt(2)).softmax(dim=-2), columns=words)

# %% tags=["check"]
wrong = (scores / math.sqrt(2)).softmax(dim=-2)
assert torch.allclose(wrong.sum(dim=-2), torch.ones(3).double())
assert near(wrong.sum(dim=-1), torch.tensor([1.39, 0.99, 0.62]), within=0.01)
later = scores.clone()
later[2] += 1.0  # another last query
hide = causal_mask(3)[0].logical_not()
before, after = (s.masked_fill(hide, -1e9).softmax(dim=-2) for s in (scores, later))
assert (after - before)[:2].abs().max() > 0.05  # what the earlier words look at depends on the last one
before, after = (s.masked_fill(hide, -1e9).softmax(dim=-1) for s in (scores, later))
assert torch.equal(after[:2], before[:2])

# %% [markdown]
# 在错误的写法里，各行之和是 1.39、0.99 和 0.62，所以一个词得到的不是值的平均：*a* 得到的太多，*runs* 得到的太少。加上因果掩码，情况更糟：*a* 给自己的权重要除以它那一列的总和，而总和里含有 *cat* 和 *runs* 的分数，于是未来的信息会漏进前面的词的权重。
#
# **陷阱 4：共享的嵌入表，数太大**。PyTorch 用方差为 1 的随机数初始化嵌入表。把这样的表当作输出矩阵，logit 就会很大，于是未经训练的模型对随便哪个词都深信不疑。好的起点是给全部 10,000 个词元差不多的概率，这时损失略高于 $\log 10000 = 9.2$。

# %% tags=["scaffold"]
_ = torch.manual_seed(0)
vectors, targets = nn.functional.layer_norm(torch.randn(200, 512), (512,)), torch.randint(10_000, (200,))
for name, size in (("variance 1", 1.0), ("variance 1 / 512", 512**-0.5)):
    first = nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    print(f"{name:18} loss before training ≈{first:.1f}")

# %% tags=["check"]
first_losses = [
    nn.functional.cross_entropy(vectors @ (torch.randn(10_000, 512) * size).T, targets)
    for size in (1.0, 512**-0.5)
]
assert first_losses[0] > 50
assert 9 < first_losses[1] < 11

# %% [markdown]
# **陷阱 5：忘了 `model.eval()`**。在训练模式下，dropout 仍然开着，模型翻译时，它会随机地把模型里的一些数置为 0：

# %% tags=["scaffold"]
one = padded(["A man throws a ball to a dog."])


def tries():
    """The different translations of one sentence in five tries."""
    outs = [
        greedy(model, one, None, tokenizer.start, tokenizer.end, 20, translator.forbidden) for _ in range(5)
    ]
    return {tokenizer.decode(out[0].tolist()) for out in outs}


_ = torch.manual_seed(0), model.train()
with_dropout = tries()
_ = model.eval()
print(f"five tries: ≈{len(with_dropout)} translations in training mode, {len(tries())} after eval()")

# %% tags=["check"]
assert len(with_dropout) > 1
assert len(tries()) == 1

# %% [markdown]
# ## 从这里到 GPT
#
# 今天的语言模型大多就是这个模型，只是删去了几个方框。它们续写文本，没有源句子，所以删去编码器，也删去每个解码器层中的交叉注意力。剩下的是带因果掩码的自注意力，以及前馈网络。这就是**带因果掩码的编码器层**：


# %%
class GPT(nn.Module):
    """A language model: predict the next token from those before it."""

    def __init__(self, vocab, N, d_model, d_ff, h, dropout=0.1):
        super().__init__()
        self.embed = nn.Sequential(Embeddings(d_model, vocab), PositionalEncoding(d_model, dropout))
        self.layers = Encoder(N, d_model, d_ff, h, dropout)
        self.generator = Generator(d_model, vocab)
        self.apply(initialize)
        nn.init.normal_(self.embed[0].lut.weight, std=d_model**-0.5)

    def forward(self, tokens):  # (B, T) -> log-probabilities (B, T, vocab)
        return self.generator(self.layers(self.embed(tokens), causal_mask(tokens.size(1))))


# %% tags=["check"]
with torch.no_grad():
    gpt, tokens = GPT(vocab=20, N=2, d_model=16, d_ff=32, h=2).eval(), torch.arange(6)[None]
    before, after = gpt(tokens), gpt(torch.cat([tokens[:, :-1], torch.tensor([[9]])], dim=1))
assert torch.allclose(before[:, :-1], after[:, :-1], atol=1e-6)  # nobody looks ahead
assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)

# %% tags=["check"]
from annotated import check

parts = [attention, MultiHeadedAttention, AddNorm, FeedForward, Embeddings, PositionalEncoding, Generator]
parts += [Encoder, Decoder, Transformer, causal_mask, greedy, rate, smoothed_loss]
report = check.run({part.__name__: part for part in parts}, name="this page")
assert report.passed, report

# %% [markdown]
# 后来的模型把归一化从子层之后移到了子层之前，另外还有几处细节不同。详见 [17_since_2017](../17_since_2017.ipynb)。

# %% [markdown]
# ## 6 结果和 7 结论
#
# **翻译**（6.1）：**BLEU** 是 0 到 100 分的评分，它统计译文中有多少单词，以及多少由二到四个单词组成的词串，也出现在人工译文里；译文太短，还要扣分。英译德此前最好的系统（由多个模型集成）得 26.4 分，基础模型得 27.3 分，更大的模型（big）得 28.4 分。
#
# **变体**（6.2）：论文的表 3 对基础模型做了各种改动。在另一组句子上，基础模型得 25.8 分。把八个 64 维的头改成一个 512 维的头，得 24.9 分；六层改成两层，得 23.7 分。
#
# **句法分析**（6.3）：句子的句法树写成括号形式，不过是又一种目标语言。Transformer 用 40,000 个句子学会了写句法树，胜过此前用同样句子训练的多数句法分析器。
#
# **结论**（7）：
#
# > “我们对基于注意力的模型的前景充满期待，并计划把它们用于其他任务。”
# >
# > "We are excited about the future of attention-based models and plan to apply them to other tasks."
#
# 他们这样做了，大家也都这样做了。
#
# 详见 [12_results](../12_results.ipynb) 和 [16_another_task](../16_another_task.ipynb)。

# %% [markdown]
# ## 现在你能说清楚
#
# - 注意力拿查询与键比较，用 softmax 把分数变成权重，再按权重把值混合起来。几个头并排做同样的事。
# - Transformer 的一层让词互相看，然后单独加工每个词。每次的结果都加到词的向量上，再做归一化。编码器只运行一次；解码器读自己写出的词，同时看记忆。
# - 训练时，解码器读的是正确的词，错开一位，并用因果掩码遮住后面的词，所以一遍就能训练所有位置。
#
# **深入**：[Does dividing by √d_k still matter after the first updates?](../evidence/does_the_division_matter.ipynb)（最初几次更新之后，除以 √d_k 还重要吗？）、[Why warm-up?](../evidence/why_warm_up.ipynb)（为什么要预热？）
#
# **下一步**：先读 [01_why_attention](../01_why_attention.ipynb)，再读 [02_attention](../02_attention.ipynb) 和 [03_multi_head_attention](../03_multi_head_attention.ipynb)，后两课把注意力拆开来讲。

# %% [markdown]
# ## 练习
#
# **练习 1（易）**。用笔算：*cat* 从编码器的头 1 得到什么。*cat* 的查询是 (0.28, −0.53)。*a*、*cat* 和 *runs* 的键是 (0.88, 0.40)、(0.08, 0.75) 和 (−1.16, 0.03)，值是 (0.88, 0.38)、(−1.04, −0.39) 和 (−0.43, −0.62)。先算三个分数，除以 $\sqrt 2$；再算权重，这要用计算器；最后算输出。两个结果都在“多头注意力”一节里。

# %% tags=["solution"]
# Scores: (0.28 * 0.88 - 0.53 * 0.40) / 1.41 = 0.02, (0.28 * 0.08 - 0.53 * 0.75) / 1.41 = -0.27, and (-0.28 *
# 1.16 - 0.53 * 0.03) / 1.41 = -0.24. Their exponentials are 1.02, 0.76 and 0.79, and the sum is 2.57. So the
# weights are 0.40, 0.30 and 0.30 (or 0.31, because we round in between), and the output is 0.40 * (0.88,
# 0.38) + 0.30 * (-1.04, -0.39) + 0.30 * (-0.43, -0.62) = (-0.09, -0.15).
fits = torch.tensor([[0.88, 0.40], [0.08, 0.75], [-1.16, 0.03]]) @ torch.tensor([0.28, -0.53]) / math.sqrt(2)
gets = fits.softmax(dim=0) @ torch.tensor([[0.88, 0.38], [-1.04, -0.39], [-0.43, -0.62]])
print("weights", [f"{w:.2f}" for w in fits.softmax(dim=0)], "output", [f"{number:.2f}" for number in gets])
assert near(fits.softmax(dim=0), weights_1[1])
assert near(gets, head_1[1])

# %% [markdown]
# **练习 2（中）**。自己写多头注意力，可以使用 `attention`。四个线性映射仍叫 `linears`。掩码在可以看的位置为 `True`。把代码写在下面的单元里，然后运行再下面的测试：写对了，它打印 `right`；写错了，它会说出哪里不对，并尽可能指出错误的原因。答案折叠在测试的后面。

# %% tags=["exercise"]
from torch import nn

from annotated import attention


class MyAttention(nn.Module):
    """Query (B, T, d_model), key and value (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        raise NotImplementedError


# %% tags=["exercise-test"]
import torch

from annotated import check


def test_my_attention(MyAttention):
    x = torch.zeros(2, 3, 8)
    output = MyAttention(h=2, d_model=8)(x, x, x)
    assert torch.is_tensor(output), f"forward must return a tensor, not {output!r}"
    report = check.multi_head_attention(MyAttention)
    assert report.passed, report


try:
    test_my_attention(MyAttention)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
class Solution(nn.Module):
    """Query (B, T, d_model), key and value (B, S, d_model), mask (B, 1 or T, S) -> (B, T, d_model)."""

    def __init__(self, h, d_model):
        super().__init__()
        self.h = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            linear(x).view(x.size(0), x.size(1), self.h, -1).transpose(1, 2)
            for linear, x in zip(self.linears[:3], (query, key, value), strict=True)
        )
        heads, _ = attention(q, k, v, None if mask is None else mask.unsqueeze(1))
        return self.linears[3](heads.transpose(1, 2).flatten(2))


test_my_attention(Solution)

# %% [markdown]
# **练习 3（中）**。不看前面的代码，写出贪心解码的循环。函数 `next_log_probs(tokens)` 代表模型。它的参数是已经写出的词元的列表，返回值是一个字典，给出每个可能的下一个词元的对数概率。遇到 `end`，或者写满 `max_len` 个词元，就停下来。


# %% tags=["exercise"]
def write_greedily(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    raise NotImplementedError


# %% tags=["exercise-test"]
import math
from random import sample


def test_write_greedily(write_greedily):
    cat, drawn = ["eine", "Katze", "rennt"], sample(["die", "rote", "Kuh", "schläft", "heute", "gern"], 6)
    for sentence, end, max_len in (cat, "</s>", 10), (cat, "</s>", 2), (cat, ".", 10), (drawn, "</s>", 10):

        def toy(tokens, sentence=sentence, end=end):
            following = [*sentence, end][len(tokens)] if tokens == sentence[: len(tokens)] else end
            found = {following: math.log(0.6), "und" if following == end else end: math.log(0.4)}
            return found if len(tokens) % 2 else dict(reversed(found.items()))

        written, wanted = write_greedily(toy, end, max_len), sentence[:max_len]
        told = f"with max_len={max_len} and end={end!r}, the likeliest tokens are {wanted}, not {written}"
        assert [*written] == wanted, told


try:
    test_write_greedily(write_greedily)
    print("right")
except NotImplementedError as error:
    print("not yet written", *error.args)


# %% tags=["solution"]
def solution(next_log_probs, end, max_len):
    """The tokens, a list; `end` is not among them."""
    tokens = []
    while len(tokens) < max_len:
        log_probs = next_log_probs(tokens)
        likeliest = max(log_probs, key=log_probs.get)
        if likeliest == end:
            break
        tokens.append(likeliest)
    return tokens


test_write_greedily(solution)

# %% [markdown]
# **大练习：搭建整个模型**。合上本页，在一个空文件 `model.py` 里写出 Transformer，名字用你在这里见过的。然后在终端里测试它：
#
# ```
# annotated check model.py
# ```
#
# 这些测试在命令中称为 *laws*（定律），检查的是模型必须有的性质，例如，解码器的哪个位置都看不到后面的内容。哪项测试没有通过，命令就打印一个例子和其中的数，并尽可能指出错在哪里。全部通过之后，给你自己的类装上训练好的权重，让它们来翻译：
#
# ```
# annotated check model.py --translate "A dog runs across the grass."
# ```
#
# 如果不想从空文件开始，可以用 `annotated build mine` 写出 `mine/transformer.py`，再由你填入各部分的代码。其中有些名字取自 "The Annotated Transformer"（Rush, 2018）；两套名字，测试都接受。加上 `--hints 1`、`2` 或 `3`，命令还会给出提示。
