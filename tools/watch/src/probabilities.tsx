// What comes out: a probability for every piece, and the choice of another one.

import { Bar, distinct, Fold, joined, percent, Scrolls, Slider, shown, spelled, Tokens } from "./drawing.tsx";
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
  return (
    <>
      <p class="ask">The position at hand (the piece that it reads → the piece that it writes):</p>
      <Tokens
        names={namesOf(view, "decoder")}
        chosen={at}
        label="The position at hand"
        lang="de"
        onChoose={(i) => choosePosition(view, "decoder", i)}
      />
      <p class="said" aria-live="polite">
        After having written {text ? <b lang="de">“{text}”</b> : "nothing"}, the model gives the highest
        probability to <b lang="de">{spelled(tokenizer.pieces[best[0]])}</b>, {percent(own[best[0]])}. It
        wrote <b lang="de">{spelled(tokenizer.pieces[written])}</b>
        {written === best[0]
          ? "."
          : at < state.prefix.length
            ? ", because you chose it."
            : model.forbidden.includes(best[0])
              ? ", because the search never takes the other."
              : state.beam > 1
                ? ", because the sentence as a whole scored better with it."
                : ", because the sentence has reached its greatest length."}
      </p>
      <Scrolls name="The likeliest pieces">
        <table class="probabilities">
          <caption>
            The ten likeliest of {model.pieces.length.toLocaleString("en")} pieces
            {temperature !== 1 && `, at a temperature of ${temperature.toFixed(1)}`}
          </caption>
          <thead>
            <tr>
              <th scope="col">piece</th>
              <th scope="col">
                <Term of="logit" />
              </th>
              <th scope="col">probability</th>
              <th scope="col">write it instead</th>
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
                    "written"
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
                      Write <span lang="de">{names[i]}</span>
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolls>
      <p class="small">
        The other {(model.pieces.length - best.length).toLocaleString("en")} pieces share{" "}
        {percent(Math.max(0, rest))}.{joined(names) && " A dot joins a piece to the one before it."}
      </p>
      {state.prefix.length > 0 && (
        <p>
          You made the translation begin with <b lang="de">“{tokenizer.decode(state.prefix)}”</b>.{" "}
          <button type="button" onClick={() => choose({ prefix: [] })}>
            Let the model choose again
          </button>
        </p>
      )}
      <Fold title="Temperature of the softmax, for show">
        <Slider
          label="Temperature"
          from={0.2}
          to={3}
          step={0.1}
          value={temperature}
          onMove={(temperature) => choose({ temperature })}
        />
        <p class="small">
          Logits are divided by it first. Below 1 the likeliest piece gains, above 1 all become more alike.
          The model itself uses 1.
        </p>
      </Fold>
    </>
  );
}
