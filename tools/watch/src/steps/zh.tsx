// 页面的全部文字，简体中文。键与 en.tsx 相同；模型读写的句子不在此列。

import type { Texts } from "./language.ts";

const PARTS: Record<string, string> = {
  table: "词表",
  embedding: "嵌入",
  position: "位置",
  x: "嵌入 + 位置",
  query: "查询",
  key: "键",
  value: "值",
  product: "点积",
  score: "分数",
  weight: "权重",
  head: "输出",
  attention: "注意力的输出",
  sum: "和",
  mean: "均值",
  deviation: "标准差",
  normed: "归一化后的向量",
  inner: "前馈网络内部，ReLU 之前",
  fired: "前馈网络内部，ReLU 之后",
  network: "前馈网络的输出",
  logit: "logit",
  probability: "概率",
};
const PAIRS = ["product", "score", "weight", "logit", "probability"];

export const zh: Texts = {
  code: "zh",
  title: "一个句子逐个数字地走过 Transformer",
  heading: "Transformer 里的每一个数",
  languages: "语言",
  other: "English",
  start: "开始",
  end: "结束",
  number: ({ part, row, column, head }) => {
    const of = PARTS[part] ?? part;
    const which = head === undefined ? "" : `，第 ${head + 1} 个头`;
    if (PAIRS.includes(part)) return `${of}：${row} → ${column}${which}`;
    if (!(part in PARTS)) return `${of}，第 ${row} 行第 ${column} 列`;
    return `${row} 的${of}${column && `，第 ${column} 个数`}${which}`;
  },
  of: (step, steps) => `第 ${step} 步，共 ${steps} 步`,
  parts: { input: "输入", encoder: "编码器", decoder: "解码器", output: "输出" },
  previous: "上一步",
  next: "下一步",
  sentence: "英语",
  writes: "德语",
  word: (i) => ["冠词", "名词", "动词"][i] ?? `第 ${i + 1} 个词`,
  steps: "步骤",
  trace: "这个数是怎么来的",
  touch: "点击任何一个数，看它是怎么来的。",
  isWeight: "模型的一个权重：训练中学到，之后舍入到一位小数。",
  isWave: "只取决于位置，不是学来的。",
  isHidden: "被遮住了：这个词不许看，所以权重是 0。",
  isNothing: "这个头被拿掉了，输出全是 0。",
  madeIn: (title) => `出自“${title}”`,
  rounded: "数字都舍入到两位小数，末位可能略有出入。",
  change: "改动模型",
  hide: "遮住一个词",
  hiddenFrom: { decoder: "只对解码器", all: "对编码器和解码器" },
  takeAway: "拿掉",
  scale: "缩放，√d_k",
  positions: "位置",
  headOf: (name, head) => `${name}，第 ${head} 个头`,
  attentions: { encoder: "编码器", decoder: "解码器", cross: "交叉注意力" },
  changed: (was, now) => (was === now ? "改动之后，译文没有变。" : `译文变了，原来是：${was}。`),
  reset: "还原",
  head: "头",
  kinds: { stream: "词的向量", query: "查询", key: "键", value: "值" },
  labels: {
    table: "词表",
    ids: "编号",
    embedding: "嵌入",
    position: "位置",
    x: "x",
    query: "查询",
    key: "键",
    keys: "键",
    value: "值",
    values: "值",
    product: "q · k",
    score: "/ √d_k",
    weight: "权重",
    output: "输出",
    heads: "两个头",
    attention: "注意力",
    sum: "x + 注意力",
    sumNetwork: "x + 前馈网络",
    mean: "均值",
    deviation: "标准差",
    normed: "归一化",
    inner: "ReLU 之前",
    fired: "ReLU 之后",
    network: "前馈网络",
    memory: "记忆",
    state: "状态",
    logit: "logit",
    probability: "概率",
    queries: "查询",
  },
  learning: {
    title: "一个 Transformer 怎样一步步学会",
    heading: "看它学习",
    play: "播放",
    pause: "暂停",
    updates: "更新次数",
    update: (update) => `第 ${update} 次更新后`,
    before: "训练之前",
    loss: "损失",
    first: "第一个词",
    curve: (of, from, to) => `${of}：训练之前 ${from}，训练结束时 ${to}`,
    attention: (word) => `${word} 看哪里`,
    vector: (word) => `${word} 在词表里的向量`,
    memory: "编码器之后",
    writes: "写出什么",
    nothing: "什么也没有",
    sentences: "译对的句子",
    stays: "从此保持到训练结束",
    moment: (update, what) => `从第 ${update} 次更新起：${what}`,
    moments: {
      ahead: (own, others) => `“${own}”胜过“${others}”`,
      right: () => "这个句子译对了",
      all: () => "所有句子都译对了",
    },
    start: "什么也没学到",
    open: "第一个词还没有定",
    end: "训练结束",
    weight: (began, next) =>
      `模型的一个权重。训练之前是 ${began}${next === null ? "。" : `，下一次更新把它变成 ${next}。`}`,
    told: (facts) => (
      <>
        损失是 {facts.loss}：模型的把握，相当于在 {facts.choices} 个同样可能的词里选一个。它把 {facts.source}{" "}
        译成 <b>{facts.german}</b>；{facts.many} 个句子里，译对了 {facts.right} 个。在第 {facts.head} 个头里，
        <b>{facts.word}</b> 看得最多的是 <b>{facts.looked}</b>，占 {facts.share}。
      </>
    ),
  },
  tell: {
    words: {
      title: "输入一个句子",
      text: ({ source, german }) => (
        <>
          这个 Transformer 的向量只有四个数，所以每个数都能给你看。它读入 <b>{source}</b>，写出{" "}
          <b>{german}</b>
          。对模型来说，每个词只是一个编号，也就是词表中的一行。换掉上面的一个词，所有的数都会跟着变。
        </>
      ),
    },
    embedding: {
      title: "每个词一个向量",
      text: ({ word }) => (
        <>
          编号从词表中取出一行，再乘以 √d_model = 2。一开始，模型对 <b>{word}</b> 的全部了解就是这四个数。
        </>
      ),
    },
    positions: {
      title: "加上位置",
      text: ({ word, at }) => (
        <>
          注意力看不出词的顺序，所以每个位置有自己的向量，由正弦和余弦组成。<b>{word}</b> 在位置 {at}（从 0
          数起）。
        </>
      ),
    },
    query: {
      title: "它在找什么？",
      text: ({ word }) => (
        <>
          一个学来的矩阵把 <b>{word}</b> 的向量变成它的<b class="query">查询</b>。每个数都是一行乘以一列。
        </>
      ),
    },
    keys: {
      title: "每个词能给什么？",
      text: () => (
        <>
          另外两个矩阵。<b class="key">键</b>说明一个词能提供什么，<b class="value">值</b>是它交出去的内容。
        </>
      ),
    },
    products: {
      title: "查询与键相比",
      text: ({ word }) => (
        <>
          <b>{word}</b> 的查询与每个键做点积。两个向量都长、方向又一致时，点积就大。
        </>
      ),
    },
    scores: { title: "缩放", text: () => <>除以 √d_k。头越宽，点积越大，这一步把它抵消掉。</> },
    weights: {
      title: "softmax：看向哪里",
      text: ({ word, looked, share }) => (
        <>
          softmax 把分数变成加起来等于 1 的权重。在这个头里，<b>{word}</b> 主要看 <b>{looked}</b>：{share}。
        </>
      ),
    },
    mean: {
      title: "混合各个值",
      text: ({ word }) => (
        <>
          按权重求<b class="value">值</b>的平均。这就是 <b>{word}</b> 从句子里得到的内容。
        </>
      ),
    },
    heads: {
      title: "所有的词、两个头一起算",
      text: () => <>每个词都这样做，所以权重是一个矩阵：行在看，列被看。第二个头有自己的矩阵，看向别处。</>,
    },
    join: {
      title: "把头拼起来",
      text: ({ word }) => (
        <>
          两个头为 <b>{word}</b> 找到的内容并排放好，再用一个矩阵混合。
        </>
      ),
    },
    residual: {
      title: "是加上，不是替换",
      text: () => <>结果加到原来的向量上，这就是残差连接：原有的信息不会丢。</>,
    },
    norm: {
      title: "归一化",
      text: () => <>每个词各做各的：减去四个数的均值，再除以标准差。这样向量不会一层比一层大。</>,
    },
    network: {
      title: "逐词处理：先变宽",
      text: () => <>前馈网络把四个数变成八个，并把负数变成 0（ReLU）。这里没有一个词看得到别的词。</>,
    },
    network2: { title: "再变窄", text: () => <>第二个矩阵变回四个数。</> },
    memory: {
      title: "记忆",
      text: ({ word }) => (
        <>
          再相加、归一化一次，编码器就完成了：每个词一个向量，<b>{word}</b> 的向量里已经有了别的词的信息。
        </>
      ),
    },
    reading: {
      title: "解码器读已经写出的词",
      text: ({ read }) => (
        <>
          起初只有<b>开始</b>符号。每一行要说出下一个词。现在看的是 <b>{read}</b>{" "}
          这一行；点击别的词，就改看那一行。
        </>
      ),
    },
    masked: {
      title: "只看前面，不看后面",
      text: () => <>德语词互相看，但因果掩码遮住后面的词：对角线以上都是 0。</>,
    },
    masked2: { title: "相加，归一化", text: () => <>与编码器相同：混合值、拼接头、加到向量上、归一化。</> },
    cross: {
      title: "看英语",
      text: ({ read, looked, share, wrote }) => (
        <>
          查询来自 <b>{read}</b>，键和值来自记忆。为了写出 <b>{wrote}</b>，这个头主要看 <b>{looked}</b>：
          {share}。
        </>
      ),
    },
    fetch: {
      title: "取回内容",
      text: ({ read, looked }) => (
        <>
          按权重混合各个值：<b>{read}</b> 得到的主要是 <b>{looked}</b>{" "}
          交出的内容。值来自记忆，所以含有整个句子的信息。
        </>
      ),
    },
    cross2: {
      title: "加上取回的内容",
      text: ({ read }) => (
        <>
          两个头拼接后，加到 <b>{read}</b> 的向量上。它现在含有英语所说的内容。
        </>
      ),
    },
    state: {
      title: "最后一个网络",
      text: () => <>解码器的前馈网络，再相加、归一化。下一个词就由这个向量决定。</>,
    },
    logits: {
      title: "与每个词相比",
      text: () => <>与词表的每一行做点积；这就是开头的那张表。数越大，这个词越合适。</>,
    },
    probabilities: {
      title: "下一个词",
      text: ({ read, wrote, chance }) => (
        <>
          softmax 把 logit 变成概率。在 <b>{read}</b> 之后，最可能的词是 <b>{wrote}</b>：{chance}。
        </>
      ),
    },
    loop: {
      title: "写下来，再来一遍",
      text: ({ german }) => (
        <>
          写出的词由解码器读入，再算下一行，直到写出<b>结束</b>符号。<b>{german}</b> 就是这样写出来的。
        </>
      ),
    },
  },
};
