// All that the page says, in English. Another language is a table with the same keys.

import type { Lesson } from "./learning.tsx";
import type { Name } from "./num.ts";
import type { Facts } from "./steps.tsx";

const PARTS: Record<string, string> = {
  table: "table",
  embedding: "embedding",
  position: "position",
  x: "embedding + position",
  query: "query",
  key: "key",
  value: "value",
  product: "dot product",
  score: "score",
  weight: "weight",
  head: "output",
  attention: "output of attention",
  sum: "sum",
  mean: "mean",
  deviation: "standard deviation",
  normed: "normalized vector",
  inner: "inside the network, before ReLU",
  fired: "inside the network, after ReLU",
  network: "output of the network",
  logit: "logit",
  probability: "probability",
};
const PAIRS = ["product", "score", "weight", "logit", "probability"]; // their columns are words

export const en = {
  code: "en",
  title: "A sentence through the Transformer, number by number",
  heading: "Every number of a Transformer",
  languages: "Language",
  other: "中文",
  start: "start",
  end: "end",
  number: (name: Name): string => {
    const part = PARTS[name.part] ?? name.part;
    const head = name.head === undefined ? "" : `, head ${name.head + 1}`;
    if (PAIRS.includes(name.part)) return `${part}: ${name.row} → ${name.column}${head}`;
    if (!(name.part in PARTS)) return `${part}, row ${name.row}, column ${name.column}`;
    return `${part} of ${name.row}${name.column && `, number ${name.column}`}${head}`;
  },
  of: (step: number, steps: number) => `Step ${step} of ${steps}`,
  parts: { input: "In", encoder: "Encoder", decoder: "Decoder", output: "Out" },
  previous: "Back",
  next: "Next",
  sentence: "English",
  writes: "German",
  word: (i: number) => ["article", "noun", "verb"][i] ?? `word ${i + 1}`,
  steps: "Steps",
  trace: "Where this number comes from",
  touch: "Touch any number to see where it comes from.",
  isWeight: "A weight. The model learned it in training; it was then rounded to one decimal.",
  isWave: "It depends on the position alone; nothing is learned.",
  isHidden: "Hidden: this word may not be looked at, so its weight is 0.",
  isNothing: "This head was taken away, so it gives zeros.",
  madeIn: (title: string) => `Made in “${title}”`,
  rounded: "Numbers are rounded to two decimals, so a last digit may differ.",
  change: "Change the model",
  hide: "Hide a word",
  hiddenFrom: { decoder: "from the decoder", all: "from both stacks" },
  takeAway: "Take away",
  scale: "the scale, √d_k",
  positions: "the positions",
  headOf: (name: string, head: number) => `${name}, head ${head}`,
  attentions: { encoder: "encoder", decoder: "decoder", cross: "cross-attention" },
  changed: (was: string, now: string) =>
    was === now ? "Changed, and it still writes the same." : `Changed. Unchanged, it writes: ${was}.`,
  reset: "Reset",
  head: "Head",
  kinds: { stream: "vector of a word", query: "query", key: "key", value: "value" },
  labels: {
    table: "table",
    ids: "ID",
    embedding: "embedding",
    position: "position",
    x: "x",
    query: "query",
    key: "key",
    keys: "keys",
    value: "value",
    values: "values",
    product: "q · k",
    score: "/ √d_k",
    weight: "weight",
    output: "output",
    heads: "both heads",
    attention: "attention",
    sum: "x + attention",
    sumNetwork: "x + network",
    mean: "mean",
    deviation: "std",
    normed: "normalized",
    inner: "before ReLU",
    fired: "after ReLU",
    network: "network",
    memory: "memory",
    state: "state",
    logit: "logit",
    probability: "probability",
    queries: "queries",
  },
  learning: {
    title: "A Transformer learns, update by update",
    heading: "Watch it learn",
    play: "Play",
    pause: "Pause",
    updates: "Updates",
    update: (update: number) => `update ${update}`,
    before: "before training",
    loss: "loss",
    first: "first word",
    curve: (of: string, from: string, to: string) => `${of}: ${from} before training, ${to} at its end`,
    attention: (word: string) => `where ${word} looks`,
    vector: (word: string) => `vector of ${word} in the table`,
    memory: "after the encoder",
    writes: "what it writes",
    nothing: "nothing",
    sentences: "sentences that are right",
    stays: "What stays so to the end",
    moment: (update: number, what: string) => `From update ${update}: ${what}`,
    moments: {
      ahead: (own: string, others: string) => `“${own}” beats “${others}”`,
      right: () => "This sentence is right",
      all: () => "All sentences are right",
    },
    start: "Nothing is learned yet",
    open: "The first word is still open",
    end: "The end of the training",
    weight: (began: string, next: string | null) =>
      `A weight. It began as ${began}${next === null ? "." : `; the next update makes it ${next}.`}`,
    told: (facts: Lesson) => (
      <>
        The loss is {facts.loss}: the model is as unsure as somebody who chooses among {facts.choices} equally
        likely words. It translates {facts.source} as <b>{facts.german}</b>, and {facts.right} of the{" "}
        {facts.many} sentences are right. In head {facts.head}, <b>{facts.word}</b> looks mostly at{" "}
        <b>{facts.looked}</b> ({facts.share}).
      </>
    ),
  },
  tell: {
    words: {
      title: "A sentence goes in",
      text: ({ source, german }: Facts) => (
        <>
          This Transformer has vectors of four numbers, so you can see all of them. It reads <b>{source}</b>{" "}
          and writes <b>{german}</b>. To the model, each word is an ID, a row in a table. Change a word above,
          and every number follows.
        </>
      ),
    },
    embedding: {
      title: "A vector for each word",
      text: ({ word }: Facts) => (
        <>
          The ID picks a row of the table. It is multiplied by √d_model = 2. These four numbers are all that
          the model knows about <b>{word}</b> at first.
        </>
      ),
    },
    positions: {
      title: "Add the position",
      text: ({ word, at }: Facts) => (
        <>
          Attention does not see the order of words, so each position has a vector of its own, made of sines
          and cosines. <b>{word}</b> stands at position {at}.
        </>
      ),
    },
    query: {
      title: "What does it look for?",
      text: ({ word }: Facts) => (
        <>
          A learned matrix turns the vector of <b>{word}</b> into its <b class="query">query</b>. Each number
          is a row times a column.
        </>
      ),
    },
    keys: {
      title: "What does each word offer?",
      text: () => (
        <>
          Two more matrices. The <b class="key">key</b> is what a word offers to those that look for it; the{" "}
          <b class="value">value</b> is what it hands over.
        </>
      ),
    },
    products: {
      title: "Compare query and keys",
      text: ({ word }: Facts) => (
        <>
          The dot product of the query of <b>{word}</b> with each key. It is large when both vectors are long
          and point the same way.
        </>
      ),
    },
    scores: {
      title: "Scale",
      text: () => <>Divide by √d_k. Wider heads have larger dot products; the division makes up for it.</>,
    },
    weights: {
      title: "Softmax: where it looks",
      text: ({ word, looked, share }: Facts) => (
        <>
          The softmax turns scores into weights that add up to 1. In this head, <b>{word}</b> looks mostly at{" "}
          <b>{looked}</b>: {share}.
        </>
      ),
    },
    mean: {
      title: "Mix the values",
      text: ({ word }: Facts) => (
        <>
          The mean of the <b class="value">values</b>, each with its weight. This is what <b>{word}</b> gets
          from the sentence.
        </>
      ),
    },
    heads: {
      title: "All words at once, in both heads",
      text: () => (
        <>
          Every word does the same, so the weights are a matrix: a row looks, a column is looked at. The
          second head has matrices of its own and looks elsewhere.
        </>
      ),
    },
    join: {
      title: "Join the heads",
      text: ({ word }: Facts) => (
        <>
          What both heads found for <b>{word}</b> stands side by side. One more matrix mixes it.
        </>
      ),
    },
    residual: {
      title: "Add, don’t replace",
      text: () => (
        <>The result is added to the vector that went in: the residual connection. Nothing is lost.</>
      ),
    },
    norm: {
      title: "Normalize",
      text: () => (
        <>
          Each word by itself: subtract the mean of its four numbers, divide by their standard deviation. So
          vectors do not grow from layer to layer.
        </>
      ),
    },
    network: {
      title: "Each word by itself: wider",
      text: () => (
        <>
          The feed-forward network turns four numbers into eight and sets the negative ones to 0 (ReLU). No
          word sees another here.
        </>
      ),
    },
    network2: { title: "And narrow again", text: () => <>A second matrix leads back to four numbers.</> },
    memory: {
      title: "The memory",
      text: ({ word }: Facts) => (
        <>
          Add and normalize once more. The encoder is done: one vector per word, and that of <b>{word}</b> now
          knows about the others.
        </>
      ),
    },
    reading: {
      title: "The decoder reads what is written",
      text: ({ read }: Facts) => (
        <>
          At first, only a <b>start</b> symbol. Each row must say which word comes next. You see the row of{" "}
          <b>{read}</b>; touch another to follow it.
        </>
      ),
    },
    masked: {
      title: "Look back, never ahead",
      text: () => (
        <>
          The German words look at each other, but the causal mask hides what comes later: everything above
          the diagonal is 0.
        </>
      ),
    },
    masked2: {
      title: "Add and normalize",
      text: () => <>As in the encoder: values mixed, heads joined, added to the vector, normalized.</>,
    },
    cross: {
      title: "Look at the English",
      text: ({ read, looked, share, wrote }: Facts) => (
        <>
          The query comes from <b>{read}</b>, keys and values from the memory. To write <b>{wrote}</b>, this
          head looks mostly at <b>{looked}</b>: {share}.
        </>
      ),
    },
    fetch: {
      title: "Fetch what is there",
      text: ({ read, looked }: Facts) => (
        <>
          The values, each with its weight: <b>{read}</b> gets mostly what <b>{looked}</b> hands over. These
          values come from the memory, so they know the whole sentence.
        </>
      ),
    },
    cross2: {
      title: "Add what was found",
      text: ({ read }: Facts) => (
        <>
          Both heads are joined and added to the vector of <b>{read}</b>. It now holds what the English says.
        </>
      ),
    },
    state: {
      title: "One last network",
      text: () => (
        <>The decoder’s feed-forward network, added and normalized. This vector must name the next word.</>
      ),
    },
    logits: {
      title: "Compare with every word",
      text: () => (
        <>
          The dot product with each row of the table, the same table as at the beginning. The larger it is,
          the better the word fits.
        </>
      ),
    },
    probabilities: {
      title: "The next word",
      text: ({ read, wrote, chance }: Facts) => (
        <>
          The softmax turns the logits into probabilities. After <b>{read}</b>, the likeliest word is{" "}
          <b>{wrote}</b>: {chance}.
        </>
      ),
    },
    loop: {
      title: "Write it, and begin again",
      text: ({ german }: Facts) => (
        <>
          The word is written, the decoder reads it and computes the next row, up to the <b>end</b> symbol.
          This is how it wrote <b>{german}</b>.
        </>
      ),
    },
  },
};
