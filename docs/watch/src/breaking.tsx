// Break it: leave a part out, and the model computes everything anew without it.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Part } from "./transformer.ts";
import { type Look, PAPER } from "./translator.ts";
import { attentionName, type Kind, type View } from "./view.ts";

const NAMED: [Part, string, string][] = [
  [
    "positions",
    "the positions",
    "The waves of section 3.5 are not added: a sentence becomes a bag of pieces.",
  ],
  [
    "mask",
    "the causal mask",
    "Each position of the decoder sees what was written after it, which it never did in training.",
  ],
  [
    "scale",
    "the scale",
    "The scores are not divided by √d_k: the softmax gives nearly everything to one token.",
  ],
  [
    "residual",
    "the residual connections",
    "Each sub-layer replaces what it read, where it should add to it.",
  ],
];
const KINDS: [Kind, string][] = [
  ["encoder", "Encoder self-attention"],
  ["decoder", "Decoder self-attention"],
  ["cross", "Encoder-decoder attention"],
];

// What is left out, in words.
export function partName(part: Part): string {
  const named = NAMED.find(([id]) => id === part);
  if (named) return named[1];
  const [, stack, layer, attention, head] = /^(\w+)\.layers\.(\d+)\.(\w+) (\d+)$/.exec(part) ?? [];
  const kind = attention === "src_attn" ? "encoder-decoder attention" : `the ${stack}'s self-attention`;
  return `head ${Number(head) + 1} of layer ${Number(layer) + 1} in ${kind}`;
}

const without = (parts: Part[], part: Part) =>
  parts.includes(part) ? parts.filter((other) => other !== part) : [...parts, part];

export function Leave({ view, part, children }: { view: View; part: Part; children: ComponentChildren }) {
  const { state, choose } = view;
  return (
    <label class="leave">
      <input
        type="checkbox"
        checked={state.leftOut.includes(part)}
        onChange={() => choose({ leftOut: without(state.leftOut, part) })}
      />{" "}
      {children}
    </label>
  );
}

export function Breaking({ view }: { view: View }) {
  const { state, choose, model, whole } = view;
  const alone = useEachAlone(view);
  return (
    <>
      <div class="scrolls">
        <table class="breaking">
          <caption>The same sentence, the same weights, one part left out at a time</caption>
          <thead>
            <tr>
              <th scope="col">left out</th>
              <th scope="col">translation</th>
            </tr>
          </thead>
          <tbody>
            <tr>
              <th scope="row">nothing</th>
              <td lang="de">{whole.ended[0].text}</td>
            </tr>
            {NAMED.map(([part, , why]) => (
              <tr key={part}>
                <th scope="row">
                  <Leave view={view} part={part}>
                    {partName(part)}
                  </Leave>
                </th>
                <td>
                  <span lang="de">{shorten(alone[part]?.ended[0].text ?? "…")}</span>
                  {alone[part]?.ended[0].text === whole.ended[0].text && " (the same)"}
                  <small>{why}</small>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p>Tick a box, and the whole page shows the model without that part, until you put it back.</p>
      <h3>Silence heads</h3>
      <p>
        {3 * model.N * model.h} heads. Silence one, several, or a whole layer, to find out which of them this
        sentence needs.
      </p>
      {KINDS.map(([kind, title]) => (
        <table key={kind} class="silence">
          <caption>{title}</caption>
          <tbody>
            {Array.from({ length: model.N }, (_, layer) => (
              <tr key={layer}>
                <th scope="row">layer {layer + 1}</th>
                {Array.from(
                  { length: model.h },
                  (_, head): Part => `${attentionName(kind, layer)} ${head}`,
                ).map((part, head) => (
                  <td key={part}>
                    <button
                      type="button"
                      aria-pressed={state.leftOut.includes(part)}
                      aria-label={`Silence ${partName(part)}`}
                      onClick={() => choose({ leftOut: without(state.leftOut, part) })}
                    >
                      {head + 1}
                    </button>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      ))}
    </>
  );
}

// A model that has lost itself repeats one word up to the limit.
const shorten = (text: string) => (text.length > 120 ? `${text.slice(0, 100)} …` : text);

// The sentence once for each part, with only that part left out; they come in one after the other.
function useEachAlone({ ask, state, look }: View): Partial<Record<Part, Look>> {
  const [found, setFound] = useState<Partial<Record<Part, Look>>>({});
  useEffect(() => {
    let wanted = true;
    setFound({});
    (async () => {
      for (const [part] of NAMED) {
        const one = await ask({ ...PAPER, sentence: state.sentence, leftOut: [part] });
        if (!wanted) return;
        setFound((others) => ({ ...others, [part]: one }));
      }
    })();
    return () => {
      wanted = false;
    };
  }, [look.source.join()]);
  return found;
}
