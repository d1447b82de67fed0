// 页面的全部文字，简体中文。键与 en.tsx 相同；模型读写的句子不在此列。

import type { Texts } from "./language.ts";
import { Root, rich, Term } from "./words.tsx";

export const zh: Texts = {
  // ---- The page

  code: "zh",
  language: "中文",
  title: "走进 Transformer 内部",
  heading: "走进模型内部",
  about: "一个真正的 Transformer 就在这里翻译你的句子，途中的每一个数字都看得见。",
  languages: "语言",
  notLoaded: (why) => `模型加载失败：${why}`,
  noModel: "文件里没有模型",
  noScript: (address) => `找不到 ${address}`,
  failed: (why) => `模型运行出错：${why}`,
  loading: "正在加载模型：共 260 万个数。你输入的内容不会离开这个页面。",
  computing: "计算中…",
  tooLong: (tokens, most) => `这个句子有 ${tokens} 个子词，页面最多显示 ${most} 个：请缩短一些。`,
  map: "结构图",
  chooseBox: "点击方框查看该部分，点击带点线的词查看释义。",
  onWithTour: "继续导览 ↓",

  sentence: "输入一句英语，最好是对照片的描述：",
  anySentence: "输入一个句子：",
  translate: "翻译",
  or: "或者试试：",

  own: rich`也可以打开你自己的模型，即 ${<code>annotated train</code>} 写出的文件夹；文件只在本机读取，不会上传：`,
  ownModel: (folder, layers, width, heads) =>
    rich`当前是你自己的模型，来自 ${<b>{folder}</b>}：编码器和解码器各 ${layers} 层，宽度 ${width}，${heads} 个头。页面中所说的“英语”和“德语”，请理解为它的源语言和目标语言。`,
  openFolder: "打开文件夹…",
  shippedModel: "换回自带的模型",
  theFiles: "这些文件",
  refused: (folder, why) => `无法使用 ${folder}：${why}。`,

  translation: "译文",
  nothing: "（空）",
  changed: "你的改动：",
  reset: "还原",
  changes: (changes) => `${changes.join("；")}。`,
  withoutParts: (parts) => `去掉${parts}`,
  begunWith: (beginning) => `译文以“${beginning}”开头`,
  beamOf: (beam, usual) => `束宽为 ${beam}（原为 ${usual}）`,
  alphaOf: (alpha, usual) => `α = ${alpha}（原为 ${usual}）`,
  temperatureOf: (temperature) => `温度为 ${temperature}（仅作演示）`,
  wholeModel: "完整的模型：",
  brokenFinds: (same) => `去掉之后，${same}。`,
  sure: (sure, typical, worst, chance, chosen) =>
    rich`模型给每个子词的概率${<Term of="geometric mean" as="平均" />}为 ${sure}${typical && `（在它所针对的图片描述中，有一半高于 ${typical}）`}。它最没把握的是 ${worst}，只有 ${chance}${chosen && "，而这是你选的"}。`,
  unsure: "十句图片描述中有九句高于这个值：这类句子超出了模型的训练范围，译文不可信。",
  composed: (words, several, more) =>
    rich`由子词拼成：${words}${more > 0 && ` 等，另有 ${more} 个`}。${several ? "这样的词" : "这个词"}可能并不存在，也可能用错。`,
  comma: "、",
  and: "，",

  stop: (at, of, title) => `第 ${at} 站，共 ${of} 站 · ${title}`,
  besideStop: (at, title) => `第 ${at} 站的支线 · ${title}`,
  shape: "形状",
  paper: (section, place) => `《Attention Is All You Need》第 ${section} 节${place}`,
  stepsOfAttention: "注意力的各个步骤",
  layer: "层",
  head: "头",
  back: "上一站",
  backToStop: (at) => `回到第 ${at} 站`,
  notebook: (name) => `笔记本 ${name}`,
  known: {
    title: "现在你已经知道",
    pieces: "文本先切成子词；子词变成向量，向量里也含有它所在的位置。",
    attention: "注意力是值的加权平均，权重取决于查询与各个键的匹配程度；多个头各看各的位置。",
    network: "前馈网络对每个词元单独计算；每个子层的输出都加到它的输入上。",
    mask: "有了掩码，解码器可以同时在所有位置上学习，而看不到答案。",
    beam: "解码器逐个写出词元；最可能的开头未必有好的结尾，所以束搜索同时保留几个开头。",
    trained: (notebook) => rich`这样的模型是怎样训练出来的：${notebook}。`,
  },

  // ---- What the stops ask and say

  stops: {
    encoderPieces: {
      title: "子词",
      question: "模型读到的是什么？",
      text: "不是单词，而是子词（subword）。字节对编码（byte-pair encoding, BPE）从英语和德语的图片描述中一并学到了它们：常见的词自成一个子词，罕见的词由几个子词拼成，子词表里没有的字符则用字节来拼。为什么不直接用整词？词表里总有没收录的词，例如新出现的人名；而用子词可以拼出任何词。",
    },
    decoderPieces: {
      title: "输出（右移一位）",
      question: "解码器读到的是什么？",
      text: "是它到目前为止写出的内容，整体右移一位，最前面补上起始符。它预测下一个词元，接在后面，再重新读一遍：这就是自回归（auto-regressive）。",
    },
    embedding: {
      title: "嵌入",
      question: "子词怎样变成数字？",
      text: rich`每个子词在一张表里对应一行学到的数，这就是它的嵌入（embedding）。这一行要先乘以 ${<Root of="d_model" />}，以免被接下来加上的位置编码淹没。`,
    },
    positions: {
      title: "位置编码",
      question: "模型怎样知道词的顺序？",
      text: "嵌入只说明是哪个子词，不说明它在哪里。所以还要加上一组正弦波和余弦波，每个位置各不相同，这就是位置编码（positional encoding）；论文希望，用波来表示，距离就容易学到。注意力（attention）本身看不见顺序：去掉位置编码，句子在模型眼里只是一袋子词。",
      equation: "，PE(pos, 2i+1) 取同一角度的余弦；2i 和 2i+1 是向量中的序号",
    },
    where: {
      encoder: "自注意力",
      decoder: "带掩码的自注意力",
      cross: "编码器-解码器注意力",
    },
    projections: {
      tab: "q、k、v",
      title: (where) => `查询、键和值：${where}`,
      question: "查询、键和值各做什么？",
      text: rich`词元的向量 x 分别乘以三个学到的矩阵。${<b class="query">查询</b>}（query）说明这个词元在找什么，${<b class="key">键</b>}（key）说明它凭什么被找到，${<b class="value">值</b>}（value）是它交给查找者的内容。没有人这样教过模型：这些角色是由下一站的注意力公式赋予的。`,
    },
    weights: {
      tab: "分数和权重",
      title: (where) => `分数和权重：${where}`,
      question: {
        encoder: "词元怎样决定往哪里看？",
        decoder: "解码器为什么不能往后看？",
        cross: "德语和英语在哪里相遇？",
      },
      text: {
        encoder: rich`每个英语词元都可以看其他所有词元，不论前后。词元的查询与每个键做点积（dot product），得到分数；softmax 把分数变成总和为 1 的权重。在此之前要先缩放：d${<sub>k</sub>} 个乘积有正有负，它们的和大约是单个乘积的 √d${<sub>k</sub>} 倍，所以要除以 ${<Root of="d_k" />}。如果不除，过大的分数会使几乎全部权重落在一个词元上：这个头就只传递一个值；训练时 softmax 的${<Term of="gradient" as="梯度" />}会变得“极小”（论文原文：extremely small gradients），于是很难学会往别处看。`,
        decoder: rich`德语词元可以看自己，也可以看在它之前写出的词元。后面的内容用掩码（mask）遮住：分数变成 −∞，权重变成 0。训练时整个德语句子都在眼前，没有掩码，模型就可以照抄答案。其余与编码器相同：查询与每个键做点积，除以 √d${<sub>k</sub>}，再做 softmax。`,
        cross: rich`两种语言在这里相遇：查询来自已经写出的德语，键和值来自英语的${<Term of="memory" as="记忆" />}（memory）。在最后一层，每个位置寻找的是它将要写出的词元所对应的英语；在前面的层里，头也可能还在找刚刚读入的那个词元所对应的英语。因此每个位置有两个名字。其余与编码器相同：查询与每个键做点积，除以 √d${<sub>k</sub>}，再做 softmax。`,
      },
      mask: "，其中 M 在键位于后面时为 −∞，否则为 0",
      equation: "，公式 1",
    },
    heads: {
      tab: "各个头",
      title: (where) => `多个头：${where}`,
      question: "为什么要有多个头？",
      text: "一个 softmax 一次只能看一种位置的组合。多个头（head）出于不同的原因看不同的位置，各有自己的查询、键和值。它们取回的内容并排拼接起来，再由一个矩阵混合。",
    },
    norm: {
      title: (sublayer) => `${sublayer}之后的相加与归一化`,
      after: {
        encoder: ["自注意力", "前馈网络"],
        decoder: ["带掩码的自注意力", "编码器-解码器注意力", "前馈网络"],
      },
      question: "为什么要把输入加到输出上？",
      text: rich`${<Term of="sub-layer" as="子层" />}（sub-layer）并不替换词元的向量，而是把算出的结果加上去，这就是残差连接（residual connection）：向上的途中什么也不会丢失，训练时${<Term of="gradient" as="梯度" />}也有一条直通的路。随后，层归一化（layer normalization）让相加的结果回到统一的尺度。`,
    },
    network: {
      title: "前馈网络",
      question: "每个词元自己会发生什么？",
      text: "注意力在词元之间传递信息；前馈网络（feed-forward network）则对每个词元单独计算，所有位置用同样的权重。它先把向量变宽，把负数置为 0，再把它变窄；没有中间这一步，两个矩阵连乘不过相当于一个矩阵。变宽后的各个单元没有名字：什么会激活它们是训练选出来的，而且往往是几种东西的混合。",
      shape: "，对每个词元",
      equation: "，公式 2",
    },
    memory: {
      title: "记忆",
      question: "解码器从英语得到了什么？",
      text: "编码器（encoder）最后一层的输出，每个词元一个向量，称为记忆（memory）。它只计算一次；解码器（decoder）每写一个词元，都会重新看一遍全部记忆。句子不必挤进某一个向量。",
    },
    probabilities: {
      title: "线性层和 softmax",
      question: "它怎样选出下一个词元？",
      text: rich`解码器最后的向量与嵌入表中每个子词的那一行做比较，每个子词得到一个 ${<Term of="logit" />}。softmax 把它们变成概率。选另一个子词，翻译就从那里继续。`,
      vocabulary: "词表大小",
    },
    beam: {
      title: "束搜索",
      question: "为什么不每次都取最可能的词元？",
      text: rich`因为好的开头可能导致坏的结尾。束搜索（beam search）并排保留几个最可能的开头，束有多宽就保留几个，其余的舍弃。束宽为 1 时就是${<Term of="greedy" as="贪心搜索" />}。每多写一个词元，句子的概率都会变小：log P 是负数，把它除以一个随长度（以词元计，包括 ‹结束›）增大的惩罚项，可以弥补这一点。`,
      equation: "分数 = log P / ((5 + 长度) / 6)",
    },
    breaking: {
      title: "拆掉试试",
      question: "每个部分有什么用？",
      text: "去掉一个部分，看看译文变成什么样。模型是带着所有部分训练的，所以这里看到的是这个模型依赖什么，而不是缺了该部分再训练的模型能学到什么。",
      table: "，其中表 3 重新训练了各个变体",
    },
  },

  // ---- The map

  figure: {
    name: "Transformer（论文图 1）：请选择一个部分",
    inputs: "输入",
    outputs: "输出（右移一位）",
    inputEmbedding: "输入嵌入",
    outputEmbedding: "输出嵌入",
    positions: "+ 位置编码",
    attention: ["多头", "注意力"],
    maskedAttention: ["带掩码的", "多头注意力"],
    norm: "相加与归一化",
    network: ["前馈", "网络"],
    memory: "记忆",
    probabilities: "线性层、softmax",
    beam: "束搜索",
    breaking: "✂ 拆掉试试",
    next: "下一个：",
  },

  // ---- Words that are explained

  meanings: {
    logit: "分数，可以是任何数；softmax 把所有分数变成概率",
    d_model: "层与层之间词元向量的宽度",
    d_k: "一个头的查询和键的宽度：d_model 除以头数",
    d_v: "一个头的值的宽度",
    d_ff: "前馈网络内部的宽度",
    src_len: "英语句子的词元数",
    tgt_len: "解码器读入的词元数",
    h: "头的个数",
    bias: "偏置（bias）：加上去的学到的数，向量的每个数各有一个；公式 1 略去了它",
    "sub-layer": "层中的一步：一个注意力或一个前馈网络",
    "cosine similarity": "余弦相似度：两个向量夹角的余弦，方向相同时为 1",
    gain: "增益（gain）：学到的因子，向量的每个数各有一个",
    "standard deviation": "标准差：各个数离平均值有多远，即距离平方的平均值的平方根",
    "geometric mean": "几何平均：n 个数的乘积的 n 次方根；一个很小的数会把它拉得比算术平均更低",
    greedy: "贪心（greedy）：每次都取最可能的下一个词元",
    memory: "编码器最后的向量，每个英语词元一个：解码器对这个句子所知的全部",
    ReLU: "线性整流单元（rectified linear unit）：max(0, x)，保留正数，其余置为 0",
    gradient: "梯度（gradient）：模型的损失随它的每个数怎样变化；训练时，这些数沿着它下降",
  },
  meaning: (meaning) => `（${meaning}）`,

  // ---- How numbers are drawn

  start: "‹开始›",
  end: "‹结束›",
  howToRead: "怎样看这些色带",
  strips:
    "色带中每一格是一个数：大的正数颜色饱满，绝对值大的负数为灰色（深色模式下为沙色）。每组色带有自己的标尺，写在下方。把鼠标指向一格，或用手指沿着色带滑动，可以读出其中的数。",
  beyond: (count, largest) => `，另有 ${count} 个数超出此范围，最大为 ${largest}`,
  numberAt: (at, of, value) => rich`第 ${at} 个数（共 ${of} 个）：${value}`,
  asTable: (name) => `${name}（表格）`,
  tooWide: {
    table: "表格比页面宽：请向右滚动 →",
    tree: "搜索树比页面宽：请向右滚动 →",
  },

  // ---- What goes in, and the sub-layers

  tokenAtHand: "当前词元",
  positionAtHand: "当前位置（读入的子词 → 写出的子词）",
  colon: "：",
  dotJoins: "圆点表示该子词与前一个子词相连。",
  sourcePieces: {
    count: (tokens, vocabulary) =>
      rich`这个句子有 ${<b>{tokens} 个词元</b>}（token）：${tokens - 1} 个子词，取自 ${vocabulary} 个子词的表，再加上结束符。`,
    bytes: (count) =>
      `其中 ${count} 个是单个字节，因为没有子词包含它们的字符：模型学习的图片描述里几乎没有出现过。`,
    spelling: "单词的第一个子词含有它前面的空格（笔记本中写作 ▁）。数字是查表时子词所在的行号。",
    composed: (words) => rich`由几个子词拼成的词：${words}。`,
    single: "这里每个单词都是一个完整的子词。",
    try: "含有由子词拼成的词的句子：",
  },
  targetPieces: {
    name: "解码器读入和写出的内容",
    caption: "每个位置多读一个词元，并根据已读的全部内容预测下一个",
    columns: ["位置", "读入", "写出", "概率"],
  },
  embedding: {
    count: (tokens, width) => `${tokens} 个词元变成 ${tokens} 个向量，每个向量 ${width} 个数。`,
    twin: (piece) => `“${piece}”在这里出现两次，两行完全相同：此时还没有任何信息说明词元在哪里。`,
    alone: "一行只取决于子词本身，与它在哪里无关。",
    name: "嵌入",
  },
  positions: {
    name: "嵌入、位置编码及其和",
    counted: (token, at) =>
      rich`位置从 0 开始数：${token} 在位置 ${at}。没有位置编码，解码器仍然能通过因果掩码保留一些顺序。`,
    leaveOut: "去掉位置编码",
    try: "下面两个句子由相同的子词组成。有位置编码时，它们意思相反；去掉位置编码，模型就分不清哪个是哪个：",
    waves: "这个句子所有位置的波",
    wavesName: "位置编码",
    fast: "左边的波变化快，右边的波非常慢，在这样长度的句子里几乎看不出变化。",
  },
  addAndNorm: {
    name: "残差连接和层归一化",
    leftOutX: "x（已去掉）",
    sum: "和",
    norm: "norm(和)",
    sublayer: "子层(x)",
    caption: (width) => `这个词元的 ${width} 个数`,
    mean: "平均值",
    deviation: "标准差",
    rescaled: rich`层归一化先使相加的和平均值为 0、标准差为 1，再把每个数乘以学到的${<Term of="gain" as="增益" />}，并加上学到的偏移：所以结果的${<Term of="standard deviation" as="标准差" />}不一定是 1。`,
    similar: (alike) =>
      rich`x 与和的${<Term of="cosine similarity" as="余弦相似度" />}为 ${alike}：为 1 时，和的方向仍与 x 相同；为 0 时，原来的方向已不剩；小于 0 时，则偏向相反的方向。`,
    leaveOut: "去掉所有残差连接",
  },
  network: {
    fired: (token, fired, units, leftOut) =>
      rich`对于“${token}”，${<b>{`${units} 个单元中${leftOut ? `本来会有 ${fired} 个激活，但网络已去掉` : `有 ${fired} 个激活`}`}</b>}；其余的被 ${<Term of="ReLU" />} 置为 0。`,
    strongest: (unit, value) => `最强的是第 ${unit} 个单元，值为 ${value}。`,
    name: "这个词元的各个单元",
    units: (count) => `${count} 个单元`,
    firing: "激活的单元，从强到弱",
    unit: (unit, value) => `第 ${unit} 个单元：${value}`,
    fewer: "只看最强的",
    all: (count) => `全部 ${count} 个激活的单元`,
    each: (unit, leftOut) => `第 ${unit} 个单元对句中每个词元的值${leftOut ? "（假如没有去掉）" : ""}`,
    none: "它对哪个词元都不激活。",
    adds: (count) => `加到词元上的内容：${count} 个数`,
    stripsName: "前馈网络的输入、输出及其和",
    output: "网络(x)",
    sizes: (input, output, alike, change) =>
      rich`x 中绝对值最大的数是 ${input}，网络给出的最大的是 ${output}。x 与和的${<Term of="cosine similarity" as="余弦相似度" />}为 ${alike}：${change}接下来的层归一化会把每个和带回同样的尺度，不论它有多大。`,
    nothing: "网络已去掉，什么也没有加。",
    hardly: "网络几乎没有改变这个词元。",
    corrects: "网络修正了这个词元，大部分保持原样。",
    changes: "网络对这个词元改动很大。",
    anew: "网络几乎重写了这个词元。",
    purpose: "它有什么用？",
    leave: "去掉它，让它什么也不加，看看译文会失去什么。",
    leaveOne: (layer) => `去掉第 ${layer} 层的前馈网络`,
    leaveAll: "去掉编码器和解码器的所有前馈网络",
  },
  memory: {
    all: (tokens, width, layers) =>
      rich`${<b>{`${tokens} × ${width} 个数`}</b>}，就是解码器对这个英语句子所知的全部。解码器的 ${layers} 层各自由此算出自己的键和值，只算一次。`,
    name: "记忆",
  },

  // ---- Attention

  attention: {
    query: (token) => `“${token}”的查询：`,
    queryName: "查询",
    bias: <Term of="bias" as="b" />,
    keys: (memory) => (memory ? "记忆的键：" : "键："),
    keysName: "键",
    values: (memory) => (memory ? "记忆的值：" : "值："),
    valuesName: "值",
    said: (layer, head, who, first, second, sums) =>
      rich`在第 ${layer} 层第 ${head} 个头中，${who} 把注意力的 ${first}${second && rich`，${second}`}（${sums}）。`,
    readsAndWrites: (reads, writes) => rich`位置 ${reads} → ${writes}`,
    ofItsAttention: (share, key) => rich`${share} 给 ${key}`,
    to: (share, key) => rich`${share} 给 ${key}`,
    sums: (keys, hidden) =>
      `四舍五入之前，${keys} 个权重之和为 1${hidden ? `；还有 ${hidden} 个词元在后面，被掩码遮住` : ""}`,
    revealed: (share) => rich`掩码本来遮住的键，现在共得到 ${share}。`,
    stepByStep: "逐步计算权重",
    caption: "注意力权重中的一行，逐步计算。选一个键，可以看它的点积。",
    key: "键",
    mask: "掩码",
    weight: "softmax：权重",
    wasHidden: "原被遮住",
    lastLayer: (layer, heads, writes, most) =>
      rich`在第 ${layer} 层，${heads} 个头平均下来，写出 ${writes} 的位置把注意力的 ${most}。`,
    product: (query, key, value) => `一个点积：“${query}” · “${key}” = ${value}`,
    productName: "一个点积",
    products: (width) => `查询的 ${width} 个数乘以键的 ${width} 个数。两者都大且同号时，点积就变大。`,
    leaveScale: (width) => `在所有层中不除以 √${width}`,
    aboutMask:
      "模型写译文时，后面本来就没有内容可看。但如果没有掩码，每写一个新词元，前面的位置都要重新计算，这时它们会看到后面的词元，而训练中从未有过这种情况。",
    leaveMask: "去掉因果掩码",
    computedBy: (name) => `由 ${name} 计算`,
    allQueries: "这个头的所有查询",
    headDoes: (head, layer, does) => rich`在这个句子中，第 ${layer} 层第 ${head} 个头：${does}。`,
    readMap: "行是查询，列是键；颜色最满为 100%，每行之和为 100%。点击一行，可以在上面查看它。",
    mapName: (layer, head) => `注意力权重，第 ${layer} 层第 ${head} 个头`,
    headMapName: (head) => `第 ${head} 个头的注意力权重`,
    readMaps: (query) =>
      `行是查询，列是键。带框的一行是“${query}”：点击别的行可以查看它。每个头的编号下面，写着它在这个句子中做什么。`,
    headNumber: (head) => `头 ${head}`,
    mostTo: (key) => rich`这一行最看重 ${key}`,
    handsOver: (head, width) => `第 ${head} 个头交出的内容：值的加权和（${width} 个数）`,
    outputName: "这个头的输出",
    silenced: "已屏蔽",
    isHead: (head) => `= 头 ${head}`,
    share: (share, key) => `${share} × ${key}`,
    others: "+ 其余",
    sideBySide: (heads, width) => `所有头并排拼接（${heads} × ${width} = ${heads * width}），再乘以 Wᴼ`,
    sideBySideName: "拼接后的各个头和输出",
    output: "输出",
    silence: (head, layer, width) => `屏蔽第 ${layer} 层第 ${head} 个头：它的 ${width} 个数变成 0`,
    looksAt: (query, key, share) => rich`${query} 看 ${key}：${share}`,
    naming: "这句说明是怎样得出的",
    rules: (first, places) =>
      `页面按行计数${first ? "，第一行除外，因为它只能看自己" : ""}。如果某个目标得到一行一半以上的权重，这一行就计入该目标：${places}。计入行数最多的目标，如果至少占全部的一半，就写出来。否则，如果至少一半的行里有一个词元得到一半以上的权重，就称为“集中”；如果至少一半的行里没有词元超过三分之一，就称为“分散”。再否则，页面就没有找到规律。没有东西可取的头常常停在${
        first ? "第一个词元" : "句末"
      }（即注意力汇聚点，attention sink，见笔记本 13）。换一个句子，同一个头的说明可能不同。`,
    places: {
      encoder:
        "词元自身、它的前一个、前面第二个、后一个、句子的第一个词元、‹结束› 与句号合计，或者同一子词的所有词元合计",
      decoder:
        "词元自身、它的前一个、前面第二个、后一个（仅在没有掩码时）、‹开始›，或者同一子词的所有词元合计",
      cross: "‹结束› 与句号合计，或者同一子词的所有词元合计",
    },
  },
  heads: {
    rests: "主要看 ‹结束› 或句号",
    fullStop: "主要看句号",
    end: "主要看 ‹结束›",
    piece: (piece) => `主要看“${piece}”`,
    itself: "主要看词元自身",
    oneBack: "主要看前一个词元",
    twoBack: "主要看前面第二个词元",
    oneAhead: "主要看后一个词元",
    first: "主要看第一个词元",
    start: "主要看 ‹开始›",
    sharpAcross: "每行主要看一个英语词元（集中）",
    sharp: "每行主要看一个词元，各行不同（集中）",
    spread: "分散在许多词元上",
    none: "没有找到已知的规律",
    rows: (name, rows, of, all) => `${name}：${all ? "" : "有选择的 "}${of} 行中有 ${rows} 行`,
  },

  // ---- Probabilities

  probabilities: {
    said: (begun, best, chance, written, because) =>
      rich`${begun ? rich`写出 ${begun} 之后` : "什么都还没写时"}，模型认为概率最高的是 ${best}，${chance}。它写出了 ${written}${because}`,
    asExpected: "。",
    chosen: "，因为这是你选的。",
    forbidden: "，因为搜索从不取前者。",
    searched: "，因为这样整个句子的得分更高。",
    longest: "，因为句子已经达到最大长度。",
    name: "最可能的子词",
    caption: (vocabulary) => `${vocabulary} 个子词中最可能的十个`,
    atTemperature: (temperature) => `，温度为 ${temperature}`,
    piece: "子词",
    probability: "概率",
    instead: "换成它",
    written: "已写出",
    write: (piece) => rich`写 ${piece}`,
    rest: (pieces, share) => `其余 ${pieces} 个子词共占 ${share}。`,
    begun: (begun) => rich`你让译文以${begun}开头。`,
    again: "让模型重新选择",
    temperatureTitle: "softmax 的温度（仅作演示）",
    temperature: "温度",
    aboutTemperature:
      "logit 先除以温度。低于 1 时，最可能的子词更占优势；高于 1 时，各个子词趋于接近。模型本身用的是 1。",
  },

  // ---- Beam search

  beam: {
    tryBeam: "在这个句子中，最可能的开头会导致更差的译文：",
    moveAlpha: "这里由长度惩罚决定结果：试着在 0.6（论文的取值）和 1 之间移动 α。",
    tryAlpha: "在这个句子中，长度惩罚 α 决定取两种译文中的哪一种：",
    beam: "束宽",
    alpha: "长度惩罚 α",
    steps: (of) => `显示的步数（共 ${of} 步）`,
    kept: "保留",
    dropped: "舍弃",
    ended: "结束",
    winning: "最终译文",
    name: "搜索树",
    described: (steps) => `第 ${steps} 步之后的搜索树；下面的列表用文字说明同样的内容。`,
    numbers:
      "每个数是到该处为止的对数概率之和；0 表示完全确定。第一个译文结束之后搜索还会继续，因为尚未结束的开头可能得分更高。",
    caption: (alpha) => `已结束的译文，按得分从高到低，α = ${alpha}`,
    translation: "译文",
    penalty: "÷ 惩罚",
    score: "= 得分",
    otherPieces: "切成了不同的子词：",
    alike:
      "读起来相同的译文由不同的子词组成：下面列出有差别的词，子词之间用圆点隔开。对搜索来说，它们是不同的译文。",
    many: (beam) => `结束的译文多于 ${beam} 个：束宽限制的是同时保留几个开头，而不是有几个结束。`,
    noPenalty:
      "α 为 0 时，再写词元不可能提高得分，所以一旦最好的译文胜过所有未结束的开头，搜索就停止：列表可能很短。",
    probability: (chance) => `P 是整个句子的概率，包括句末的结束符：第一个译文为 ${chance}。`,
    narrow: (begun) =>
      begun
        ? "同一个句子，以你所选的内容开头：束宽为 1（其后即为贪心搜索）与论文的束宽 4"
        : "同一个句子：束宽为 1（即贪心搜索）与论文的束宽 4",
    beamColumn: "束宽",
    same: "（相同）",
  },

  // ---- Break it

  parts: {
    positions: {
      name: "位置编码",
      why: "不再加上第 3.5 节的波：句子变成一袋子词。由于因果掩码，德语一侧还保留一些顺序。",
    },
    mask: { name: "因果掩码", why: "解码器的每个位置都会看到在它之后写出的内容，训练中从未如此。" },
    scale: { name: "除以 √dₖ 的缩放", why: "分数一直很大：softmax 把几乎全部权重给一个词元。" },
    residual: { name: "残差连接", why: "每个子层都替换了它的输入，而不是加到输入上。" },
    networks: { name: "前馈网络", why: "注意力只是混合各个词元的内容，没有什么对单个词元做计算。" },
  },
  breaking: {
    network: (stack, layer) => `${stack}第 ${layer} 层的前馈网络`,
    heads: (numbers, stack, layer, cross) =>
      `${cross ? "编码器-解码器注意力" : `${stack}自注意力`}第 ${layer} 层的第 ${numbers.join("、")} 个头`,
    andMore: (parts, more) => `${parts}，以及另外 ${more} 项`,
    stacks: { encoder: "编码器", decoder: "解码器" },
    try: "去掉它之后译文会改变的句子：",
    justAsSure: (chance) => `译文不变，把握也不变：${chance}`,
    lessSure: (from, to) => `译文不变，但把握变小：${from} → ${to}`,
    surer: (from, to) => `译文不变，把握反而变大：${from} → ${to}`,
    whole: "完整的模型",
    without: (parts) => `去掉${parts}，其余保持训练时的样子`,
    theseAre: (same) => ` ${same}。`,
    unmasked:
      "没有因果掩码时，这里的数是对写完的句子计算的：每个位置都看到了后面的内容。而在写的过程中，后面的内容还不存在，所以这个位置写出的词元及其概率来自另一组数。掩码本来遮住的键有标记。",
    caption: "同一个句子，同样的权重，每次去掉一个部分",
    leftOut: "去掉",
    translation: "译文",
    nothing: "什么都不去掉",
    same: (same) => `（${same}）`,
    tick: "勾选之后，整个页面都显示去掉该部分的模型，直到你把它放回去。",
    silenceTitle: "屏蔽头和前馈网络",
    silenceAll: (heads, networks) =>
      `共有 ${heads} 个头和 ${networks} 个前馈网络。可以屏蔽一个、几个，或者点击层名一次屏蔽一层的所有头，看看这个句子需要其中哪些。`,
    kinds: {
      encoder: "编码器自注意力",
      decoder: "解码器自注意力",
      cross: "编码器-解码器注意力",
    },
    layer: (layer) => `第 ${layer} 层`,
    silenceLayer: (layer, kind) => `屏蔽${kind}的第 ${layer} 层`,
    networks: "前馈网络，按层",
    silence: (part) => `屏蔽${part}`,
  },

  // ---- Why a folder is refused

  folder: {
    missing: (file) => `缺少文件 ${file}`,
    damaged: (file) => `${file} 已损坏`,
    tooLarge: (most) => `文件太大，页面最多容纳 ${most / 100} 亿个数`,
    noModel: "config.json 描述的不是模型",
    needs: (name, value, own) => `页面要求 ${name} 为 ${value}，而不是 ${own}`,
    setting: (name, own) => `config.json 中 ${name} 为 ${own}`,
    twoVocabularies: "页面要求两种语言共用一个子词表，而不是两个",
    kind: (kind) => `页面要求子词表，而不是 ${kind}`,
    tokenized: "页面要求读取普通文本的模型，而这个模型读的是转成小写并分好词的文本",
    pieces: (pieces, wanted) => `tokenizer.model 有 ${pieces} 个子词，而 config.json 要求 ${wanted} 个`,
    otherTokenizer: "tokenizer.model 不是与这些权重一起保存的那一个",
    otherEncoding: "tokenizer.model 不是本软件包所学的字节对编码",
    noTensor: (name) => `权重中缺少张量 ${name}`,
    shape: (name, own, wanted) => `张量 ${name} 的形状为 ${own}，而 config.json 要求 ${wanted}`,
    type: (name, type) => `张量 ${name} 的类型为 ${type}`,
    notFinite: (name) => `张量 ${name} 中含有无效的数`,
    surplus: (name) => `张量 ${name} 不属于论文的模型`,
  },
};
