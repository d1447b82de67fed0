// The page: a sentence, its translation, the map, and the station at hand.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { partNames, sameWords } from "./breaking.tsx";
import { Button } from "./button.tsx";
import { Choice } from "./controls.tsx";
import { Legend } from "./drawing.tsx";
import { readFolder } from "./folder.ts";
import { LANGUAGES, speak, texts } from "./language.ts";
import { FigureOne } from "./map.tsx";
import { percent } from "./numbers.ts";
import { listed, spelled } from "./spelling.ts";
import { beginning, goingTo, readLink, type State, UNCHANGED, writeLink } from "./state.ts";
import { KNOWN, onTour, STOPS, TOUR } from "./stops.tsx";
import { normalize, Tokenizer } from "./tokenizer.ts";
import type { Look, PageModel } from "./translator.ts";
import { chancesOf, headOn, layerOf, sameRow, sureness, type Tries, type View } from "./view.ts";
import { Shape } from "./words.tsx";
import { type Running, startModel } from "./worker.ts";

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

interface Looks {
  look: Look;
  asked: string; // for it
  whole: Look; // at the model with all its parts
  wholly: string; // asked for that
  of: Ready;
}

interface Ready extends Running {
  model: PageModel;
  tokenizer: Tokenizer;
  folder: string | null; // that a model of the reader's own comes from
}

const FOLDER = { webkitdirectory: true }; // in no standard, but in every browser of a desk

export function App({ setting }: { setting: Setting }) {
  const [state, setState] = useState<State>(() => {
    const link = setting.linked ? location.hash || location.search : "";
    const state = readLink(link);
    state.language ??= readLink(location.search).language;
    return link || !setting.sentence ? state : { ...state, ...beginning(setting.sentence) };
  });
  speak(state.language ?? "en");
  const [ready, setReady] = useState<Ready | null>(null);
  const [looks, setLooks] = useState<Looks | null>(null);
  const [trouble, setTrouble] = useState("");
  const choose = (change: Partial<State>) => setState((before) => ({ ...before, ...change }));

  const use = (model: PageModel, folder: string | null) => {
    setReady({ model, tokenizer: new Tokenizer(model.pieces), ...startModel(model), folder });
  };
  const useShipped = () =>
    setting.loadModel().then(
      (model) => use(model, null),
      (error) => setTrouble(texts.notLoaded(error.message)),
    );
  useEffect(() => {
    useShipped();
  }, []);
  useEffect(() => ready?.end, [ready]);

  // Both before the browser paints: whoever sees the change may load the page again at once.
  useLayoutEffect(() => {
    if (!setting.linked) return;
    history.replaceState(null, "", `#${writeLink(state)}`);
    const follow = () => setState(({ language }) => ({ language, ...readLink(location.hash) }));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, [state]);

  useLayoutEffect(() => {
    document.documentElement.lang = texts.code;
    document.title = texts.title;
    document.querySelector(".top h1")?.replaceChildren(texts.heading);
    document.querySelector(".top p")?.replaceChildren(texts.about);
  }, [state.language]);

  const open = useRef(state.stop);
  useLayoutEffect(() => {
    if (open.current !== state.stop) fromItsTop();
    open.current = state.stop;
  }, [state.stop]);

  const { sentence, beam, alpha, prefix, leftOut } = state;
  const asked = JSON.stringify({ sentence, beam, alpha, prefix, leftOut });
  useEffect(() => {
    if (!ready) return;
    const tokens = ready.tokenizer.encode(sentence).length;
    if (tokens > LONGEST) {
      setTrouble(texts.tooLong(tokens, LONGEST));
      return;
    }
    let wanted = true;
    setTrouble("");
    const show = (look: Look, whole: Look) => {
      const before = looks?.of === ready ? looks.look : null;
      if (before?.sentence === sentence && before.prefix.join() === prefix.join())
        setState(({ position, ...others }) => {
          const row = position.decoder;
          const decoder = row === null ? null : sameRow(row, before.written, look.written);
          return { ...others, position: { ...position, decoder } };
        });
      setLooks({ look, asked, whole, wholly, of: ready });
    };
    const request = { sentence, beam, alpha, prefix };
    const wholly = JSON.stringify(request);
    const known = looks?.of === ready && looks.wholly === wholly;
    const whole = known ? looks.whole : ready.ask({ ...request, leftOut: [] });
    Promise.all([leftOut.length ? ready.ask({ ...request, leftOut }) : whole, whole]).then(
      ([look, whole]) => wanted && show(look, whole),
      (error) => wanted && setTrouble(texts.failed(error.message)),
    );
    return () => {
      wanted = false;
    };
  }, [ready, asked]);

  const own = ready?.folder != null;
  const computing = looks?.of === ready && looks?.asked !== asked && !trouble;
  const opened = ({ N, h }: PageModel) => ({ ...state, layer: layerOf(state, N), head: headOn(state, h) });
  const tries = (!own && setting.tries) || {};
  const view: View | null =
    ready && looks?.of === ready
      ? { state: opened(ready.model), choose, ...ready, ...looks, computing, tries }
      : null;
  return (
    <>
      <p class="languages" role="group" aria-label={texts.languages}>
        {Object.entries(LANGUAGES).map(([code, { language }]) => (
          <Button key={code} lang={code} on={code === texts.code} onClick={() => choose({ language: code })}>
            {language}
          </Button>
        ))}
      </p>
      <Sentence state={state} choose={choose} examples={own ? null : setting.examples} />
      {setting.linked && ready && (
        <Own
          ready={ready}
          onModel={(model, folder) => {
            use(model, folder);
            choose({ ...UNCHANGED, ...beginning(state.sentence), layer: null, head: null });
          }}
          onShipped={useShipped}
        />
      )}
      <div class={computing ? "now computing" : "now"}>
        {view && <Now view={view} />}
        <p class="busy" role="status">
          {computing && <span>{texts.computing}</span>}
        </p>
      </div>
      <section class={computing ? "translation computing" : "translation"} aria-label={texts.translation}>
        <p class="trouble" role="status">
          {trouble}
        </p>
        {view && <Told view={view} typical={own ? undefined : setting.sure} />}
      </section>
      <div class={computing ? "see computing" : "see"}>
        <nav id="map" aria-label={texts.map}>
          <p class="small">
            {texts.chooseBox}{" "}
            <Button class="on" onClick={toStation}>
              {texts.onWithTour}
            </Button>
          </p>
          <FigureOne view={view} />
        </nav>
        <main id="station">
          {view && <Station view={view} series={setting.series} />}
          {!view && !trouble && <p class="loading">{texts.loading}</p>}
        </main>
      </div>
    </>
  );
}

const toStation = () => document.getElementById("station")?.scrollIntoView();

// However a stop is opened, it is seen from its top. Where nothing was scrolled and the top is in sight, nothing moves.
function fromItsTop() {
  const top = document.getElementById("station")?.getBoundingClientRect().top ?? 0;
  if (scrollY > 0 || top > innerHeight / 2) toStation();
}

type Chosen = { state: State; choose: View["choose"] };

function Sentence({ state, choose, examples }: Chosen & { examples: string[] | null }) {
  const [text, setText] = useState(state.sentence);
  useEffect(() => setText(state.sentence), [state.sentence]);
  const begin = (sentence: string) => {
    if (normalize(sentence)) choose(beginning(normalize(sentence)));
  };
  return (
    <form
      class="sentence"
      onSubmit={(event) => {
        event.preventDefault();
        begin(text);
      }}>
      <label for="sentence">{examples ? texts.sentence : texts.anySentence}</label>
      <div>
        <textarea
          id="sentence"
          rows={1}
          required
          autocomplete="off"
          enterkeyhint="go"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.isComposing) return;
            event.preventDefault();
            event.currentTarget.form?.requestSubmit();
          }}
        />
        <button type="submit">{texts.translate}</button>
      </div>
      {examples && (
        <p class="examples">
          {texts.or}{" "}
          {examples.map((example) => (
            <Button key={example} onClick={() => begin(example)}>
              {example}
            </Button>
          ))}
        </p>
      )}
    </form>
  );
}

// A model from a folder of the reader's own. One that does not fit leaves the page with the model that it has.
function Own(props: {
  ready: Ready;
  onModel: (model: PageModel, folder: string) => void;
  onShipped: () => void;
}) {
  const { ready, onModel, onShipped } = props;
  const [refused, setRefused] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const open = async ({ currentTarget: chooser }: Event & { currentTarget: HTMLInputElement }) => {
    const files = [...(chooser.files ?? [])];
    chooser.value = ""; // so that the same folder can be chosen again
    const folder = files[0]?.webkitRelativePath.split("/")[0] || texts.theFiles;
    setRefused("");
    try {
      onModel(await readFolder(files), folder);
    } catch (error) {
      setRefused(texts.refused(folder, (error as Error).message));
    }
  };
  const { model, folder } = ready;
  return (
    <div class="own">
      <p>
        {folder === null ? texts.own : texts.ownModel(folder, model.N, model.d_model, model.h)}{" "}
        <Button onClick={() => input.current?.click()}>{texts.openFolder}</Button>{" "}
        {folder !== null && <Button onClick={onShipped}>{texts.shippedModel}</Button>}
      </p>
      <input ref={input} type="file" {...FOLDER} multiple hidden onChange={open} />
      <p class="refused" role="status">
        {refused}
      </p>
    </div>
  );
}

// What stays in sight at every stop: the translation, and what of the model or its search is not as it was.
function Now({ view }: { view: View }) {
  const { state, choose, look, tokenizer } = view;
  const { leftOut, prefix, beam, alpha, temperature } = state;
  const changes = [
    leftOut.length > 0 && texts.withoutParts(partNames(leftOut)),
    prefix.length > 0 && texts.begunWith(tokenizer.decode(prefix)),
    beam !== UNCHANGED.beam && texts.beamOf(beam, UNCHANGED.beam),
    alpha !== UNCHANGED.alpha && texts.alphaOf(alpha.toFixed(1), UNCHANGED.alpha),
    temperature !== UNCHANGED.temperature && texts.temperatureOf(temperature.toFixed(1)),
  ].filter((change) => change !== false);
  return (
    <>
      <p class="german" lang="de" aria-live="polite">
        {look.ended[0].text || texts.nothing}
      </p>
      {changes.length > 0 && (
        <p class="changed">
          <b>{texts.changed}</b> {texts.changes(changes)}{" "}
          <Button onClick={() => choose(UNCHANGED)}>{texts.reset}</Button>
        </p>
      )}
    </>
  );
}

// How sure the model was of its translation, and what is to be known of it.
function Told({ view, typical }: { view: View; typical: Setting["sure"] }) {
  const { state, look, whole, tokenizer, computing } = view;
  const chances = chancesOf(look);
  const sure = sureness(look);
  const worst = chances.indexOf(Math.min(...chances));
  const composed = tokenizer.composed(look.written);
  return (
    <>
      {state.leftOut.length > 0 && (
        <p class="broken">
          {texts.wholeModel} <span lang="de">{whole.ended[0].text}</span>
          {!computing && sameWords(whole, look) && <b>{texts.brokenFinds(sameWords(whole, look))}</b>}
        </p>
      )}
      <p class="sure">
        {texts.sure(
          percent(sure),
          typical ? percent(typical[1]) : "",
          <b lang="de">{spelled(tokenizer.pieces[look.written[worst]])}</b>,
          percent(chances[worst]),
          worst < look.prefix.length,
        )}
        {typical && sure < typical[0] && !state.leftOut.length && !state.prefix.length && (
          <b>{texts.unsure}</b>
        )}
        {composed.length > 0 && (
          <span class="composed">
            {texts.composed(
              listed(composed.slice(0, MANY).map((word) => <b lang="de">{word.join("·")}</b>)),
              composed.length > 1,
              composed.length - MANY,
            )}
          </span>
        )}
      </p>
    </>
  );
}

function Station({ view, series }: { view: View; series?: string }) {
  const { state, choose, model } = view;
  const stop = STOPS.get(state.stop) ?? STOPS.get(TOUR[0]);
  if (!stop) return null;
  const at = TOUR.indexOf(onTour(stop.id));
  const beside = TOUR[at] !== stop.id;
  const { title, question, text } = stop.words();
  const [before, after]: (string | undefined)[] = [TOUR[beside ? at : at - 1], TOUR[at + 1]];
  return (
    <article>
      <header>
        <p class="where">
          {beside ? texts.besideStop(at + 1, title) : texts.stop(at + 1, TOUR.length, title)}
        </p>
        <h2>{question}</h2>
        <p>{text}</p>
        {stop.equation && <p class="equation">{stop.equation()}</p>}
        <p class="facts">
          {stop.shape && (
            <span>
              {texts.shape} <Shape text={stop.shape()} />
            </span>
          )}
          <span>{texts.paper(stop.section, stop.place?.() ?? "")}</span>
          <span>
            <Notebook name={stop.notebook} series={series} />
          </span>
        </p>
        {stop.tabs && (
          <div class="tabs" role="group" aria-label={texts.stepsOfAttention}>
            {stop.tabs.map(([id, step]) => (
              <Button key={id} on={id === stop.id} onClick={() => choose(goingTo(id, stop.id))}>
                {texts.stops[step].tab}
              </Button>
            ))}
          </div>
        )}
        {stop.layered && (
          <div class="controls">
            <Choice view={view} of="layer" count={model.N} />
            {stop.tabs && <Choice view={view} of="head" count={model.h} />}
          </div>
        )}
      </header>
      <div class="shown" key={stop.id}>
        {stop.strips && <Legend stop={stop.id} />}
        {stop.show(view)}
      </div>
      {!after && <Known series={series} />}
      <footer>
        {before && (
          <Button class="previous" onClick={() => choose(goingTo(before, stop.id))}>
            ← {beside ? texts.backToStop(at + 1) : texts.back}
          </Button>
        )}
        <Button class="map" onClick={() => document.getElementById("map")?.scrollIntoView()}>
          {texts.map}
        </Button>
        {after && (
          <Button class="next" onClick={() => choose(goingTo(after, stop.id))}>
            {STOPS.get(after)?.words().question}&nbsp;→
          </Button>
        )}
      </footer>
    </article>
  );
}

const Notebook = ({ name, series }: { name: string; series?: string }) =>
  series ? <a href={`${series}${name}.html`}>{texts.notebook(name)}</a> : texts.notebook(name);

// The end of the tour.
const Known = ({ series }: { series?: string }) => (
  <section class="known">
    <h3>{texts.known.title}</h3>
    <ul>
      {(Object.keys(KNOWN) as (keyof typeof KNOWN)[]).map((what) => (
        <li key={what}>
          {texts.known[what]}{" "}
          <small>{listed(KNOWN[what].map((name) => <Notebook name={name} series={series} />))}</small>
        </li>
      ))}
    </ul>
    <p>{texts.known.trained(<Notebook name="08_training_recipe" series={series} />)}</p>
  </section>
);
