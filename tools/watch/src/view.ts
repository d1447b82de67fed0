// What every station is given: the reader's choices, and what the model computed for them.

import { distinct, spelled } from "./spelling.ts";
import type { Side, State } from "./state.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { Part, Sequence, Vector } from "./transformer.ts";
import type { Look, PageModel } from "./translator.ts";
import type { Ask } from "./worker.ts";

export interface View {
  state: Opened;
  choose: (change: Partial<State>) => void;
  model: PageModel;
  tokenizer: Tokenizer;
  ask: Ask;
  look: Look;
  whole: Look; // of the same sentence with nothing left out; the same object, if nothing is
  computing: boolean; // whether `look` still belongs to what was chosen before
  tries: Tries;
}

// The choices, with a layer and a head that the model has.
export type Opened = State & { layer: number; head: number };

// Sentences that show what a stop is about, for the model of this page.
export interface Tries {
  positions?: string[]; // made of the same pieces in another order
  beam?: string; // one that a beam of 1 translates otherwise than a beam of 4
  alpha?: string; // one that is translated otherwise with a length penalty of 1 than with one of 0.6
  pieces?: string; // one with words that are put together from pieces
  parts?: Record<string, Part[]>; // sentences, each with parts without which it is translated otherwise
}

export type Kind = "encoder" | "decoder" | "cross";

export const attentionName = (kind: Kind, layer: number) =>
  kind === "cross" ? `decoder.layers.${layer}.src_attn` : `${kind}.layers.${layer}.self_attn`;

// The layer at hand. Where none was chosen it is the second, but the last at the stops of encoder-decoder attention:
// only there does a row tell the English of the word that it writes (notebook 13). Of the feed-forward networks it is
// one that does something to the first view's token.
export function layerOf({ layer, stop }: State, layers: number): number {
  const telling = { "encoder-network": 3, "decoder-network": 1 }[stop] ?? 2;
  return Math.min(layer ?? (stop.startsWith("cross-") ? layers : telling) - 1, layers - 1);
}

// The head at hand: where none was chosen, one that does what its stop tells of (in the shipped model).
export const headOn = ({ head, stop }: State, heads: number) =>
  Math.min(head ?? (stop.startsWith("cross-") ? 1 : 2), heads - 1);

// The probability that the model gave to each piece that it wrote, and their geometric mean.
export const chancesOf = ({ written, trace }: Look) =>
  written.map((token, i) => Math.exp(trace.generator[i][token]));
export const sureness = (look: Look) =>
  Math.exp(
    look.written.reduce((sum, token, i) => sum + look.trace.generator[i][token], 0) / look.written.length,
  );

// The pieces that stand for the positions of a stack: what it reads.
export function piecesOf({ look, tokenizer }: View, side: Side): string[] {
  return (side === "encoder" ? look.source : look.target).map((token) => tokenizer.pieces[token]);
}

// What a stack reads, by names of which no two are alike.
export const readOf = (view: View, side: Side) => distinct(piecesOf(view, side).map(spelled));

// What the positions of a stack are called. One of the decoder has two names, what it reads and what it writes: it
// looks for what the second needs, and with the first alone its attention would seem to be one word late.
export function namesOf(view: View, side: Side): string[] {
  if (side === "encoder") return readOf(view, side);
  const { look, tokenizer } = view;
  const written = look.written.map((token) => spelled(tokenizer.pieces[token]));
  return distinct(piecesOf(view, side).map((piece, i) => `${spelled(piece)} → ${written[i]}`));
}

// Where `after` writes what `before` writes at a position: at the same one, or else at the first; if nowhere, the same.
export function sameRow(position: number, before: number[], after: number[]): number {
  const again = after.indexOf(before[position]);
  return again < 0 || after[position] === before[position] ? position : again;
}

// The position at hand, which a shorter sentence may not have. Where none was chosen, it is that of the longest word:
// the one that is read in the encoder, the one that is written in the decoder.
export function positionOf(view: View, side: Side): number {
  const { state, look, whole, tokenizer } = view;
  const [before, after] = side === "encoder" ? [whole.source, look.source] : [whole.written, look.written];
  const pieces = before.map((token) => tokenizer.pieces[token]);
  const telling = tellingPosition(pieces, side === "encoder" ? 0 : 1);
  return Math.min(state.position[side] ?? sameRow(telling, before, after), after.length - 1);
}

// The place of the longest word that is one piece or begins with one, not before `from`; 0 if there is none.
export function tellingPosition(pieces: string[], from = 0): number {
  const lengths = pieces.map((piece, i) => (i >= from && /^\u2581\p{L}+$/u.test(piece) ? piece.length : 0));
  return Math.max(0, lengths.indexOf(Math.max(...lengths)));
}

export function choosePosition({ state, choose }: View, side: Side, position: number): void {
  choose({ position: { ...state.position, [side]: position } });
}

// One head's part of rows that hold all heads side by side.
export function headOf(rows: Sequence, head: number, heads: number): Sequence {
  return rows.map((row) => row.subarray((head * row.length) / heads, ((head + 1) * row.length) / heads));
}

// The mean over heads of a row that holds all of them side by side.
export function meanOfHeads(row: Vector, heads: number): Vector {
  const each = Array.from({ length: heads }, (_, head) => headOf([row], head, heads)[0]);
  return each[0].map((_, i) => each.reduce((sum, one) => sum + one[i], 0) / heads);
}

// The places of the `count` largest entries, the largest first.
export function largestOf(row: Vector, count: number): number[] {
  return [...row.keys()].sort((i, j) => row[j] - row[i]).slice(0, count);
}
