// Beam search (section 6.1), as annotated.search.beam.beam_search has it.

import { END, START } from "./tokenizer.ts";
import type { KeysAndValues, Sequence, Transformer } from "./transformer.ts";

export interface Settings {
  beam: number; // hypotheses kept; 1 is greedy search
  alpha: number; // of the length penalty ((5 + length) / 6)^alpha
  prefix: number[]; // tokens that the translation begins with
  forbidden: number[]; // tokens that are never taken
}

// A translation that has ended: tokens without start and end; the log-probability counts the end.
export interface Hypothesis {
  tokens: number[];
  logProb: number;
  score: number;
}

// A continuation that was weighed in one step, and what became of it. `parent` is the place of the one that it
// continues among those kept in the step before, `place` its own among those kept now, if it was.
export interface Candidate {
  token: number;
  parent: number;
  place: number | null;
  logProb: number;
  fate: "kept" | "dropped" | "ended";
}

interface Open {
  tokens: number[]; // the start symbol first
  logProb: number;
  cache: KeysAndValues[];
}

export interface Found {
  ended: Hypothesis[]; // the best first
  steps: Candidate[][];
}

export function search(
  model: Transformer,
  memory: KeysAndValues[],
  sourceLength: number,
  settings: Settings,
): Found {
  const { beam, alpha, prefix, forbidden } = settings;
  const limit = Math.max(sourceLength + 50, prefix.length + 1);
  const penalty = (length: number) => ((5 + length) / 6) ** alpha;
  const ended: Hypothesis[] = [];
  const steps: Candidate[][] = [];
  let open: Open[] = [{ tokens: [START], logProb: 0, cache: model.emptyCache() }];
  for (let length = 0; length < limit && open.length; length++) {
    const next = open.map((one) => step(model, one, memory));
    for (const { logProbs } of next) for (const token of forbidden) logProbs[token] = -Infinity;
    const only = length < prefix.length ? prefix[length] : length + 1 >= limit ? END : null;
    const best = likeliest(open, next, 2 * beam, only);
    const kept: Open[] = [];
    const weighed = best.map(({ row, token, logProb }, rank): Candidate => {
      const tokens = [...open[row].tokens, token];
      const ends = token === END;
      const fate = ends ? (rank < beam ? "ended" : "dropped") : kept.length < beam ? "kept" : "dropped";
      if (fate === "ended")
        ended.push({ tokens: tokens.slice(1, -1), logProb, score: logProb / penalty(length + 1) });
      const place = fate === "kept" ? kept.length : null;
      if (fate === "kept") kept.push({ tokens, logProb, cache: next[row].cache });
      return { token, parent: row, place, logProb, fate };
    });
    steps.push(weighed);
    open = kept;
    ended.sort((a, b) => b.score - a.score);
    if (alpha > 0 && ended.length >= beam) break;
    if (open.length && ended.length && ended[0].score >= open[0].logProb / penalty(limit)) break;
  }
  return { ended, steps };
}

// Log-probabilities of what follows a hypothesis, and its cache grown by its last token. Without the causal mask
// earlier positions see later ones, so nothing that was computed before still holds.
function step(model: Transformer, { tokens, cache }: Open, memory: KeysAndValues[]) {
  const known = model.leftOut.has("mask") ? 0 : tokens.length - 1;
  const before = known ? cache : model.emptyCache();
  const [states, grown] = model.decode(tokens.slice(known), known, before, memory);
  const [logProbs] = model.generate(states.slice(-1));
  return { logProbs, cache: grown };
}

// The `count` likeliest continuations of all open hypotheses, the best first; `only` is the one token allowed.
function likeliest(open: Open[], next: { logProbs: Sequence[number] }[], count: number, only: number | null) {
  const best: { row: number; token: number; logProb: number }[] = [];
  next.forEach(({ logProbs }, row) => {
    const tokens = only === null ? logProbs.keys() : [only];
    for (const token of tokens) {
      const logProb = open[row].logProb + logProbs[token];
      if (logProb === -Infinity || (best.length === count && logProb <= best[count - 1].logProb)) continue;
      const at = best.findIndex((other) => other.logProb < logProb);
      best.splice(at < 0 ? best.length : at, 0, { row, token, logProb });
      if (best.length > count) best.pop();
    }
  });
  return best;
}
