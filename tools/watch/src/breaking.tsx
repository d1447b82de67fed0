// Break it: leave a part out, and the model computes everything anew without it.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "./button.tsx";
import { Fold, Try } from "./controls.tsx";
import { Table } from "./drawing.tsx";
import { texts } from "./language.ts";
import { percent } from "./numbers.ts";
import type { Side } from "./state.ts";
import type { Part } from "./transformer.ts";
import type { Look, Request } from "./translator.ts";
import { attentionName, type Kind, sureness, type View } from "./view.ts";
import type { Ask } from "./worker.ts";

const NAMED = ["positions", "mask", "scale", "residual", "networks"] as const;
type Named = (typeof NAMED)[number];
const KINDS: Kind[] = ["encoder", "decoder", "cross"];

// What is left out, in words.
export const partName = (part: Part) => partNames([part]);

// The same for several: heads of one attention are told together, and of many parts only the first.
export function partNames(parts: Part[]): string {
  const said = texts.breaking;
  const heads = new Map<string, { name: (numbers: number[]) => string; numbers: number[] }>();
  const names = new Set<string>();
  for (const part of parts) {
    const [, stack, layer, attention, head] =
      /^(encoder|decoder)\.layers\.(\d+)\.(\w+)(?: (\d+))?$/.exec(part) ?? [];
    const [own, number] = [said.stacks[stack as Side], Number(layer) + 1];
    if (stack === undefined)
      names.add(NAMED.includes(part as Named) ? texts.parts[part as Named].name : part);
    else if (head === undefined) names.add(said.network(own, number));
    else {
      const of = `${stack} ${layer} ${attention}`;
      const name = (numbers: number[]) => said.heads(numbers, own, number, attention === "src_attn");
      heads.set(of, { name, numbers: [...(heads.get(of)?.numbers ?? []), Number(head) + 1] });
    }
  }
  for (const { name, numbers } of heads.values()) names.add(name(numbers.sort((a, b) => a - b)));
  const told = [...names].slice(0, names.size > 3 ? 2 : 3).join(texts.comma);
  return names.size > 3 ? said.andMore(told, names.size - 2) : told;
}

// With all of `chosen` left out too; if they all are, with none of them.
function toggle(parts: Part[], ...chosen: Part[]): Part[] {
  const others = parts.filter((part) => !chosen.includes(part));
  return chosen.every((part) => parts.includes(part)) ? others : [...others, ...chosen];
}

export function Leave({ view, part, said }: { view: View; part: Part; said: string }) {
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
      <Box view={view} part={part} said={said} ticked={ticked} />
      <div ref={outcome}>
        {state.leftOut.includes(part) && [<Outcome view={view} />, <Matters view={view} part={part} />]}
      </div>
    </>
  );
}

// A sentence that loses something by what is left out, where the one at hand does not.
function Matters({ view, part }: { view: View; part: Part }) {
  const { state, look, whole, computing, tries } = view;
  const other = Object.entries(tries.parts ?? {}).find(([, parts]) => parts.includes(part))?.[0];
  if (computing || !other || other === state.sentence || !sameWords(whole, look)) return null;
  return <Try view={view} said={texts.breaking.try} sentences={[other]} change={{ leftOut: [part] }} />;
}

function Box(props: { view: View; part: Part; said: string; ticked?: RefObject<boolean> }) {
  const { part, said, ticked } = props;
  const { state, choose } = props.view;
  return (
    <label class="leave">
      <input
        type="checkbox"
        checked={state.leftOut.includes(part)}
        onChange={() => {
          if (ticked) ticked.current = true;
          choose({ leftOut: toggle(state.leftOut, part) });
        }}
      />{" "}
      {said}
    </label>
  );
}

// What a broken model that found the same words has lost, in words; nothing, if it found others.
export function sameWords(whole: Look, look: Look): string {
  if (look.ended[0].text !== whole.ended[0].text) return "";
  const [before, after] = [whole, look].map(sureness);
  const [from, to] = [before, after].map(percent);
  const said = texts.breaking;
  if (from === to) return said.justAsSure(to);
  return after < before ? said.lessSure(from, to) : said.surer(from, to);
}

// A translation, once it is there.
export const Found = ({ look }: { look?: Look }) =>
  look ? <span lang="de">{shorten(look.ended[0].text)}</span> : <i>{texts.computing}</i>;

// What leaving parts out did to the translation, beside the control that left them out.
export function Outcome({ view }: { view: View }) {
  const { state, look, whole, computing } = view;
  const [before, after] = [whole.ended[0].text, look.ended[0].text];
  const said = texts.breaking;
  return (
    <dl class="outcome" aria-live="polite">
      <dt>{said.whole}</dt>
      <dd lang="de">{before}</dd>
      <dt>{said.without(partNames(state.leftOut))}</dt>
      {computing ? (
        <dd>{texts.computing}</dd>
      ) : (
        <dd>
          <span lang="de">{shorten(after) || texts.nothing}</span>
          {sameWords(whole, look) && <b>{said.theseAre(sameWords(whole, look))}</b>}
        </dd>
      )}
    </dl>
  );
}

// Where the decoder's numbers are not those of the moment in which a token was written.
export function Unmasked({ view }: { view: View }) {
  if (!view.look.leftOut.includes("mask") || view.state.stop === "probabilities") return null;
  return <p class="unmasked">{texts.breaking.unmasked}</p>;
}

export function Breaking({ view }: { view: View }) {
  const { state, choose, model, whole, ask } = view;
  const { sentence, beam, alpha, prefix } = state;
  const alone = useLooks(
    ask,
    NAMED.map((part) => ({ sentence, beam, alpha, prefix, leftOut: [part] })),
  );
  const said = texts.breaking;
  return (
    <>
      <Table of="breaking" name={said.caption} columns={[said.leftOut, said.translation]}>
        <tr>
          <th scope="row">{said.nothing}</th>
          <td lang="de">{whole.ended[0].text}</td>
        </tr>
        {NAMED.map((part, i) => (
          <tr key={part}>
            <th scope="row">
              <Box view={view} part={part} said={partName(part)} />
            </th>
            <td>
              <Found look={alone[i]} />
              {alone[i] && sameWords(whole, alone[i]) && said.same(sameWords(whole, alone[i]))}
              <small>{texts.parts[part].why}</small>
            </td>
          </tr>
        ))}
      </Table>
      <p>{said.tick}</p>
      <Fold title={said.silenceTitle}>
        <p>{said.silenceAll(3 * model.N * model.h, 2 * model.N)}</p>
        {KINDS.map((kind) => (
          <Silences
            key={kind}
            view={view}
            caption={said.kinds[kind]}
            rows={headsOf(kind, model).map((parts, layer) => [
              <Button
                on={parts.every((part) => state.leftOut.includes(part))}
                aria-label={said.silenceLayer(layer + 1, said.kinds[kind])}
                onClick={() => choose({ leftOut: toggle(state.leftOut, ...parts) })}>
                {said.layer(layer + 1)}
              </Button>,
              parts,
            ])}
          />
        ))}
        <Silences
          view={view}
          caption={said.networks}
          rows={(["encoder", "decoder"] as const).map((stack) => [
            said.stacks[stack],
            Array.from({ length: model.N }, (_, layer) => `${stack}.layers.${layer}.feed_forward` as const),
          ])}
        />
      </Fold>
      {state.leftOut.length > 0 && (
        <div class="stays">
          <Outcome view={view} />
        </div>
      )}
    </>
  );
}

// Rows of parts, each with its number, which leaves it out.
function Silences(props: { view: View; caption: string; rows: [head: ComponentChildren, parts: Part[]][] }) {
  const { state, choose } = props.view;
  return (
    <table class="silence">
      <caption>{props.caption}</caption>
      <tbody>
        {props.rows.map(([head, parts], i) => (
          <tr key={i}>
            <th scope="row">{head}</th>
            {parts.map((part, j) => (
              <td key={part}>
                <Button
                  on={state.leftOut.includes(part)}
                  aria-label={texts.breaking.silence(partName(part))}
                  onClick={() => choose({ leftOut: toggle(state.leftOut, part) })}>
                  {j + 1}
                </Button>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

// The heads of one kind of attention, layer by layer.
const headsOf = (kind: Kind, { N, h }: View["model"]): Part[][] =>
  Array.from({ length: N }, (_, layer) =>
    Array.from({ length: h }, (_, head): Part => `${attentionName(kind, layer)} ${head}`),
  );

// A model that has lost itself repeats one word up to the limit.
const shorten = (text: string) => (text.length > 120 ? `${text.slice(0, 100)} …` : text);

// The looks at several requests, which come in one after the other.
export function useLooks(ask: Ask, requests: Request[]): (Look | undefined)[] {
  const [found, setFound] = useState<Look[]>([]);
  useEffect(() => {
    let wanted = true;
    setFound([]);
    const askAll = async () => {
      for (const request of requests) {
        const look = await ask(request);
        if (!wanted) return;
        setFound((others) => [...others, look]);
      }
    };
    askAll().catch(() => {}); // what the page asks itself fails too, and is told
    return () => {
      wanted = false;
    };
  }, [JSON.stringify(requests)]);
  return found;
}
