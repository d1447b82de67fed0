// What every station is given: the reader's choices, and what the model computed for them.

import type { Side, State } from "./state.ts";
import type { Tokenizer } from "./tokenizer.ts";
import type { Sequence, Vector } from "./transformer.ts";
import type { Look, PageModel } from "./translator.ts";
import type { Ask } from "./worker.ts";

export interface View {
  state: State;
  choose: (change: Partial<State>) => void;
  model: PageModel;
  tokenizer: Tokenizer;
  ask: Ask;
  look: Look;
  whole: Look; // of the same sentence with nothing left out; the same object, if nothing is
}

export type Kind = "encoder" | "decoder" | "cross";

export const attentionName = (kind: Kind, layer: number) =>
  kind === "cross" ? `decoder.layers.${layer}.src_attn` : `${kind}.layers.${layer}.self_attn`;

// The pieces that stand for the positions of a stack: what it reads.
export function piecesOf({ look, tokenizer }: View, side: Side): string[] {
  return (side === "encoder" ? look.source : look.target).map((token) => tokenizer.pieces[token]);
}

// The position at hand, which a shorter sentence may not have.
export function positionOf(view: View, side: Side): number {
  return Math.min(view.state.position[side], piecesOf(view, side).length - 1);
}

export function choosePosition({ state, choose }: View, side: Side, position: number): void {
  choose({ position: { ...state.position, [side]: position } });
}

// One head's part of rows that hold all heads side by side.
export function headOf(rows: Sequence, head: number, heads: number): Sequence {
  return rows.map((row) => row.subarray((head * row.length) / heads, ((head + 1) * row.length) / heads));
}

// The places of the `count` largest entries, the largest first.
export function largestOf(row: Vector, count: number): number[] {
  const best: number[] = [];
  row.forEach((x, i) => {
    if (best.length === count && x <= row[best[count - 1]]) return;
    const at = best.findIndex((j) => row[j] < x);
    best.splice(at < 0 ? best.length : at, 0, i);
    if (best.length > count) best.pop();
  });
  return best;
}
