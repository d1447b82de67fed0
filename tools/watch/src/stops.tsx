// The stops of the tour: what each asks, says, and shows, and where the paper and the series explain it.

import type { ComponentChildren } from "preact";
import { Heads, Projections, Weighing } from "./attention.tsx";
import { Beam } from "./beam.tsx";
import { Breaking } from "./breaking.tsx";
import { Probabilities } from "./probabilities.tsx";
import type { Side } from "./state.ts";
import {
  AddAndNorm,
  Embedding,
  Memory,
  Network,
  Positions,
  SourcePieces,
  TargetPieces,
} from "./stations.tsx";
import type { Kind, View } from "./view.ts";
import { Term } from "./words.tsx";

export interface Stop {
  id: string;
  title: string;
  question: string;
  text: ComponentChildren;
  equation?: ComponentChildren;
  shape?: string;
  section: string;
  notebook: string;
  strips?: boolean; // whether it shows numbers as strips
  layered?: boolean; // whether there is one in each layer
  headed?: boolean; // and in each head
  tabs?: [id: string, label: string][]; // stops that belong together
  show: (view: View) => ComponentChildren;
}

const Q = <b class="query">Q</b>;
const K = <b class="key">K</b>;
const V = <b class="value">V</b>;
const WHERE: Record<Kind, string> = {
  encoder: "self-attention",
  decoder: "masked self-attention",
  cross: "encoder-decoder attention",
};
const ASKED: Record<Kind, string> = {
  encoder: "How does a token decide where to look?",
  decoder: "Why may the decoder not look ahead?",
  cross: "Where does the German meet the English?",
};
const SEEN: Record<Kind, ComponentChildren> = {
  encoder: "Every English token may look at every other, before and behind.",
  decoder:
    "A German token may look at itself and at what was written before it. What comes later is masked: its score becomes −∞, its weight 0. In training the whole German sentence is there at once, and without the mask the model could copy its answer.",
  cross: (
    <>
      Here the two languages meet: the query comes from the German written so far, keys and values from the{" "}
      <Term of="memory" /> of the English. In the last layer a position looks for the English of the token
      that it is about to write; in layers before it a head may still look for that of the token just read. So
      each position has two names.
    </>
  ),
};

function pieces(side: Side): Stop {
  return side === "encoder"
    ? {
        id: "encoder-pieces",
        title: "Pieces",
        question: "What does the model read?",
        text: "Not words but pieces. Byte-pair encoding has learned them from English and German captions together: a frequent word is one piece, a rare one is put together from several, and a character that no piece holds is spelled in bytes. Why not whole words? A table of words has no row for a word that is not in it, such as a new name; of pieces any word can be made.",
        shape: "(src_len)",
        section: "5.1",
        notebook: "07_batches_and_masks",
        show: (view) => <SourcePieces view={view} />,
      }
    : {
        id: "decoder-pieces",
        title: "Outputs, shifted right",
        question: "What does the decoder read?",
        text: "What it has written so far, moved one place to the right so that a start symbol comes first. It predicts the next token, appends it, and reads again: it is auto-regressive.",
        shape: "(tgt_len)",
        section: "3.1",
        notebook: "07_batches_and_masks",
        show: (view) => <TargetPieces view={view} />,
      };
}

const inputs = (side: Side): Stop[] => [
  {
    id: `${side}-embedding`,
    title: "Embedding",
    question: "How does a piece become numbers?",
    strips: true,
    text: (
      <>
        Each piece has a row of learned numbers in a table, its embedding. The row is multiplied by{" "}
        <span class="whole">
          √<Term of="d_model" />,
        </span>{" "}
        so that the positions, added next, do not drown it.
      </>
    ),
    equation: (
      <>
        E[piece] · √d<sub>model</sub>
      </>
    ),
    shape: side === "encoder" ? "(src_len, d_model)" : "(tgt_len, d_model)",
    section: "3.4",
    notebook: "04_feed_forward_and_embeddings",
    show: (view) => <Embedding view={view} side={side} />,
  },
  {
    id: `${side}-positions`,
    title: "Positional encoding",
    question: "How does the model know the order of the words?",
    strips: true,
    text: "An embedding says which piece, not where it stands. So a pattern of sine and cosine waves, different at every position, is added to it; with waves, the paper hoped, distances are easy to learn. Attention itself sees no order: leave the positions out, and it reads a bag of pieces.",
    equation: (
      <>
        PE(pos, 2i) = sin(pos / 10000
        <sup>
          2i/d<sub>model</sub>
        </sup>
        ), PE(pos, 2i+1) = cos of the same, for the numbers 2i and 2i+1 of a vector
      </>
    ),
    shape: side === "encoder" ? "(src_len, d_model)" : "(tgt_len, d_model)",
    section: "3.5",
    notebook: "05_positional_encoding",
    show: (view) => <Positions view={view} side={side} />,
  },
];

const Compared = () => (
  <>
    A token's query is compared with every key by a dot product, its score; the softmax turns the scores into
    weights that sum to 1. Before it they are scaled: a sum of d<sub>k</sub> products, some negative, is about
    √d<sub>k</sub> times as large as one of them, so it is divided by{" "}
    <span class="whole">
      √<Term of="d_k" />.
    </span>{" "}
    Undivided, large scores give nearly all the weight to one token: the head then passes on a single value,
    and in training the softmax has “extremely small <Term of="gradient" as="gradients" />
    ”, so it hardly learns to look elsewhere.
  </>
);

function attention(kind: Kind): Stop[] {
  const tabs: [string, string][] = [
    [`${kind}-projections`, "q, k, v"],
    [`${kind}-weights`, "scores and weights"],
    [`${kind}-heads`, "heads"],
  ];
  const common = { strips: true, layered: true, headed: true, tabs };
  const [queries, keys] = [
    kind === "encoder" ? "src_len" : "tgt_len",
    kind === "decoder" ? "tgt_len" : "src_len",
  ];
  return [
    {
      ...common,
      id: `${kind}-projections`,
      title: `Queries, keys and values, ${WHERE[kind]}`,
      question: "What do a query, a key and a value do?",
      text: (
        <>
          A token's vector x is multiplied by three learned matrices. The <b class="query">query</b> says what
          this token looks for. The <b class="key">key</b> says by what it can be found. The{" "}
          <b class="value">value</b> is what it hands over to those who find it. Nobody told the model so:
          these are the roles that the formula of attention, at the next stop, gives them.
        </>
      ),
      equation: (
        <>
          {Q} = X W<sup>Q</sup>, {K} = X W<sup>K</sup>, {V} = X W<sup>V</sup>
        </>
      ),
      shape: `Q (h, ${queries}, d_k), K and V (h, ${keys}, d_k)`,
      section: kind === "encoder" ? "3.2.2" : "3.2.3",
      notebook: "03_multi_head_attention",
      show: (view) => <Projections view={view} kind={kind} />,
    },
    {
      ...common,
      id: `${kind}-weights`,
      title: `Scores and weights, ${WHERE[kind]}`,
      question: ASKED[kind],
      text: (
        <>
          {SEEN[kind]}{" "}
          {kind === "encoder" ? (
            <Compared />
          ) : (
            <>
              The rest is as in the encoder: dot products of the query with every key, divided by √d
              <sub>k</sub>, and a softmax.
            </>
          )}
        </>
      ),
      equation: (
        <>
          softmax({Q}
          {K}
          <sup>T</sup> / √d<sub>k</sub>
          {kind === "decoder" && " + M"}) {V}
          {kind === "decoder" && ", with M = −∞ where a key comes later, 0 elsewhere"}
        </>
      ),
      shape: `(h, ${queries}, ${keys})`,
      section: kind === "encoder" ? "3.2.1, equation 1" : "3.2.3",
      notebook: kind === "cross" ? "13_reading_attention" : "02_attention",
      show: (view) => <Weighing view={view} kind={kind} />,
    },
    {
      ...common,
      id: `${kind}-heads`,
      title: `Heads, ${WHERE[kind]}`,
      question: "Why several heads?",
      text: "One softmax can look at one mixture of places at a time. Several heads look at different places for different reasons, each with its own queries, keys and values. What they bring is laid side by side and mixed by one more matrix.",
      equation: (
        <>
          Concat(head<sub>1</sub>, …, head<sub>h</sub>) W<sup>O</sup>
        </>
      ),
      shape: `(${queries}, h · d_v) → (${queries}, d_model)`,
      section: "3.2.2",
      notebook: "03_multi_head_attention",
      show: (view) => <Heads view={view} kind={kind} />,
    },
  ];
}

const SUBLAYERS: Record<Side, string[]> = {
  encoder: ["self-attention", "the feed-forward network"],
  decoder: ["masked self-attention", "encoder-decoder attention", "the feed-forward network"],
};

const addAndNorm = (side: Side, sublayer: number): Stop => ({
  id: `${side}-norm${sublayer + 1}`,
  title: `Add & norm after ${SUBLAYERS[side][sublayer]}`,
  question: "Why is the input added to the output?",
  strips: true,
  text: (
    <>
      A <Term of="sub-layer" /> does not replace a token's vector: what it computes is added to it, so nothing
      is lost on the way up, and in training the <Term of="gradient" /> has a straight way down. The norm then
      brings the sum back to one scale.
    </>
  ),
  equation: <>LayerNorm(x + Sublayer(x))</>,
  shape: side === "encoder" ? "(src_len, d_model)" : "(tgt_len, d_model)",
  section: "3.1",
  notebook: "06_the_full_model",
  layered: true,
  show: (view) => <AddAndNorm view={view} side={side} sublayer={sublayer} />,
});

const network = (side: Side): Stop => ({
  id: `${side}-network`,
  title: "Feed-forward",
  question: "What happens to each token by itself?",
  strips: true,
  text: "Attention moves information between tokens; this network works on each token alone, with the same weights at every position. It widens the vector, sets what is negative to 0, and narrows it again; without the step in the middle its two matrices would be no more than one. No unit of the wide vector has a name: training chose what makes it fire, and often it is a mixture of things.",
  equation: (
    <>
      max(0, x W<sub>1</sub> + b<sub>1</sub>) W<sub>2</sub> + b<sub>2</sub>
    </>
  ),
  shape: "(d_model) → (d_ff) → (d_model), for each token",
  section: "3.3, equation 2",
  notebook: "04_feed_forward_and_embeddings",
  layered: true,
  show: (view) => <Network view={view} side={side} />,
});

const memory: Stop = {
  id: "encoder-memory",
  title: "The memory",
  question: "What does the decoder get of the English?",
  strips: true,
  text: "The last encoder layer's output, one vector for each token. It is computed once; the decoder looks at all of it anew for each token that it writes. There is no single vector through which the sentence must pass.",
  shape: "(src_len, d_model)",
  section: "3.1",
  notebook: "01_why_attention",
  show: (view) => <Memory view={view} />,
};

const probabilities: Stop = {
  id: "probabilities",
  title: "Linear and softmax",
  question: "How does it choose the next token?",
  text: (
    <>
      The decoder's last vector is compared with the row of every piece in the same table that made the
      embeddings: one <Term of="logit" /> each. The softmax makes them probabilities. Choose another piece,
      and the translation goes on from it.
    </>
  ),
  equation: (
    <>
      softmax(x E<sup>T</sup> + b)
    </>
  ),
  shape: "(tgt_len, vocabulary)",
  section: "3.4",
  notebook: "04_feed_forward_and_embeddings",
  show: (view) => <Probabilities view={view} />,
};

const beam: Stop = {
  id: "beam",
  title: "Beam search",
  question: "Why not simply take the likeliest token each time?",
  text: (
    <>
      Because a good beginning may lead to a bad end. The search keeps the few likeliest beginnings side by
      side, as many as the beam is wide, and drops the others. With a beam of 1 it is <Term of="greedy" />.
      Every further token makes a sentence less likely: to divide log P, which is negative, by a penalty that
      grows with the length (in tokens, ‹end› too) makes up for it.
    </>
  ),
  equation: (
    <>
      score = log P / ((5 + length) / 6)<sup>α</sup>
    </>
  ),
  section: "6.1",
  notebook: "11_search_and_averaging",
  show: (view) => <Beam view={view} />,
};

const breaking: Stop = {
  id: "break",
  title: "Break it",
  question: "What is each part for?",
  text: "Leave a part out and see what becomes of the translation. The model was trained with all its parts, so this shows what this model leans on, not what a model trained without the part could learn.",
  section: "6.2, where Table 3 trains variants anew",
  notebook: "12_results",
  show: (view) => <Breaking view={view} />,
};

const ALL = [
  pieces("encoder"),
  ...inputs("encoder"),
  ...attention("encoder"),
  addAndNorm("encoder", 0),
  network("encoder"),
  addAndNorm("encoder", 1),
  memory,
  pieces("decoder"),
  ...inputs("decoder"),
  ...attention("decoder"),
  addAndNorm("decoder", 0),
  ...attention("cross"),
  addAndNorm("decoder", 1),
  network("decoder"),
  addAndNorm("decoder", 2),
  probabilities,
  beam,
  breaking,
];
export const STOPS = new Map(ALL.map((stop) => [stop.id, stop]));

// The stop of the tour that one beside it belongs to: another step of the same attention, or the last one before it.
export function onTour(id: string): string {
  const step = STOPS.get(id)?.tabs?.find(([tab]) => TOUR.includes(tab));
  const ids = [...STOPS.keys()];
  const before = ids.slice(0, ids.indexOf(id) + 1).filter((one) => TOUR.includes(one));
  return TOUR.includes(id) ? id : (step?.[0] ?? before[before.length - 1]);
}

// The way from the sentence to its translation, without what the decoder repeats.
export const TOUR = [
  "encoder-pieces",
  "encoder-embedding",
  "encoder-positions",
  "encoder-projections",
  "encoder-weights",
  "encoder-heads",
  "encoder-norm1",
  "encoder-network",
  "encoder-memory",
  "decoder-pieces",
  "decoder-weights",
  "cross-weights",
  "probabilities",
  "beam",
  "break",
];

// What the tour has shown, each with the notebooks that tell it in full.
export const KNOWN: [text: string, notebooks: string[]][] = [
  [
    "A text becomes pieces; a piece becomes a vector, which also says where it stands.",
    ["04_feed_forward_and_embeddings", "05_positional_encoding"],
  ],
  [
    "Attention is a mean of values, weighted by how well a query and the keys match; several heads look at several places.",
    ["02_attention", "03_multi_head_attention"],
  ],
  [
    "A feed-forward network works on each token alone, and what a sub-layer computes is added to what it read.",
    ["04_feed_forward_and_embeddings", "06_the_full_model"],
  ],
  [
    "The mask lets the decoder learn at all positions at once, without seeing the answer.",
    ["07_batches_and_masks"],
  ],
  [
    "The decoder writes token by token; a beam search keeps several beginnings, as the likeliest may end badly.",
    ["11_search_and_averaging"],
  ],
];
