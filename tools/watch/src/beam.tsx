// The beam as a tree that grows: which beginnings were kept, which were dropped, which ended.

import { useState } from "preact/hooks";
import { Found, useLooks } from "./breaking.tsx";
import { Button } from "./button.tsx";
import { narrow, Slider, Try } from "./controls.tsx";
import { Scrolls, Table } from "./drawing.tsx";
import { texts } from "./language.ts";
import { percent, shown } from "./numbers.ts";
import type { Candidate } from "./search.ts";
import { distinct, spelled } from "./spelling.ts";
import type { Look } from "./translator.ts";
import type { View } from "./view.ts";

// A column's width, its boxes' width, and how much of a piece stands in a box; three columns are seen on a phone.
const ROOM = { wide: 148, box: 122, letters: 9 };
const SMALL = { wide: 102, box: 90, letters: 6 };
const HIGH = 26;

type Translated = Pick<Look["ended"][number], "tokens" | "text">;

interface Node extends Candidate {
  x: number;
  y: number;
  before: Node | null;
}

// Each step's candidates in a column, the likeliest on top, linked to what they continue.
export function layOut(steps: Candidate[][], wide = ROOM.wide): Node[][] {
  const columns: Node[][] = [];
  for (const step of steps) {
    const before = columns.at(-1) ?? [];
    const x = (columns.length + 1) * wide;
    columns.push(
      step.map((one, rank) => ({
        ...one,
        x,
        y: rank * HIGH,
        before: before.find((node) => node.place === one.parent) ?? null,
      })),
    );
  }
  return columns;
}

// A column's pieces in so many letters. A long one keeps its end, in which German words differ, and more of it where
// two would look alike.
export function labels(pieces: string[], letters: number): string[] {
  const different = [...new Set(pieces)];
  const cut = (end: number) =>
    different.map((piece) =>
      piece.length > letters ? `${piece.slice(0, letters - 1 - end)}…${piece.slice(-end)}` : piece,
    );
  let end = 2;
  while (end < letters - 2 && new Set(cut(end)).size < different.length) end++;
  const names = distinct(cut(end));
  return pieces.map((piece) => names[different.indexOf(piece)]);
}

// Tokens as words whose pieces are told apart.
const inPieces = (tokens: number[], pieces: string[]) =>
  tokens
    .map((token) => pieces[token])
    .join("·")
    .replaceAll("·\u2581", " ")
    .replace("\u2581", "");

// The words of one translation whose pieces are not those of all that read alike.
export function apart(one: Translated, all: Translated[], pieces: string[]): string {
  const twins = all.filter((other) => other.text === one.text);
  const words = twins.map((twin) => inPieces(twin.tokens, pieces).split(" "));
  const own = words[twins.indexOf(one)];
  return own.filter((word) => !words.every((others) => others.includes(word))).join(" ");
}

const pathTo = (node: Node | null): Node[] => (node ? [...pathTo(node.before), node] : []);

export function Beam({ view }: { view: View }) {
  const { look, state, choose, tokenizer, tries } = view;
  const said = texts.beam;
  const [steps, setSteps] = useState(Infinity);
  const all = look.steps.length;
  const count = Math.min(steps, all);
  const { wide, box, letters } = narrow() ? SMALL : ROOM;
  const columns = layOut(look.steps, wide).slice(0, count);
  const nodes = columns.flat();
  const spell = (node: Node) => spelled(tokenizer.pieces[node.token]);
  const names = columns.flatMap((column) => labels(column.map(spell), letters));
  const best = look.ended[0].tokens;
  const tokensOf = (node: Node) => pathTo(node).map((one) => one.token);
  const winner = nodes.find(
    (node) => node.fate === "ended" && tokensOf(node).slice(0, -1).join() === best.join(),
  );
  const curve = ({ before, x, y }: Node) => {
    const [fromX, fromY] = before ? [before.x + box, before.y] : [box - 20, 0];
    const middle = (fromX + x) / 2;
    return `M${fromX} ${fromY + 13} C${middle} ${fromY + 13} ${middle} ${y + 13} ${x} ${y + 13}`;
  };
  const winning = new Set(pathTo(winner ?? null));
  const height = 2 * state.beam * HIGH + 8;
  const penalty = (length: number) => ((5 + length) / 6) ** look.alpha; // of the search that gave these scores
  const twice = look.ended.filter((one, i, all) =>
    all.some((other, j) => j !== i && other.text === one.text),
  );
  return (
    <>
      <Narrow view={view} />
      {tries.beam && tries.beam !== state.sentence && (
        <Try view={view} said={said.tryBeam} sentences={[tries.beam]} change={{ beam: 4 }} />
      )}
      {tries.alpha === state.sentence && <Try view={view} said={said.moveAlpha} sentences={[]} />}
      {tries.alpha && tries.alpha !== state.sentence && (
        <Try view={view} said={said.tryAlpha} sentences={[tries.alpha]} change={{ beam: 4, alpha: 1 }} />
      )}
      <div class="controls">
        <Slider label={said.beam} from={1} to={6} value={state.beam} onMove={(beam) => choose({ beam })} />
        <Slider
          label={said.alpha}
          to={1}
          step={0.1}
          value={state.alpha}
          onMove={(alpha) => choose({ alpha })}
        />
        <Slider label={said.steps(all)} from={1} to={all} value={count} onMove={setSteps} />
      </div>
      <p class="legend">
        <span class="kept">{said.kept}</span> <span class="dropped">{said.dropped}</span>{" "}
        <span class="ended">{said.ended}</span> <span class="winning">{said.winning}</span>
      </p>
      <Scrolls name={said.name}>
        <svg
          class="tree"
          width={(count + 1) * wide}
          height={height}
          role="img"
          aria-label={said.described(count)}>
          {nodes.map((node, i) => (
            <path key={i} class={winning.has(node) ? "winning" : node.fate} d={curve(node)} />
          ))}
          <g transform="translate(0 2)">
            <rect width={box - 20} height={HIGH - 4} rx="4" />
            <text x={(box - 20) / 2} y="15">
              {texts.start}
            </text>
          </g>
          {nodes.map((node, i) => (
            <g
              key={i}
              class={winning.has(node) ? `winning ${node.fate}` : node.fate}
              transform={`translate(${node.x} ${node.y + 2})`}>
              <title>{tokenizer.decode(tokensOf(node))}</title>
              <rect width={box} height={HIGH - 4} rx="4" />
              <text x="6" y="15">
                {names[i]}
              </text>
              <text x={box - 5} y="15" class="number">
                {shown(node.logProb)}
              </text>
            </g>
          ))}
        </svg>
      </Scrolls>
      <p class="small">{said.numbers}</p>
      <Table
        of="results"
        name={said.caption(look.alpha.toFixed(1))}
        columns={[said.translation, "log P", said.penalty, said.score]}>
        {look.ended.map((one, i) => (
          <tr key={i} class={i ? undefined : "chosen"}>
            <th scope="row" lang="de">
              {one.text}
              {twice.includes(one) && (
                <small>
                  <span lang={texts.code}>{said.otherPieces}</span> {apart(one, look.ended, tokenizer.pieces)}
                </small>
              )}
            </th>
            <td>{shown(one.logProb)}</td>
            <td>{penalty(one.tokens.length + 1).toFixed(2)}</td>
            <td>
              <b>{shown(one.score)}</b>
            </td>
          </tr>
        ))}
      </Table>
      {twice.length > 0 && <p class="small">{said.alike}</p>}
      {look.ended.length > look.beam && <p class="small">{said.many(look.beam)}</p>}
      {look.alpha === 0 && <p class="small">{said.noPenalty}</p>}
      <p class="small">{said.probability(percent(Math.exp(look.ended[0].logProb)))}</p>
    </>
  );
}

// The same sentence with a beam of 1 and one of 4.
function Narrow({ view: { ask, state, choose } }: { view: View }) {
  const { sentence, alpha, prefix, leftOut } = state;
  const said = texts.beam;
  const found = useLooks(
    ask,
    [1, 4].map((beam) => ({ sentence, alpha, prefix, leftOut, beam })),
  );
  const [greedy, wide] = found.map((look) => look?.ended[0].text);
  return (
    <Table
      of="results"
      name={said.narrow(prefix.length > 0)}
      columns={[said.beamColumn, <span class="text">{said.translation}</span>, "log P"]}>
      {[1, 4].map((beam, i) => (
        <tr key={beam} class={beam === state.beam ? "chosen" : undefined}>
          <th scope="row">
            <Button on={beam === state.beam} onClick={() => choose({ beam })}>
              {beam}
            </Button>
          </th>
          <td class="text">
            <Found look={found[i]} />
            {i > 0 && wide !== undefined && wide === greedy && said.same}
          </td>
          <td>{found[i] && shown(found[i].ended[0].logProb)}</td>
        </tr>
      ))}
    </Table>
  );
}
