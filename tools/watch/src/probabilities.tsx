// What comes out: a probability for every piece, and the choice of another one.

import { Button } from "./button.tsx";
import { Fold, Slider } from "./controls.tsx";
import { Bar, Table } from "./drawing.tsx";
import { texts } from "./language.ts";
import { percent, shown } from "./numbers.ts";
import { distinct, joined, spelled } from "./spelling.ts";
import { ChooseToken } from "./stations.tsx";
import { END } from "./tokenizer.ts";
import { softmax } from "./transformer.ts";
import { largestOf, positionOf, type View } from "./view.ts";
import { Term } from "./words.tsx";

export function Probabilities({ view }: { view: View }) {
  const { look, tokenizer, model, state, choose } = view;
  const { temperature } = state;
  const at = positionOf(view, "decoder");
  const logits = look.trace["generator.proj"][at];
  const own = softmax(logits); // of the model, whatever the temperature for show
  const chances = softmax(logits.map((x) => x / temperature));
  const best = largestOf(logits, 10);
  const names = distinct(
    best.map((token) => spelled(tokenizer.pieces[token])),
    best,
  );
  const written = look.written[at];
  const rest = 1 - best.reduce((sum, i) => sum + chances[i], 0);
  const begun = look.target.slice(1, at + 1);
  const text = tokenizer.decode(begun);
  const said = texts.probabilities;
  const write = (token: number) =>
    choose({ prefix: [...begun, token], position: { ...state.position, decoder: at } });
  const because =
    written === best[0]
      ? said.asExpected
      : at < state.prefix.length
        ? said.chosen
        : model.forbidden.includes(best[0])
          ? said.forbidden
          : state.beam > 1
            ? said.searched
            : said.longest;
  return (
    <>
      <ChooseToken view={view} side="decoder" />
      <p class="said" aria-live="polite">
        {said.said(
          text ? <b lang="de">“{text}”</b> : null,
          <b lang="de">{spelled(tokenizer.pieces[best[0]])}</b>,
          percent(own[best[0]]),
          <b lang="de">{spelled(tokenizer.pieces[written])}</b>,
          because,
        )}
      </p>
      <Table
        of="probabilities"
        name={said.name}
        caption={[
          said.caption(model.pieces.length.toLocaleString("en")),
          temperature !== 1 && said.atTemperature(temperature.toFixed(1)),
        ]}
        columns={[said.piece, <Term of="logit" />, said.probability, said.instead]}>
        {best.map((token, i) => (
          <tr key={token} class={token === written ? "chosen" : undefined}>
            <th scope="row" lang="de">
              {names[i]}
            </th>
            <td>{shown(logits[token])}</td>
            <td>
              <Bar share={chances[token]} />
            </td>
            <td>
              {token === written ? (
                said.written
              ) : token === END || model.forbidden.includes(token) ? (
                "–"
              ) : (
                <Button onClick={() => write(token)}>{said.write(<span lang="de">{names[i]}</span>)}</Button>
              )}
            </td>
          </tr>
        ))}
      </Table>
      <p class="small">
        {said.rest((model.pieces.length - best.length).toLocaleString("en"), percent(Math.max(0, rest)))}
        {joined(names) && texts.dotJoins}
      </p>
      {state.prefix.length > 0 && (
        <p>
          {said.begun(<b lang="de">“{tokenizer.decode(state.prefix)}”</b>)}{" "}
          <Button onClick={() => choose({ prefix: [] })}>{said.again}</Button>
        </p>
      )}
      <Fold title={said.temperatureTitle}>
        <Slider
          label={said.temperature}
          from={0.2}
          to={3}
          step={0.1}
          value={temperature}
          onMove={(temperature) => choose({ temperature })}
        />
        <p class="small">{said.aboutTemperature}</p>
      </Fold>
    </>
  );
}
