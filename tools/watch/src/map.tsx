// The paper's Figure 1 as a map: the sentence enters below, and each part can be opened.

import { spelled } from "./drawing.tsx";
import { texts } from "./language.ts";
import { goingTo } from "./state.ts";
import { STOPS } from "./stops.tsx";
import { piecesOf, positionOf, type View } from "./view.ts";

interface Place {
  stop: string;
  x: number;
  y: number;
  lines: () => string | string[];
  kind: "input" | "attention" | "norm" | "network" | "output" | "search";
  also?: string[]; // further stops that are opened from inside this one
}

const WIDE = 148; // a box is 27 units high, on a phone 24 pixels: what a finger can hit
const stack = (x: number, y: number, side: "encoder" | "decoder"): Place[] => [
  {
    stop: `${side}-pieces`,
    x,
    y: 566,
    lines: () => (side === "encoder" ? texts.figure.inputs : texts.figure.outputs),
    kind: "search",
  },
  {
    stop: `${side}-embedding`,
    x,
    y: 514,
    lines: () => (side === "encoder" ? texts.figure.inputEmbedding : texts.figure.outputEmbedding),
    kind: "input",
  },
  { stop: `${side}-positions`, x, y: 474, lines: () => texts.figure.positions, kind: "input" },
  {
    stop: `${side}-weights`,
    x,
    y: 398,
    lines: () => (side === "encoder" ? texts.figure.attention : texts.figure.maskedAttention),
    kind: "attention",
    also: [`${side}-projections`, `${side}-heads`],
  },
  { stop: `${side}-norm1`, x, y: 368, lines: () => texts.figure.norm, kind: "norm" },
  ...(side === "encoder"
    ? []
    : ([
        {
          stop: "cross-weights",
          x,
          y: 304,
          lines: () => texts.figure.attention,
          kind: "attention",
          also: ["cross-projections", "cross-heads"],
        },
        { stop: "decoder-norm2", x, y: 274, lines: () => texts.figure.norm, kind: "norm" },
      ] satisfies Place[])),
  { stop: `${side}-network`, x, y: y + 30, lines: () => texts.figure.network, kind: "network" },
  { stop: `${side}-norm${side === "encoder" ? 2 : 3}`, x, y, lines: () => texts.figure.norm, kind: "norm" },
];
const PLACES: Place[] = [
  ...stack(26, 274, "encoder"),
  { stop: "encoder-memory", x: 26, y: 222, lines: () => texts.figure.memory, kind: "search" },
  ...stack(226, 180, "decoder"),
  { stop: "probabilities", x: 226, y: 108, lines: () => texts.figure.probabilities, kind: "output" },
  { stop: "beam", x: 226, y: 56, lines: () => texts.figure.beam, kind: "search" },
  { stop: "break", x: 26, y: 56, lines: () => texts.figure.breaking, kind: "search" },
];

export function FigureOne({ view }: { view: View | null }) {
  if (!view) return <div class="figure-one" />;
  const { state, choose, model, tokenizer, look } = view;
  const next = tokenizer.pieces[look.written[positionOf(view, "decoder")]];
  const line = (pieces: string[]) => {
    const text = pieces.map(spelled).join(" ");
    return text.length > 27 ? `${text.slice(0, 26)}…` : text;
  };
  const go = (event: Event, stop: string) => {
    event.preventDefault();
    choose(goingTo(stop, state.stop));
  };
  return (
    <svg class="figure-one" viewBox="0 0 400 622" role="group" aria-label={texts.figure.name}>
      <g class="wires" aria-hidden="true">
        <path d="M100 598 V222 M300 598 V60" />
        <path d="M100 222 V210 H200 V323 H226" />
        <path key={state.stop} class="flow" d="M100 598 V210 H200 V323 H300 M300 598 V60" />
        <rect class="stack" x="14" y="262" width="172" height="186" rx="10" />
        <rect class="stack" x="214" y="168" width="172" height="280" rx="10" />
        <text x="8" y="464" class="times">
          N = {model.N}×
        </text>
        <text x="392" y="464" class="times end">
          ×{model.N}
        </text>
      </g>
      <text class="words" lang="en" x="100" y="614">
        {line(piecesOf(view, "encoder").slice(0, -1))}
      </text>
      <text class="words" lang="de" x="300" y="614">
        {line(piecesOf(view, "decoder"))}
      </text>
      <text class="words" x="300" y="42">
        {texts.figure.next}
        <tspan class="next" lang="de">
          {spelled(next)}
        </tspan>
      </text>
      {PLACES.map(({ stop, x, y, kind, also, ...place }) => {
        const lines = [place.lines()].flat();
        const high = lines.length > 1 ? 38 : 27;
        const here = state.stop === stop || also?.includes(state.stop);
        return (
          <a
            key={stop}
            href={`#at=${stop}`}
            class={here ? `${kind} here` : kind}
            aria-current={here ? "step" : undefined}
            aria-label={`${lines.join(" ")}: ${STOPS.get(stop)?.words().question}`}
            onClick={(event) => go(event, stop)}
          >
            <rect x={x} y={y} width={WIDE} height={high} rx="6" />
            {lines.map((text, i) => (
              <text key={text} x={x + WIDE / 2} y={y + (lines.length > 1 ? 16.5 : 18) + 14 * i}>
                {text}
              </text>
            ))}
          </a>
        );
      })}
    </svg>
  );
}
