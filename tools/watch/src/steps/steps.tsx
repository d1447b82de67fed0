// The steps of the computation: what each draws, and the number whose making it shows at first.

import type { ComponentChildren } from "preact";
import { Button } from "../button.tsx";
import { percent } from "../numbers.ts";
import { Cell, Chip, Column, Lines, Product, Strips, spelled, type Term } from "./cells.tsx";
import { texts } from "./language.ts";
import type { Num } from "./num.ts";
import type { Attention, Computation, Normed, Rows, Tiny } from "./tiny.ts";

export interface View {
  tiny: Tiny;
  of: Computation;
  row: number; // the English word at hand
  read: number; // the German one
  head: number;
  choose: (change: { row?: number; read?: number; head?: number }) => void;
}

// What the texts tell of.
export interface Facts {
  source: string;
  german: string;
  word: string;
  at: number;
  read: string;
  wrote: string;
  chance: string;
  looked: string;
  share: string;
}

export function factsOf({ of, row, read, head, tiny }: View, step: string): Facts {
  const { vocabulary } = tiny.model;
  const crossing = ["cross", "fetch"].includes(step);
  const weights = (crossing ? of.cross.weights[head][read] : of.encoder.weights[head][row]).map(
    (w) => w.value,
  );
  const most = weights.indexOf(Math.max(...weights));
  const wrote = of.written[read];
  return {
    source: of.source.words.join(" "),
    german: germanOf(of, tiny),
    word: of.source.words[row],
    at: row,
    read: spelled(of.target.words[read]),
    wrote: spelled(vocabulary[wrote]),
    chance: percent(of.probabilities[read][wrote].value),
    looked: of.source.words[most],
    share: percent(weights[most]),
  };
}

export const germanOf = (of: Computation, tiny: Tiny) =>
  of.written
    .map((token) => tiny.model.vocabulary[token])
    .filter((word) => !word.startsWith("<"))
    .join(" ");

export type StepId = keyof typeof texts.tell;

export interface Step {
  id: StepId;
  part: keyof typeof texts.parts;
  section: string;
  draw: (view: View) => ComponentChildren;
  first: (view: View) => Num | null;
}

const Heads = ({ view, count }: { view: View; count: number }) => (
  <div class="choice" role="group" aria-label={texts.head}>
    {Array.from({ length: count }, (_, i) => (
      <Button key={i} on={i === view.head} onClick={() => view.choose({ head: i })}>
        {texts.head} {i + 1}
      </Button>
    ))}
  </div>
);

// One query and all keys, as far as the computation has come.
const STAGES = ["products", "scores", "weights", "mean"] as const;
function Looking(props: {
  view: View;
  of: Attention;
  at: number;
  query: string;
  words: string[];
  stage: (typeof STAGES)[number];
}) {
  const { view, of, at, query, words, stage } = props;
  const { head } = view;
  const labels = texts.labels;
  const reached = STAGES.indexOf(stage);
  const weights = of.weights[head][at];
  const line = (label: ComponentChildren, rows: Rows, strong: boolean, kind: string, share?: boolean) => (
    <>
      <span class={strong ? "label" : "label pale"}>{label}</span>
      {rows.map((row, j) => (
        <span key={j} class={strong ? `strip ${kind}` : `strip ${kind} pale`}>
          {row.map((num, k) => (
            <Cell key={k} num={num} share={share} />
          ))}
        </span>
      ))}
    </>
  );
  const column = (nums: Num[]) => nums.map((num) => [num]);
  return (
    <>
      <Heads view={view} count={of.weights.length} />
      <div class="looking" style={{ "--words": words.length }}>
        <span class={reached === 0 ? "label" : "label pale"}>{labels.query}</span>
        <span class="whole">
          <Chip word={query} on />
          <span class={reached === 0 ? "strip query" : "strip query pale"}>
            {of.queries[head][at].map((num, k) => (
              <Cell key={k} num={num} />
            ))}
          </span>
        </span>
        <span />
        <Lines weights={weights} thin={reached < 2} />
        <span />
        {words.map((word, j) => (
          <span key={j} class="over">
            <Chip word={word} />
          </span>
        ))}
        {line(labels.key, of.keys[head], reached === 0, "key")}
        {line(labels.product, column(of.products[head][at]), reached === 0, "number")}
        {reached > 0 && line(labels.score, column(of.scores[head][at]), reached === 1, "number")}
        {reached > 1 && line(labels.weight, column(weights), reached === 2, "number", true)}
        {reached > 2 && (
          <>
            {line(labels.value, of.values[head], true, "value")}
            <span />
            <Lines weights={weights} into />
            <span class="label">{labels.output}</span>
            <span class="whole">
              <Chip word={query} on />
              <span class="strip value">
                {of.heads[head][at].map((num, k) => (
                  <Cell key={k} num={num} />
                ))}
              </span>
            </span>
          </>
        )}
      </div>
    </>
  );
}

// The weights of every head, a row for each word that looks.
const Grids = ({
  of,
  from,
  to,
  at,
  onRow,
}: {
  of: Attention;
  from: string[];
  to: string[];
  at: number;
  onRow: (row: number) => void;
}) => (
  <div class="side">
    {of.weights.map((rows, head) => (
      <Strips
        key={head}
        rows={rows}
        words={from}
        title={`${texts.head} ${head + 1}`}
        kind="weight"
        at={at}
        share
        columns={to}
        onRow={onRow}
      />
    ))}
  </div>
);

const cut = (columns: Rows, head: number, width: number) =>
  columns.map((row) => row.slice(head * width, (head + 1) * width));

const ENCODER = "encoder.layers.0";

// The columns of a head's matrix; its numbers are those of the whole one.
function headMatrix({ tiny, head }: View, name: string): Rows {
  const { h, d_model } = tiny.model;
  return cut(tiny.columns(name), head, d_model / h);
}

export const STEPS: Step[] = [
  {
    id: "words",
    part: "input",
    section: "3",
    first: () => null,
    draw: ({ of, tiny }) => (
      <div class="story">
        <div class="line">
          {of.source.words.map((word, j) => (
            <span key={j} class="id">
              <Chip word={word} on />
              <small>
                {texts.labels.ids} {of.source.tokens[j]}
              </small>
            </span>
          ))}
        </div>
        <span class="down first">↓</span>
        <div class="machine first">{texts.parts.encoder}</div>
        <span class="across">
          <small>{texts.labels.memory}</small>→
        </span>
        <div class="machine">{texts.parts.decoder}</div>
        <span class="down last">↓</span>
        <div class="line">
          {of.written.map((token, j) => (
            <Chip key={j} word={tiny.model.vocabulary[token]} pale={token < 2} />
          ))}
        </div>
      </div>
    ),
  },
  {
    id: "embedding",
    part: "input",
    section: "3.4",
    first: ({ of, row }) => of.source.embedded[row][1],
    draw: ({ of, tiny, row, choose }) => (
      <div class="side">
        <div class="table">
          <p class="title">{texts.labels.table}</p>
          <div class="grid named" style={{ "--columns": tiny.model.d_model }}>
            {tiny.table.map((nums, i) => [
              <Chip key={`w${i}`} word={tiny.model.vocabulary[i]} pale={i !== of.source.tokens[row]} />,
              <span key={i} class={i === of.source.tokens[row] ? "strip" : "strip pale"}>
                {nums.map((num, j) => (
                  <Cell key={j} num={num} />
                ))}
              </span>,
            ])}
          </div>
        </div>
        <Strips
          rows={of.source.embedded}
          title={
            <>
              {texts.labels.embedding} = {texts.labels.table} · √d_model
            </>
          }
          words={of.source.words}
          at={row}
          onRow={(row) => choose({ row })}
        />
      </div>
    ),
  },
  {
    id: "positions",
    part: "input",
    section: "3.5",
    first: ({ of, row }) => of.source.x[row][0],
    draw: ({ of, row, choose }) => (
      <Column
        terms={[
          { label: texts.labels.embedding, nums: of.source.embedded[row] },
          { sign: "+", label: texts.labels.position, nums: of.source.waves[row] },
          { sign: "=", label: texts.labels.x, nums: of.source.x[row], strong: true, result: true },
        ]}
        words={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "query",
    part: "encoder",
    section: "3.2.1",
    first: ({ of, row, head }) => of.encoder.queries[head][row][0],
    draw: (view) => (
      <>
        <Heads view={view} count={view.tiny.model.h} />
        <Product
          left={view.of.source.x}
          leftTitle={texts.labels.x}
          times={[
            {
              matrix: headMatrix(view, `${ENCODER}.self_attn.linears.0`),
              letter: "W^Q",
              result: view.of.encoder.queries[view.head],
              title: texts.labels.queries,
              kind: "query",
            },
          ]}
          words={view.of.source.words}
          at={view.row}
          onRow={(row) => view.choose({ row })}
        />
      </>
    ),
  },
  {
    id: "keys",
    part: "encoder",
    section: "3.2.1",
    first: ({ of, head }) => of.encoder.keys[head][0][0],
    draw: (view) => (
      <>
        <Heads view={view} count={view.tiny.model.h} />
        <Product
          left={view.of.source.x}
          leftTitle={texts.labels.x}
          times={(["key", "value"] as const).map((kind, i) => ({
            matrix: headMatrix(view, `${ENCODER}.self_attn.linears.${i + 1}`),
            letter: i ? "W^V" : "W^K",
            result: view.of.encoder[`${kind}s`][view.head],
            title: texts.labels[`${kind}s`],
            kind,
          }))}
          words={view.of.source.words}
        />
      </>
    ),
  },
  ...STAGES.map(
    (stage): Step => ({
      id: stage,
      part: "encoder",
      section: "3.2.1",
      first: ({ of, row, head }) =>
        stage === "mean" ? of.encoder.heads[head][row][0] : of.encoder[stage][head][row][0],
      draw: (view) => (
        <Looking
          view={view}
          of={view.of.encoder}
          at={view.row}
          query={view.of.source.words[view.row]}
          words={view.of.source.words}
          stage={stage}
        />
      ),
    }),
  ),
  {
    id: "heads",
    part: "encoder",
    section: "3.2.2",
    first: ({ of, row }) => of.encoder.weights[0][row][0],
    draw: ({ of, row, choose }) => (
      <Grids
        of={of.encoder}
        from={of.source.words}
        to={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "join",
    part: "encoder",
    section: "3.2.2",
    first: ({ of, row }) => of.encoder.output[row][0],
    draw: ({ of, tiny, row, choose }) => (
      <Product
        left={of.encoder.joined}
        leftTitle={texts.labels.heads}
        leftKind="value"
        times={[
          {
            matrix: tiny.columns(`${ENCODER}.self_attn.linears.3`),
            letter: "W^O",
            result: of.encoder.output,
            title: texts.labels.attention,
          },
        ]}
        words={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "residual",
    part: "encoder",
    section: "3.1",
    first: ({ of, row }) => of.encoderNorms[0].sum[row][0],
    draw: ({ of, row, choose }) => (
      <Column
        terms={[
          { label: texts.labels.x, nums: of.source.x[row] },
          { sign: "+", label: texts.labels.attention, nums: of.encoder.output[row] },
          {
            sign: "=",
            label: texts.labels.sum,
            nums: of.encoderNorms[0].sum[row],
            strong: true,
            result: true,
          },
        ]}
        words={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "norm",
    part: "encoder",
    section: "3.1",
    first: ({ of, row }) => of.encoderNorms[0].rows[row][0],
    draw: ({ of, row, choose }) => (
      <Column
        terms={normalized(of.encoderNorms[0], row, texts.labels.sum, texts.labels.normed).with(0, {
          label: texts.labels.sum,
          nums: of.encoderNorms[0].sum[row],
        })}
        words={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "network",
    part: "encoder",
    section: "3.3",
    first: ({ of, row }) => of.encoderNetwork.inner[row][0],
    draw: ({ of, tiny, row, choose }) => (
      <div class="falling">
        <Product
          left={of.encoderNorms[0].rows}
          leftTitle={texts.labels.normed}
          times={[
            {
              matrix: tiny.columns(`${ENCODER}.feed_forward.w_1`),
              letter: "W_1",
              result: of.encoderNetwork.inner,
              title: texts.labels.inner,
            },
          ]}
          words={of.source.words}
          at={row}
          onRow={(row) => choose({ row })}
        />
        <span class="down">↓ ReLU</span>
        <Strips rows={of.encoderNetwork.fired} title={texts.labels.fired} words={of.source.words} at={row} />
      </div>
    ),
  },
  {
    id: "network2",
    part: "encoder",
    section: "3.3",
    first: ({ of, row }) => of.encoderNetwork.output[row][0],
    draw: ({ of, tiny, row, choose }) => (
      <Product
        left={of.encoderNetwork.fired}
        leftTitle={texts.labels.fired}
        times={[
          {
            matrix: tiny.columns(`${ENCODER}.feed_forward.w_2`),
            letter: "W_2",
            result: of.encoderNetwork.output,
            title: texts.labels.network,
          },
        ]}
        words={of.source.words}
        at={row}
        onRow={(row) => choose({ row })}
      />
    ),
  },
  {
    id: "memory",
    part: "encoder",
    section: "3.1",
    first: ({ of, row }) => of.memory[row][0],
    draw: ({ of, row, choose }) => (
      <>
        <Column
          terms={[
            { label: texts.labels.normed, nums: of.encoderNorms[0].rows[row] },
            { sign: "+", label: texts.labels.network, nums: of.encoderNetwork.output[row] },
            ...normalized(of.encoderNorms[1], row, texts.labels.sumNetwork),
          ]}
          words={of.source.words}
          at={row}
          onRow={(row) => choose({ row })}
        />
        <Strips rows={of.memory} title={texts.labels.memory} words={of.source.words} />
      </>
    ),
  },
  {
    id: "reading",
    part: "decoder",
    section: "3.4",
    first: ({ of, read }) => of.target.x[read][0],
    draw: ({ of, read, choose }) => (
      <Column
        terms={[
          { label: texts.labels.embedding, nums: of.target.embedded[read] },
          { sign: "+", label: texts.labels.position, nums: of.target.waves[read] },
          { sign: "=", label: texts.labels.x, nums: of.target.x[read], strong: true, result: true },
        ]}
        words={of.target.words}
        at={read}
        onRow={(read) => choose({ read })}
      />
    ),
  },
  {
    id: "masked",
    part: "decoder",
    section: "3.2.3",
    first: ({ of }) => of.masked.weights[0][0][0],
    draw: ({ of, read, choose }) => (
      <Grids
        of={of.masked}
        from={of.target.words}
        to={of.target.words}
        at={read}
        onRow={(read) => choose({ read })}
      />
    ),
  },
  {
    id: "masked2",
    part: "decoder",
    section: "3.1",
    first: ({ of, read }) => of.decoderNorms[0].rows[read][0],
    draw: ({ of, read, choose }) => (
      <Column
        terms={[
          { label: texts.labels.x, nums: of.target.x[read] },
          { sign: "+", label: texts.labels.attention, nums: of.masked.output[read] },
          ...normalized(of.decoderNorms[0], read, texts.labels.sum, texts.labels.normed),
        ]}
        words={of.target.words}
        at={read}
        onRow={(read) => choose({ read })}
      />
    ),
  },
  {
    id: "cross",
    part: "decoder",
    section: "3.2.3",
    first: ({ of, read, head }) => of.cross.weights[head][read][0],
    draw: (view) => (
      <Looking
        view={view}
        of={view.of.cross}
        at={view.read}
        query={view.of.target.words[view.read]}
        words={view.of.source.words}
        stage="weights"
      />
    ),
  },
  {
    id: "fetch",
    part: "decoder",
    section: "3.2.3",
    first: ({ of, read, head }) => of.cross.heads[head][read][0],
    draw: (view) => (
      <Looking
        view={view}
        of={view.of.cross}
        at={view.read}
        query={view.of.target.words[view.read]}
        words={view.of.source.words}
        stage="mean"
      />
    ),
  },
  {
    id: "cross2",
    part: "decoder",
    section: "3.1",
    first: ({ of, read }) => of.decoderNorms[1].rows[read][0],
    draw: ({ of, read, choose }) => (
      <Column
        terms={[
          { label: texts.labels.x, nums: of.decoderNorms[0].rows[read] },
          { sign: "+", label: texts.labels.attention, nums: of.cross.output[read] },
          ...normalized(of.decoderNorms[1], read, texts.labels.sum, texts.labels.normed),
        ]}
        words={of.target.words}
        at={read}
        onRow={(read) => choose({ read })}
      />
    ),
  },
  {
    id: "state",
    part: "decoder",
    section: "3.3",
    first: ({ of, read }) => of.states[read][0],
    draw: ({ of, read, choose }) => (
      <Column
        terms={[
          { label: texts.labels.x, nums: of.decoderNorms[1].rows[read] },
          { sign: "+", label: texts.labels.network, nums: of.decoderNetwork.output[read] },
          ...normalized(of.decoderNorms[2], read, texts.labels.sumNetwork, texts.labels.state),
        ]}
        words={of.target.words}
        at={read}
        onRow={(read) => choose({ read })}
      />
    ),
  },
  {
    id: "logits",
    part: "output",
    section: "3.4",
    first: ({ of, read }) => of.logits[read][of.written[read]],
    draw: (view) => <Vocabulary view={view} />,
  },
  {
    id: "probabilities",
    part: "output",
    section: "3.4",
    first: ({ of, read }) => of.probabilities[read][of.written[read]],
    draw: (view) => <Vocabulary view={view} chances />,
  },
  {
    id: "loop",
    part: "output",
    section: "3.1",
    first: ({ of }) => of.probabilities[0][of.written[0]],
    draw: (view) => <Loop {...view} />,
  },
];

// What the decoder has read at each time that it ran, and the word that it wrote; `right` marks those that it should.
export function Loop({ of, tiny, right }: Pick<View, "of" | "tiny"> & { right?: string[] }) {
  return (
    <div class="loop">
      {of.written.map((token, i) => (
        <div key={i} class="written">
          <span class="line">
            {of.target.words.slice(0, i + 1).map((word, j) => (
              <Chip key={j} word={word} pale={j < i} />
            ))}
          </span>
          <span class="to">→</span>
          <Chip word={tiny.model.vocabulary[token]} on />
          <Cell num={of.probabilities[i][token]} share />
          {right && <span class="mark">{tiny.model.vocabulary[token] === (right[i] ?? "") ? "✓" : "✗"}</span>}
        </div>
      ))}
    </div>
  );
}

// A sum, its mean and standard deviation, and what normalizing makes of it.
function normalized(of: Normed, row: number, sum: string, normed?: string): Term[] {
  const { labels } = texts;
  return [
    { sign: "=", label: sum, nums: of.sum[row], result: true },
    { label: labels.mean, nums: of.mean[row] },
    { label: labels.deviation, nums: of.deviation[row] },
    ...(normed ? [{ sign: "↓", label: normed, nums: of.rows[row], strong: true }] : []),
  ];
}

// Every word of the table beside what the state makes of it.
function Vocabulary({ view, chances }: { view: View; chances?: boolean }) {
  const { of, tiny, read } = view;
  const { labels } = texts;
  const logits = of.logits[read];
  const best = of.written[read];
  return (
    <div class="falling">
      <Strips rows={[of.states[read]]} title={labels.state} words={[of.target.words[read]]} pale={chances} />
      <div class={chances ? "vocabulary chances" : "vocabulary"}>
        <span />
        <span class="title of-table">{labels.table}</span>
        <span class="title">{labels.logit}</span>
        {chances && <span class="title">{labels.probability}</span>}
        {tiny.table.map((row, i) => [
          <Chip key={`w${i}`} word={tiny.model.vocabulary[i]} on={i === best} pale={i !== best} />,
          <span key={`t${i}`} class={i === best && !chances ? "strip of-table" : "strip pale of-table"}>
            {row.map((num, j) => (
              <Cell key={j} num={num} />
            ))}
          </span>,
          <span key={`l${i}`} class={i === best ? "strip" : "strip pale"}>
            <Cell num={logits[i]} />
          </span>,
          chances && (
            <span key={`p${i}`} class={i === best ? "chance" : "chance pale"}>
              <Cell num={of.probabilities[read][i]} share />
              <span class="bar" style={{ "--share": of.probabilities[read][i].value }} />
            </span>
          ),
        ])}
      </div>
    </div>
  );
}
