// Break it: leave a part out, and the model computes everything anew without it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Fold, percent } from "./drawing.tsx";
import { beginning } from "./state.ts";
import type { Part } from "./transformer.ts";
import type { Look } from "./translator.ts";
import { attentionName, type Kind, sureness, type View } from "./view.ts";

const NAMED: [Part, string, string][] = [
  [
    "positions",
    "the positions",
    "The waves of section 3.5 are not added: a sentence becomes a bag of pieces. In the German some order remains, through the causal mask.",
  ],
  [
    "mask",
    "the causal mask",
    "Each position of the decoder sees what was written after it, which it never did in training.",
  ],
  [
    "scale",
    "the division by √dₖ",
    "The scores stay large: the softmax gives nearly everything to one token.",
  ],
  [
    "residual",
    "the residual connections",
    "Each sub-layer replaces what it read, where it should add to it.",
  ],
  [
    "networks",
    "the feed-forward networks",
    "Attention mixes what the tokens hold, and nothing works on a token alone.",
  ],
];
const KINDS: [Kind, string][] = [
  ["encoder", "Encoder self-attention"],
  ["decoder", "Decoder self-attention"],
  ["cross", "Encoder-decoder attention"],
];

// What is left out, in words.
export const partName = (part: Part) => partNames([part]);

// The same for several: heads of one attention are told together, and of many parts only the first.
export function partNames(parts: Part[]): string {
  const heads = new Map<string, number[]>();
  const names = new Set<string>();
  for (const part of parts) {
    const [, stack, layer, attention, head] = /^(\w+)\.layers\.(\d+)\.(\w+)(?: (\d+))?$/.exec(part) ?? [];
    if (stack === undefined) names.add(NAMED.find(([id]) => id === part)?.[1] ?? part);
    else if (head === undefined)
      names.add(`the feed-forward network of the ${stack}'s layer ${Number(layer) + 1}`);
    else {
      const where = attention === "src_attn" ? "encoder-decoder attention" : `the ${stack}'s self-attention`;
      const of = `of layer ${Number(layer) + 1} in ${where}`;
      heads.set(of, [...(heads.get(of) ?? []), Number(head) + 1]);
    }
  }
  for (const [of, numbers] of heads)
    names.add(`${numbers.length > 1 ? "heads" : "head"} ${numbers.sort((a, b) => a - b).join(", ")} ${of}`);
  const told = [...names].slice(0, names.size > 3 ? 2 : 3);
  return told.join(", ") + (names.size > told.length ? `, and ${names.size - told.length} more` : "");
}

const without = (parts: Part[], part: Part) =>
  parts.includes(part) ? parts.filter((other) => other !== part) : [...parts, part];

export function Leave({ view, part, children }: { view: View; part: Part; children: ComponentChildren }) {
  const { computing, state } = view;
  const outcome = useRef<HTMLDivElement>(null);
  const ticked = useRef(false);
  useEffect(() => {
    // What stands above has grown or shrunk, so what the click was about may have left the window.
    if (ticked.current) outcome.current?.scrollIntoView({ block: "nearest" });
    ticked.current &&= computing;
  });
  return (
    <>
      <Box
        view={view}
        part={part}
        onTick={() => {
          ticked.current = true;
        }}
      >
        {children}
      </Box>
      <div ref={outcome}>
        {state.leftOut.includes(part) && <Outcome view={view} />}
        {state.leftOut.includes(part) && <Matters view={view} part={part} />}
      </div>
    </>
  );
}

// A sentence that loses something by what is left out, where the one at hand does not.
function Matters({ view, part }: { view: View; part: Part }) {
  const { state, choose, look, whole, computing, tries } = view;
  const other = Object.entries(tries.parts ?? {}).find(([, parts]) => parts.includes(part))?.[0];
  if (computing || !other || other === state.sentence || !sameWords(whole, look)) return null;
  return (
    <div class="try">
      <p>A sentence whose translation changes without it:</p>
      <button type="button" onClick={() => choose({ ...beginning(other), leftOut: [part] })}>
        {other}
      </button>
    </div>
  );
}

function Box(props: { view: View; part: Part; children: ComponentChildren; onTick?: () => void }) {
  const { part, children, onTick } = props;
  const { state, choose } = props.view;
  return (
    <label class="leave">
      <input
        type="checkbox"
        checked={state.leftOut.includes(part)}
        onChange={() => {
          onTick?.();
          choose({ leftOut: without(state.leftOut, part) });
        }}
      />{" "}
      {children}
    </label>
  );
}

// What a broken model that found the same words has lost, in words; nothing, if it found others.
export function sameWords(whole: Look, look: Look): string {
  if (look.ended[0].text !== whole.ended[0].text) return "";
  const [before, after] = [whole, look].map(sureness);
  const [from, to] = [before, after].map(percent);
  if (from === to) return `the same words, just as sure: ${to}`;
  return `the same words, ${after < before ? "but less sure" : "and surer"}: ${from} → ${to}`;
}

// What leaving parts out did to the translation, beside the control that left them out.
export function Outcome({ view }: { view: View }) {
  const { state, look, whole, computing } = view;
  const [before, after] = [whole.ended[0].text, look.ended[0].text];
  return (
    <dl class="outcome" aria-live="polite">
      <dt>The whole model</dt>
      <dd lang="de">{before}</dd>
      <dt>Without {partNames(state.leftOut)}, the rest as it was trained</dt>
      {computing ? (
        <dd>computing…</dd>
      ) : (
        <dd>
          <span lang="de">{shorten(after) || "(nothing)"}</span>
          {sameWords(whole, look) && <b> These are {sameWords(whole, look)}.</b>}
        </dd>
      )}
    </dl>
  );
}

// Where the decoder's numbers are not those of the moment in which a token was written.
export function Unmasked({ view }: { view: View }) {
  if (!view.look.leftOut.includes("mask")) return null;
  return (
    <p class="unmasked">
      Without the causal mask these numbers are those of the finished sentence: each position sees what comes
      after it. While the sentence was being written that was not there yet, so the token that this position
      wrote, and its probability, come from other numbers than these. Keys that the mask hid are marked.
    </p>
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
                  <Box view={view} part={part}>
                    {partName(part)}
                  </Box>
                </th>
                <td>
                  {alone[part] ? (
                    <span lang="de">{shorten(alone[part].ended[0].text)}</span>
                  ) : (
                    <i>computing…</i>
                  )}
                  {alone[part] && sameWords(whole, alone[part]) && ` (${sameWords(whole, alone[part])})`}
                  <small>{why}</small>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p>Tick a box, and the whole page shows the model without that part, until you put it back.</p>
      <Fold title="Silence heads and feed-forward networks">
        <p>
          {3 * model.N * model.h} heads and {2 * model.N} feed-forward networks. Silence one, several, or a
          layer's heads all at once by the layer's name, to find out which of them this sentence needs.
        </p>
        {KINDS.map(([kind, title]) => (
          <table key={kind} class="silence">
            <caption>{title}</caption>
            <tbody>
              {headsOf(kind, model).map((parts, layer) => (
                <tr key={layer}>
                  <th scope="row">
                    <button
                      type="button"
                      aria-pressed={parts.every((part) => state.leftOut.includes(part))}
                      aria-label={`Silence layer ${layer + 1} of ${title}`}
                      onClick={() => choose({ leftOut: withoutAll(state.leftOut, parts) })}
                    >
                      layer {layer + 1}
                    </button>
                  </th>
                  {parts.map((part, head) => (
                    <Silence key={part} view={view} part={part} label={head + 1} />
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        ))}
        <table class="silence">
          <caption>Feed-forward, by layer</caption>
          <tbody>
            {(["encoder", "decoder"] as const).map((stack) => (
              <tr key={stack}>
                <th scope="row">{stack}</th>
                {Array.from({ length: model.N }, (_, layer) => (
                  <Silence
                    key={layer}
                    view={view}
                    part={`${stack}.layers.${layer}.feed_forward`}
                    label={layer + 1}
                  />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Fold>
      {state.leftOut.length > 0 && (
        <div class="stays">
          <Outcome view={view} />
        </div>
      )}
    </>
  );
}

function Silence({ view, part, label }: { view: View; part: Part; label: number }) {
  const { state, choose } = view;
  return (
    <td>
      <button
        type="button"
        aria-pressed={state.leftOut.includes(part)}
        aria-label={`Silence ${partName(part)}`}
        onClick={() => choose({ leftOut: without(state.leftOut, part) })}
      >
        {label}
      </button>
    </td>
  );
}

// The heads of one kind of attention, layer by layer.
const headsOf = (kind: Kind, { N, h }: View["model"]): Part[][] =>
  Array.from({ length: N }, (_, layer) =>
    Array.from({ length: h }, (_, head): Part => `${attentionName(kind, layer)} ${head}`),
  );

// All of `more` left out too; if they all are, none of them.
function withoutAll(parts: Part[], more: Part[]): Part[] {
  const others = parts.filter((part) => !more.includes(part));
  return more.every((part) => parts.includes(part)) ? others : [...others, ...more];
}

// A model that has lost itself repeats one word up to the limit.
const shorten = (text: string) => (text.length > 120 ? `${text.slice(0, 100)} …` : text);

// The sentence once for each part, with only that part left out; they come in one after the other.
function useEachAlone({ ask, state }: View): Partial<Record<Part, Look>> {
  const { sentence, beam, alpha, prefix } = state;
  const [found, setFound] = useState<Partial<Record<Part, Look>>>({});
  useEffect(() => {
    let wanted = true;
    setFound({});
    (async () => {
      for (const [part] of NAMED) {
        const one = await ask({ sentence, beam, alpha, prefix, leftOut: [part] });
        if (!wanted) return;
        setFound((others) => ({ ...others, [part]: one }));
      }
    })();
    return () => {
      wanted = false;
    };
  }, [sentence, beam, alpha, prefix.join()]);
  return found;
}
