"""Beam search, watched: what the watcher is told is what the search did."""

from itertools import pairwise

import pytest
import torch

from annotated.search.beam import Candidate, beam_search
from annotated.transformer.model import make_model

KEPT = {True: "kept", False: "dropped"}


@pytest.fixture(params=range(3))
def watched(request: pytest.FixtureRequest) -> tuple[list, dict[int, list[list[Candidate]]]]:
    """The hypotheses of three sentences, all of a beam of 3, and the steps of each search."""
    torch.manual_seed(request.param)
    model = make_model(9, 9, N=1, d_model=16, d_ff=32, h=2)
    src, mask = torch.randint(3, 9, (3, 5)), torch.ones(3, 1, 5, dtype=torch.bool)
    steps: dict[int, list[list[Candidate]]] = {}
    settings = {"max_len": 7, "beam": 3, "n_best": 3}
    found = beam_search(
        model, src, mask, **settings, on_step=lambda i, step: steps.setdefault(i, []).append(step)
    )
    assert found == beam_search(model, src, mask, **settings)  # watching changes nothing
    return found, steps


def test_each_step_continues_what_was_kept(watched) -> None:
    _, steps = watched
    assert set(steps) == {0, 1, 2}
    for search in steps.values():
        for before, after in pairwise(search):
            kept = {candidate.tokens for candidate in before if candidate.fate == "kept"}
            assert len(kept) <= 3
            assert {candidate.tokens[:-1] for candidate in after} <= kept


def test_what_ended_is_what_was_found(watched) -> None:
    found, steps = watched
    for i, hypotheses in enumerate(found):
        ended = {c.tokens[:-1]: c.log_prob for step in steps[i] for c in step if c.fate == "ended"}
        assert {h.tokens: h.log_prob for h in hypotheses}.items() <= ended.items()
        assert all(c.tokens[-1] == 1 for step in steps[i] for c in step if c.fate == "ended")


def test_an_end_counts_among_the_best_of_the_beam_and_as_many_go_on(watched) -> None:
    for step in (step for search in watched[1].values() for step in search):
        log_probs = [candidate.log_prob for candidate in step]
        assert log_probs == sorted(log_probs, reverse=True)
        ends = [candidate.tokens[-1] == 1 for candidate in step]
        for rank, (candidate, end) in enumerate(zip(step, ends, strict=True)):
            going_on = rank - sum(ends[:rank]) < 3
            assert candidate.fate == (("ended" if rank < 3 else "dropped") if end else KEPT[going_on])
