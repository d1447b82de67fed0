// The stations around attention: what goes in, and what each sub-layer does to it.

import { useState } from "preact/hooks";
import { Leave, Unmasked } from "./breaking.tsx";
import { Bar, Fold, joined, Scrolls, Strips, shown, spelled, Tokens } from "./drawing.tsx";
import { beginning, type Side } from "./state.ts";
import { moments, similarity } from "./transformer.ts";
import { choosePosition, largestOf, namesOf, piecesOf, positionOf, readOf, type View } from "./view.ts";
import { Term } from "./words.tsx";

const embedding = (side: Side) => (side === "encoder" ? "src_embed" : "tgt_embed");

export function ChooseToken({ view, side }: { view: View; side: Side }) {
  const label =
    side === "encoder"
      ? "The token at hand"
      : "The position at hand (the piece that it reads → the piece that it writes)";
  return (
    <>
      <p class="ask">{label}:</p>
      <Tokens
        names={namesOf(view, side)}
        chosen={positionOf(view, side)}
        label={label}
        lang={side === "decoder" ? "de" : undefined}
        onChoose={(i) => choosePosition(view, side, i)}
      />
      {side === "decoder" && <Unmasked view={view} />}
    </>
  );
}

export function SourcePieces({ view }: { view: View }) {
  const { look, tokenizer, model, tries, choose } = view;
  const composed = tokenizer.composed(look.source);
  const names = look.source.map((token) => spelled(tokenizer.pieces[token]));
  const spelledInBytes = look.source.filter((token) => tokenizer.isByte(token)).length;
  return (
    <>
      <p class="said" aria-live="polite">
        This sentence is <b>{look.source.length} tokens</b>: {look.source.length - 1} pieces from a table of{" "}
        {model.pieces.length.toLocaleString("en")}, and the end symbol.
        {spelledInBytes > 0 &&
          ` ${spelledInBytes} of them are single bytes, because no piece holds their character: the captions that it learned from hardly ever had it.`}
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
        {joined(names) && "A dot joins a piece to the one before it. "}A word's first piece holds the space
        before it (▁ in the notebooks). The number is the row of the table in which the piece is looked up.
      </p>
      <p>
        {composed.length ? (
          <>
            Put together from several pieces:{" "}
            {composed.map((word, i) => (
              <span key={i}>
                {i > 0 && ", "}
                <b>{word.join("·")}</b>
              </span>
            ))}
            .
          </>
        ) : (
          "Here each word is a single piece."
        )}
      </p>
      {tries.pieces && !composed.length && (
        <div class="try">
          <p>A sentence with words that are put together:</p>
          <button type="button" onClick={() => choose(beginning(tries.pieces ?? ""))}>
            {tries.pieces}
          </button>
        </div>
      )}
    </>
  );
}

export function TargetPieces({ view }: { view: View }) {
  const { look, tokenizer } = view;
  const chance = (i: number) => Math.exp(look.trace.generator[i][look.written[i]]);
  return (
    <Scrolls name="What the decoder reads and writes">
      <table class="shifted">
        <caption>
          At each position one more token is read, and the next is predicted from all that was read
        </caption>
        <thead>
          <tr>
            <th scope="col">position</th>
            <th scope="col">it reads</th>
            <th scope="col">it writes</th>
            <th scope="col">with probability</th>
          </tr>
        </thead>
        <tbody>
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
        </tbody>
      </table>
    </Scrolls>
  );
}

export function Embedding({ view, side }: { view: View; side: Side }) {
  const { look, model } = view;
  const pieces = piecesOf(view, side);
  const names = readOf(view, side);
  const twin = pieces.findIndex((piece, i) => pieces.indexOf(piece) < i);
  return (
    <>
      <p class="said" aria-live="polite">
        {pieces.length} tokens become {pieces.length} vectors of {model.d_model} numbers.
        {twin >= 0
          ? ` “${spelled(pieces[twin])}” stands here twice, and both rows are the same: nothing tells yet where a token stands.`
          : " A row depends on the piece alone, not on where it stands."}
      </p>
      <Strips
        name="Embeddings"
        chosen={positionOf(view, side)}
        onRow={(i) => choosePosition(view, side, i)}
        rows={look.trace[`${embedding(side)}.0`].map((values, i) => ({ label: names[i], values }))}
      />
    </>
  );
}

export function Positions({ view, side }: { view: View; side: Side }) {
  const { look, state, choose, tries } = view;
  const name = embedding(side);
  const pieces = piecesOf(view, side);
  const at = positionOf(view, side);
  const waves = look.trace[`${name}.1.pe`];
  const names = readOf(view, side);
  return (
    <>
      <ChooseToken view={view} side={side} />
      <Strips
        name="Embedding, position and their sum"
        rows={[
          { label: spelled(pieces[at]), values: look.trace[`${name}.0`][at] },
          ...(waves ? [{ label: `+ PE(${at})`, values: waves[at] }] : []),
          { label: "= x", values: look.trace[`${name}.1`][at] },
        ]}
      />
      <p class="small">
        Positions count from 0: <b>{names[at]}</b> stands at {at}. Without them the decoder keeps some order,
        through its causal mask.
      </p>
      <Leave view={view} part="positions">
        Leave out the positions
      </Leave>
      {tries.positions && (
        <div class="try">
          <p>
            Two sentences made of the same pieces. With positions they mean opposite things; leave the
            positions out, and the model cannot tell one from the other:
          </p>
          {tries.positions.map((sentence) => (
            <button
              key={sentence}
              type="button"
              aria-pressed={sentence === state.sentence}
              onClick={() => choose(beginning(sentence))}
            >
              {sentence}
            </button>
          ))}
        </div>
      )}
      {waves && (
        <Fold title="The waves of all positions of this sentence">
          <Strips
            name="Positional encodings"
            rows={waves.map((values, i) => ({ label: `${i} ${spelled(pieces[i])}`, values }))}
          />
          <p class="small">
            To the left the waves are fast, to the right so slow that a sentence of this length sees hardly
            any change.
          </p>
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
  const told = (label: string, values: Float32Array) => {
    const { mean, variance } = moments(values);
    return (
      <tr>
        <th scope="row">{label}</th>
        <td>{shown(mean)}</td>
        <td>{shown(Math.sqrt(variance))}</td>
      </tr>
    );
  };
  const residual = !look.leftOut.includes("residual");
  const alike = similarity(x, sum);
  return (
    <>
      <ChooseToken view={view} side={side} />
      <Strips
        name="Residual connection and layer normalisation"
        rows={[
          { label: residual ? "x" : "x (left out)", values: x },
          { label: residual ? "+ sublayer(x)" : "sublayer(x)", values: output },
          { label: "= sum", values: sum },
          { label: "norm(sum)", values: norm },
        ]}
      />
      <table class="moments">
        <caption>Over the {x.length} numbers of this token</caption>
        <thead>
          <tr>
            <td />
            <th scope="col">mean</th>
            <th scope="col">standard deviation</th>
          </tr>
        </thead>
        <tbody>
          {told("x", x)}
          {told("sublayer(x)", output)}
          {told("sum", sum)}
          {told("norm(sum)", norm)}
        </tbody>
      </table>
      <p class="small">
        The norm brings the sum to mean 0 and standard deviation 1, then multiplies each number by a learned{" "}
        <Term of="gain" /> and adds a learned shift: that is why its own <Term of="standard deviation" /> need
        not be 1.
      </p>
      <p class="small">
        The <Term of="cosine similarity" /> of x and the sum is <b>{shown(alike)}</b>: at 1 the sum still
        points where x did, at 0 nothing of that direction is left, below 0 it points away from it.
      </p>
      <Leave view={view} part="residual">
        Leave out all residual connections
      </Leave>
    </>
  );
}

const MANY = 8; // units that are told, the strongest first

const sizeOf = (values: Float32Array) => Math.max(...values.map(Math.abs));

export function Network({ view, side }: { view: View; side: Side }) {
  const { look, state } = view;
  const name = `${side}.layers.${state.layer}.feed_forward`;
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
  const leftOut =
    look.leftOut.includes("networks") || look.leftOut.includes(`${name as `${string}.feed_forward`}`);
  const last = side === "encoder" ? 1 : 2;
  const sublayer = (i: number) => `${side}.layers.${state.layer}.sublayer.${i}`;
  const [x, output, sum] = [`${sublayer(last - 1)}.norm`, `${name}.w_2`, `${sublayer(last)}.sum`].map(
    (stage) => look.trace[stage][at],
  );
  const alike = similarity(x, sum);
  return (
    <>
      <ChooseToken view={view} side={side} />
      <p class="said" aria-live="polite">
        For “{names[at]}”,{" "}
        <b>
          {fired} of {units.length} units{" "}
          {leftOut ? "would fire, but the network is left out" : fired === 1 ? "fires" : "fire"}
        </b>
        ; the <Term of="ReLU" /> has set the others to 0.
        {fired > 0 && ` The strongest is unit ${strongest + 1}, with ${shown(units[strongest])}.`}
      </p>
      <Strips name="The units of this token" rows={[{ label: `${units.length} units`, values: units }]} />
      {firing.length > 0 && (
        <div class="tokens units" role="group" aria-label="Units that fire, the strongest first">
          {(every ? firing : firing.slice(0, MANY)).map((i) => (
            <button
              key={i}
              type="button"
              class="token"
              aria-pressed={i === chosen}
              aria-label={`Unit ${i + 1}: ${shown(units[i])}`}
              onClick={() => setUnit(i)}
            >
              {i + 1}: {shown(units[i])}
            </button>
          ))}
          {firing.length > MANY && (
            <button type="button" class="token" aria-expanded={every} onClick={() => setEvery(!every)}>
              {every ? "the strongest only" : `all ${firing.length} that fire`}
            </button>
          )}
        </div>
      )}
      <Fold
        title={`Unit ${chosen + 1} for each token of this sentence${leftOut ? ", if it were not left out" : ""}`}
      >
        {peaks[chosen] > 0 ? (
          <table class="unit">
            <tbody>
              {names.map((name, i) => (
                <tr key={i}>
                  <th scope="row">{name}</th>
                  <td>
                    <span class="bar" style={{ "--share": all[i][chosen] / peaks[chosen] }}>
                      <span>{shown(all[i][chosen])}</span>
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        ) : (
          <p>It fires for none of them.</p>
        )}
      </Fold>
      <h3>What it adds to the token: {output.length} numbers</h3>
      <Strips
        name="Feed-forward input, output and sum"
        rows={[
          { label: "x", values: x },
          { label: look.leftOut.includes("residual") ? "network(x)" : "+ network(x)", values: output },
          { label: "= sum", values: sum },
        ]}
      />
      <p>
        The largest number of x is {shown(sizeOf(x))} in size, the largest that the network gives{" "}
        <b>{shown(sizeOf(output))}</b>. The <Term of="cosine similarity" /> of x and the sum is{" "}
        <b>{shown(alike)}</b>:{" "}
        {sizeOf(output) === 0
          ? "it is left out and adds nothing."
          : shown(alike) === "1.00"
            ? "the network hardly changes this token."
            : alike > 0.7
              ? "the network corrects this token and leaves most of it as it was."
              : alike > 0.3
                ? "the network changes this token a good deal."
                : "the network writes this token nearly anew."}{" "}
        The norm, which comes next, brings every sum to the same scale, however large it is.
      </p>
      <h3>What is it for?</h3>
      <p>Leave it out, so that it adds nothing, and see what the translation loses.</p>
      <Leave view={view} part={`${name as `${string}.feed_forward`}`}>
        Leave out the feed-forward network of layer {state.layer + 1}
      </Leave>
      <Leave view={view} part="networks">
        Leave out all feed-forward networks, of encoder and decoder
      </Leave>
    </>
  );
}

export function Memory({ view }: { view: View }) {
  const { look, model } = view;
  const names = readOf(view, "encoder");
  return (
    <>
      <p class="said" aria-live="polite">
        <b>
          {names.length} × {model.d_model} numbers
        </b>{" "}
        are all that the decoder will ever know of the English sentence. Each of its {model.N} layers makes
        its own keys and values of them, once.
      </p>
      <Strips
        name="The memory"
        chosen={positionOf(view, "encoder")}
        onRow={(i) => choosePosition(view, "encoder", i)}
        rows={look.trace[`encoder.layers.${model.N - 1}.sublayer.1.norm`].map((values, i) => ({
          label: names[i],
          values,
        }))}
      />
    </>
  );
}
