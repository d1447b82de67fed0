// The stations around attention: what goes in, and what each sub-layer does to it.

import { useState } from "preact/hooks";
import { Leave, Unmasked } from "./breaking.tsx";
import { Button } from "./button.tsx";
import { Fold, Try } from "./controls.tsx";
import { Bar, Strips, Table } from "./drawing.tsx";
import { texts } from "./language.ts";
import { shown } from "./numbers.ts";
import { joined, listed, spelled } from "./spelling.ts";
import type { Side } from "./state.ts";
import { moments, type Sequence, similarity } from "./transformer.ts";
import { choosePosition, largestOf, namesOf, piecesOf, positionOf, readOf, type View } from "./view.ts";

const embedding = (side: Side) => (side === "encoder" ? "src_embed" : "tgt_embed");

export function ChooseToken({ view, side }: { view: View; side: Side }) {
  const label = side === "encoder" ? texts.tokenAtHand : texts.positionAtHand;
  const at = positionOf(view, side);
  return (
    <>
      <p class="ask">{label + texts.colon}</p>
      <div class="tokens" role="group" aria-label={label} lang={side === "decoder" ? "de" : undefined}>
        {namesOf(view, side).map((name, i) => (
          <Button key={i} class="token" on={i === at} onClick={() => choosePosition(view, side, i)}>
            {name}
          </Button>
        ))}
      </div>
      {side === "decoder" && <Unmasked view={view} />}
    </>
  );
}

export function SourcePieces({ view }: { view: View }) {
  const { look, tokenizer, model, tries } = view;
  const composed = tokenizer.composed(look.source);
  const names = look.source.map((token) => spelled(tokenizer.pieces[token]));
  const said = texts.sourcePieces;
  const spelledInBytes = look.source.filter((token) => tokenizer.isByte(token)).length;
  return (
    <>
      <p class="said" aria-live="polite">
        {said.count(look.source.length, model.pieces.length.toLocaleString("en"))}
        {spelledInBytes > 0 && said.bytes(spelledInBytes)}
      </p>
      <ol class="pieces">
        {look.source.map((token, i) => (
          <li key={i}>
            <span class="token">{names[i]}</span>
            <small>{token}</small>
          </li>
        ))}
      </ol>
      <p class="small">
        {joined(names) && `${texts.dotJoins} `}
        {said.spelling}
      </p>
      <p>
        {composed.length
          ? said.composed(listed(composed.map((word) => <b>{word.join("·")}</b>)))
          : said.single}
      </p>
      {tries.pieces && !composed.length && <Try view={view} said={said.try} sentences={[tries.pieces]} />}
    </>
  );
}

export function TargetPieces({ view }: { view: View }) {
  const { look, tokenizer } = view;
  const said = texts.targetPieces;
  const chance = (i: number) => Math.exp(look.trace.generator[i][look.written[i]]);
  return (
    <Table of="shifted" name={said.name} caption={said.caption} columns={said.columns}>
      {look.target.map((token, i) => (
        <tr key={i}>
          <th scope="row">{i}</th>
          <td lang="de">{spelled(tokenizer.pieces[token])}</td>
          <td lang="de">
            <b>{spelled(tokenizer.pieces[look.written[i]])}</b>
          </td>
          <td>
            <Bar share={chance(i)} />
          </td>
        </tr>
      ))}
    </Table>
  );
}

export function Embedding({ view, side }: { view: View; side: Side }) {
  const { look, model } = view;
  const pieces = piecesOf(view, side);
  const twin = pieces.findIndex((piece, i) => pieces.indexOf(piece) < i);
  return (
    <>
      <p class="said" aria-live="polite">
        {texts.embedding.count(pieces.length, model.d_model)}
        {twin >= 0 ? texts.embedding.twin(spelled(pieces[twin])) : texts.embedding.alone}
      </p>
      <AllRows {...{ view, side }} name={texts.embedding.name} rows={look.trace[`${embedding(side)}.0`]} />
    </>
  );
}

export function Positions({ view, side }: { view: View; side: Side }) {
  const { look, tries } = view;
  const name = embedding(side);
  const pieces = piecesOf(view, side);
  const at = positionOf(view, side);
  const said = texts.positions;
  const waves = look.trace[`${name}.1.pe`];
  const names = readOf(view, side);
  return (
    <>
      <ChooseToken view={view} side={side} />
      <Strips
        name={said.name}
        rows={[
          { label: spelled(pieces[at]), values: look.trace[`${name}.0`][at] },
          ...(waves ? [{ label: `+ PE(${at})`, values: waves[at] }] : []),
          { label: "= x", values: look.trace[`${name}.1`][at] },
        ]}
      />
      <p class="small">{said.counted(<b>{names[at]}</b>, at)}</p>
      <Leave view={view} part="positions" said={said.leaveOut} />
      {tries.positions && <Try view={view} said={said.try} sentences={tries.positions} />}
      {waves && (
        <Fold title={said.waves}>
          <Strips
            name={said.wavesName}
            rows={waves.map((values, i) => ({ label: `${i} ${spelled(pieces[i])}`, values }))}
          />
          <p class="small">{said.fast}</p>
        </Fold>
      )}
    </>
  );
}

export function AddAndNorm({ view, side, sublayer }: { view: View; side: Side; sublayer: number }) {
  const { look, state } = view;
  const at = positionOf(view, side);
  const layer = `${side}.layers.${state.layer}`;
  const outputs = {
    encoder: ["self_attn.linears.3", "feed_forward.w_2"],
    decoder: ["self_attn.linears.3", "src_attn.linears.3", "feed_forward.w_2"],
  }[side];
  const before = sublayer
    ? `${layer}.sublayer.${sublayer - 1}.norm`
    : state.layer
      ? `${side}.layers.${state.layer - 1}.sublayer.${outputs.length - 1}.norm`
      : `${embedding(side)}.1`;
  const rows = [
    before,
    `${layer}.${outputs[sublayer]}`,
    `${layer}.sublayer.${sublayer}.sum`,
    `${layer}.sublayer.${sublayer}.norm`,
  ];
  const [x, output, sum, norm] = rows.map((name) => look.trace[name][at]);
  const said = texts.addAndNorm;
  const residual = !look.leftOut.includes("residual");
  const measured = [x, output, sum, norm].map(moments);
  return (
    <>
      <ChooseToken view={view} side={side} />
      <Strips
        name={said.name}
        rows={[
          { label: residual ? "x" : said.leftOutX, values: x },
          { label: residual ? `+ ${said.sublayer}` : said.sublayer, values: output },
          { label: `= ${said.sum}`, values: sum },
          { label: said.norm, values: norm },
        ]}
      />
      <Table
        of="moments"
        name={said.name}
        caption={said.caption(x.length)}
        columns={[null, said.mean, said.deviation]}>
        {["x", said.sublayer, said.sum, said.norm].map((label, i) => (
          <tr key={label}>
            <th scope="row">{label}</th>
            <td>{shown(measured[i].mean)}</td>
            <td>{shown(Math.sqrt(measured[i].variance))}</td>
          </tr>
        ))}
      </Table>
      <p class="small">{said.rescaled}</p>
      <p class="small">{said.similar(<b>{shown(similarity(x, sum))}</b>)}</p>
      <Leave view={view} part="residual" said={said.leaveOut} />
    </>
  );
}

const MANY = 8; // units that are told, the strongest first

const sizeOf = (values: Float32Array) => Math.max(...values.map(Math.abs));

export function Network({ view, side }: { view: View; side: Side }) {
  const { look, state } = view;
  const name = `${side}.layers.${state.layer}.feed_forward` as const;
  const at = positionOf(view, side);
  const names = namesOf(view, side);
  const [unit, setUnit] = useState<number | null>(null);
  const [every, setEvery] = useState(false);
  const all = look.trace[`${name}.fired`];
  const units = all[at];
  const fired = units.filter((x) => x > 0).length;
  const firing = largestOf(units, fired);
  const [strongest] = firing;
  const peaks = units.map((_, i) => Math.max(...all.map((row) => row[i])));
  const chosen = unit ?? (fired ? strongest : largestOf(peaks, 1)[0]);
  const leftOut = look.leftOut.includes("networks") || look.leftOut.includes(name);
  const last = side === "encoder" ? 1 : 2;
  const sublayer = (i: number) => `${side}.layers.${state.layer}.sublayer.${i}`;
  const [x, output, sum] = [`${sublayer(last - 1)}.norm`, `${name}.w_2`, `${sublayer(last)}.sum`].map(
    (stage) => look.trace[stage][at],
  );
  const alike = similarity(x, sum);
  const said = texts.network;
  const change =
    sizeOf(output) === 0
      ? said.nothing
      : shown(alike) === "1.00"
        ? said.hardly
        : alike > 0.7
          ? said.corrects
          : alike > 0.3
            ? said.changes
            : said.anew;
  return (
    <>
      <ChooseToken view={view} side={side} />
      <p class="said" aria-live="polite">
        {said.fired(names[at], fired, units.length, leftOut)}
        {fired > 0 && said.strongest(strongest + 1, shown(units[strongest]))}
      </p>
      <Strips name={said.name} rows={[{ label: said.units(units.length), values: units }]} />
      {firing.length > 0 && (
        <div class="tokens units" role="group" aria-label={said.firing}>
          {(every ? firing : firing.slice(0, MANY)).map((i) => (
            <Button
              key={i}
              class="token"
              on={i === chosen}
              aria-label={said.unit(i + 1, shown(units[i]))}
              onClick={() => setUnit(i)}>
              {i + 1}: {shown(units[i])}
            </Button>
          ))}
          {firing.length > MANY && (
            <Button class="token" aria-expanded={every} onClick={() => setEvery(!every)}>
              {every ? said.fewer : said.all(firing.length)}
            </Button>
          )}
        </div>
      )}
      <Fold title={said.each(chosen + 1, leftOut)}>
        {peaks[chosen] > 0 ? (
          <table class="unit">
            <tbody>
              {names.map((name, i) => (
                <tr key={i}>
                  <th scope="row">{name}</th>
                  <td>
                    <Bar share={all[i][chosen] / peaks[chosen]} written={shown(all[i][chosen])} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <p>{said.none}</p>
        )}
      </Fold>
      <h3>{said.adds(output.length)}</h3>
      <Strips
        name={said.stripsName}
        rows={[
          { label: "x", values: x },
          { label: look.leftOut.includes("residual") ? said.output : `+ ${said.output}`, values: output },
          { label: `= ${texts.addAndNorm.sum}`, values: sum },
        ]}
      />
      <p>{said.sizes(shown(sizeOf(x)), <b>{shown(sizeOf(output))}</b>, <b>{shown(alike)}</b>, change)}</p>
      <h3>{said.purpose}</h3>
      <p>{said.leave}</p>
      <Leave view={view} part={name} said={said.leaveOne(state.layer + 1)} />
      <Leave view={view} part="networks" said={said.leaveAll} />
    </>
  );
}

export function Memory({ view }: { view: View }) {
  const { look, model } = view;
  const rows = look.trace[`encoder.layers.${model.N - 1}.sublayer.1.norm`];
  return (
    <>
      <p class="said" aria-live="polite">
        {texts.memory.all(rows.length, model.d_model, model.N)}
      </p>
      <AllRows {...{ view, rows }} side="encoder" name={texts.memory.name} />
    </>
  );
}

// The vectors of all positions, of which one is chosen.
function AllRows(props: { view: View; side: Side; name: string; rows: Sequence }) {
  const { view, side, name, rows } = props;
  const names = readOf(view, side);
  return (
    <Strips
      name={name}
      chosen={positionOf(view, side)}
      onRow={(i) => choosePosition(view, side, i)}
      rows={rows.map((values, i) => ({ label: names[i], values }))}
    />
  );
}
