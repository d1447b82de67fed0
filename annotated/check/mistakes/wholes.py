"""What people write instead, in models, masks, training and search."""

import math

import torch

from annotated.check.comparing import Predicates

MISTAKES: Predicates = {
    "model: no peeking": {
        # seen: which positions have weight in the decoder's self-attention
        "the causal mask is inverted: a position sees only what follows": lambda f: (
            bool(f.seen.triu(1).any()) and not f.seen.tril(-1).any()
        ),
        "the causal mask is not used in training mode": lambda f: bool(f.how) and bool(f.seen.triu(1).any()),
        "the decoder's self-attention does not use its mask: pass tgt_mask on to it": lambda f: bool(
            f.seen.triu(2).any()
        ),
        "the causal mask is off by one: position i may see up to i, not i + 1": lambda f: bool(
            f.seen.triu(1).any()
        ),
        "a norm mixes positions: its mean and deviation run over the features of each vector, dim=-1": lambda f: (
            "norm" in f.mixes.lower()
        ),
        "self-attention is masked: something else mixes positions, such as a softmax over dim=1": lambda f: (
            bool(f.seen.any())
        ),
    },
    "model: probabilities": {
        "the generator is as wide as the source's vocabulary: Linear(d_model, tgt_vocab)": lambda f: (
            f.got.size(-1) == f.src_vocab
        ),
    },
    "model: sizes": {
        "the stack does not have N layers, or not all of them run: for _ in range(N)": lambda f: f.N > 0,
    },
    "model: both ways": {
        "the encoder is given a causal mask: its words see all others, src_mask hides padding alone": lambda f: (
            f.causal
        ),
        "a position cannot see itself: the diagonal belongs to the causal mask": lambda f: all(
            t == j for t, j in f.blind
        ),
    },
    "model: source padding": {
        "the source mask is inverted: only padding is seen (or, if True means hidden in your masks, say TRUE_HIDES = True)": lambda f: (
            f.inverted
        ),
        "0 is taken for padding, whatever the number of padding is": lambda f: (
            f.zero_works and (f.encoder or f.cross)
        ),
        "the encoder and cross-attention can see padding: the source mask is not used there": lambda f: (
            f.encoder and f.cross
        ),
        "the encoder can see padding: the source mask is not used there": lambda f: f.encoder,
        "cross-attention can see padding: the source mask is not used there": lambda f: f.cross,
    },
    "model: batch": {
        "a mask lines up with the heads, not with the batch: mask.unsqueeze(1)": lambda f: f.by_head,
        "padding is not hidden for each sentence of a batch: is the mask each sentence's own?": lambda f: (
            f.masks
        ),
        "sentences are mixed: is the batch the first dimension everywhere?": lambda f: True,
    },
    "model: memory": {
        "no attention of the decoder reads the memory: its keys and values are memory": lambda f: (
            not f.crossing
        ),
    },
    "model: residuals and norms": {
        "pre-norm needs one more norm after the last layer": lambda f: f.order == "pre-norm",
        "all layers must have one order": lambda f: " and " in f.order,
        "self-attention comes first, then in the decoder attention to the memory, then the network": lambda f: (
            f.order == "wrong"
        ),
    },
    "model: first loss": {
        "the output shares the embeddings' matrix: start it with deviation d_model ** -0.5": lambda f: (
            f.tied and f.wide > 0.5
        ),
    },
    "model: own weights": {
        "one module serves in several places: give each its own": lambda f: len(f.names) == 1,
    },
    "causal mask": {
        "the mask is inverted: True (1) stands where it should hide": lambda f: f.ones.triu(1),
        "a position cannot see itself: the diagonal belongs to the mask": lambda f: f.ones.tril(-1),
        "off by one: position i sees position i + 1": lambda f: f.ones.tril(1),
        "rows and columns are swapped: it is the lower triangle, tril": lambda f: f.ones.triu(),
        "nothing is hidden": lambda f: f.ones,
        "everything is hidden": lambda f: f.ones * 0,
        "a position sees only itself": lambda f: f.ones.tril().triu(),
    },
    "batch: shifted target": {
        "padding is counted: (tgt_y != pad).sum()": lambda f: f.count == 8,
        "the target is not shifted: the decoder reads the token that it has to predict": lambda f: (
            torch.equal(f.read, f.predict)
        ),
        "the shift goes the wrong way: read tgt[:, :-1], predict tgt[:, 1:]": lambda f: torch.equal(
            f.read, f.tgt[:, 1:]
        ),
        "nothing is cut off: read tgt[:, :-1], predict tgt[:, 1:]": lambda f: (
            f.tgt.shape in (f.read.shape, f.predict.shape)
        ),
    },
    "batch: masks": {
        "the source mask is inverted: src != pad": lambda f: f.inverted,
        "the causal mask is missing in the target mask: (tgt != pad) & subsequent_mask": lambda f: (
            f.real.expand(2, 4, 4)
        ),
        "the target mask is inverted": lambda f: (~(f.causal & f.real)).float(),
        "padding is not hidden in the target mask: (tgt != pad) & subsequent_mask": lambda f: f.causal.expand(
            2, 4, 4
        ),
        "the two masks are joined by |: both must allow, &": lambda f: f.causal | f.real,
    },
    "smoothing: mass": {
        "smoothing and confidence are swapped: the right token gets 1 - smoothing": lambda f: (
            abs(f.right - f.e) < 0.001
        ),
        "nothing is smoothed": lambda f: abs(f.right - 1) < 0.001 and bool(f.others.abs().max() < 0.001),
        "the right token keeps 1: it gets 1 - smoothing": lambda f: abs(f.right - 1) < 0.001,
        "the right token gets nothing: scatter_(1, target.unsqueeze(1), confidence)": lambda f: (
            abs(f.right) < 0.001
        ),
        "the sign of the loss is lost": lambda f: f.right < 0,
    },
    "smoothing: padding": {
        "the mean is over all rows: divide by the number of real tokens": lambda f: math.isclose(
            2 * f.long, f.short, rel_tol=0.001
        ),
    },
    "rate: equation 3": {
        "max stands where min should": lambda f: (
            f.d ** (-0.5) * torch.maximum(f.s ** (-0.5), f.s * f.w ** (-1.5)) / f.wanted
        ),
        "the factor d_model^-0.5 is missing": lambda f: (
            torch.minimum(f.s ** (-0.5), f.s * f.w ** (-1.5)) / f.wanted
        ),
        "the sign of d_model's exponent is lost: it is -0.5": lambda f: (
            f.d**0.5 * torch.minimum(f.s ** (-0.5), f.s * f.w ** (-1.5)) / f.wanted
        ),
        "warm-up has the exponent -0.5: it is -1.5": lambda f: (
            f.d ** (-0.5) * torch.minimum(f.s ** (-0.5), f.s * f.w ** (-0.5)) / f.wanted
        ),
        "warm-up has the exponent -1: it is -1.5": lambda f: (
            f.d ** (-0.5) * torch.minimum(f.s ** (-0.5), f.s / f.w) / f.wanted
        ),
        "warm-up has a positive exponent: it is -1.5": lambda f: (
            f.d ** (-0.5) * torch.minimum(f.s ** (-0.5), f.s * f.w**1.5) / f.wanted
        ),
        "there is no warm-up: min with step * warmup^-1.5 is missing": lambda f: (
            f.d ** (-0.5) * f.s ** (-0.5) / f.wanted
        ),
        "it never falls again: min with step^-0.5 is missing": lambda f: (
            f.d ** (-0.5) * f.s * f.w ** (-1.5) / f.wanted
        ),
        "it falls as 1 / step: it is step^-0.5": lambda f: (
            f.d ** (-0.5) * torch.minimum(1 / f.s, f.s * f.w ** (-1.5)) / f.wanted
        ),
        "the sign of step's exponent is lost: it is -0.5": lambda f: (
            f.d ** (-0.5) * torch.minimum(f.s**0.5, f.s * f.w ** (-1.5)) / f.wanted
        ),
        "it is divided by d_model, not by its root": lambda f: (
            torch.minimum(f.s ** (-0.5), f.s * f.w ** (-1.5)) / f.d / f.wanted
        ),
        "steps are counted from 0: the first is 1": lambda f: (
            f.d ** (-0.5) * torch.minimum((f.s + 1) ** (-0.5), (f.s + 1) * f.w ** (-1.5)) / f.wanted
        ),
        "warm-up is fixed at 4000: use the argument": lambda f: (
            f.d ** (-0.5) * torch.minimum(f.s ** (-0.5), f.s * 4000 ** (-1.5)) / f.wanted
        ),
        "d_model is fixed at 512: use the argument": lambda f: (
            512 ** (-0.5) * torch.minimum(f.s ** (-0.5), f.s * f.w ** (-1.5)) / f.wanted
        ),
        "the terms are added: the smaller is taken, min": lambda f: (
            f.d ** (-0.5) * (f.s ** (-0.5) + f.s * f.w ** (-1.5)) / f.wanted
        ),
    },
    "greedy: likeliest token": {
        # token: the wrong one, at: its place, seen: log-probabilities at all places, starts: what it may begin with
        "it takes the least likely token: argmax, not argmin": lambda f: f.token == int(f.seen[-1].argmin()),
        "the decoder gets no target mask, or a wrong one: subsequent_mask(tgt.size(1)), as in training": lambda f: (
            f.unmasked
        ),
        "it begins with another token than the start symbol": lambda f: len(f.starts) > 0,
        "it reads the prediction at the first position: take the last, [:, -1]": lambda f: (
            f.at > 0 and f.token == int(f.seen[0].argmax())
        ),
        "it takes the second likeliest token": lambda f: f.token == int(f.seen[-1].topk(2).indices[1]),
        "the decoder gets the newest token only: give it all tokens so far, or a cache": lambda f: (
            f.at > 0 and f.token == f.newest
        ),
        "the new token is not appended to what the decoder reads": lambda f: (
            f.at > 0 and len(set(f.got[1:])) == 1
        ),
    },
    "beam: one is greedy": {
        "the decoder gets no target mask, or a wrong one: subsequent_mask(tgt.size(1)), as in training": lambda f: (
            f.unmasked
        ),
        "it begins with another token than the start symbol": lambda f: len(f.starts) > 0,
    },
    "beam: finds the best": {
        # made: the mistakes of `searching` that find just this
        "it is greedy: all hypotheses of a step must compete by their sums": lambda f: "greedy" in f.made,
        "hypotheses that have ended are continued: set them aside": lambda f: "ended" in f.made,
        "alpha changes nothing: ended hypotheses compete by their score over ((5 + length) / 6) ** alpha": lambda f: (
            "no alpha" in f.made
        ),
        "the penalty is multiplied: divide by ((5 + length) / 6) ** alpha": lambda f: "multiplied" in f.made,
        "the penalty is applied at each step, too: it is for hypotheses that have ended": lambda f: (
            "each step" in f.made
        ),
        "scores are divided by the length although alpha is 0": lambda f: "mean" in f.made,
        "only the last token counts: add its log-probability to the hypothesis's score": lambda f: (
            "sums" in f.made
        ),
        "the search stops with the first hypothesis that ends: others may still be better": lambda f: (
            "first" in f.made
        ),
        "hypotheses lose their parents: each candidate belongs to the beginning that it came from": lambda f: (
            "parents" in f.made
        ),
        "scores are multiplied: log-probabilities are added up": lambda f: "products" in f.made,
        "probabilities are added up: add up their logarithms": lambda f: "probabilities" in f.made,
        "the worst is returned: sort by falling score": lambda f: "worst" in f.made,
        "hypotheses that never ended win: those that have ended come first": lambda f: "no end" in f.made,
    },
    "BLEU: sacreBLEU's number": {
        "repeated words count again and again: clip each n-gram's count by the reference's": lambda f: (
            f.mean(f.unclipped) * f.penalty
        ),
        "short translations go unpunished: the brevity penalty is missing": lambda f: f.mean(f.p),
        "the brevity penalty punishes long translations: it is exp(1 - reference / hypothesis)": lambda f: (
            f.mean(f.p) * min(1, math.exp(1 - 1 / f.r))
        ),
        "the brevity penalty is hypothesis / reference: it is exp(1 - reference / hypothesis)": lambda f: (
            f.mean(f.p) / max(1, f.r)
        ),
        "precisions are averaged: take their geometric mean": lambda f: f.p.mean() * f.penalty,
        "sentences' scores are averaged: add up the counts of the corpus first": lambda f: (
            sum(f.each) / len(f.each)
        ),
        "only words and pairs count: it is n-grams up to 4": lambda f: f.mean(f.p[:2]) * f.penalty,
        "only single words count: it is n-grams up to 4": lambda f: f.p[0] * f.penalty,
        "words are compared in lower case: capitals count": lambda f: f.lower,
        "1 is added to every count: the corpus's counts are taken as they are": lambda f: (
            f.mean(f.one_more) * f.penalty
        ),
        "1 is added to the counts of pairs and longer: the corpus's counts are taken as they are": lambda f: (
            f.mean(f.one_more_above) * f.penalty
        ),
        "n-grams up to 3 count: it is up to 4": lambda f: f.mean(f.p[:3]) * f.penalty,
    },
}
