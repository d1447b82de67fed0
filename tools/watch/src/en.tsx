// All that the page says, in English. Another language is a table with the same keys: see tools/README.md.

import type { ComponentChildren as Children } from "preact";
import { Root, rich, Term } from "./words.tsx";

export const en = {
  // ---- The page

  code: "en", // of the language, as `lang` has it
  language: "English",
  title: "See inside a Transformer",
  heading: "See inside",
  about: "A real Transformer translates your sentence here, and shows every number on the way.",
  languages: "Language",
  notLoaded: (why: string) => `The model could not be loaded: ${why}`,
  noModel: "it holds no model",
  noScript: (address: string) => `there is no ${address}`,
  failed: (why: string) => `The model failed: ${why}`,
  loading: "The model is loading: 2.6 million numbers. Nothing that you type leaves this page.",
  computing: "computing…",
  tooLong: (tokens: number, most: number) =>
    `This sentence has ${tokens} pieces, and the page shows at most ${most}: please shorten it.`,
  map: "Map",
  chooseBox: "Choose a box to open it, a dotted word for its meaning.",
  onWithTour: "On with the tour ↓",

  sentence: "Your sentence, in English, such as describes a photograph:",
  anySentence: "Your sentence:",
  translate: "Translate",
  or: "Or:",

  own: rich`Or see inside a model of your own, from the folder that ${<code>annotated train</code>} wrote; it stays on this computer:`,
  ownModel: (folder: Children, layers: number, width: number, heads: number) =>
    rich`The model is yours, from ${<b>{folder}</b>}: ${layers} + ${layers} layers of width ${width}, ${heads} heads. Where the page says English and German, read its two languages.`,
  openFolder: "Open a folder…",
  shippedModel: "Back to the shipped model",
  theFiles: "the files",
  refused: (folder: string, why: string) => `${folder} was refused: ${why}.`,

  translation: "The translation",
  nothing: "(nothing)",
  changed: "Changed by you:",
  reset: "Reset",
  changes: (changes: string[]) => `${changes.join("; ")}.`,
  withoutParts: (parts: string) => `without ${parts}`,
  begunWith: (beginning: string) => `beginning with “${beginning}”`,
  beamOf: (beam: number, usual: number) => `a beam of ${beam}, not ${usual}`,
  alphaOf: (alpha: string, usual: number) => `α = ${alpha}, not ${usual}`,
  temperatureOf: (temperature: string) => `a temperature of ${temperature}, for show`,
  wholeModel: "The whole model:",
  brokenFinds: (same: string) => ` Broken, it finds ${same}.`,
  sure: (sure: string, typical: string, worst: Children, chance: string, chosen: boolean) =>
    rich`${<Term of="geometric mean" as="On average" />} the model gave each piece ${sure}${typical && ` (half of the captions that it was made for get more than ${typical})`}. It was least sure of ${worst}, ${chance}${chosen && ", which you chose"}.`,
  unsure: " Nine in ten captions get more: this is not what it was made for, do not trust it.",
  composed: (words: Children, several: boolean, more: number) =>
    rich` Put together from pieces: ${words}${more > 0 && ` and ${more} more`}. ${several ? "Such words" : "Such a word"} may not exist, or be the wrong one.`,
  comma: ", ",
  and: " and ",

  stop: (at: number, of: number, title: string) => `Stop ${at} of ${of} · ${title}`,
  besideStop: (at: number, title: string) => `Beside stop ${at} · ${title}`,
  shape: "Shape",
  paper: (section: string, place: string) => `“Attention Is All You Need”, section ${section}${place}`,
  stepsOfAttention: "Steps of attention",
  layer: "Layer",
  head: "Head",
  back: "Back",
  backToStop: (at: number) => `Stop ${at}`,
  notebook: (name: string) => `Notebook ${name}`,
  known: {
    title: "What you now know",
    pieces: "A text becomes pieces; a piece becomes a vector, which also says where it stands.",
    attention:
      "Attention is a mean of values, weighted by how well a query and the keys match; several heads look at several places.",
    network:
      "A feed-forward network works on each token alone, and what a sub-layer computes is added to what it read.",
    mask: "The mask lets the decoder learn at all positions at once, without seeing the answer.",
    beam: "The decoder writes token by token; a beam search keeps several beginnings, as the likeliest may end badly.",
    trained: (notebook: Children) => rich`How such a model is trained: ${notebook}.`,
  },

  // ---- What the stops ask and say

  stops: {
    encoderPieces: {
      title: "Pieces",
      question: "What does the model read?",
      text: "Not words but pieces. Byte-pair encoding has learned them from English and German captions together: a frequent word is one piece, a rare one is put together from several, and a character that no piece holds is spelled in bytes. Why not whole words? A table of words has no row for a word that is not in it, such as a new name; of pieces any word can be made.",
    },
    decoderPieces: {
      title: "Outputs, shifted right",
      question: "What does the decoder read?",
      text: "What it has written so far, moved one place to the right so that a start symbol comes first. It predicts the next token, appends it, and reads again: it is auto-regressive.",
    },
    embedding: {
      title: "Embedding",
      question: "How does a piece become numbers?",
      text: rich`Each piece has a row of learned numbers in a table, its embedding. The row is multiplied by ${<Root of="d_model" end="," />} so that the positions, added next, do not drown it.`,
    },
    positions: {
      title: "Positional encoding",
      question: "How does the model know the order of the words?",
      text: "An embedding says which piece, not where it stands. So a pattern of sine and cosine waves, different at every position, is added to it; with waves, the paper hoped, distances are easy to learn. Attention itself sees no order: leave the positions out, and it reads a bag of pieces.",
      equation: ", PE(pos, 2i+1) = cos of the same, for the numbers 2i and 2i+1 of a vector",
    },
    where: {
      encoder: "self-attention",
      decoder: "masked self-attention",
      cross: "encoder-decoder attention",
    },
    projections: {
      tab: "q, k, v",
      title: (where: string) => `Queries, keys and values, ${where}`,
      question: "What do a query, a key and a value do?",
      text: rich`A token's vector x is multiplied by three learned matrices. The ${<b class="query">query</b>} says what this token looks for. The ${<b class="key">key</b>} says by what it can be found. The ${<b class="value">value</b>} is what it hands over to those who find it. Nobody told the model so: these are the roles that the formula of attention, at the next stop, gives them.`,
    },
    weights: {
      tab: "scores and weights",
      title: (where: string) => `Scores and weights, ${where}`,
      question: {
        encoder: "How does a token decide where to look?",
        decoder: "Why may the decoder not look ahead?",
        cross: "Where does the German meet the English?",
      },
      text: {
        encoder: rich`Every English token may look at every other, before and behind. A token's query is compared with every key by a dot product, its score; the softmax turns the scores into weights that sum to 1. Before it they are scaled: a sum of d${<sub>k</sub>} products, some negative, is about √d${<sub>k</sub>} times as large as one of them, so it is divided by ${<Root of="d_k" end="." />} Undivided, large scores give nearly all the weight to one token: the head then passes on a single value, and in training the softmax has “extremely small ${<Term of="gradient" as="gradients" />}”, so it hardly learns to look elsewhere.`,
        decoder: rich`A German token may look at itself and at what was written before it. What comes later is masked: its score becomes −∞, its weight 0. In training the whole German sentence is there at once, and without the mask the model could copy its answer. The rest is as in the encoder: dot products of the query with every key, divided by √d${<sub>k</sub>}, and a softmax.`,
        cross: rich`Here the two languages meet: the query comes from the German written so far, keys and values from the ${<Term of="memory" />} of the English. In the last layer a position looks for the English of the token that it is about to write; in layers before it a head may still look for that of the token just read. So each position has two names. The rest is as in the encoder: dot products of the query with every key, divided by √d${<sub>k</sub>}, and a softmax.`,
      },
      mask: ", with M = −∞ where a key comes later, 0 elsewhere",
      equation: ", equation 1",
    },
    heads: {
      tab: "heads",
      title: (where: string) => `Heads, ${where}`,
      question: "Why several heads?",
      text: "One softmax can look at one mixture of places at a time. Several heads look at different places for different reasons, each with its own queries, keys and values. What they bring is laid side by side and mixed by one more matrix.",
    },
    norm: {
      title: (sublayer: string) => `Add & norm after ${sublayer}`,
      after: {
        encoder: ["self-attention", "the feed-forward network"],
        decoder: ["masked self-attention", "encoder-decoder attention", "the feed-forward network"],
      },
      question: "Why is the input added to the output?",
      text: rich`A ${<Term of="sub-layer" />} does not replace a token's vector: what it computes is added to it, so nothing is lost on the way up, and in training the ${<Term of="gradient" />} has a straight way down. The norm then brings the sum back to one scale.`,
    },
    network: {
      title: "Feed-forward",
      question: "What happens to each token by itself?",
      text: "Attention moves information between tokens; this network works on each token alone, with the same weights at every position. It widens the vector, sets what is negative to 0, and narrows it again; without the step in the middle its two matrices would be no more than one. No unit of the wide vector has a name: training chose what makes it fire, and often it is a mixture of things.",
      shape: ", for each token",
      equation: ", equation 2",
    },
    memory: {
      title: "The memory",
      question: "What does the decoder get of the English?",
      text: "The last encoder layer's output, one vector for each token. It is computed once; the decoder looks at all of it anew for each token that it writes. There is no single vector through which the sentence must pass.",
    },
    probabilities: {
      title: "Linear and softmax",
      question: "How does it choose the next token?",
      text: rich`The decoder's last vector is compared with the row of every piece in the same table that made the embeddings: one ${<Term of="logit" />} each. The softmax makes them probabilities. Choose another piece, and the translation goes on from it.`,
      vocabulary: "vocabulary",
    },
    beam: {
      title: "Beam search",
      question: "Why not simply take the likeliest token each time?",
      text: rich`Because a good beginning may lead to a bad end. The search keeps the few likeliest beginnings side by side, as many as the beam is wide, and drops the others. With a beam of 1 it is ${<Term of="greedy" />}. Every further token makes a sentence less likely: to divide log P, which is negative, by a penalty that grows with the length (in tokens, ‹end› too) makes up for it.`,
      equation: "score = log P / ((5 + length) / 6)",
    },
    breaking: {
      title: "Break it",
      question: "What is each part for?",
      text: "Leave a part out and see what becomes of the translation. The model was trained with all its parts, so this shows what this model leans on, not what a model trained without the part could learn.",
      table: ", where Table 3 trains variants anew",
    },
  },

  // ---- The map

  figure: {
    name: "The Transformer, Figure 1 of the paper: choose a part",
    inputs: "Inputs",
    outputs: "Outputs (shifted right)",
    inputEmbedding: "Input embedding",
    outputEmbedding: "Output embedding",
    positions: "+ Positional encoding",
    attention: ["Multi-head", "attention"],
    maskedAttention: ["Masked multi-head", "attention"],
    norm: "Add & norm",
    network: ["Feed", "forward"],
    memory: "Memory",
    probabilities: "Linear, softmax",
    beam: "Beam search",
    breaking: "✂ Break it",
    next: "next: ",
  },

  // ---- Words that are explained

  meanings: {
    logit: "a score that may be any number, before the softmax makes probabilities of all scores",
    d_model: "the width of a token's vector between layers",
    d_k: "the width of one head's queries and keys: d_model divided by the number of heads",
    d_v: "the width of one head's values",
    d_ff: "the inner width of a feed-forward network",
    src_len: "the number of tokens of the English sentence",
    tgt_len: "the number of tokens that the decoder reads",
    h: "the number of heads",
    bias: "a learned number that is added, one for each of the vector's; equation 1 leaves it out",
    "sub-layer": "one step of a layer: an attention or a feed-forward network",
    "cosine similarity": "the cosine of the angle between two vectors: 1 if they point the same way",
    gain: "a learned factor, one for each of the vector's numbers",
    "standard deviation":
      "how far the numbers lie from their mean: the root of the mean square of the distance",
    "geometric mean":
      "the geometric mean: the n-th root of the product of n numbers; one that is small draws it down further than the plain mean",
    greedy: "always taking the likeliest next token",
    memory:
      "the encoder's last vectors, one for each English token: all that the decoder sees of the sentence",
    ReLU: "rectified linear unit: max(0, x), which keeps what is positive and sets the rest to 0",
    gradient: "how the model's loss changes with each of its numbers: in training they follow it downwards",
  },
  meaning: (meaning: string) => ` (${meaning})`,

  // ---- How numbers are drawn

  start: "‹start›",
  end: "‹end›",
  howToRead: "How to read the strips",
  strips:
    "In the strips a cell is a number: full colour where it is large and positive, grey (in the dark, sand) where it is large and negative. Each group of strips has a scale of its own, which stands below it. Point at a cell, or slide a finger along a strip, to read its numbers.",
  beyond: (count: number, largest: string) =>
    ` and beyond: ${count} of the numbers are larger, up to ${largest}`,
  numberAt: (at: number, of: number, value: Children) => rich`number ${at} of ${of}: ${value}`,
  asTable: (name: string) => `${name}, as a table`,
  tooWide: {
    table: "The table is wider than this page: scroll it to the right →",
    tree: "The tree is wider than this page: scroll it to the right →",
  },

  // ---- What goes in, and the sub-layers

  tokenAtHand: "The token at hand",
  positionAtHand: "The position at hand (the piece that it reads → the piece that it writes)",
  colon: ": ",
  dotJoins: "A dot joins a piece to the one before it.",
  sourcePieces: {
    count: (tokens: number, vocabulary: string) =>
      rich`This sentence is ${<b>{tokens} tokens</b>}: ${tokens - 1} pieces from a table of ${vocabulary}, and the end symbol.`,
    bytes: (count: number) =>
      ` ${count} of them are single bytes, because no piece holds their character: the captions that it learned from hardly ever had it.`,
    spelling:
      "A word's first piece holds the space before it (▁ in the notebooks). The number is the row of the table in which the piece is looked up.",
    composed: (words: Children) => rich`Put together from several pieces: ${words}.`,
    single: "Here each word is a single piece.",
    try: "A sentence with words that are put together:",
  },
  targetPieces: {
    name: "What the decoder reads and writes",
    caption: "At each position one more token is read, and the next is predicted from all that was read",
    columns: ["position", "it reads", "it writes", "with probability"],
  },
  embedding: {
    count: (tokens: number, width: number) =>
      `${tokens} tokens become ${tokens} vectors of ${width} numbers.`,
    twin: (piece: string) =>
      ` “${piece}” stands here twice, and both rows are the same: nothing tells yet where a token stands.`,
    alone: " A row depends on the piece alone, not on where it stands.",
    name: "Embeddings",
  },
  positions: {
    name: "Embedding, position and their sum",
    counted: (token: Children, at: number) =>
      rich`Positions count from 0: ${token} stands at ${at}. Without them the decoder keeps some order, through its causal mask.`,
    leaveOut: "Leave out the positions",
    try: "Two sentences made of the same pieces. With positions they mean opposite things; leave the positions out, and the model cannot tell one from the other:",
    waves: "The waves of all positions of this sentence",
    wavesName: "Positional encodings",
    fast: "To the left the waves are fast, to the right so slow that a sentence of this length sees hardly any change.",
  },
  addAndNorm: {
    name: "Residual connection and layer normalisation",
    leftOutX: "x (left out)",
    sum: "sum",
    norm: "norm(sum)",
    sublayer: "sublayer(x)",
    caption: (width: number) => `Over the ${width} numbers of this token`,
    mean: "mean",
    deviation: "standard deviation",
    rescaled: rich`The norm brings the sum to mean 0 and standard deviation 1, then multiplies each number by a learned ${<Term of="gain" />} and adds a learned shift: that is why its own ${<Term of="standard deviation" />} need not be 1.`,
    similar: (alike: Children) =>
      rich`The ${<Term of="cosine similarity" />} of x and the sum is ${alike}: at 1 the sum still points where x did, at 0 nothing of that direction is left, below 0 it points away from it.`,
    leaveOut: "Leave out all residual connections",
  },
  network: {
    fired: (token: string, fired: number, units: number, leftOut: boolean) =>
      rich`For “${token}”, ${<b>{`${fired} of ${units} units ${leftOut ? "would fire, but the network is left out" : fired === 1 ? "fires" : "fire"}`}</b>}; the ${<Term of="ReLU" />} has set the others to 0.`,
    strongest: (unit: number, value: string) => ` The strongest is unit ${unit}, with ${value}.`,
    name: "The units of this token",
    units: (count: number) => `${count} units`,
    firing: "Units that fire, the strongest first",
    unit: (unit: number, value: string) => `Unit ${unit}: ${value}`,
    fewer: "the strongest only",
    all: (count: number) => `all ${count} that fire`,
    each: (unit: number, leftOut: boolean) =>
      `Unit ${unit} for each token of this sentence${leftOut ? ", if it were not left out" : ""}`,
    none: "It fires for none of them.",
    adds: (count: number) => `What it adds to the token: ${count} numbers`,
    stripsName: "Feed-forward input, output and sum",
    output: "network(x)",
    sizes: (input: string, output: Children, alike: Children, change: string) =>
      rich`The largest number of x is ${input} in size, the largest that the network gives ${output}. The ${<Term of="cosine similarity" />} of x and the sum is ${alike}: ${change} The norm, which comes next, brings every sum to the same scale, however large it is.`,
    nothing: "it is left out and adds nothing.",
    hardly: "the network hardly changes this token.",
    corrects: "the network corrects this token and leaves most of it as it was.",
    changes: "the network changes this token a good deal.",
    anew: "the network writes this token nearly anew.",
    purpose: "What is it for?",
    leave: "Leave it out, so that it adds nothing, and see what the translation loses.",
    leaveOne: (layer: number) => `Leave out the feed-forward network of layer ${layer}`,
    leaveAll: "Leave out all feed-forward networks, of encoder and decoder",
  },
  memory: {
    all: (tokens: number, width: number, layers: number) =>
      rich`${<b>{`${tokens} × ${width} numbers`}</b>} are all that the decoder will ever know of the English sentence. Each of its ${layers} layers makes its own keys and values of them, once.`,
    name: "The memory",
  },

  // ---- Attention

  attention: {
    query: (token: string) => `The query of “${token}”: `,
    queryName: "The query",
    bias: <Term of="bias" as="b" />,
    keys: (memory: boolean) => `The keys${memory ? " of the memory" : ""}: `,
    keysName: "The keys",
    values: (memory: boolean) => `The values${memory ? " of the memory" : ""}: `,
    valuesName: "The values",
    said: (layer: number, head: number, who: Children, first: Children, second: Children, sums: string) =>
      rich`In layer ${layer}, head ${head}, ${who} gives ${first}${second && rich` and ${second}`} (${sums}).`,
    readsAndWrites: (reads: Children, writes: Children) =>
      rich`the position that reads ${reads} and writes ${writes}`,
    ofItsAttention: (share: string, key: Children) => rich`${share} of its attention to ${key}`,
    to: (share: string, key: Children) => rich`${share} to ${key}`,
    sums: (keys: number, hidden: number) =>
      `before rounding, all ${keys} weights sum to 1${
        hidden ? `; ${hidden} ${hidden === 1 ? "token is" : "tokens are"} still to come, and masked` : ""
      }`,
    revealed: (share: Children) => rich` To the keys that the mask hid from it, it now gives ${share}.`,
    stepByStep: "The weights, step by step",
    caption: "One row of the attention weights, step by step. Choose a key to see its product.",
    key: "key",
    mask: "mask",
    weight: "softmax: the weight",
    wasHidden: "was hidden",
    lastLayer: (layer: number, heads: number, writes: Children, most: Children, stop: boolean) =>
      rich`In layer ${layer}, on average over its ${heads} heads, the position that writes ${writes} gives ${most}${stop && "."}`,
    product: (query: string, key: string, value: string) => `One product: “${query}” · “${key}” = ${value}`,
    productName: "One product",
    products: (width: number) =>
      `${width} numbers of the query times ${width} numbers of the key. Where both are large and have the same sign, the product grows.`,
    leaveScale: (width: number) => `Leave out the division by √${width}, in all layers`,
    aboutMask:
      "While the model writes, nothing later is there to be looked at. Yet without the mask each new token has the earlier positions computed again, and now they see the later tokens, which never happened in training.",
    leaveMask: "Leave out the causal mask",
    computedBy: (name: string) => `Computed by ${name}`,
    allQueries: "All queries of this head at once",
    headDoes: (head: number, layer: number, does: Children) =>
      rich`Head ${head} of layer ${layer} in this sentence: ${does}.`,
    readMap:
      "A row asks, a column answers; full colour is 100%, and each row sums to 100%. Click or tap a row to look at it above.",
    mapName: (layer: number, head: number) => `Attention weights, layer ${layer}, head ${head}`,
    headMapName: (head: number) => `Attention weights of head ${head}`,
    readMaps: (query: string) =>
      `A row asks, a column answers. The row with the frame is “${query}”: click or tap another row to look at it. Below its number stands what a head does in this sentence.`,
    headNumber: (head: number) => `Head ${head}`,
    mostTo: (key: Children) => rich`this row: most to ${key}`,
    handsOver: (head: number, width: number) =>
      `What head ${head} hands over: the values, weighted and summed (${width} numbers)`,
    outputName: "The head's output",
    silenced: "silenced",
    isHead: (head: number) => `= head ${head}`,
    share: (share: string, key: string) => `${share} of ${key}`,
    others: "+ the others",
    sideBySide: (heads: number, width: number) =>
      `All heads side by side (${heads} × ${width} = ${heads * width}), then times Wᴼ`,
    sideBySideName: "Concatenated heads and output",
    output: "output",
    silence: (head: number, layer: number, width: number) =>
      `Silence head ${head} of layer ${layer}: its ${width} numbers become 0`,
    looksAt: (query: string, key: string, share: Children) => rich`${query} looks at ${key}: ${share}`,
    naming: "How a head gets its line",
    rules: (first: boolean, places: string) =>
      `The page counts rows${first ? ", without the first, whose only choice is itself" : ""}. A row counts for a place that gets more than half of its weight: ${places}. The place with the most rows is told, if these are at least half of all. Else the head is called sharp, if in at least half of the rows one token gets more than half of the weight; or spread, if in at least half of them no token gets more than a third. Else the page finds no pattern. ${
        first ? "The first token" : "The end of the sentence"
      } is a common place of rest for a head that has nothing to fetch (an attention sink, notebook 13). In another sentence a head may get another line.`,
    places: {
      encoder:
        "the token itself, the one before it, the second before it, the one after it, the first token of the sentence, ‹end› and the full stop together, or all tokens of one piece together",
      decoder:
        "the token itself, the one before it, the second before it, the one after it (only without the mask), ‹start›, or all tokens of one piece together",
      cross: "‹end› and the full stop together, or all tokens of one piece together",
    },
  },
  heads: {
    rests: "mostly at ‹end› or the full stop",
    fullStop: "mostly at the full stop",
    end: "mostly at ‹end›",
    piece: (piece: string) => `mostly at “${piece}”`,
    itself: "mostly at the token itself",
    oneBack: "mostly one token back",
    twoBack: "mostly two tokens back",
    oneAhead: "mostly one token ahead",
    first: "mostly at the first token",
    start: "mostly at ‹start›",
    sharpAcross: "mostly at one English token for each (sharp)",
    sharp: "mostly at one token, not the same in every row (sharp)",
    spread: "spread over many tokens",
    none: "no pattern that this page looks for",
    rows: (name: string, rows: number, of: number, all: boolean) =>
      `${name}: ${rows} ${all ? `of ${of} rows` : `of the ${of} rows with a choice`}`,
  },

  // ---- Probabilities

  probabilities: {
    said: (begun: Children, best: Children, chance: string, written: Children, because: string) =>
      rich`After having written ${begun ?? "nothing"}, the model gives the highest probability to ${best}, ${chance}. It wrote ${written}${because}`,
    asExpected: ".",
    chosen: ", because you chose it.",
    forbidden: ", because the search never takes the other.",
    searched: ", because the sentence as a whole scored better with it.",
    longest: ", because the sentence has reached its greatest length.",
    name: "The likeliest pieces",
    caption: (vocabulary: string) => `The ten likeliest of ${vocabulary} pieces`,
    atTemperature: (temperature: string) => `, at a temperature of ${temperature}`,
    piece: "piece",
    probability: "probability",
    instead: "write it instead",
    written: "written",
    write: (piece: Children) => rich`Write ${piece}`,
    rest: (pieces: string, share: string) => `The other ${pieces} pieces share ${share}. `,
    begun: (begun: Children) => rich`You made the translation begin with ${begun}.`,
    again: "Let the model choose again",
    temperatureTitle: "Temperature of the softmax, for show",
    temperature: "Temperature",
    aboutTemperature:
      "Logits are divided by it first. Below 1 the likeliest piece gains, above 1 all become more alike. The model itself uses 1.",
  },

  // ---- Beam search

  beam: {
    tryBeam: "A sentence in which the likeliest beginning leads to a worse translation:",
    moveAlpha: "Here the length penalty decides: move α between 0.6, the paper's, and 1.",
    tryAlpha: "A sentence in which the length penalty α decides between two translations:",
    beam: "Beam",
    alpha: "Length penalty α",
    steps: (of: number) => `Steps shown, of ${of}`,
    kept: "kept",
    dropped: "dropped",
    ended: "ended",
    winning: "the translation",
    name: "The tree of the search",
    described: (steps: number) =>
      `The tree of the search after ${steps} steps; the list below says the same in words.`,
    numbers:
      "Each number is the sum of log-probabilities so far; 0 would be certainty. The search goes on after the first translation has ended, because a beginning that is still open may score better.",
    caption: (alpha: string) => `Translations that ended, the best score first, with α = ${alpha}`,
    translation: "translation",
    penalty: "÷ penalty",
    score: "= score",
    otherPieces: "cut into other pieces:",
    alike:
      "Translations that read alike are made of other pieces: below them stand the words in which they differ, with a dot between the pieces. To the search they are different translations.",
    many: (beam: number) =>
      `More than ${beam} have ended: the beam limits how many beginnings are open, not how many end.`,
    noPenalty:
      "With α at 0 no further token can raise a score, so the search ends as soon as the best translation beats every beginning that is still open: the list may be short.",
    probability: (chance: string) =>
      `P is the probability of the whole sentence, its end included: of the first, ${chance}.`,
    narrow: (begun: boolean): string =>
      begun
        ? "This sentence, begun as you chose, with a beam of 1, which is greedy search from there on, and with the paper's beam of 4"
        : "This sentence with a beam of 1, which is greedy search, and with the paper's beam of 4",
    beamColumn: "beam",
    same: " (the same)",
  },

  // ---- Break it

  parts: {
    positions: {
      name: "the positions",
      why: "The waves of section 3.5 are not added: a sentence becomes a bag of pieces. In the German some order remains, through the causal mask.",
    },
    mask: {
      name: "the causal mask",
      why: "Each position of the decoder sees what was written after it, which it never did in training.",
    },
    scale: {
      name: "the division by √dₖ",
      why: "The scores stay large: the softmax gives nearly everything to one token.",
    },
    residual: {
      name: "the residual connections",
      why: "Each sub-layer replaces what it read, where it should add to it.",
    },
    networks: {
      name: "the feed-forward networks",
      why: "Attention mixes what the tokens hold, and nothing works on a token alone.",
    },
  },
  breaking: {
    network: (stack: string, layer: number) => `the feed-forward network of the ${stack}'s layer ${layer}`,
    heads: (numbers: number[], stack: string, layer: number, cross: boolean) =>
      `${numbers.length > 1 ? "heads" : "head"} ${numbers.join(", ")} of layer ${layer} in ${
        cross ? "encoder-decoder attention" : `the ${stack}'s self-attention`
      }`,
    andMore: (parts: string, more: number) => `${parts}, and ${more} more`,
    stacks: { encoder: "encoder", decoder: "decoder" },
    try: "A sentence whose translation changes without it:",
    justAsSure: (chance: string) => `the same words, just as sure: ${chance}`,
    lessSure: (from: string, to: string) => `the same words, but less sure: ${from} → ${to}`,
    surer: (from: string, to: string) => `the same words, and surer: ${from} → ${to}`,
    whole: "The whole model",
    without: (parts: string) => `Without ${parts}, the rest as it was trained`,
    theseAre: (same: string) => ` These are ${same}.`,
    unmasked:
      "Without the causal mask these numbers are those of the finished sentence: each position sees what comes after it. While the sentence was being written that was not there yet, so the token that this position wrote, and its probability, come from other numbers than these. Keys that the mask hid are marked.",
    caption: "The same sentence, the same weights, one part left out at a time",
    leftOut: "left out",
    translation: "translation",
    nothing: "nothing",
    same: (same: string) => ` (${same})`,
    tick: "Tick a box, and the whole page shows the model without that part, until you put it back.",
    silenceTitle: "Silence heads and feed-forward networks",
    silenceAll: (heads: number, networks: number) =>
      `${heads} heads and ${networks} feed-forward networks. Silence one, several, or a layer's heads all at once by the layer's name, to find out which of them this sentence needs.`,
    kinds: {
      encoder: "Encoder self-attention",
      decoder: "Decoder self-attention",
      cross: "Encoder-decoder attention",
    },
    layer: (layer: number) => `layer ${layer}`,
    silenceLayer: (layer: number, kind: string) => `Silence layer ${layer} of ${kind}`,
    networks: "Feed-forward, by layer",
    silence: (part: string) => `Silence ${part}`,
  },

  // ---- Why a folder is refused

  folder: {
    missing: (file: string) => `it has no file ${file}`,
    damaged: (file: string) => `${file} is damaged`,
    tooLarge: (most: number) => `it is too large for a page, which takes ${most} million numbers at most`,
    noModel: "config.json does not describe a model",
    needs: (name: string, value: string, own: string) => `the page needs ${name} ${value}, not ${own}`,
    setting: (name: string, own: string) => `in config.json ${name} is ${own}`,
    twoVocabularies: "the page needs one vocabulary of subwords for both languages, not two",
    kind: (kind: string) => `the page needs a vocabulary of subwords, not ${kind}`,
    tokenized: "the page needs normal text, and this model reads it lower-cased and tokenised",
    pieces: (pieces: number, wanted: number) =>
      `tokenizer.model has ${pieces} pieces, and config.json asks for ${wanted}`,
    otherTokenizer: "tokenizer.model is not the one that was saved with these weights",
    otherEncoding: "tokenizer.model is not byte-pair encoding as this package learns it",
    noTensor: (name: string) => `the weights lack tensor ${name}`,
    shape: (name: string, own: string, wanted: string) =>
      `tensor ${name} is ${own}, and config.json asks for ${wanted}`,
    type: (name: string, type: string) => `tensor ${name} is of type ${type}`,
    notFinite: (name: string) => `tensor ${name} holds what is not a number`,
    surplus: (name: string) => `tensor ${name} is no part of the paper's model`,
  },
};
