// How numbers are drawn: a vector is a strip of cells, a matrix strips below each other, a token a chip. A cell that is
// touched tells how it was made, and what it was made from is framed.

import { type ComponentChildren, createContext } from "preact";
import { useContext } from "preact/hooks";
import { Button } from "../button.tsx";
import { shown } from "../numbers.ts";
import { texts } from "./language.ts";
import type { Num } from "./num.ts";
import type { Rows } from "./tiny.ts";

export type Kind = "stream" | "query" | "key" | "value" | "weight";

export interface Touch {
  picked: Num | null;
  sources: Set<Num>;
  pick: (num: Num) => void;
}
export const Touched = createContext<Touch>({ picked: null, sources: new Set(), pick: () => {} });

const FULL = 3; // where the colors end: the same in every drawing

export function Cell({ num, share }: { num: Num; share?: boolean }) {
  const { picked, sources, pick } = useContext(Touched);
  const { value } = num;
  const tint = Number.isFinite(value) ? Math.min(1, Math.abs(value) / (share ? 1 : FULL)) : 0;
  const unseen = num.how.op === "hidden" || (num.how.op === "softmax" && num.how.of.value === -Infinity);
  const look = [
    unseen && "unseen",
    picked === num && "picked",
    sources.has(num) && "from",
    value < 0 && "negative",
    share && "share",
  ];
  return (
    <button
      type="button"
      class={["cell", ...look.filter(Boolean)].join(" ")}
      style={{ "--tint": tint.toFixed(3) }}
      tabIndex={picked === num ? 0 : -1}
      aria-label={`${nameOf(num)}: ${shown(value)}`}
      aria-pressed={picked === num}
      onClick={() => pick(num)}>
      {shown(value)}
    </button>
  );
}

export const spelled = (word: string) => (word === "<s>" ? texts.start : word === "</s>" ? texts.end : word);

// What a number is called.
export const nameOf = ({ name }: Num) =>
  texts.number({ ...name, row: spelled(name.row), column: spelled(name.column) });

// Markup for what a language table writes: W^Q, W_1, d_k.
export function Letter({ of }: { of: string }) {
  const [base, above] = of.split("^");
  const [letter, below] = base.split("_");
  return (
    <i class="symbol">
      {letter}
      {below && <sub>{below}</sub>}
      {above && <sup>{above}</sup>}
    </i>
  );
}

export function Chip(props: { word: string; on?: boolean; pale?: boolean; onClick?: () => void }) {
  const { word, on, pale, onClick } = props;
  const look = ["chip", on && "on", pale && "pale"].filter(Boolean).join(" ");
  return onClick ? (
    <Button class={look} on={on} onClick={onClick}>
      {spelled(word)}
    </Button>
  ) : (
    <span class={look}>{spelled(word)}</span>
  );
}

// Strips below each other, each with the word that it belongs to; the one at hand is strong, the others pale.
export function Strips(props: {
  rows: Rows;
  title?: ComponentChildren;
  words?: string[];
  kind?: Kind;
  at?: number; // the row that counts; all if there is none
  pale?: boolean;
  share?: boolean;
  columns?: string[]; // the words that the columns belong to
  onRow?: (row: number) => void;
}) {
  const { rows, title, words, kind = "stream", at, pale, share, columns, onRow } = props;
  return (
    <div class={pale ? `strips ${kind} pale` : `strips ${kind}`}>
      {title && <p class="title">{title}</p>}
      <div class={words ? "grid named" : "grid"} style={{ "--columns": rows[0].length }}>
        {columns && (
          <>
            <span />
            <span class="strip heads">
              {columns.map((word, j) => (
                <span key={j}>{spelled(word)}</span>
              ))}
            </span>
          </>
        )}
        {rows.map((row, i) => [
          words && (
            <Chip
              key={`word ${i}`}
              word={words[i]}
              on={i === at}
              pale={at !== undefined && i !== at}
              onClick={onRow && (() => onRow(i))}
            />
          ),
          <span key={i} class={at !== undefined && i !== at ? "strip pale" : "strip"}>
            {row.map((num, j) => (
              <Cell key={j} num={num} share={share} />
            ))}
          </span>,
        ])}
      </div>
    </div>
  );
}

// Products of matrices: each number stands where its row, to the left, and its column, above, meet.
export function Product(props: {
  left: Rows;
  leftTitle: ComponentChildren;
  leftKind?: Kind;
  times: { matrix: Rows; letter: string; result: Rows; title: ComponentChildren; kind?: Kind }[];
  words: string[];
  at?: number;
  onRow?: (row: number) => void;
}) {
  const { left, leftTitle, leftKind, times, words, at, onRow } = props;
  const wide = left[0].length + times[0].result[0].length > 8;
  return (
    <div class={wide ? "product wide" : "product"}>
      <div class="left">
        <Strips rows={left} title={leftTitle} words={words} kind={leftKind} at={at} onRow={onRow} />
      </div>
      {times.map(({ matrix, letter, result, title, kind }, i) => (
        <div key={i} class="times">
          <Strips rows={matrix} title={<Letter of={letter} />} kind="weight" pale />
          <Strips rows={result} title={title} kind={kind} at={at} words={wide ? words : undefined} />
        </div>
      ))}
    </div>
  );
}

// Lines from one place to several, or back: each as wide as the weight of its place; thin ones before there are weights.
export function Lines({ weights, into, thin }: { weights: Num[]; into?: boolean; thin?: boolean }) {
  const middle = weights.length / 2;
  const most = Math.max(...weights.map(({ value }) => value));
  return (
    <svg class="lines" viewBox={`0 0 ${weights.length} 1`} preserveAspectRatio="none" aria-hidden="true">
      {weights.map(({ value }, j) => {
        const [from, to] = into ? [j + 0.5, middle] : [middle, j + 0.5];
        const width = thin ? 1.5 : Math.max(20 * value, 0.75);
        const look = thin ? "line" : value <= 0 ? "line none" : value === most ? "line strong" : "line";
        return (
          <path
            key={j}
            d={`M${from} 0 C ${from} 0.6, ${to} 0.4, ${to} 1`}
            class={look}
            stroke-width={width}
          />
        );
      })}
    </svg>
  );
}

// A sum written below each other, as on paper, of one word's vectors; above it the words to choose from.
export interface Term {
  sign?: string;
  label: ComponentChildren;
  nums: Num[];
  strong?: boolean;
  result?: boolean; // below a line
}
export function Column(props: { terms: Term[]; words: string[]; at: number; onRow: (row: number) => void }) {
  const { terms, words, at, onRow } = props;
  return (
    <>
      <div class="line">
        {words.map((word, i) => (
          <Chip key={i} word={word} on={i === at} onClick={() => onRow(i)} />
        ))}
      </div>
      <div class="column-sum" style={{ "--columns": terms[0].nums.length }}>
        {terms.map(({ sign, label, nums, strong, result }, i) => (
          <div key={i} class={result ? "addend result" : "addend"}>
            <span class="sign">{sign}</span>
            <span class={strong ? "label" : "label pale"}>{label}</span>
            <span class={strong ? "strip stream" : "strip stream pale"}>
              {nums.map((num, j) => (
                <Cell key={j} num={num} />
              ))}
            </span>
          </div>
        ))}
      </div>
    </>
  );
}
