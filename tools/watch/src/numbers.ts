// Numbers, written as a reader expects them.

export const shown = (x: number) =>
  x === -Infinity ? "−∞" : x.toFixed(2).replace("-0.00", "0.00").replace("-", "−");
// As finely near 100% as near 0%, so that what is left of a whole is seen.
export function percent(share: number): string {
  if (share <= 0 || share >= 1) return share > 0 ? "100%" : "0%";
  if (share < 0.001) return "<0.1%";
  if (share > 0.999) return ">99.9%";
  return `${(100 * share).toFixed(share < 0.1 || share > 0.9 ? 1 : 0)}%`;
}
