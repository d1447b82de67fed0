// What is wider than its place scrolls by itself; whoever has no mouse must be able to reach it.
function reachable() {
  for (const box of document.querySelectorAll("mjx-container[display], .figure, .chart")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
window.addEventListener("load", () => {
  reachable();
  window.MathJax?.startup?.promise?.then(reachable);
});
window.addEventListener("resize", reachable);
