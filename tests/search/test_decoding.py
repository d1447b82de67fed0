import itertools
import math
import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated.batches import padding_mask
from annotated.search.beam import beam_search, best_continuations
from annotated.search.greedy import greedy_decode
from annotated.transformer.attention import subsequent_mask
from annotated.transformer.cache import DecoderCache
from annotated.transformer.layers import DecoderLayer
from annotated.transformer.model import Decoder, EncoderDecoder, Generator, make_model

START, END, PAD = 0, 1, 2


def toy(vocab=12, dtype=torch.float64, seed=0, **settings):
    """A model with opinions: its weights are large enough that sentences differ, and end."""
    torch.manual_seed(seed)
    model = make_model(12, vocab, N=2, d_model=8, d_ff=16, h=2, dropout=0.0, **settings)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter)
    with torch.no_grad():
        model.generator.proj.bias[END] = 2.0
    return model.to(dtype)


def sources(seed=0, lengths=(5, 3, 7, 1)):
    """Sentences of several lengths, padded to one tensor, and their mask."""
    torch.manual_seed(seed)
    src = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(src, lengths, strict=True):
        row[:length] = torch.randint(3, 12, (length,))
    return src, padding_mask(src, PAD)


def log_probs_of(model, src, src_mask, tokens):
    """What follows each position of `tokens`, without a cache."""
    with torch.no_grad():
        return model.generator(model(src, tokens, src_mask, subsequent_mask(tokens.size(1))))


def greedy_without_cache(model, src, src_mask, max_len, forbidden=()):
    """The textbook loop: all positions again at each step."""
    tokens = torch.full((len(src), 1), START)
    for _ in range(max_len - 1):
        log_probs = log_probs_of(model, src, src_mask, tokens)[:, -1]
        log_probs[:, list(forbidden)] = -math.inf
        tokens = torch.cat([tokens, log_probs.argmax(dim=-1, keepdim=True)], dim=1)
    return tokens


def until_end(row):
    """A row of tokens without start, and without the end and what follows it."""
    tokens = row.tolist()[1:]
    return tuple(tokens[: tokens.index(END)] if END in tokens else tokens)


class Chain(nn.Module):
    """Stands in for a model: the last token alone decides, by a table of probabilities, what comes next."""

    max_positions = None

    def __init__(self, *rows):
        super().__init__()
        log_probs = torch.tensor(rows, dtype=torch.float64).log()
        self.generator = lambda states: log_probs[states.squeeze(-1)]
        self.decoder = SimpleNamespace(layers=(), steps=0)

    def encode(self, src, src_mask):
        return src.double().unsqueeze(-1)

    def decode(self, memory, src_mask, tgt, *_):
        self.decoder.steps += 1
        return tgt.unsqueeze(-1)


ONE = (torch.tensor([[3, 4]]), torch.ones(1, 1, 2, dtype=torch.bool))


@pytest.mark.parametrize("settings", [{}, {"norm_first": True, "positions": "learned", "max_len": 9}])
def test_steps_with_a_cache_give_what_all_positions_at_once_give(settings):
    model, (src, src_mask) = toy(**settings), sources()
    tokens = torch.randint(12, (4, 9))
    cache = DecoderCache(2)
    with torch.no_grad():
        memory = model.encode(src, src_mask)
        steps = [model.decode(memory, src_mask, tokens[:, i : i + 1], None, cache) for i in range(9)]
        found = model.generator(torch.cat(steps, dim=1))
    torch.testing.assert_close(found, log_probs_of(model, src, src_mask, tokens), rtol=0, atol=1e-9)


def test_no_sentences_give_no_translations():
    model, src = toy(), torch.zeros(0, 3, dtype=torch.long)
    assert greedy_decode(model, src, None, 5, START).tolist() == []
    assert beam_search(model, src, None) == []


@pytest.mark.parametrize("forbidden", [(), (END,), (3, 4, 5)])
def test_greedy_search_is_the_textbook_loop(forbidden):
    model, (src, src_mask) = toy(), sources()
    found = greedy_decode(model, src, src_mask, 12, forbidden=forbidden)  # begins as `beam_search` does
    assert torch.equal(found, greedy_without_cache(model, src, src_mask, 12, forbidden))
    assert found.shape == (4, 12)
    assert not any((found == token).any() for token in forbidden)


def test_sentences_that_have_ended_leave_the_batch():
    model, (src, src_mask) = toy(seed=57), (x.flip(0) for x in sources())  # the first two rows end first
    endless, rows = greedy_decode(model, src, src_mask, 30, START), []
    model.generator.proj.register_forward_hook(lambda _, inputs, __: rows.append(len(inputs[0])))
    ended = greedy_decode(model, src, src_mask, 30, START, END)
    assert [until_end(row) for row in ended] == [until_end(row) for row in endless]
    assert all((row[len(until_end(row)) + 1 :] == END).all() for row in ended)
    assert (endless != ended).any()  # left alone, one would have gone on after its end
    lengths = [min(len(until_end(row)) + 1, 29) for row in ended]
    assert lengths[0] < lengths[1] < lengths[2]
    assert rows == [sum(length > step for length in lengths) for step in range(max(lengths))]
    assert greedy_decode(model, src[:1], src_mask[:1], 30, START, END).tolist() == [[START, END]]


@pytest.mark.parametrize(
    "search", [lambda *a: greedy_decode(*a, 6, START, END), lambda *a: beam_search(*a, 7)]
)
def test_a_search_neither_trains_nor_stays_in_evaluation(search):
    torch.manual_seed(0)
    model = make_model(12, 12, N=1, d_model=8, d_ff=16, h=2, dropout=0.5)
    batch = sources()
    state = torch.get_rng_state()
    search(model, *batch)
    assert torch.equal(torch.get_rng_state(), state)  # no dropout was drawn
    assert all(module.training for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("seed", [0, 1, 2, 12])
def test_a_beam_of_1_is_greedy(seed):
    model, (src, src_mask) = toy(seed=seed), sources(seed)
    greedy = greedy_decode(model, src, src_mask, 15, START, END)  # 14 tokens after the start, and no end
    for row, (found,) in zip(greedy, beam_search(model, src, src_mask, 16, beam=1), strict=True):
        assert found.tokens == until_end(row)


def exhaustive(model, src, src_mask, limit, alpha, penalty, vocab):
    """Every sentence of at most `limit` tokens with its end, scored by the whole model; the best first."""
    others = [token for token in range(vocab) if token != END]
    scored = []
    for length in range(limit):
        for tokens in itertools.product(others, repeat=length):
            log_probs = log_probs_of(model, src, src_mask, torch.tensor([[START, *tokens]]))[0]
            total = sum(log_probs[i, token].item() for i, token in enumerate([*tokens, END]))
            divisor = (length + 1) ** alpha if penalty == "power" else ((5 + length + 1) / 6) ** alpha
            scored.append((total / divisor, total, tokens))
    return sorted(scored, reverse=True)


def repeats(tokens, n):
    """Whether some sequence of n tokens occurs twice."""
    sequences = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len({*sequences}) < len(sequences)


@pytest.mark.parametrize("penalty", ["gnmt", "power"])
@pytest.mark.parametrize(("alpha", "once"), [(0.0, 0), (0.6, 0), (1.0, 1), (2.5, 0)])
def test_a_wide_enough_beam_is_exhaustive_search(alpha, once, penalty):
    vocab, limit = 4, 3
    for seed in range(3):
        model, (src, src_mask) = toy(vocab, seed=seed), sources(seed, lengths=(4,))
        expected = exhaustive(model, src, src_mask, limit, alpha, penalty, vocab)
        expected = [each for each in expected if not once or not repeats(each[2], once)][:6]
        options = {"beam": vocab ** (limit - 1), "alpha": alpha, "penalty": penalty, "n_best": 6}
        options["no_repeat_ngram"] = once
        (found,) = beam_search(model, src, src_mask, 1 + limit, **options)
        assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
        for hypothesis, (score, log_prob, _) in zip(found, expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-9)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-9)


@pytest.mark.parametrize("beam", [1, 4])
def test_neighbours_in_the_batch_do_not_matter(beam):
    model, (src, src_mask) = toy(dtype=torch.float32, seed=1), sources()
    prefixes = [(), (5,), (4, 3), ()]
    together = beam_search(model, src, src_mask, beam=beam, n_best=beam, prefixes=prefixes)
    assert len({len(found[0].tokens) for found in together}) > 1
    for i, length in enumerate((5, 3, 7, 1)):
        batch = src[i : i + 1, :length], src_mask[i : i + 1, :, :length]
        (alone,) = beam_search(model, *batch, beam=beam, n_best=beam, prefixes=prefixes[i : i + 1])
        assert [h.tokens for h in alone] == [h.tokens for h in together[i]]
        for one, other in zip(alone, together[i], strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_sequence_of_tokens_occurs_twice(n):
    model, (src, src_mask) = toy(seed=1), sources(lengths=(5, 3, 7, 1, 4, 6))
    prefixes = [(), (), (), (), (), (5, 5, 5, 5, 5)]
    options = {"max_len": 26, "n_best": 4, "prefixes": prefixes}
    free = beam_search(model, src, src_mask, **options)
    *found, begun = beam_search(model, src, src_mask, **options, no_repeat_ngram=n)
    assert any(repeats(each.tokens, n) for best in free[:-1] for each in best)
    assert not any(repeats(each.tokens, n) for best in found for each in best)
    assert all(each.tokens[:5] == prefixes[-1] for each in begun)
    assert not any(repeats(each.tokens[5:], n) for each in begun)
    long = beam_search(model, src, src_mask, **options, no_repeat_ngram=26)
    assert [[each.tokens for each in best] for best in long] == [
        [each.tokens for each in best] for best in free
    ]


def test_prefixes_are_kept_and_forbidden_tokens_avoided():
    model, (src, src_mask) = toy(seed=2), sources()
    free = beam_search(model, src, src_mask, 11, beam=3, n_best=3)
    liked = {token for found in free for h in found for token in h.tokens}
    forbidden = sorted(liked)[:2]
    one, two, *_ = set(range(3, 12)) - set(forbidden)
    prefixes = [(one,), (), (one, two, one), (two, two)]
    found = beam_search(model, src, src_mask, 11, beam=3, n_best=3, prefixes=prefixes, forbidden=forbidden)
    for prefix, each in zip(prefixes, found, strict=True):
        assert each
        for h in each:
            assert h.tokens[: len(prefix)] == prefix
            assert not set(forbidden) & set(h.tokens)


@pytest.mark.parametrize(("limit", "expected"), [(6, [6, 6]), ([5, 2], [5, 2]), (None, [55, 52])])
def test_a_hypothesis_ends_at_its_limit(limit, expected):
    never = Chain([0, 1e-9, 0, 1], [1, 0, 0, 0], [1, 0, 0, 0], [0, 1e-9, 0, 1])
    src = torch.tensor([[3, 4, 5, 6], [3, PAD, PAD, PAD]])
    found = beam_search(never, src, padding_mask(src, PAD), limit, beam=1)
    # With the start and the end. None: real source tokens, and 50.
    assert [1 + len(h.tokens) + 1 for (h,) in found] == expected


def test_a_prefix_longer_than_the_limit_is_kept_and_ended():
    model, (src, src_mask) = toy(), sources(lengths=(4,))
    ((found,),) = beam_search(model, src, src_mask, 3, prefixes=[(5, 6, 7, 8)])
    assert found.tokens == (5, 6, 7, 8)


def test_a_beam_of_1_is_greedy_whatever_the_penalty():
    table = Chain([0, 0.6, 0.4], [1, 0, 0], [0, 0.99, 0.01])
    first, wide = (beam_search(table, *ONE, 10, beam=beam, alpha=5.0)[0][0] for beam in (1, 2))
    assert (first.tokens, wide.tokens) == ((), (2,))  # only the wider one looks past its first end


def test_as_many_go_on_as_the_beam_is_wide_though_some_end():
    begin = [0, 0, 0.4, 0.3, 0.3, 0, 0, 0]
    two, three, four = (
        [0, 0.6, 0, 0, 0, 0.4, 0, 0],
        [0, 0.55, 0, 0, 0, 0, 0.45, 0],
        [0, 0, 0, 0, 0, 0, 0, 0.4],
    )
    five, six, seven = [0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]
    # In the second step two ends come first, 0.24 and 0.165; then 2 5: 0.16, 3 6: 0.135, and 4 7: 0.12.
    table = Chain(begin, begin, two, three, four, five, six, seven)
    (found,) = beam_search(table, *ONE, 6, beam=3, n_best=3, alpha=0.0)
    assert [h.tokens for h in found] == [(2,), (3,), (4, 7)]  # 2 5 3 and 3 6 2 end with 0.088 and 0.081


def test_a_search_goes_on_while_any_of_the_n_best_can_be_beaten():
    table = Chain([0, 0.5, 0.3, 0.2, 0], [1, 0, 0, 0, 0], *2 * [[0, 0.1, 0, 0, 0.9]], [0, 1, 0, 0, 0])
    (found,) = beam_search(table, *ONE, 10, n_best=2, alpha=0.0)
    assert [h.tokens for h in found] == [(), (2, 4)]  # not (2,), which ends with 0.03 before 0.27 is found


def test_a_search_stops_when_nothing_unfinished_can_win():
    sure = Chain([0, 0.9, 0.1, 0], [1, 0, 0, 0], [0, 0.01, 0.99, 0], [1, 0, 0, 0])
    ((found,),) = beam_search(sure, *ONE, 41, alpha=0.0)
    assert found.tokens == ()
    assert sure.decoder.steps == 1  # 0.1 can never become 0.9
    sure.decoder.steps = 0
    beam_search(sure, *ONE, 41, alpha=0.0, n_best=2)
    assert sure.decoder.steps > 1  # the second best is still open
    sure.decoder.steps = 0
    beam_search(sure, *ONE, 41, alpha=2.0)
    assert sure.decoder.steps > 1  # log 0.1 / (45 / 6)^2 would beat log 0.9


@pytest.mark.parametrize(("alpha", "tokens", "steps"), [(0.0, (2, 4), 3), (0.6, (), 2)])
def test_as_many_ends_as_the_beam_is_wide_are_enough_only_with_a_penalty(alpha, tokens, steps):
    rows = [0, 0.25, 0.6, 0.15, 0], [1, 0, 0, 0, 0], [0, 0.2, 0, 0, 0.8], [0, 0, 0.5, 0.5, 0], [0, 1, 0, 0, 0]
    late = Chain(*rows)
    ((found,),) = beam_search(late, *ONE, 10, beam=2, alpha=alpha)
    assert found.tokens == tokens  # 0.25 and 0.12 have ended when 0.48 is still open
    assert late.decoder.steps == steps


def test_a_mask_may_serve_all_sentences_or_be_left_out():
    model, (src, _) = toy(seed=12), sources(seed=1, lengths=(5, 5, 5))
    each = torch.ones(3, 1, 5, dtype=torch.bool)
    greedy, wide = greedy_decode(model, src, each, 30, START, END), beam_search(model, src, each)
    assert len({len(until_end(row)) for row in greedy}) > 1  # one ends before another
    for mask in (each[:1], None):
        assert torch.equal(greedy_decode(model, src, mask, 30, START, END), greedy)
        assert beam_search(model, src, mask) == wide


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"beam": 257}, "beam must be a whole number from 1 to 256"),
        ({"beam": 2, "n_best": 3}, "not n_best=3, beam=2"),
        ({"n_best": 0}, "n_best must be"),
        ({"alpha": -0.1}, "alpha must be"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram must be"),
        ({"penalty": "none"}, "penalty must be"),
        ({"max_len": 1}, "max_len must be"),
        ({"max_len": [5, 5]}, "as many limits as sentences, not 2 for 1"),
        ({"prefixes": [(3,), (4,)]}, "as many prefixes as sentences, not 2 for 1"),
        ({"prefixes": []}, "as many prefixes as sentences, not 0 for 1"),
        ({"prefixes": [(3, END, 3)]}, r"prefix \(3, 1, 3\) contains 1"),
        ({"prefixes": [(-1,)]}, "no token -1 in"),
        ({"prefixes": [(3,)], "forbidden": (3,)}, r"prefix \(3,\) contains 3"),
        ({"forbidden": (END, 2)}, "end symbol, 1, is forbidden"),
    ],
)
def test_what_cannot_be_searched_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        beam_search(toy(), *ONE, **options)


@pytest.mark.parametrize(("beams", "vocab", "count"), [(3, 20, 6), (1, 20, 6), (4, 3, 8), (2, 2, 9)])
def test_the_best_continuations_are_those_of_all_sums(beams, vocab, count):
    torch.manual_seed(0)
    scores, log_probs = torch.randn(5, beams), torch.randn(5, beams, vocab)
    sums = (scores.unsqueeze(-1) + log_probs).flatten(1)
    expected = sums.topk(min(count, beams * vocab))
    best, origin, token = best_continuations(scores, log_probs, count)
    assert torch.equal(best, expected.values)
    assert torch.equal(origin * vocab + token, expected.indices)


def test_a_generator_of_ones_own_decides_in_every_search():
    class Reversed(Generator):
        def forward(self, x):
            return super().forward(-x)

    model, (src, src_mask) = toy(), sources()
    model.generator.__class__ = Reversed
    greedy = greedy_decode(model, src, src_mask, 10, START)
    assert torch.equal(greedy, greedy_without_cache(model, src, src_mask, 10))


def nearby(q, k, v, mask):
    """Attention that prefers keys near the query, as ALiBi does: it goes by where they stand in the cache."""
    T, S = q.size(-2), k.size(-2)
    bias = -(torch.arange(S - T, S).unsqueeze(1) - torch.arange(S)).abs().to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, bias if mask is None else bias.masked_fill(~mask, -1e9))


class Negated(EncoderDecoder):
    """A model whose decoding is its own."""

    def decode(self, *args):
        return -super().decode(*args)


class Rising(DecoderLayer):
    """A layer that goes by where its tokens stand in the cache."""

    def forward(self, x, memory, src_mask, tgt_mask, cache=None):
        seen = 0 if cache is None else len(cache.target)
        x = x + torch.arange(seen, seen + x.size(1)).unsqueeze(1)
        return super().forward(x, memory, src_mask, tgt_mask, cache)


class Falling(Decoder):
    """A decoder that goes by where its tokens stand in the cache."""

    def forward(self, x, memory, src_mask, tgt_mask, cache=None):
        seen = 0 if cache is None else len(cache)
        x = x - torch.arange(seen, seen + x.size(1)).unsqueeze(1)
        return super().forward(x, memory, src_mask, tgt_mask, cache)


def set_attend(model):
    for layer in model.decoder.layers:
        layer.self_attn.attend = nearby


def set_class(model):
    model.__class__ = Negated


def set_decoder(model):
    model.decoder.__class__ = Falling


def set_layer(model):
    model.decoder.layers[1].__class__ = Rising


@pytest.mark.parametrize("change", [set_attend, set_class, set_decoder, set_layer])
def test_a_model_is_searched_as_it_computes_however_it_was_changed(change):
    model, (src, src_mask) = toy(), sources()
    change(model)
    found = beam_search(model, src, src_mask, 10, alpha=0.0, n_best=4)
    for i, hypotheses in enumerate(found):
        for each in hypotheses:
            tokens = torch.tensor([[START, *each.tokens, END]])
            log_probs = log_probs_of(model, src[i : i + 1], src_mask[i : i + 1], tokens[:, :-1])
            total = log_probs.gather(-1, tokens[:, 1:, None]).sum().item()
            assert each.log_prob == pytest.approx(total, abs=1e-9)


def test_limits_and_masks_are_taken_in_every_right_form_and_in_no_other():
    model, (src, mask) = toy(), sources()
    limits = [6 + i for i in range(len(src))]
    expected = beam_search(model, src, mask, limits)
    assert beam_search(model, src, mask, torch.tensor(limits)) == expected
    shape = re.escape(str(tuple(mask.shape)))
    for search in (greedy_decode, beam_search):
        first = search(model, src, mask, 6, START, END)
        assert str(search(model, src, mask, torch.tensor(6), START, END)) == str(first)
        for wrong in (
            mask[:, 0],
            mask[:, None],
            mask[..., 1:],
            mask.expand(-1, 2, -1),
            mask[[0, 0, *range(len(src))]],
        ):
            with pytest.raises(ValueError, match=rf"src_mask must be .*, here {shape}, not"):
                search(model, src, wrong, 6, START, END)
        with pytest.raises(ValueError, match=r"src must be .* src.unsqueeze\(0\)"):
            search(model, src[0], None, 6, START, END)
        with pytest.raises(TypeError, match="src must be a tensor"):
            search(model, src.tolist(), None, 6, START, END)
        for wrong in (5.5, "6", torch.tensor([6.5] * len(src))):
            with pytest.raises((TypeError, ValueError), match=r"integer|as many limits"):
                search(model, src, mask, wrong, START, END)


def test_a_source_without_a_token_is_refused_but_not_a_batch_without_a_sentence():
    for search in (greedy_decode, beam_search):
        with pytest.raises(ValueError, match="a source needs a token"):
            search(toy(), torch.zeros(1, 0, dtype=torch.int64), None, 6, START, END)
        assert len(search(toy(), torch.zeros(0, 3, dtype=torch.int64), None, 6, START, END)) == 0


def test_forbidden_tokens_are_any_iterable_and_no_number():
    model, src = toy(), torch.tensor([[3, 4]])
    for search in (greedy_decode, beam_search):
        with pytest.raises(TypeError, match=r"forbidden must be .* \[5\], not 5"):
            search(model, src, None, 6, START, END, forbidden=5)
        few = [token for token in range(12) if token not in (END, 7)]
        listed, once = (str(search(model, src, None, 6, START, END, forbidden=x)) for x in (few, iter(few)))
        assert listed == once


def test_scores_that_are_no_numbers_and_tokens_that_are_none_are_refused():
    model, src = toy(), torch.tensor([[3, 4]])
    for search in (greedy_decode, beam_search):
        for token in (-1, 12):
            with pytest.raises(ValueError, match=f"no token {token} in a vocabulary of 12"):
                search(model, src, None, 6, START, END, forbidden=[token])
            with pytest.raises(ValueError, match=f"no token {token} in a vocabulary of 12"):
                search(model, src, None, 6, START, token)
    for token in (-1, 12):
        with pytest.raises(ValueError, match=f"no token {token} in a vocabulary of 12"):
            beam_search(model, src, None, 6, START, END, prefixes=[[5, token]])
    with pytest.raises(ValueError, match="all tokens are forbidden"):
        greedy_decode(model, src, None, 5, START, END, forbidden=range(12))
    with torch.no_grad():
        model.generator.proj.weight[5] = torch.nan
    for search in (greedy_decode, beam_search):
        with pytest.raises(ValueError, match="not finite"):
            search(model, src, None, 6, START, END)
