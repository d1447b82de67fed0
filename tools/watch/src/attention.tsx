// The stations of attention: queries, keys and values; scores and weights; heads.

import { useRef, useState } from "preact/hooks";
import { Leave } from "./breaking.tsx";
import { Button } from "./button.tsx";
import { Fold } from "./controls.tsx";
import { Bar, Head, type Hue, type Labelled, Scrolls, Strips, Table, useLeaving } from "./drawing.tsx";
import { describe } from "./heads.ts";
import { texts } from "./language.ts";
import { percent, shown } from "./numbers.ts";
import { listed, spelled } from "./spelling.ts";
import type { Side } from "./state.ts";
import { ChooseToken } from "./stations.tsx";
import { type Sequence, STAGES, type Vector } from "./transformer.ts";
import {
  attentionName,
  choosePosition,
  headOf,
  type Kind,
  largestOf,
  meanOfHeads,
  namesOf,
  piecesOf,
  positionOf,
  readOf,
  type View,
} from "./view.ts";

// All that the three stations need of a head, by default the one at hand.
function headAtHand(view: View, kind: Kind, head = view.state.head) {
  const { state, look, model } = view;
  const name = attentionName(kind, state.layer);
  const queries: Side = kind === "encoder" ? "encoder" : "decoder";
  const keys: Side = kind === "decoder" ? "decoder" : "encoder";
  const part = (stage: string) => headOf(look.trace[`${name}.${stage}`], head, model.h);
  return {
    name,
    part,
    queries,
    keys,
    width: model.d_model / model.h,
    at: positionOf(view, queries),
    queryNames: namesOf(view, queries),
    keyNames: readOf(view, keys),
    unmasked: kind === "decoder" && look.leftOut.includes("mask"), // keys after the query's are seen
  };
}

// What a head does in this sentence, in words.
function headName(view: View, kind: Kind, head: number): string {
  const { part, keys } = headAtHand(view, kind, head);
  const pieces = piecesOf(view, keys).map(spelled);
  return describe(kind, { weights: part("weights"), masked: part("masked"), keys: pieces });
}

export function Projections({ view, kind }: { view: View; kind: Kind }) {
  const { part, at, queries, queryNames, keyNames, keys } = headAtHand(view, kind);
  const [query, ks, vs] = [part("linears.0")[at], part("linears.1"), part("linears.2")];
  const said = texts.attention;
  const ofMemory = keys === "encoder" && kind === "cross";
  const strips = (rows: Sequence) => rows.map((values, i) => ({ label: keyNames[i], values }));
  return (
    <>
      <ChooseToken view={view} side={queries} />
      <h3 class="query">
        {said.query(queryNames[at])}q = x W<sup>Q</sup> + {said.bias}
      </h3>
      <Strips name={said.queryName} hue="query" rows={[{ label: queryNames[at], values: query }]} />
      <h3 class="key">
        {said.keys(ofMemory)}k = x W<sup>K</sup> + b
      </h3>
      <Strips name={said.keysName} hue="key" rows={strips(ks)} />
      <Fold
        title={
          <span class="value">
            {said.values(ofMemory)}v = x W<sup>V</sup> + b
          </span>
        }>
        <Strips name={said.valuesName} hue="value" rows={strips(vs)} />
      </Fold>
    </>
  );
}

export function Weighing({ view, kind }: { view: View; kind: Kind }) {
  const { state, choose, look, tokenizer } = view;
  const { name, part, at, width, queries, queryNames, keyNames, unmasked } = headAtHand(view, kind);
  const [products, scores, masked, weights] = STAGES.map((stage) => part(stage)[at]);
  const scaled = !look.leftOut.includes("scale");
  const masks = kind === "decoder" && !look.leftOut.includes("mask");
  const late = (j: number) => unmasked && j > at; // a key that the mask would hide
  const revealed = weights.reduce((sum, weight, j) => sum + (late(j) ? weight : 0), 0);
  const hidden = masked.filter((x) => x === -Infinity).length;
  const [first, second] = largestOf(weights, 2);
  const chosen = Math.min(state.key ?? first, keyNames.length - 1);
  const [q, k] = [part("linears.0")[at], part("linears.1")[chosen]];
  const read = piecesOf(view, queries)[at];
  const said = texts.attention;
  const who =
    kind === "encoder" ? (
      <b>{queryNames[at]}</b>
    ) : (
      said.readsAndWrites(
        <b lang="de">{spelled(read)}</b>,
        <b lang="de">{spelled(tokenizer.pieces[look.written[at]])}</b>,
      )
    );
  return (
    <>
      <ChooseToken view={view} side={queries} />
      <p class="said" aria-live="polite">
        {said.said(
          state.layer + 1,
          state.head + 1,
          who,
          said.ofItsAttention(percent(weights[first]), <b>{keyNames[first]}</b>),
          second !== undefined && weights[second] > 0
            ? said.to(percent(weights[second]), <b>{keyNames[second]}</b>)
            : null,
          said.sums(keyNames.length, hidden),
        )}
        {unmasked && at < keyNames.length - 1 && said.revealed(<b>{percent(revealed)}</b>)}
      </p>
      <Table
        of="weighing"
        name={said.stepByStep}
        caption={said.caption}
        columns={[
          <span class="key">{said.key}</span>,
          <>
            <i class="query">q</i> · <i class="key">k</i>
          </>,
          scaled ? `÷ √${width}` : <s>{`÷ √${width}`}</s>,
          ...(masks ? [said.mask] : []),
          said.weight,
        ]}>
        {keyNames.map((key, j) => (
          <tr key={j} class={masked[j] === -Infinity ? "hidden" : late(j) ? "late" : undefined}>
            <th scope="row">
              <Button class="token" on={j === chosen} onClick={() => choose({ key: j })}>
                {key}
              </Button>
              {late(j) && <small>{said.wasHidden}</small>}
            </th>
            <td>{shown(products[j])}</td>
            <td>{shown(scores[j])}</td>
            {masks && <td>{shown(masked[j])}</td>}
            <td>
              <Bar share={weights[j]} />
            </td>
          </tr>
        ))}
      </Table>
      {kind === "cross" && <LastLayer view={view} />}
      <Fold title={said.product(queryNames[at], keyNames[chosen], shown(products[chosen]))}>
        <p>{said.products(width)}</p>
        <Strips
          name={said.productName}
          rows={[
            { label: "q", values: q, hue: "query" },
            { label: "k", values: k, hue: "key" },
            { label: "q × k", values: q.map((x, i) => x * k[i]) },
          ]}
        />
      </Fold>
      <Leave view={view} part="scale" said={said.leaveScale(width)} />
      {kind === "decoder" && (
        <>
          <p>{said.aboutMask}</p>
          <Leave view={view} part="mask" said={said.leaveMask} />
        </>
      )}
      <Fold title={<span title={said.computedBy(name)}>{said.allQueries}</span>}>
        <p>{said.headDoes(state.head + 1, state.layer + 1, <b>{headName(view, kind, state.head)}</b>)}</p>
        <p class="small">{said.readMap}</p>
        <WeightMap
          {...{ view, kind }}
          head={state.head}
          name={said.mapName(state.layer + 1, state.head + 1)}
        />
      </Fold>
    </>
  );
}

// One head, or a layer before, may look elsewhere than at the words that are translated; see `layerOf`.
function LastLayer({ view }: { view: View }) {
  const { look, model, tokenizer } = view;
  const at = positionOf(view, "decoder");
  const keys = readOf(view, "encoder");
  const weights = meanOfHeads(look.trace[`${attentionName("cross", model.N - 1)}.weights`][at], model.h);
  const most = largestOf(weights, 2);
  return (
    <p class="last">
      {texts.attention.lastLayer(
        model.N,
        model.h,
        <b lang="de">{spelled(tokenizer.pieces[look.written[at]])}</b>,
        listed(
          most.map((key) => texts.attention.to(percent(weights[key]), <b>{keys[key]}</b>)),
          texts.and,
        ),
        keys[most[most.length - 1]] !== ".",
      )}
    </p>
  );
}

export function Heads({ view, kind }: { view: View; kind: Kind }) {
  const { state, choose, look, model } = view;
  const { name, part, at, width, queries, queryNames, keyNames } = headAtHand(view, kind);
  const focus = (head: number) => {
    const row = headAtHand(view, kind, head).part("weights")[at];
    const [first] = largestOf(row, 1);
    return `${keyNames[first]} ${percent(row[first])}`;
  };
  const [weights, values, output] = [part("weights")[at], part("linears.2"), part("heads")[at]];
  const said = texts.attention;
  const silent = look.leftOut.includes(`${name} ${state.head}`);
  return (
    <>
      <ChooseToken view={view} side={queries} />
      <p class="small">{said.readMaps(queryNames[at])}</p>
      <div class="heads">
        {Array.from({ length: model.h }, (_, head) => (
          <section key={head} class={head === state.head ? "chosen" : undefined}>
            <Button on={head === state.head} onClick={() => choose({ head })}>
              {said.headNumber(head + 1)}
            </Button>
            <p class="name">{headName(view, kind, head)}</p>
            <WeightMap small {...{ view, kind, head }} name={said.headMapName(head + 1)} />
            <p>{said.mostTo(<b>{focus(head)}</b>)}</p>
          </section>
        ))}
      </div>
      <details>
        <summary>{said.naming}</summary>
        <p>{said.rules(kind === "decoder", said.places[kind])}</p>
      </details>
      <h3 class="value">{said.handsOver(state.head + 1, width)}</h3>
      <Strips
        name={said.outputName}
        hue="value"
        rows={[
          ...(silent ? [] : summed(weights, values, keyNames, output)),
          { label: silent ? said.silenced : said.isHead(state.head + 1), values: output },
        ]}
      />
      <Fold title={said.sideBySide(model.h, width)}>
        <Strips
          name={said.sideBySideName}
          rows={[
            { label: "Concat", values: look.trace[`${name}.heads`][at], hue: "value" as Hue },
            { label: said.output, values: look.trace[`${name}.linears.3`][at] },
          ]}
        />
      </Fold>
      <Leave
        view={view}
        part={`${name} ${state.head}`}
        said={said.silence(state.head + 1, state.layer + 1, width)}
      />
    </>
  );
}

// The values times their weights: of the two with the most, and of all others together, which is what is left of the sum.
function summed(weights: Vector, values: Sequence, names: string[], sum: Vector): Labelled[] {
  const most = largestOf(weights, 2).map((j, i) => ({
    label: `${i ? "+ " : ""}${texts.attention.share(percent(weights[j]), names[j])}`,
    values: values[j].map((x) => weights[j] * x),
  }));
  const others = sum.map((x, k) => most.reduce((rest, one) => rest - one.values[k], x));
  return weights.length > most.length ? [...most, { label: texts.attention.others, values: others }] : most;
}

// Who looks at whom, in one head: query down, key across; a row sums to 1. It is a table, for whoever cannot see it. The
// number of the cell that is pointed at, or was tapped, stands above it.
function WeightMap(props: { view: View; kind: Kind; head: number; name: string; small?: boolean }) {
  const { view, kind, head, name, small } = props;
  const { part, at, queries, queryNames, keyNames, unmasked } = headAtHand(view, kind, head);
  const weights = part("weights");
  const [cell, setCell] = useState<{ i: number; j: number; left: number; top: number } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const close = () => setCell(null);
  useLeaving(box, cell !== null, close);
  const open = (event: PointerEvent) => {
    const found = (event.target as Element).closest<HTMLTableCellElement>("tbody td");
    const around = box.current?.getBoundingClientRect();
    if (!found || !around) return close();
    const { left, top, width } = found.getBoundingClientRect();
    const [i, j] = [(found.parentElement as HTMLTableRowElement).rowIndex - 1, found.cellIndex - 1];
    setCell({ i, j, left: (left + width / 2 - around.left) / around.width, top: top - around.top });
  };
  const weight = cell && weights[cell.i]?.[cell.j];
  return (
    <div
      class="around"
      ref={box}
      onScrollCapture={close}
      onPointerDown={open}
      onPointerMove={(event) => event.pointerType === "mouse" && open(event)}
      onPointerLeave={(event) => event.pointerType === "mouse" && close()}>
      <Scrolls name={name}>
        <table class={small ? "map small" : queries === "decoder" ? "map pairs" : "map"}>
          <Head columns={[null, ...keyNames.map((piece) => <span>{piece}</span>)]} />
          <tbody>
            {queryNames.map((query, i) => (
              <tr
                key={i}
                class={i === at ? "chosen" : undefined}
                onClick={() => choosePosition(view, queries, i)}>
                <th scope="row">
                  <span>{query}</span>
                </th>
                {keyNames.map((_, j) => (
                  <td
                    key={j}
                    class={unmasked && j > i ? "late" : undefined}
                    data-told={cell?.i === i && cell.j === j ? "" : undefined}
                    style={{ "--share": weights[i][j] }}>
                    <span>{Math.round(100 * weights[i][j])}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      {cell && weight != null && (
        <span class="bubble" aria-hidden="true" style={{ "--at": cell.left, "--top": `${cell.top}px` }}>
          {texts.attention.looksAt(queryNames[cell.i], keyNames[cell.j], <b>{percent(weight)}</b>)}
        </span>
      )}
    </div>
  );
}
