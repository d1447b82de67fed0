"""Beam search, drawn as a tree (section 6.1)."""

from collections.abc import Callable, Sequence

from annotated.plots.drawing import Style, as_words, axes_or_new, load, plt
from annotated.search.beam import Candidate

INK, SOFT = "#222222", "#6b6b6b"
FATES = {"kept": ("#d6e8f5", "#0173b2"), "dropped": ("#ffffff", "#8a8a8a"), "ended": ("#fbe3c0", "#b87503")}


def plot_beam(
    steps: Sequence[Sequence[Candidate]],
    winner: Sequence[int],
    pieces: Callable[[Sequence[int]], Sequence[str]],
    ax: "plt.Axes | None" = None,
) -> "plt.Axes":
    """Draw the tree of one search: a column for each step, the likeliest on top, the winner's path heavy.

    `steps` has for each step the candidates, likeliest first, as `beam_search` shows them to its watcher;
    `winner` are the tokens of the hypothesis that was returned, without the end symbol; `pieces` turns tokens
    into what is written on them, such as `tokenizer.pieces`.
    """
    places = place_candidates(steps)
    path = winning_path(steps, tuple(winner))
    ranks = max(len(step) for step in steps)
    ax = axes_or_new(ax, 1.6 * len(steps) + 2, 0.75 * ranks + 1.4)
    ax.text(0, 0, "start", ha="center", va="center", bbox={"boxstyle": "round", "fc": "white", "ec": INK})
    for candidate in (candidate for step in steps for candidate in step):
        parent, place, won = places[candidate.tokens[:-1]], places[candidate.tokens], candidate.tokens in path
        dropped, (tint, line) = candidate.fate == "dropped", FATES[candidate.fate]
        look: Style = {"color": INK, "lw": 4} if won else {"color": "#aaaaaa", "lw": 1.2}
        ax.plot(*zip(parent, place, strict=True), ls=":" if dropped else "-", **look)
        text = f"{as_words(pieces(candidate.tokens))[-1]}\n{candidate.log_prob:.2f}".replace("-", "−")
        box = {"boxstyle": "round", "fc": tint, "ec": INK if won else line, "lw": 2.5 if won else 1.2}
        color = SOFT if dropped else INK
        ax.text(*place, text, ha="center", va="center", fontsize=11, color=color, bbox=box)
    patch = load("matplotlib.patches").Patch
    handles = [patch(fc=tint, ec=line, label=fate) for fate, (tint, line) in FATES.items()]
    handles.append(plt.Line2D([], [], color=INK, lw=4, label="the winner"))
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, frameon=False)
    ax.set(title="Beam search: log-probability of each beginning", xlabel="step", ylabel="rank in its step")
    ax.set_xticks(range(1, len(steps) + 1))
    ax.yaxis.set_major_locator(plt.MaxNLocator(integer=True))
    ax.set_ylim(ranks - 0.4, -0.6)
    ax.margins(x=0.08)
    return ax


def place_candidates(steps: Sequence[Sequence[Candidate]]) -> dict[tuple[int, ...], tuple[int, int]]:
    """Place each beginning, by its tokens, at (step, rank); the start is at (0, 0)."""
    places: dict[tuple[int, ...], tuple[int, int]] = {(): (0, 0)}
    for step, candidates in enumerate(steps, start=1):
        places |= {candidate.tokens: (step, rank) for rank, candidate in enumerate(candidates)}
    return places


def winning_path(steps: Sequence[Sequence[Candidate]], winner: tuple[int, ...]) -> set[tuple[int, ...]]:
    """List the beginnings of the winner, its ended candidate among them."""
    ends = [c.tokens for step in steps for c in step if c.fate == "ended" and c.tokens[:-1] == winner]
    if not ends:
        raise ValueError(f"the winner {winner} is none of the hypotheses that ended")
    return {ends[0][:length] for length in range(1, len(ends[0]) + 1)}
