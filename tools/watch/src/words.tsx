// Words of the field, each with what it means: on the mouse's resting on it, and on a click, a tap, or a key.

import { type ComponentChildren, Fragment } from "preact";
import { useState } from "preact/hooks";
import { type Texts, texts } from "./language.ts";

export type Word = keyof Texts["meanings"];

// A sentence with elements in it: rich`${<b>two</b>} tokens`.
export function rich(texts: TemplateStringsArray, ...parts: ComponentChildren[]) {
  return <>{texts.map((text, i) => [text, parts[i]])}</>;
}

export function Term({ of, as }: { of: Word; as?: string }) {
  const [open, setOpen] = useState(false);
  const [letter, below] = of.split("_");
  return (
    <>
      <button
        type="button"
        class="term"
        title={texts.meanings[of]}
        aria-expanded={open}
        onClick={() => setOpen(!open)}>
        {as ?? (below && below !== "len" ? <i>{[letter, <sub>{below}</sub>]}</i> : of)}
      </button>
      {open && <span class="meaning">{texts.meaning(texts.meanings[of])}</span>}
    </>
  );
}

// Its square root, which no line's end cuts from what stands after it.
export const Root = ({ of, end }: { of: Word; end?: string }) => (
  <span class="whole">
    √<Term of={of} />
    {end}
  </span>
);

// A shape with its sizes explained.
export const Shape = ({ text }: { text: string }) =>
  text
    .split(/(\b(?:d_model|d_k|d_v|d_ff|src_len|tgt_len|h)\b)/)
    .map((part, i) => <Fragment key={i}>{i % 2 ? <Term of={part as Word} /> : part}</Fragment>);
