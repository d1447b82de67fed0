// The stops of the tour: what each asks, says, and shows, and where the paper and the series explain it.

import type { ComponentChildren } from "preact";
import { Heads, Projections, Weighing } from "./attention.tsx";
import { Beam } from "./beam.tsx";
import { Breaking } from "./breaking.tsx";
import { texts } from "./language.ts";
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
import { rich } from "./words.tsx";

export interface Stop {
  id: string;
  words: () => { title: string; question: string; text: ComponentChildren };
  equation?: () => ComponentChildren;
  shape?: () => string;
  section: string;
  place?: () => string; // in the section
  notebook: string;
  strips?: boolean; // whether it shows numbers as strips
  layered?: boolean; // whether there is one in each layer
  tabs?: [id: string, step: "projections" | "weights" | "heads"][]; // the steps of one attention, which each head has
  show: (view: View) => ComponentChildren;
}

const Q = <b class="query">Q</b>;
const K = <b class="key">K</b>;
const V = <b class="value">V</b>;
const LENGTH = { encoder: "src_len", decoder: "tgt_len" };

const pieces = (side: Side): Stop => ({
  id: `${side}-pieces`,
  words: () => (side === "encoder" ? texts.stops.encoderPieces : texts.stops.decoderPieces),
  shape: () => `(${LENGTH[side]})`,
  section: side === "encoder" ? "5.1" : "3.1",
  notebook: "07_batches_and_masks",
  show: (view) => (side === "encoder" ? <SourcePieces view={view} /> : <TargetPieces view={view} />),
});

const inputs = (side: Side): Stop[] => [
  {
    id: `${side}-embedding`,
    words: () => texts.stops.embedding,
    strips: true,
    equation: () => rich`E[piece] · √d${<sub>model</sub>}`,
    shape: () => `(${LENGTH[side]}, d_model)`,
    section: "3.4",
    notebook: "04_feed_forward_and_embeddings",
    show: (view) => <Embedding view={view} side={side} />,
  },
  {
    id: `${side}-positions`,
    words: () => texts.stops.positions,
    strips: true,
    equation: () =>
      rich`PE(pos, 2i) = sin(pos / 10000${(
        <sup>
          2i/d<sub>model</sub>
        </sup>
      )})${texts.stops.positions.equation}`,
    shape: () => `(${LENGTH[side]}, d_model)`,
    section: "3.5",
    notebook: "05_positional_encoding",
    show: (view) => <Positions view={view} side={side} />,
  },
];

function attention(kind: Kind): Stop[] {
  const common = {
    strips: true,
    layered: true,
    tabs: (["projections", "weights", "heads"] as const).map((step): [string, typeof step] => [
      `${kind}-${step}`,
      step,
    ]),
  };
  const masked = kind === "decoder";
  const [queries, keys] = [kind === "encoder" ? "src_len" : "tgt_len", masked ? "tgt_len" : "src_len"];
  return [
    {
      ...common,
      id: `${kind}-projections`,
      words: () => titled(texts.stops.projections, kind),
      equation: () => rich`${Q} = X W${<sup>Q</sup>}, ${K} = X W${<sup>K</sup>}, ${V} = X W${<sup>V</sup>}`,
      shape: () => `Q (h, ${queries}, d_k), K, V (h, ${keys}, d_k)`,
      section: kind === "encoder" ? "3.2.2" : "3.2.3",
      notebook: "03_multi_head_attention",
      show: (view) => <Projections view={view} kind={kind} />,
    },
    {
      ...common,
      id: `${kind}-weights`,
      words: () => {
        const { title, question, text } = texts.stops.weights;
        return titled({ title, question: question[kind], text: text[kind] }, kind);
      },
      equation: () =>
        rich`softmax(${Q}${K}${<sup>T</sup>} / √d${<sub>k</sub>}${masked && " + M"}) ${V}${masked && texts.stops.weights.mask}`,
      shape: () => `(h, ${queries}, ${keys})`,
      section: kind === "encoder" ? "3.2.1" : "3.2.3",
      place: () => (kind === "encoder" ? texts.stops.weights.equation : ""),
      notebook: kind === "cross" ? "13_reading_attention" : "02_attention",
      show: (view) => <Weighing view={view} kind={kind} />,
    },
    {
      ...common,
      id: `${kind}-heads`,
      words: () => titled(texts.stops.heads, kind),
      equation: () => rich`Concat(head${<sub>1</sub>}, …, head${<sub>h</sub>}) W${<sup>O</sup>}`,
      shape: () => `(${queries}, h · d_v) → (${queries}, d_model)`,
      section: "3.2.2",
      notebook: "03_multi_head_attention",
      show: (view) => <Heads view={view} kind={kind} />,
    },
  ];
}

// The words of a stop that there is in each kind of attention.
const titled = <T,>({ title, ...words }: T & { title: (where: string) => string }, kind: Kind) => ({
  ...words,
  title: title(texts.stops.where[kind]),
});

const addAndNorm = (side: Side, sublayer: number): Stop => ({
  id: `${side}-norm${sublayer + 1}`,
  words: () => {
    const { title, after, question, text } = texts.stops.norm;
    return { title: title(after[side][sublayer]), question, text };
  },
  strips: true,
  equation: () => "LayerNorm(x + Sublayer(x))",
  shape: () => `(${LENGTH[side]}, d_model)`,
  section: "3.1",
  notebook: "06_the_full_model",
  layered: true,
  show: (view) => <AddAndNorm view={view} side={side} sublayer={sublayer} />,
});

const network = (side: Side): Stop => ({
  id: `${side}-network`,
  words: () => texts.stops.network,
  strips: true,
  equation: () => rich`max(0, x W${<sub>1</sub>} + b${<sub>1</sub>}) W${<sub>2</sub>} + b${<sub>2</sub>}`,
  shape: () => `(d_model) → (d_ff) → (d_model)${texts.stops.network.shape}`,
  section: "3.3",
  place: () => texts.stops.network.equation,
  notebook: "04_feed_forward_and_embeddings",
  layered: true,
  show: (view) => <Network view={view} side={side} />,
});

const memory: Stop = {
  id: "encoder-memory",
  words: () => texts.stops.memory,
  strips: true,
  shape: () => "(src_len, d_model)",
  section: "3.1",
  notebook: "01_why_attention",
  show: (view) => <Memory view={view} />,
};

const probabilities: Stop = {
  id: "probabilities",
  words: () => texts.stops.probabilities,
  equation: () => rich`softmax(x E${<sup>T</sup>} + b)`,
  shape: () => `(tgt_len, ${texts.stops.probabilities.vocabulary})`,
  section: "3.4",
  notebook: "04_feed_forward_and_embeddings",
  show: (view) => <Probabilities view={view} />,
};

const beam: Stop = {
  id: "beam",
  words: () => texts.stops.beam,
  equation: () => rich`${texts.stops.beam.equation}${<sup>α</sup>}`,
  section: "6.1",
  notebook: "11_search",
  show: (view) => <Beam view={view} />,
};

const breaking: Stop = {
  id: "break",
  words: () => texts.stops.breaking,
  section: "6.2",
  place: () => texts.stops.breaking.table,
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
export const KNOWN = {
  pieces: ["04_feed_forward_and_embeddings", "05_positional_encoding"],
  attention: ["02_attention", "03_multi_head_attention"],
  network: ["04_feed_forward_and_embeddings", "06_the_full_model"],
  mask: ["07_batches_and_masks"],
  beam: ["11_search"],
};
