// What a reader has chosen, and the link that holds it.

import { normalize } from "./tokenizer.ts";
import type { Part } from "./transformer.ts";
import { PAPER, type Request } from "./translator.ts";

export type Side = "encoder" | "decoder";

export interface State extends Request {
  stop: string; // see stops.tsx
  layer: number | null; // all counted from 0; null where none was chosen, see `layerOf` and `headOn`
  head: number | null;
  position: Record<Side, number | null>; // the token at hand; null for a telling one, see `tellingPosition`
  key: number | null; // the token that it looks at; null for the one that it looks at most
  temperature: number; // of the softmax over pieces, for show
  language?: string; // of the page's words, where one was chosen
}

// The model as it was trained and its search as in the paper.
export const UNCHANGED = { ...PAPER, temperature: 1 };

export const FIRST: State = {
  ...UNCHANGED,
  sentence: "A black dog chases a white dog on the bank of a river.",
  stop: "encoder-pieces",
  layer: null,
  head: null,
  position: { encoder: 9, decoder: 8 },
  key: null,
};

// What a new sentence changes: nothing that was chosen in the one before means anything in it.
export const beginning = (sentence: string): Partial<State> => ({
  sentence,
  prefix: [],
  position: { encoder: null, decoder: null },
  key: null,
});

// What going to another stop changes: what was chosen in one stack or attention means nothing in another, and a
// temperature belongs to its stop.
const stackOf = (stop: string) => stop.split("-")[0];
export const goingTo = (stop: string, from: string): Partial<State> => ({
  stop,
  temperature: UNCHANGED.temperature,
  ...(stackOf(stop) !== stackOf(from) && { layer: null, head: null, key: null }),
});

const numbers = (text: string) => text.split(",").filter(Boolean).map(Number).filter(Number.isInteger);
const within = (text: string | null, from: number, to: number, otherwise: number) => {
  const value = text === null || text === "" ? Number.NaN : Number(text);
  return value >= from && value <= to ? value : otherwise;
};

// The part of a link behind # (or behind ?, as a form writes it), for what differs from the first view. Layers,
// heads and tokens are counted from 1 in it, as everywhere on the page; a token 0 is one that nobody has chosen.
export function writeLink(state: State): string {
  const link = new URLSearchParams({ s: state.sentence, at: state.stop });
  if (state.layer !== null) link.set("layer", String(state.layer + 1));
  if (state.head !== null) link.set("head", String(state.head + 1));
  const chosen = [state.position.encoder, state.position.decoder, ...(state.key === null ? [] : [state.key])];
  if (chosen.some((i) => i !== null)) link.set("token", chosen.map((i) => (i === null ? 0 : i + 1)).join());
  if (state.prefix.length) link.set("begin", state.prefix.join());
  if (state.leftOut.length) link.set("without", state.leftOut.join());
  for (const name of ["beam", "alpha", "temperature"] as const)
    if (state[name] !== FIRST[name]) link.set(name, String(state[name]));
  if (state.language) link.set("lang", state.language);
  return link.toString();
}

export function readLink(text: string): State {
  const link = new URLSearchParams(text.replace(/^[#?]/, ""));
  const sentence = normalize(link.get("s") ?? "") || FIRST.sentence;
  const tokens = numbers(link.get("token") ?? "").map((n) => (n > 0 ? n - 1 : null));
  const first = sentence === FIRST.sentence ? [FIRST.position.encoder, FIRST.position.decoder] : [];
  const [encoder = null, decoder = null, key = null] = tokens.length ? tokens : first;
  const language = link.get("lang");
  const [layer, head] = ["layer", "head"].map((name) => within(link.get(name), 1, 99, 0));
  return {
    sentence,
    stop: link.get("at") ?? FIRST.stop,
    layer: layer ? layer - 1 : null,
    head: head ? head - 1 : null,
    position: { encoder, decoder },
    key,
    prefix: numbers(link.get("begin") ?? ""),
    leftOut: (link.get("without") ?? "").split(",").filter(Boolean) as Part[],
    beam: Math.round(within(link.get("beam"), 1, 6, FIRST.beam)),
    alpha: within(link.get("alpha"), 0, 1, FIRST.alpha),
    temperature: within(link.get("temperature"), 0.2, 3, FIRST.temperature),
    ...(language && { language }),
  };
}
