// Words of the field, each with what it means: on the mouse's resting on it, and on a click, a tap, or a key.

import { Fragment } from "preact";
import { useState } from "preact/hooks";

const MEANINGS = {
  logit: "a score that may be any number, before the softmax makes probabilities of all scores",
  d_model: "the width of a token's vector between layers",
  d_k: "the width of one head's queries and keys: d_model divided by the number of heads",
  d_v: "the width of one head's values",
  d_ff: "the inner width of a feed-forward network",
  src_len: "the number of tokens of the English sentence",
  tgt_len: "the number of tokens that the decoder reads",
  h: "the number of heads",
  bias: "a learned number that is added, one for each of the vector's; equation 1 leaves it out",
  "sub-layer": "one step of a layer: an attention or a feed-forward network",
  "cosine similarity": "the cosine of the angle between two vectors: 1 if they point the same way",
  gain: "a learned factor, one for each of the vector's numbers",
  "standard deviation":
    "how far the numbers lie from their mean: the root of the mean square of the distance",
  "geometric mean":
    "the geometric mean: the n-th root of the product of n numbers; one that is small draws it down further than the plain mean",
  greedy: "always taking the likeliest next token",
  memory: "the encoder's last vectors, one for each English token: all that the decoder sees of the sentence",
  ReLU: "rectified linear unit: max(0, x), which keeps what is positive and sets the rest to 0",
  gradient: "how the model's loss changes with each of its numbers: in training they follow it downwards",
};
export type Word = keyof typeof MEANINGS;

export const Below = ({ of }: { of: string }) => {
  const [letter, below] = of.split("_");
  return (
    <i>
      {letter}
      {below && <sub>{below}</sub>}
    </i>
  );
};

export function Term({ of, as }: { of: Word; as?: string }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button
        type="button"
        class="term"
        title={MEANINGS[of]}
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {as ?? (/_[a-z]+$/.test(of) && !of.endsWith("len") ? <Below of={of} /> : of)}
      </button>
      {open && <span class="meaning"> ({MEANINGS[of]})</span>}
    </>
  );
}

// A shape with its sizes explained.
export const Shape = ({ text }: { text: string }) =>
  text
    .split(/(\b(?:d_model|d_k|d_v|d_ff|src_len|tgt_len|h)\b)/)
    .map((part, i) => <Fragment key={i}>{i % 2 ? <Term of={part as Word} /> : part}</Fragment>);
