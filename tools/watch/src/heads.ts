// What a head does in the sentence at hand, in one line: counted in its weights, by rules that the page states.

import { texts } from "./language.ts";
import type { Sequence } from "./transformer.ts";
import type { Kind } from "./view.ts";

const HALF = 1 / 2; // a row counts for a place that gets more than this share of its weight
const THIRD = 1 / 3; // a row is spread if no key gets more than this

interface Head {
  weights: Sequence; // a row for each query, a number for each key
  masked: Sequence; // the scores, with -Infinity where the mask hides a key
  keys: string[]; // as they are spelled
}

// The places that a pattern may name for a query; the first pattern of those with the most rows is told.
function patterns(kind: Kind, keys: string[]): [name: string, places: (i: number) => number[]][] {
  const names = texts.heads;
  // The last full stop and the end symbol: where a head often looks that finds nothing to fetch.
  const rests = [keys.lastIndexOf("."), keys.indexOf(texts.end)].filter((j) => j >= 0);
  const one = keys[rests[0]] === "." ? names.fullStop : names.end;
  const rest: ReturnType<typeof patterns> = rests.length
    ? [[rests.length > 1 ? names.rests : one, () => rests]]
    : [];
  const columns = [...new Set(keys)].map((piece): [string, () => number[]] => [
    names.piece(piece),
    () => [...keys.keys()].filter((j) => keys[j] === piece),
  ]);
  if (kind === "cross") return [...rest, ...columns];
  return [
    [names.itself, (i) => [i]],
    [names.oneBack, (i) => [i - 1]],
    [names.twoBack, (i) => [i - 2]],
    [names.oneAhead, (i) => [i + 1]],
    ...(kind === "encoder" ? rest : []),
    [kind === "encoder" ? names.first : names.start, () => [0]],
    ...columns,
  ];
}

// The pattern that holds in at least half of the rows that have a choice: a place first, then how sharp they are.
export function describe(kind: Kind, { weights, masked, keys }: Head): string {
  const choices = weights.map((_, i) => i).filter((i) => masked[i].filter((x) => x > -Infinity).length > 1);
  const most = (i: number) => weights[i].reduce((a, b) => Math.max(a, b), 0);
  const counted = (name: string, holds: (i: number) => boolean): [name: string, rows: number] => [
    name,
    choices.filter(holds).length,
  ];
  const places = patterns(kind, keys).map(([name, places]) =>
    counted(name, (i) => places(i).reduce((sum, j) => sum + (weights[i][j] ?? 0), 0) > HALF),
  );
  const sharp = kind === "cross" ? texts.heads.sharpAcross : texts.heads.sharp;
  const found = [
    ...places.sort((a, b) => b[1] - a[1]).slice(0, 1),
    counted(sharp, (i) => most(i) > HALF),
    counted(texts.heads.spread, (i) => most(i) <= THIRD),
  ].find(([, rows]) => rows > 0 && rows >= choices.length / 2);
  return found
    ? texts.heads.rows(...found, choices.length, choices.length === weights.length)
    : texts.heads.none;
}
