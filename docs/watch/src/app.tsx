// The page: a sentence, its translation, the map, and the station at hand.

import { useEffect, useRef, useState } from "preact/hooks";
import { partNames, sameWords } from "./breaking.tsx";
import { Choice, Legend, percent, spelled } from "./drawing.tsx";
import { FigureOne } from "./map.tsx";
import { beginning, readLink, type State, writeLink } from "./state.ts";
import { STOPS, TOUR } from "./stops.tsx";
import { Tokenizer } from "./tokenizer.ts";
import type { Look, PageModel, Request } from "./translator.ts";
import { chancesOf, layerOf, sameRow, sureness, type Tries, type View } from "./view.ts";
import { Shape, Term } from "./words.tsx";
import { startModel } from "./worker.ts";

export const LONGEST = 40; // tokens of a sentence, for all of its numbers to fit the page

const MANY = 6; // words that are told to be put together; a broken model may write fifty

export interface Setting {
  loadModel: () => Promise<PageModel>;
  sentence?: string; // what to begin with, if no link says so
  examples: string[];
  tries?: Tries;
  sure?: [tenth: number, median: number]; // what captions of the model's own kind get for a piece, on average
  series?: string; // where the notebooks' pages are
  linked: boolean; // whether the address may hold what is chosen
}

interface Ready {
  model: PageModel;
  tokenizer: Tokenizer;
  ask: (request: Request) => Promise<Look>;
}

export function App({ setting }: { setting: Setting }) {
  const [state, setState] = useState<State>(() => {
    const link = setting.linked ? location.hash || location.search : "";
    const state = readLink(link);
    return link || !setting.sentence ? state : { ...state, ...beginning(setting.sentence) };
  });
  const [ready, setReady] = useState<Ready | null>(null);
  const [looks, setLooks] = useState<{ look: Look; whole: Look; asked: string } | null>(null);
  const known = useRef<{ asked: string; look: Look } | null>(null); // the last look at a model with all its parts
  const [trouble, setTrouble] = useState("");
  const choose = (change: Partial<State>) => setState((before) => ({ ...before, ...change }));

  useEffect(() => {
    setting.loadModel().then(
      (model) => setReady({ model, tokenizer: new Tokenizer(model.pieces), ask: startModel(model) }),
      (error) => setTrouble(`The model could not be loaded: ${error.message}`),
    );
  }, []);

  useEffect(() => {
    if (!setting.linked) return;
    history.replaceState(null, "", `#${writeLink(state)}`);
    const follow = () => setState(readLink(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, [state]);

  const [, repaint] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const again = () => repaint((count) => count + 1);
    dark.addEventListener("change", again);
    return () => dark.removeEventListener("change", again);
  }, []);

  const { sentence, beam, alpha, prefix, leftOut } = state;
  const asked = JSON.stringify({ sentence, beam, alpha, prefix, leftOut });
  useEffect(() => {
    if (!ready) return;
    const tokens = ready.tokenizer.encode(sentence).length;
    if (tokens > LONGEST) {
      setTrouble(
        `This sentence has ${tokens} pieces, and the page shows at most ${LONGEST}: please shorten it.`,
      );
      return;
    }
    let wanted = true;
    setTrouble("");
    const show = (look: Look, whole: Look) => {
      const before = looks?.look;
      if (before?.sentence === sentence && before.prefix.join() === prefix.join())
        setState(({ position, ...others }) => {
          const row = position.decoder;
          const decoder = row === null ? null : sameRow(row, before.written, look.written);
          return { ...others, position: { ...position, decoder } };
        });
      setLooks({ look, whole, asked });
    };
    const request = { sentence, beam, alpha, prefix };
    const wholly = JSON.stringify(request);
    const whole = async () => {
      if (known.current?.asked === wholly) return known.current.look;
      const look = await ready.ask({ ...request, leftOut: [] });
      known.current = { asked: wholly, look };
      return look;
    };
    Promise.all([leftOut.length ? ready.ask({ ...request, leftOut }) : null, whole()]).then(
      ([look, whole]) => wanted && show(look ?? whole, whole),
      (error) => wanted && setTrouble(`The model failed: ${error.message}`),
    );
    return () => {
      wanted = false;
    };
  }, [ready, asked]);

  const computing = looks !== null && looks.asked !== asked && !trouble;
  const opened = (model: PageModel) => ({
    ...state,
    layer: layerOf(state, model.N),
    head: Math.min(state.head, model.h - 1),
  });
  const view: View | null =
    ready && looks
      ? { state: opened(ready.model), choose, ...ready, ...looks, computing, tries: setting.tries ?? {} }
      : null;
  return (
    <>
      <p class="busy" role="status">
        {computing && <span>computing…</span>}
      </p>
      <Sentence state={state} choose={choose} examples={setting.examples} />
      <Translation view={view} trouble={trouble} typical={setting.sure} />
      <div class={computing ? "see computing" : "see"}>
        <nav id="map" aria-label="Map">
          <FigureOne view={view} />
        </nav>
        <main id="station">{view ? <Station view={view} series={setting.series} /> : <Loading />}</main>
      </div>
    </>
  );
}

const Loading = () => (
  <p class="loading">The model is loading: 2.6 million numbers. Nothing that you type leaves this page.</p>
);

type Chosen = { state: State; choose: View["choose"] };

function Sentence({ state, choose, examples }: Chosen & { examples: string[] }) {
  const [text, setText] = useState(state.sentence);
  useEffect(() => setText(state.sentence), [state.sentence]);
  const begin = (sentence: string) => {
    if (sentence.trim()) choose(beginning(sentence.trim()));
  };
  return (
    <form
      class="sentence"
      onSubmit={(event) => {
        event.preventDefault();
        begin(text);
      }}
    >
      <label for="sentence">Your sentence, in English, such as describes a photograph:</label>
      <div>
        <input
          id="sentence"
          type="text"
          required
          autocomplete="off"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit">Translate</button>
      </div>
      <p class="examples">
        Or:{" "}
        {examples.map((example) => (
          <button key={example} type="button" onClick={() => begin(example)}>
            {example}
          </button>
        ))}
      </p>
    </form>
  );
}

function Translation(props: { view: View | null; trouble: string; typical: Setting["sure"] }) {
  const { view, trouble, typical } = props;
  return (
    <section class={view?.computing ? "translation computing" : "translation"} aria-label="The translation">
      <p class="trouble" role="status">
        {trouble}
      </p>
      {view && <Told view={view} typical={typical} />}
    </section>
  );
}

// The translation; the tokens in which it was written, each underlined by how sure the model was of it.
function Told({ view, typical }: { view: View; typical: Setting["sure"] }) {
  const { state, choose, look, whole, tokenizer, computing } = view;
  const chances = chancesOf(look);
  const sure = sureness(look);
  const worst = chances.indexOf(Math.min(...chances));
  const composed = tokenizer.composed(look.written);
  return (
    <>
      {state.leftOut.length > 0 && (
        <p class="broken">
          <b>Broken:</b> without {partNames(state.leftOut)}.{" "}
          <button type="button" onClick={() => choose({ leftOut: [] })}>
            Put everything back
          </button>
          <span class="whole">
            The whole model: <span lang="de">{whole.ended[0].text}</span>
            {!computing && sameWords(whole, look) && <b> Broken, it finds {sameWords(whole, look)}.</b>}
          </span>
        </p>
      )}
      <Forced view={view} />
      <p class="german" lang="de" aria-live="polite">
        {look.ended[0].text || "(nothing)"}
      </p>
      <p class="sure">
        On average, by the <Term of="geometric mean" />, the model gave each piece {percent(sure)}
        {typical && ` (half of the captions that it was made for get more than ${percent(typical[1])})`}. It
        was least sure of <b lang="de">{spelled(tokenizer.pieces[look.written[worst]])}</b>,{" "}
        {percent(chances[worst])}
        {worst < look.prefix.length && ", which you chose"}.
        {typical && sure < typical[0] && !state.leftOut.length && !state.prefix.length && (
          <b> Nine in ten captions get more: this is not what it was made for, do not trust it.</b>
        )}
        {composed.length > 0 && (
          <span class="composed">
            {" "}
            Put together from pieces:{" "}
            {composed.slice(0, MANY).map((word, i) => (
              <span key={i}>
                {i > 0 && ", "}
                <b lang="de">{word.join("·")}</b>
              </span>
            ))}
            {composed.length > MANY && ` and ${composed.length - MANY} more`}.{" "}
            {composed.length > 1 ? "Such words" : "Such a word"} may not exist, or be the wrong one.
          </span>
        )}
      </p>
    </>
  );
}

// What the reader has made the translation begin with, and so is not the model's choice.
function Forced({ view: { state, choose, tokenizer } }: { view: View }) {
  if (!state.prefix.length) return null;
  return (
    <p class="forced">
      <b>Chosen by you:</b> the translation begins with <b lang="de">“{tokenizer.decode(state.prefix)}”</b>,
      and the model goes on from there.{" "}
      <button type="button" onClick={() => choose({ prefix: [] })}>
        Let the model choose again
      </button>
    </p>
  );
}

function Station({ view, series }: { view: View; series?: string }) {
  const { state, choose, model } = view;
  const stop = STOPS.get(state.stop) ?? STOPS.get(TOUR[0]);
  if (!stop) return null;
  const at = TOUR.indexOf(stop.id);
  const way = at < 0 ? [...STOPS.keys()] : TOUR;
  const [before, after] = [-1, 1].map((step): string | undefined => way[way.indexOf(stop.id) + step]);
  return (
    <article>
      <header>
        <p class="where">
          {at >= 0 ? `Stop ${at + 1} of ${TOUR.length}` : "Beside the tour"} · {stop.title}
        </p>
        <h2>{stop.question}</h2>
        <p>{stop.text}</p>
        {stop.equation && <p class="equation">{stop.equation}</p>}
        <p class="facts">
          {stop.shape && (
            <span>
              Shape <Shape text={stop.shape} />
            </span>
          )}
          <span>Section {stop.section}</span>
          <span>
            {series ? (
              <a href={`${series}${stop.notebook}.html`}>Notebook {stop.notebook}</a>
            ) : (
              `Notebook ${stop.notebook}`
            )}
          </span>
        </p>
        {stop.tabs && (
          <div class="tabs" role="group" aria-label="Steps of attention">
            {stop.tabs.map(([id, label]) => (
              <button
                key={id}
                type="button"
                aria-pressed={id === stop.id}
                onClick={() => choose({ stop: id })}
              >
                {label}
              </button>
            ))}
          </div>
        )}
        {stop.layered && (
          <div class="controls">
            <Choice
              label="Layer"
              count={model.N}
              chosen={state.layer}
              onChoose={(layer) => choose({ layer })}
            />
            {stop.headed && (
              <Choice
                label="Head"
                count={model.h}
                chosen={state.head}
                onChoose={(head) => choose({ head })}
              />
            )}
          </div>
        )}
      </header>
      <div class="shown" key={stop.id}>
        {stop.strips && <Legend stop={stop.id} />}
        {stop.show(view)}
      </div>
      <footer>
        {before && <Step id={before} label="←" choose={choose} />}
        <button type="button" class="map" onClick={() => document.getElementById("map")?.scrollIntoView()}>
          Map
        </button>
        {after && <Step id={after} label="→" choose={choose} />}
      </footer>
    </article>
  );
}

function Step({ id, label, choose }: { id: string; label: string; choose: View["choose"] }) {
  const go = () => {
    choose({ stop: id });
    document.getElementById("station")?.scrollIntoView();
  };
  return (
    <button type="button" class={label === "→" ? "next" : "previous"} onClick={go}>
      {label === "→" ? `${STOPS.get(id)?.question} →` : "← Back"}
    </button>
  );
}
