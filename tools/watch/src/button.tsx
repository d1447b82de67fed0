import type { ButtonHTMLAttributes } from "preact";

// A button of a page; `on` is whether what it stands for is chosen.
export const Button = ({ on, ...props }: ButtonHTMLAttributes<HTMLButtonElement> & { on?: boolean }) => (
  <button type="button" aria-pressed={on} {...props} />
);
