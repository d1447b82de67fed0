// What is wider than its place scrolls by itself; whoever has no mouse must be able to reach it.
function reachable() {
  for (const box of document.querySelectorAll("mjx-container[display], .figure, .chart, p:has(> img[src*='_images/'])")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
window.addEventListener("load", () => {
  reachable();
  window.MathJax?.startup?.promise?.then(reachable);
});
window.addEventListener("resize", reachable);

// On paper nothing can be unfolded: solutions are printed open.
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll(".bd-article details:not([open])")];
  for (const details of folded) details.open = true;
});
window.addEventListener("afterprint", () => {
  for (const details of folded) details.open = false;
});
