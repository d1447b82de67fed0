// The page: the sentence and what is written, the step at hand, and where the touched number comes from.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button } from "../button.tsx";
import { shown } from "../numbers.ts";
import type { Part } from "../transformer.ts";
import { Chip, nameOf, Touched } from "./cells.tsx";
import { speak, texts } from "./language.ts";
import { formulaOf, Num, termsOf } from "./num.ts";
import { factsOf, germanOf, STEPS, type View } from "./steps.tsx";
import { type Changes, Tiny, type TinyModel } from "./tiny.ts";

interface State extends Changes {
  step: number;
  row: number;
  read: number;
  head: number | null; // null: one that does what its step tells of
  picked: Num | null; // null: the step's own
  language: string;
}

export const UNCHANGED = { hidden: [], hiddenFrom: "decoder" as const, leftOut: [] };
const ATTENTIONS = {
  encoder: "encoder.layers.0.self_attn",
  decoder: "decoder.layers.0.self_attn",
  cross: "decoder.layers.0.src_attn",
} as const;

const stepOf = (hash: string) =>
  Math.max(
    0,
    STEPS.findIndex(({ id }) => `#${id}` === hash),
  );

export function App({ model, language, linked }: { model: TinyModel; language: string; linked: boolean }) {
  const [state, setState] = useState<State>(() => ({
    ...UNCHANGED,
    words: model.sentences[0],
    step: linked ? stepOf(location.hash) : 0,
    row: 1,
    read: 0,
    head: null,
    picked: null,
    language,
  }));
  speak(state.language);
  const { words, hidden, hiddenFrom, leftOut } = state;
  const change = (made: Partial<State>) => setState((before) => ({ ...before, picked: null, ...made }));
  const go = (step: number) => step >= 0 && step < STEPS.length && change({ step, head: null });

  const tiny = useMemo(() => new Tiny(model), [model]);
  const of = useMemo(
    () => tiny.compute({ words, hidden, hiddenFrom, leftOut }),
    [words, hidden, hiddenFrom, leftOut],
  );
  const whole = useMemo(() => tiny.compute({ words, ...UNCHANGED }), [words]);
  const changed = hidden.length > 0 || leftOut.length > 0;

  const step = STEPS[state.step];
  const view: View = {
    tiny,
    of,
    row: Math.min(state.row, words.length - 1),
    read: Math.min(state.read, of.written.length - 1),
    head: state.head ?? (step.part === "encoder" ? model.h - 1 : 0),
    choose: change,
  };
  const picked = state.picked ?? step.first(view);
  const touch = {
    picked,
    sources: new Set(picked ? termsOf(picked) : []),
    pick: (num: Num) => setState((before) => ({ ...before, picked: num })),
  };

  useLayoutEffect(() => {
    document.documentElement.lang = texts.code;
    document.title = texts.title;
    if (linked) history.replaceState(null, "", `#${step.id}`);
  }, [state.language, step]);
  useEffect(() => {
    const follow = () => change({ step: stepOf(location.hash) });
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);

  const stage = useRef<HTMLElement>(null);
  useArrows((by) => go(state.step + by));
  const finger = useSwipe((by) => go(state.step + by));

  const said = texts.tell[step.id];
  return (
    <Touched.Provider value={touch}>
      <header>
        <h1>{texts.heading}</h1>
        <Button
          class="language"
          lang={texts.code === "en" ? "zh" : "en"}
          onClick={() => setState({ ...state, language: texts.code === "en" ? "zh" : "en" })}>
          {texts.other}
        </Button>
        <div class="sentence">
          <Source
            model={model}
            words={words}
            hidden={hidden}
            onChange={(words) => change({ words, read: 0 })}
          />
          <span class="to">→</span>
          <span
            class="german"
            aria-live="polite"
            aria-label={`${texts.writes}: ${germanOf(of, tiny)}`}
            role="group">
            {of.written.map((token, i) => (
              <Chip key={i} word={model.vocabulary[token]} pale={token < 2} />
            ))}
          </span>
        </div>
        {changed && (
          <p class="changed" role="status">
            {texts.changed(germanOf(whole, tiny), germanOf(of, tiny))}{" "}
            <Button onClick={() => change(UNCHANGED)}>{texts.reset}</Button>
          </p>
        )}
      </header>
      <div class="turn">
        <Button aria-label={texts.previous} disabled={state.step === 0} onClick={() => go(state.step - 1)}>
          ←
        </Button>
        <Way at={state.step} go={go} />
        <Button class="on" disabled={state.step === STEPS.length - 1} onClick={() => go(state.step + 1)}>
          {texts.next} →
        </Button>
      </div>
      <main>
        <section class="told" aria-live="polite">
          <p class="where">
            {texts.of(state.step + 1, STEPS.length)} · {texts.parts[step.part]} · {step.section}
          </p>
          <h2>{said.title}</h2>
          <p>{said.text(factsOf(view, step.id))}</p>
        </section>
        <section
          class="stage"
          ref={stage}
          aria-label={said.title}
          onKeyDown={(event) => walk(event, stage.current)}
          {...finger}>
          {step.draw(view)}
          <Legend />
        </section>
        <Trace num={picked} pick={touch.pick} weight={texts.isWeight} at={step.id} go={go} />
        <TakeAway model={model} state={state} change={change} />
      </main>
    </Touched.Provider>
  );
}

// How to read the drawings.
const KINDS = ["stream", "query", "key", "value"] as const;
export const Legend = ({ kinds = KINDS }: { kinds?: readonly (typeof KINDS)[number][] }) => (
  <p class="legend">
    {kinds.map((kind) => (
      <span key={kind}>
        <span class={`strip ${kind}`} /> {texts.kinds[kind]}
      </span>
    ))}
    <span>
      −3 <span class="scale" /> 3
    </span>
  </p>
);

// All steps, in the parts of the model; a line of dots where there is no room for their names.
function Way({ at, go }: { at: number; go: (step: number) => void }) {
  return (
    <nav class="way" aria-label={texts.steps}>
      {(["input", "encoder", "decoder", "output"] as const).map((part) => (
        <div key={part} class={`part ${part}`}>
          <span class="of">{texts.parts[part]}</span>
          {STEPS.map(
            (step, i) =>
              step.part === part && (
                <button
                  key={step.id}
                  type="button"
                  aria-current={i === at ? "step" : undefined}
                  class={i < at ? "past" : undefined}
                  title={texts.tell[step.id].title}
                  onClick={() => go(i)}>
                  <span>{texts.tell[step.id].title}</span>
                </button>
              ),
          )}
        </div>
      ))}
    </nav>
  );
}

// The sentence: each word a menu of those that may stand in its place.
export function Source(props: {
  model: TinyModel;
  words: string[];
  hidden: number[];
  onChange: (words: string[]) => void;
}) {
  const { model, words, hidden, onChange } = props;
  return (
    <span class="source" role="group" aria-label={texts.sentence}>
      {words.map((word, i) => (
        <select
          key={i}
          lang="en"
          aria-label={texts.word(i)}
          class={hidden.includes(i) ? "chip hidden" : "chip"}
          value={word}
          onChange={(event) => onChange(words.with(i, event.currentTarget.value))}>
          {[...new Set(model.sentences.map((sentence) => sentence[i]))].map((other) => (
            <option key={other}>{other}</option>
          ))}
        </select>
      ))}
    </span>
  );
}

// Where the number at hand comes from, written out; each number in it leads on to where that one comes from.
export function Trace(props: {
  num: Num | null;
  pick: (num: Num) => void;
  weight: string; // what is said of a weight
  at?: string;
  go?: (step: number) => void;
}) {
  const { num, pick, weight, at, go } = props;
  if (!num) return <section class="trace empty">{texts.touch}</section>;
  const { name, how } = num;
  const formula = formulaOf(num);
  const made = STEPS.findIndex(({ id }) => id === name.step);
  const note = { given: weight, wave: texts.isWave, hidden: texts.isHidden, nothing: texts.isNothing };
  return (
    <section class="trace" aria-label={texts.trace} aria-live="polite">
      <p class="name">{nameOf(num)}</p>
      <p class={formula.length > 24 ? "formula long" : "formula"}>
        {grouped(formula).map((group, g) => (
          <span key={g}>
            {group.map((part, i) =>
              part instanceof Num ? <Term key={i} num={part} pick={pick} before={group[i - 1]} /> : part,
            )}
          </span>
        ))}
        {formula.length > 0 && " = "}
        <b>{shown(num.value)}</b>
      </p>
      {how.op in note && <p class="note">{note[how.op as keyof typeof note]}</p>}
      {go && made >= 0 && name.step !== at && (
        <Button
          class="made"
          onClick={() => {
            go(made);
            pick(num);
          }}>
          {texts.madeIn(texts.tell[STEPS[made].id].title)} ↗
        </Button>
      )}
      <p class="small">{texts.rounded}</p>
    </section>
  );
}

// A formula in pieces that no line's end cuts: it may end before a plus.
function grouped(formula: (Num | string)[]): (Num | string)[][] {
  const groups: (Num | string)[][] = [[]];
  for (const part of formula) {
    if (part === " + ") groups.push([]);
    groups[groups.length - 1].push(part);
  }
  return groups;
}

// A number in a sum: a negative one that does not begin it stands in parentheses.
function Term({ num, pick, before }: { num: Num; pick: (num: Num) => void; before?: Num | string }) {
  const text = shown(num.value);
  const bare = before === undefined || /[(]$/.test(String(before));
  return (
    <button type="button" class="term" title={nameOf(num)} onClick={() => pick(num)}>
      {num.value < 0 && !bare ? `(${text})` : text}
    </button>
  );
}

function TakeAway({
  model,
  state,
  change,
}: {
  model: TinyModel;
  state: State;
  change: (made: Partial<State>) => void;
}) {
  const { hidden, hiddenFrom, leftOut, words } = state;
  const toggle = <T,>(all: T[], one: T) =>
    all.includes(one) ? all.filter((other) => other !== one) : [...all, one];
  const box = (label: preact.ComponentChildren, on: boolean, made: Partial<State>) => (
    <label class="toggle">
      <input type="checkbox" checked={on} onChange={() => change(made)} />
      <span>{label}</span>
    </label>
  );
  const part = (name: Part, label: preact.ComponentChildren) =>
    box(label, leftOut.includes(name), { leftOut: toggle(leftOut, name) });
  return (
    <section class="change" aria-label={texts.change}>
      <h3>{texts.change}</h3>
      <fieldset>
        <legend>{texts.hide}</legend>
        {words.map((word, i) => box(word, hidden.includes(i), { hidden: toggle(hidden, i) }))}
        <select
          aria-label={texts.hide}
          value={hiddenFrom}
          onChange={(event) => change({ hiddenFrom: event.currentTarget.value as State["hiddenFrom"] })}>
          {(["decoder", "all"] as const).map((from) => (
            <option key={from} value={from}>
              {texts.hiddenFrom[from]}
            </option>
          ))}
        </select>
      </fieldset>
      <fieldset>
        <legend>{texts.takeAway}</legend>
        {part("scale", texts.scale)}
        {part("positions", texts.positions)}
        {(["encoder", "decoder", "cross"] as const).flatMap((stack) =>
          Array.from({ length: model.h }, (_, head) =>
            part(`${ATTENTIONS[stack]} ${head}`, texts.headOf(texts.attentions[stack], head + 1)),
          ),
        )}
      </fieldset>
    </section>
  );
}

// Arrows lead from a number to the nearest one in their direction.
export function walk(event: KeyboardEvent, stage: HTMLElement | null): void {
  const from = event.target as HTMLElement;
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!way || !stage || !from.classList.contains("cell")) return;
  event.preventDefault();
  const middle = (element: Element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return [(left + right) / 2, (top + bottom) / 2];
  };
  const [x, y] = middle(from);
  const far = (cell: Element) => {
    const [dx, dy] = [middle(cell)[0] - x, middle(cell)[1] - y];
    const along = dx * way[0] + dy * way[1];
    return along < 1 ? Number.POSITIVE_INFINITY : along + 4 * Math.abs(dx * way[1] + dy * way[0]);
  };
  const cells = [...stage.querySelectorAll<HTMLElement>(".cell")].sort((a, b) => far(a) - far(b));
  if (cells[0] && Number.isFinite(far(cells[0]))) {
    cells[0].focus();
    cells[0].click();
  }
}

// The arrow keys turn over, unless what has the focus needs them itself.
export function useArrows(turn: (by: number) => void): void {
  const latest = useRef(turn);
  latest.current = turn;
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as Element;
      if (event.altKey || event.ctrlKey || event.metaKey || target.closest("select, .cell, [type=range]"))
        return;
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (by) latest.current(by);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// A finger that moves to a side turns over.
function useSwipe(turn: (by: number) => void) {
  const from = useRef<[number, number] | null>(null);
  return {
    onTouchStart: (event: TouchEvent) => {
      from.current = [event.touches[0].clientX, event.touches[0].clientY];
    },
    onTouchEnd: (event: TouchEvent) => {
      if (!from.current) return;
      const { clientX, clientY } = event.changedTouches[0];
      const [dx, dy] = [clientX - from.current[0], clientY - from.current[1]];
      if (Math.abs(dx) > 60 && Math.abs(dx) > 2 * Math.abs(dy)) turn(dx < 0 ? 1 : -1);
    },
  };
}
