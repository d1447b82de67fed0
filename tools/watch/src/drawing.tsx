// How numbers are drawn: vectors as strips of colour, weights as bars, anything as a table.

import { type ComponentChildren, Fragment, type RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Button } from "./button.tsx";
import { texts } from "./language.ts";
import { percent, shown } from "./numbers.ts";
import type { Sequence, Vector } from "./transformer.ts";

export type Hue = "stream" | "query" | "key" | "value";

const SHARE = 0.95; // of the numbers, within the scale of their colours

// Where a group's colours end: at its largest number, in size, or, where few are much larger than the others, at one
// that only 5% exceed. Otherwise these few would leave the others without colour.
export function scaleOf(rows: Sequence): { most: number; largest: number; beyond: number } {
  const sizes = Float32Array.from(
    rows.flatMap((row) => [...row]),
    Math.abs,
  ).sort();
  const largest = Math.max(sizes.at(-1) ?? 0, 1e-9);
  const most = sizes[Math.ceil(SHARE * sizes.length) - 1];
  if (!(most > 0) || largest < 1.5 * most) return { most: largest, largest, beyond: 0 };
  return { most, largest, beyond: sizes.filter((x) => x > most).length };
}

// The head of a table.
export const Head = ({ columns }: { columns: ComponentChildren[] }) => (
  <thead>
    <tr>
      {columns.map((column, i) => {
        const Cell = column ? "th" : "td";
        return <Cell key={i} scope={column ? "col" : undefined} children={column} />;
      })}
    </tr>
  </thead>
);

export interface Labelled {
  label: ComponentChildren;
  values: Vector;
  hue?: Hue;
}

let explainedAt: string | null = null; // the stop that was the first to show strips

// How strips are read: told at the first stop that has some, at others when it is asked for.
export function Legend({ stop }: { stop: string }) {
  explainedAt ??= stop;
  const said = texts.howToRead;
  return (
    <details class="how" open={explainedAt === stop}>
      <summary aria-label={said} title={said}>
        ?
      </summary>
      <p class="small">{texts.strips}</p>
    </details>
  );
}

// Calls `leave` on a click or a tap beside an element, while something of it is kept.
export function useLeaving(box: RefObject<HTMLElement | null>, kept: boolean, leave: () => void): void {
  useEffect(() => {
    if (!kept) return;
    const beside = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) leave();
    };
    document.addEventListener("click", beside);
    return () => document.removeEventListener("click", beside);
  }, [kept]);
}

// Vectors below each other, a cell a number, in colours by sign and size; a line before each says what it is. Point
// at a cell to read it: a cell that was tapped or clicked stays until another is. A row can be chosen where `onRow` is
// given.
export function Strips(props: {
  rows: Labelled[];
  name: string;
  hue?: Hue;
  chosen?: number;
  onRow?: (row: number) => void;
}) {
  const { rows, name, hue = "stream", chosen, onRow } = props;
  const [pointed, setPointed] = useState<[number, number] | null>(null);
  const [kept, setKept] = useState<[number, number] | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useLeaving(box, kept !== null, () => setKept(null));
  const { most, largest, beyond } = useMemo(() => scaleOf(rows.map((row) => row.values)), [rows]);
  const at = pointed ?? kept;
  return (
    <div class="strips" ref={box}>
      {rows.map((row, i) => (
        <Fragment key={i}>
          {onRow ? (
            <Button class="token" on={i === chosen} onClick={() => onRow(i)}>
              {row.label}
            </Button>
          ) : (
            <span class="label">{row.label}</span>
          )}
          <Strip
            values={row.values}
            most={most}
            hue={row.hue ?? hue}
            marked={at && at[0] === i && at[1] < row.values.length ? at[1] : null}
            onPoint={(column) => setPointed(column === null ? null : [i, column])}
            onKeep={(column) => setKept([i, column])}
          />
        </Fragment>
      ))}
      <p class="range">
        −{shown(most)} <span class="scale" /> +{shown(most)}
        {beyond > 0 && texts.beyond(beyond, shown(largest))}
      </p>
      <Numbers name={name} rows={rows} />
    </div>
  );
}

// Cells side by side, as the stops of a gradient: each begins where the one before it ends.
function gradient(values: Vector, most: number): string {
  const place = (i: number) => `${(100 * i) / values.length}%`;
  const cells = Array.from(values, (x, i) => {
    const share = (100 * Math.min(1, Math.abs(x) / most)).toFixed(1);
    const colour = `color-mix(in srgb, var(--${x < 0 ? "negative" : "positive"}) ${share}%, var(--zero))`;
    return `${colour} ${place(i)} ${place(i + 1)}`;
  });
  return `linear-gradient(to right, ${cells.join()})`;
}

function Strip(props: {
  values: Vector;
  most: number;
  hue: Hue;
  marked: number | null;
  onPoint: (column: number | null) => void;
  onKeep: (column: number) => void;
}) {
  const { values, most, hue, marked, onPoint, onKeep } = props;
  const background = useMemo(() => gradient(values, most), [values, most]);
  const columnOf = (event: PointerEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    return Math.max(0, Math.min(values.length - 1, Math.floor(share * values.length)));
  };
  // A mouse reads what it is over. A finger leaves the page with every tap, so what it touched last is kept.
  const mouse = (event: PointerEvent) => event.pointerType === "mouse";
  return (
    <span
      class={marked === null ? `strip ${hue}` : `strip ${hue} marked`}
      style={{ background, "--at": ((marked ?? 0) + 0.5) / values.length }}
      onPointerMove={(event) => (mouse(event) ? onPoint : onKeep)(columnOf(event))}
      onPointerDown={(event) => onKeep(columnOf(event))}
      onPointerLeave={() => onPoint(null)}
      aria-hidden="true">
      {marked !== null && (
        <span class="bubble">
          {texts.numberAt(marked + 1, values.length, <b>{shown(values[marked])}</b>)}
        </span>
      )}
    </span>
  );
}

// The same numbers as a table, made when it is asked for.
function Numbers({ name, rows }: { name: string; rows: Labelled[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{texts.asTable(name)}</summary>
      {open && (
        <Scrolls name={name}>
          <table class="numbers">
            <tbody>
              {rows.map((row, i) => (
                <tr key={i}>
                  <th scope="row">{row.label}</th>
                  {[...row.values].map((x, j) => (
                    <td key={j}>{shown(x)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scrolls>
      )}
    </details>
  );
}

// What may be wider than the page, told where it is.
export function Scrolls({ name, children }: { name: string; children: ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [cut, setCut] = useState(false);
  useEffect(() => {
    const outer = box.current;
    if (!outer?.firstElementChild) return;
    const seen = new ResizeObserver(() => setCut(outer.scrollWidth > outer.clientWidth + 1));
    for (const one of [outer, outer.firstElementChild]) seen.observe(one);
    return () => seen.disconnect();
  }, []);
  const region = cut && { tabIndex: 0, role: "region" as const, "aria-label": name };
  return (
    <>
      {cut && <p class="small">{texts.tooWide}</p>}
      <div class="scrolls" ref={box} {...region}>
        {children}
      </div>
    </>
  );
}

// A table of a kind, which may be wider than the page. Its children are its rows.
export function Table(props: {
  of: string;
  name: string;
  caption?: ComponentChildren;
  columns: ComponentChildren[];
  children: ComponentChildren;
}) {
  const { of, name, caption = name, columns, children } = props;
  return (
    <Scrolls name={name}>
      <table class={of}>
        <caption>{caption}</caption>
        <Head columns={columns} />
        <tbody>{children}</tbody>
      </table>
    </Scrolls>
  );
}

// A share between 0 and 1 as a bar with its number, or with what is written in its place.
export const Bar = ({ share, written = percent(share) }: { share: number; written?: string }) => (
  <span class="bar" style={{ "--share": share }}>
    {written}
  </span>
);
