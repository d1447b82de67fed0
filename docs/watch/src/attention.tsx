// The stations of attention: queries, keys and values; scores and weights; heads.

import { useState } from "preact/hooks";
import { Leave, Unmasked } from "./breaking.tsx";
import { Bar, type Hue, percent, Scrolls, Strips, shown, spelled, Tokens } from "./drawing.tsx";
import type { Sequence } from "./transformer.ts";
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
  type View,
} from "./view.ts";
import { Term } from "./words.tsx";

const sidesOf = (kind: Kind) =>
  ({
    queries: kind === "encoder" ? "encoder" : "decoder",
    keys: kind === "decoder" ? "decoder" : "encoder",
  }) as const;

// All that the three stations need of the head at hand.
function headAtHand(view: View, kind: Kind) {
  const { state, look, model } = view;
  const name = attentionName(kind, state.layer);
  const { queries, keys } = sidesOf(kind);
  const part = (stage: string) => headOf(look.trace[`${name}.${stage}`], state.head, model.h);
  const keyPieces = piecesOf(view, keys);
  return {
    name,
    part,
    queries,
    keys,
    width: model.d_model / model.h,
    at: positionOf(view, queries),
    queryNames: namesOf(view, queries),
    keyPieces,
  };
}

function ChooseQuery({ view, kind }: { view: View; kind: Kind }) {
  const { queries, queryNames, at } = headAtHand(view, kind);
  const label =
    kind === "encoder"
      ? "The token that asks"
      : "The position that asks (the piece that it reads → the piece that it writes)";
  return (
    <>
      <p class="ask">{label}:</p>
      <Tokens
        names={queryNames}
        chosen={at}
        label={label}
        lang={queries === "decoder" ? "de" : undefined}
        onChoose={(i) => choosePosition(view, queries, i)}
      />
      {kind !== "encoder" && <Unmasked view={view} />}
    </>
  );
}

export function Projections({ view, kind }: { view: View; kind: Kind }) {
  const { part, at, queryNames, keyPieces, keys } = headAtHand(view, kind);
  const [query, ks, vs] = [part("linears.0")[at], part("linears.1"), part("linears.2")];
  const strips = (rows: Sequence) => rows.map((values, i) => ({ label: spelled(keyPieces[i]), values }));
  return (
    <>
      <ChooseQuery view={view} kind={kind} />
      <h3 class="query">
        The query of “{queryNames[at]}”: q = x W<sup>Q</sup> + b
      </h3>
      <Strips name="The query" hue="query" rows={[{ label: queryNames[at], values: query }]} />
      <h3 class="key">
        The keys{keys === "encoder" && kind === "cross" ? " of the memory" : ""}: k = x W<sup>K</sup> + b
      </h3>
      <Strips name="The keys" hue="key" rows={strips(ks)} />
      <h3 class="value">
        The values{keys === "encoder" && kind === "cross" ? " of the memory" : ""}: v = x W<sup>V</sup> + b
      </h3>
      <Strips name="The values" hue="value" rows={strips(vs)} />
    </>
  );
}

export function Weighing({ view, kind }: { view: View; kind: Kind }) {
  const { state, choose, look, tokenizer } = view;
  const { name, part, at, width, queries, queryNames, keyPieces } = headAtHand(view, kind);
  const [products, scores, masked, weights] = ["products", "scores", "masked", "weights"].map(
    (s) => part(s)[at],
  );
  const scaled = !look.leftOut.includes("scale");
  const hidden = masked.filter((x) => x === -Infinity).length;
  const [first, second] = largestOf(weights, 2);
  const key = Math.min(state.key ?? first, keyPieces.length - 1);
  const [q, k] = [part("linears.0")[at], part("linears.1")[key]];
  const read = piecesOf(view, queries)[at];
  return (
    <>
      <ChooseQuery view={view} kind={kind} />
      <p class="said" aria-live="polite">
        In layer {state.layer + 1}, head {state.head + 1},{" "}
        {kind === "encoder" ? (
          <b>{spelled(read)}</b>
        ) : (
          <>
            the position that reads <b lang="de">{spelled(read)}</b> and writes{" "}
            <b lang="de">{spelled(tokenizer.pieces[look.written[at]])}</b>
          </>
        )}{" "}
        gives {percent(weights[first])} of its attention to <b>{spelled(keyPieces[first])}</b>
        {second !== undefined && weights[second] > 0 && (
          <>
            {" "}
            and {percent(weights[second])} to <b>{spelled(keyPieces[second])}</b>
          </>
        )}
        . All {keyPieces.length} weights sum to 1
        {hidden ? `; ${hidden} ${hidden === 1 ? "token is" : "tokens are"} still to come, and hidden` : ""}.
      </p>
      <Scrolls name="The weights, step by step">
        <table class="weighing">
          <caption>One row of the attention weights, step by step. Choose a key to see its product.</caption>
          <thead>
            <tr>
              <th scope="col" class="key">
                key
              </th>
              <th scope="col">
                <i class="query">q</i> · <i class="key">k</i>
              </th>
              <th scope="col">{scaled ? `÷ √${width}` : <s>÷ √{width}</s>}</th>
              {kind === "decoder" && (
                <th scope="col">{look.leftOut.includes("mask") ? <s>mask</s> : "mask"}</th>
              )}
              <th scope="col">softmax: the weight</th>
            </tr>
          </thead>
          <tbody>
            {keyPieces.map((piece, j) => (
              <tr key={j} class={masked[j] === -Infinity ? "hidden" : undefined}>
                <th scope="row">
                  <button
                    type="button"
                    class="token"
                    aria-pressed={j === key}
                    onClick={() => choose({ key: j })}
                  >
                    {spelled(piece)}
                  </button>
                </th>
                <td>{shown(products[j])}</td>
                <td>{shown(scores[j])}</td>
                {kind === "decoder" && <td>{shown(masked[j])}</td>}
                <td>
                  <Bar share={weights[j]} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      {kind === "cross" && <LastLayer view={view} />}
      <h3>
        One product: “{queryNames[at]}” · “{spelled(keyPieces[key])}” = {shown(products[key])}
      </h3>
      <p>
        {width} numbers of the query times {width} numbers of the key. Where both are large and have the same
        sign, the product grows.
      </p>
      <Strips
        name="One product"
        rows={[
          { label: "q", values: q, hue: "query" },
          { label: "k", values: k, hue: "key" },
          { label: "q × k", values: q.map((x, i) => x * k[i]) },
        ]}
      />
      <Leave view={view} part="scale">
        Leave out the division by √{width}
      </Leave>
      {kind === "decoder" && (
        <>
          <p>
            While the model writes, nothing later is there to be looked at. Yet without the mask each new
            token has the earlier positions computed again, and now they see the later tokens, which never
            happened in training.
          </p>
          <Leave view={view} part="mask">
            Leave out the causal mask
          </Leave>
        </>
      )}
      <h3 title={`Computed by ${name}`}>All queries of this head at once</h3>
      <p class="small">
        A row asks, a column answers; full colour is 100%, and each row sums to 100%. Click or tap a row to
        look at it above.
      </p>
      <WeightMap
        weights={part("weights")}
        queries={queryNames}
        keys={keyPieces}
        chosen={at}
        name={`Attention weights, layer ${state.layer + 1}, head ${state.head + 1}`}
        onChoose={(i) => choosePosition(view, queries, i)}
      />
    </>
  );
}

// One head, or a layer before, may look elsewhere than at the words that are translated; see `layerOf`.
function LastLayer({ view }: { view: View }) {
  const { look, model, tokenizer } = view;
  const at = positionOf(view, "decoder");
  const keys = piecesOf(view, "encoder");
  const weights = meanOfHeads(look.trace[`${attentionName("cross", model.N - 1)}.weights`][at], model.h);
  return (
    <p class="last">
      In layer {model.N}, on average over its {model.h} heads, the position that writes{" "}
      <b lang="de">{spelled(tokenizer.pieces[look.written[at]])}</b> gives{" "}
      {largestOf(weights, 2).map((key, i) => (
        <span key={key}>
          {i > 0 && " and "}
          {percent(weights[key])} to <b>{spelled(keys[key])}</b>
        </span>
      ))}
      .
    </p>
  );
}

export function Heads({ view, kind }: { view: View; kind: Kind }) {
  const { state, choose, look, model } = view;
  const { name, at, width, queries, queryNames, keyPieces } = headAtHand(view, kind);
  const rows = look.trace[`${name}.weights`];
  const focus = (head: number) => {
    const row = headOf([rows[at]], head, model.h)[0];
    const [first] = largestOf(row, 1);
    return `${spelled(keyPieces[first])} ${percent(row[first])}`;
  };
  const mixed = headOf([look.trace[`${name}.heads`][at]], state.head, model.h)[0];
  return (
    <>
      <ChooseQuery view={view} kind={kind} />
      <p class="small">
        A row asks, a column answers. The row with the frame is “{queryNames[at]}”: click or tap another row
        to look at it.
      </p>
      <div class="heads">
        {Array.from({ length: model.h }, (_, head) => (
          <section key={head} class={head === state.head ? "chosen" : undefined}>
            <button type="button" aria-pressed={head === state.head} onClick={() => choose({ head })}>
              Head {head + 1}
            </button>
            <p>
              most to <b>{focus(head)}</b>
            </p>
            <WeightMap
              small
              weights={headOf(rows, head, model.h)}
              queries={queryNames}
              keys={keyPieces}
              chosen={at}
              name={`Attention weights of head ${head + 1}`}
              onChoose={(i) => choosePosition(view, queries, i)}
            />
          </section>
        ))}
      </div>
      <h3 class="value">
        What head {state.head + 1} hands over: the values, weighted and summed ({width} numbers)
      </h3>
      <Strips name="The head's output" hue="value" rows={[{ label: queryNames[at], values: mixed }]} />
      <h3>
        <Term of="Concat" />: all heads side by side ({model.h} × {width} = {model.d_model}), then times W
        <sup>O</sup>
      </h3>
      <Strips
        name="Concatenated heads and output"
        rows={[
          { label: "all heads", values: look.trace[`${name}.heads`][at], hue: "value" as Hue },
          { label: "output", values: look.trace[`${name}.linears.3`][at] },
        ]}
      />
      <Leave view={view} part={`${name} ${state.head}`}>
        Silence head {state.head + 1} of layer {state.layer + 1}: its {width} numbers become 0
      </Leave>
    </>
  );
}

// Who looks at whom, in one head: query down, key across; a row sums to 1. It is a table, for whoever cannot see it.
function WeightMap(props: {
  weights: Sequence;
  queries: string[];
  keys: string[];
  chosen: number;
  onChoose: (i: number) => void;
  name: string;
  small?: boolean;
}) {
  const { weights, queries, keys, chosen, onChoose, name, small } = props;
  const [cell, setCell] = useState<[number, number] | null>(null);
  const [i, j] = cell ?? [];
  const told = !small && i !== undefined && j !== undefined && weights[i]?.[j] !== undefined;
  return (
    <>
      <Scrolls name={name}>
        <table class={small ? "map small" : queries[0]?.includes("→") ? "map pairs" : "map"}>
          <thead>
            <tr>
              <td />
              {keys.map((piece, j) => (
                <th key={j} scope="col">
                  <span>{spelled(piece)}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {queries.map((query, i) => (
              <tr key={i} class={i === chosen ? "chosen" : undefined} onClick={() => onChoose(i)}>
                <th scope="row">
                  <span>{query}</span>
                </th>
                {keys.map((key, j) => (
                  <td
                    key={j}
                    style={{ "--share": weights[i][j] }}
                    title={`${query} looks at ${spelled(key)}: ${percent(weights[i][j])}`}
                    onPointerDown={() => setCell([i, j])}
                  >
                    <span>{Math.round(100 * weights[i][j])}</span>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      {!small && (
        <p class="readout" aria-hidden="true">
          {told && (
            <>
              {queries[i]} looks at {spelled(keys[j])}: <b>{percent(weights[i][j])}</b>
            </>
          )}
        </p>
      )}
    </>
  );
}
