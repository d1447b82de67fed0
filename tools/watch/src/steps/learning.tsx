// The page of a training: a model after each update. A slider, or a film; the loss, the first word's chances, where a
// word looks, its vector, and what is written. A touched number says how it was made, and stays touched as time passes.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button } from "../button.tsx";
import { percent, shown } from "../numbers.ts";
import { Legend, Source, Trace, UNCHANGED, useArrows, walk } from "./app.tsx";
import { Cell, Chip, Column, Lines, Touched } from "./cells.tsx";
import { speak, texts } from "./language.ts";
import { type Num, reached, termsOf } from "./num.ts";
import { germanOf, Loop } from "./steps.tsx";
import { type Computation, Tiny } from "./tiny.ts";
import type { Training } from "./training.ts";

const FRAME = 70; // milliseconds an update

// What the text tells of.
export interface Lesson {
  loss: string;
  choices: string;
  source: string;
  german: string;
  right: number;
  many: number;
  head: number;
  word: string;
  looked: string;
  share: string;
}

export function Learning({ training, language }: { training: Training; language: string }) {
  const { recorded, updates } = training;
  const [state, setState] = useState({
    update: 0,
    playing: false,
    words: recorded.sentences[0],
    row: 1,
    picked: null as string | null, // the name of the number that was touched
    language,
  });
  speak(state.language);
  const { update, playing, words, row } = state;
  const change = (made: Partial<typeof state>) => setState((before) => ({ ...before, ...made }));
  const go = (to: number) => change({ update: Math.min(Math.max(to, 0), updates), playing: false });

  const tiny = useMemo(() => new Tiny(training.after(update)), [update]);
  const untrained = useMemo(() => new Tiny(training.after(0)), []);
  const of = useMemo(() => tiny.compute({ ...UNCHANGED, words }), [tiny, words]);
  const sentence = recorded.sentences.findIndex((other) => other.every((word, i) => word === words[i]));
  const moments = useMemo(() => training.momentsOf(sentence), [sentence]);
  const [own, others] = [recorded.targets[sentence][0], training.rivalsOf(sentence)];

  const head = recorded.h - 1;
  const numbers = useMemo(() => reached(of.probabilities.flat()), [of]);
  const found = [...numbers].find((num) => keyOf(num) === state.picked);
  const picked = found ?? of.encoder.weights[head][row][0];
  const touch = {
    picked,
    sources: new Set(termsOf(picked)),
    pick: (num: Num) => change({ picked: keyOf(num) }),
  };

  useLayoutEffect(() => {
    document.documentElement.lang = texts.code;
    document.title = texts.learning.title;
  }, [state.language]);
  useEffect(() => {
    if (!playing) return;
    const timer = setTimeout(() => change({ update: update + 1, playing: update + 1 < updates }), FRAME);
    return () => clearTimeout(timer);
  }, [playing, update]);
  useArrows((by) => go(update + by));
  const stage = useRef<HTMLElement>(null);

  const { learning } = texts;
  const named = (["ahead", "right", "all"] as const)
    .map((name) => ({ from: moments[name], what: learning.moments[name](own, others.join(", ")) }))
    .filter((moment): moment is { from: number; what: string } => moment.from !== null);
  const passed = named.filter(({ from }) => from <= update).sort((a, b) => a.from - b.from);
  const title =
    update === 0
      ? learning.start
      : update === updates
        ? learning.end
        : (passed.at(-1)?.what ?? learning.open);
  const word = words[row];
  const token = of.source.tokens[row];
  return (
    <Touched.Provider value={touch}>
      <header>
        <h1>{learning.heading}</h1>
        <Button
          class="language"
          lang={texts.code === "en" ? "zh" : "en"}
          onClick={() => change({ language: texts.code === "en" ? "zh" : "en" })}>
          {texts.other}
        </Button>
        <div class="sentence">
          <Source model={recorded} words={words} hidden={[]} onChange={(words) => change({ words })} />
          <span class="to">→</span>
          <span class="german" aria-label={`${texts.writes}: ${germanOf(of, tiny)}`} role="group">
            {of.written.map((token, i) => (
              <Chip key={i} word={recorded.vocabulary[token]} pale={token < 2} />
            ))}
          </span>
        </div>
      </header>
      <div class="turn">
        <Button
          class="on"
          onClick={() => change({ playing: !playing, update: !playing && update === updates ? 0 : update })}>
          {playing ? `❚❚ ${learning.pause}` : `▶ ${learning.play}`}
        </Button>
        <input
          type="range"
          max={updates}
          value={update}
          aria-label={learning.updates}
          aria-valuetext={learning.update(update)}
          onInput={(event) => go(Number(event.currentTarget.value))}
        />
        <output>{learning.update(update)}</output>
      </div>
      <div class="moments" role="group" aria-label={learning.stays}>
        {named.map(({ from, what }) => (
          <Button key={what} on={from === update} onClick={() => go(from)}>
            {learning.moment(from, what)}
          </Button>
        ))}
      </div>
      <main class="learning">
        <section class="told" aria-live={playing ? "off" : "polite"}>
          <p class="where">{learning.update(update)}</p>
          <h2>{title}</h2>
          <p>{learning.told(factsOf(training, of, tiny, update, row))}</p>
        </section>
        <section
          class="stage"
          ref={stage}
          aria-label={title}
          onKeyDown={(event) => walk(event, stage.current)}>
          <div class="curves">
            <Curves
              title={learning.loss}
              update={update}
              marks={named.map(({ from }) => from)}
              lines={[
                { label: <b>{shown(recorded.losses[update])}</b>, says: learning.loss, of: recorded.losses },
              ]}
            />
            <Curves
              title={learning.first}
              update={update}
              marks={named.map(({ from }) => from)}
              lines={[own, ...others].map((word) => ({
                label: (
                  <>
                    <Chip word={word} />
                    <Cell num={of.probabilities[0][recorded.vocabulary.indexOf(word)]} share />
                  </>
                ),
                says: word,
                of: training.chancesOf(sentence, word),
              }))}
            />
          </div>
          <div class="side">
            <div>
              <p class="title">{learning.attention(word)}</p>
              <div class="side">
                {of.encoder.weights.map((weights, i) => (
                  <div key={i} class="look" style={{ "--words": words.length }}>
                    <span class="title">
                      {texts.head} {i + 1}
                    </span>
                    <Chip word={word} on />
                    <Lines weights={weights[row]} />
                    {words.map((word, j) => (
                      <span key={j}>
                        <Chip word={word} />
                        <Cell num={weights[row][j]} share />
                      </span>
                    ))}
                  </div>
                ))}
              </div>
            </div>
            <div class="vector">
              <p class="title">{learning.vector(word)}</p>
              <Column
                terms={[
                  { label: learning.before, nums: untrained.table[token] },
                  { label: learning.update(update), nums: tiny.table[token], strong: true },
                  { label: learning.memory, nums: of.memory[row], strong: true, result: true },
                ]}
                words={words}
                at={row}
                onRow={(row) => change({ row })}
              />
            </div>
          </div>
          <div class="side">
            <div>
              <p class="title">{learning.writes}</p>
              <Loop of={of} tiny={tiny} right={[...recorded.targets[sentence], "</s>"]} />
            </div>
            <div>
              <p class="title">{learning.sentences}</p>
              <div class="all">
                {recorded.sentences.map((other, i) => (
                  <Button key={i} on={i === sentence} onClick={() => change({ words: other })}>
                    {recorded.right[update][i] ? "✓" : "✗"} {other.join(" ")}
                  </Button>
                ))}
              </div>
            </div>
          </div>
          <Legend kinds={["stream"]} />
        </section>
        <Trace num={picked} pick={touch.pick} weight={weightOf(training, tiny, update, picked)} />
      </main>
    </Touched.Provider>
  );
}

const keyOf = ({ name }: Num) => JSON.stringify(name);

function factsOf(training: Training, of: Computation, tiny: Tiny, update: number, row: number): Lesson {
  const { losses, right, h } = training.recorded;
  const looks = of.encoder.weights[h - 1][row].map(({ value }) => value);
  const most = looks.indexOf(Math.max(...looks));
  return {
    loss: shown(losses[update]),
    choices: Math.exp(losses[update]).toFixed(1),
    source: of.source.words.join(" "),
    german: germanOf(of, tiny) || texts.learning.nothing,
    right: right[update].filter(Boolean).length,
    many: right[update].length,
    head: h,
    word: of.source.words[row],
    looked: of.source.words[most],
    share: percent(looks[most]),
  };
}

// What a weight was at first, and what the next update makes of it.
function weightOf(training: Training, tiny: Tiny, update: number, num: Num): string {
  const at = tiny.weights.indexOf(num);
  if (at < 0) return "";
  const after = (update: number) => shown(new Tiny(training.after(update)).weights[at].value);
  return texts.learning.weight(after(0), update < training.updates ? after(update + 1) : null);
}

interface Line {
  label: preact.ComponentChildren;
  says: string;
  of: number[]; // after each update
}

// Curves over all updates; the first is the one that counts.
function Curves(props: { title: string; lines: Line[]; update: number; marks: number[] }) {
  const { title, lines, update, marks } = props;
  const last = lines[0].of.length - 1;
  const most = Math.max(1, ...lines.flatMap(({ of }) => of));
  const said = lines.map(({ says, of }) => texts.learning.curve(says, shown(of[0]), shown(of[last])));
  return (
    <div class="curve">
      <p class="title">
        {title}
        {lines.map(({ label, says }, i) => (
          <span key={says} class={i ? "of other" : "of"}>
            {lines.length > 1 && <span class="sample" />}
            {label}
          </span>
        ))}
      </p>
      <div class="chart">
        <small class="most">{Number(most.toFixed(1))}</small>
        <small class="least">0</small>
        <small class="last">{texts.learning.update(last)}</small>
        <svg viewBox={`0 0 ${last} 1`} preserveAspectRatio="none" role="img" aria-label={said.join("; ")}>
          {marks.map((mark) => (
            <path key={mark} class="mark" d={`M${mark} 0V1`} />
          ))}
          {lines.map(({ says, of }, i) => (
            <path
              key={says}
              class={i ? "line other" : "line strong"}
              d={of.map((y, x) => `${x ? "L" : "M"}${x} ${(1 - y / most).toFixed(4)}`).join("")}
            />
          ))}
          <path class="now" d={`M${update} 0V1`} />
        </svg>
        {lines.map(({ says, of }) => (
          <span
            key={says}
            class="dot"
            style={{ left: `${(100 * update) / last}%`, top: `${100 * (1 - of[update] / most)}%` }}
          />
        ))}
      </div>
    </div>
  );
}
