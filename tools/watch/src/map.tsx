// The paper's Figure 1 as a map: the sentence enters below, and each part can be opened.

import { texts } from "./language.ts";
import { spelled } from "./spelling.ts";
import { goingTo } from "./state.ts";
import { STOPS, type Stop } from "./stops.tsx";
import { piecesOf, positionOf, type View } from "./view.ts";

type Figure = keyof typeof texts.figure;
type Place = [
  stop: string,
  x: number,
  y: number,
  kind: "input" | "attention" | "norm" | "network" | "output" | "search",
  lines: Figure,
];

const WIDE = 148; // a box is 27 units high, on a phone 24 pixels: what a finger can hit
const stack = (x: number, y: number, side: "encoder" | "decoder"): Place[] => [
  [`${side}-pieces`, x, 566, "search", side === "encoder" ? "inputs" : "outputs"],
  [`${side}-embedding`, x, 514, "input", side === "encoder" ? "inputEmbedding" : "outputEmbedding"],
  [`${side}-positions`, x, 474, "input", "positions"],
  [`${side}-weights`, x, 398, "attention", side === "encoder" ? "attention" : "maskedAttention"],
  [`${side}-norm1`, x, 368, "norm", "norm"],
  [`${side}-network`, x, y + 30, "network", "network"],
  [`${side}-norm${side === "encoder" ? 2 : 3}`, x, y, "norm", "norm"],
];
const PLACES: Place[] = [
  ...stack(26, 274, "encoder"),
  ["encoder-memory", 26, 222, "search", "memory"],
  ...stack(226, 180, "decoder").toSpliced(
    5,
    0,
    ["cross-weights", 226, 304, "attention", "attention"],
    ["decoder-norm2", 226, 274, "norm", "norm"],
  ),
  ["probabilities", 226, 108, "output", "probabilities"],
  ["beam", 226, 56, "search", "beam"],
  ["break", 26, 56, "search", "breaking"],
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
      {PLACES.map(([stop, x, y, kind, place]) => {
        const lines = [texts.figure[place]].flat();
        const high = lines.length > 1 ? 38 : 27;
        const { words, tabs = [] } = STOPS.get(stop) as Stop;
        const here = state.stop === stop || tabs.some(([id]) => id === state.stop);
        return (
          <a
            key={stop}
            href={`#at=${stop}`}
            class={here ? `${kind} here` : kind}
            aria-current={here ? "step" : undefined}
            aria-label={`${lines.join(" ")}: ${words().question}`}
            onClick={(event) => go(event, stop)}>
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
