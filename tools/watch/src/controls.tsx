// What a reader presses, moves or unfolds.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Button } from "./button.tsx";
import { texts } from "./language.ts";
import { beginning, type State } from "./state.ts";
import type { View } from "./view.ts";

// Whether the window is a phone's.
export const narrow = () => typeof matchMedia !== "undefined" && matchMedia("(max-width: 30rem)").matches;

// Sentences in which something shows, with what else must be chosen to see it.
export function Try(props: { view: View; said: string; sentences: string[]; change?: Partial<State> }) {
  const { view, said, sentences, change } = props;
  return (
    <div class="try">
      <p>{said}</p>
      {sentences.map((text) => (
        <Button
          key={text}
          on={text === view.state.sentence}
          onClick={() => view.choose({ ...beginning(text), ...change })}>
          {text}
        </Button>
      ))}
    </div>
  );
}

// What comes second at a stop: open where there is room for it, folded on a phone.
export function Fold({ title, children }: { title: ComponentChildren; children: ComponentChildren }) {
  const [open, setOpen] = useState(!narrow());
  return (
    <details class="fold" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h3>{title}</h3>
      </summary>
      {open && children}
    </details>
  );
}

// The layer or the head at hand, as a row of buttons.
export function Choice({ view, of, count }: { view: View; of: "layer" | "head"; count: number }) {
  const { state, choose } = view;
  const label = texts[of];
  return (
    <div class="choice" role="group" aria-label={label}>
      <span aria-hidden="true">{label}</span>
      {Array.from({ length: count }, (_, i) => (
        <Button
          key={i}
          aria-label={`${label} ${i + 1}`}
          on={i === state[of]}
          onClick={() => choose({ [of]: i })}>
          {i + 1}
        </Button>
      ))}
    </div>
  );
}

export function Slider(props: {
  label: string;
  from?: number;
  to: number;
  step?: number;
  value: number;
  onMove: (value: number) => void;
}) {
  const { label, from = 0, to, step = 1, value, onMove } = props;
  return (
    <label class="slider">
      <span>
        {label}
        {texts.colon}
        <b>{value.toFixed(step < 1 ? 1 : 0)}</b>
      </span>
      <input
        type="range"
        min={from}
        max={to}
        step={step}
        value={value}
        onInput={(event) => onMove(Number(event.currentTarget.value))}
      />
    </label>
  );
}
