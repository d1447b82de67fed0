// What comes out: a probability for every piece, and the choice of another one.

import { Bar, distinct, Fold, joined, percent, Scrolls, Slider, shown, spelled, Tokens } from "./drawing.tsx";
import { texts } from "./language.ts";
import { END } from "./tokenizer.ts";
import { softmax } from "./transformer.ts";
import { choosePosition, largestOf, namesOf, positionOf, type View } from "./view.ts";
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
      <p class="ask">
        {texts.positionAtHand}
        {texts.colon}
      </p>
      <Tokens
        names={namesOf(view, "decoder")}
        chosen={at}
        label={texts.positionAtHand}
        lang="de"
        onChoose={(i) => choosePosition(view, "decoder", i)}
      />
      <p class="said" aria-live="polite">
        {said.said(
          text ? <b lang="de">“{text}”</b> : null,
          <b lang="de">{spelled(tokenizer.pieces[best[0]])}</b>,
          percent(own[best[0]]),
          <b lang="de">{spelled(tokenizer.pieces[written])}</b>,
          because,
        )}
      </p>
      <Scrolls name={said.name}>
        <table class="probabilities">
          <caption>
            {said.caption(model.pieces.length.toLocaleString("en"))}
            {temperature !== 1 && said.atTemperature(temperature.toFixed(1))}
          </caption>
          <thead>
            <tr>
              <th scope="col">{said.piece}</th>
              <th scope="col">
                <Term of="logit" />
              </th>
              <th scope="col">{said.probability}</th>
              <th scope="col">{said.instead}</th>
            </tr>
          </thead>
          <tbody>
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
                    <button
                      type="button"
                      onClick={() =>
                        choose({
                          prefix: [...begun, token],
                          position: { ...state.position, decoder: at },
                        })
                      }
                    >
                      {said.write(<span lang="de">{names[i]}</span>)}
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      <p class="small">
        {said.rest((model.pieces.length - best.length).toLocaleString("en"), percent(Math.max(0, rest)))}
        {joined(names) && texts.dotJoins}
      </p>
      {state.prefix.length > 0 && (
        <p>
          {said.begun(<b lang="de">“{tokenizer.decode(state.prefix)}”</b>)}{" "}
          <button type="button" onClick={() => choose({ prefix: [] })}>
            {said.again}
          </button>
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
