import pytest
import torch

from annotated.data.batches import Batch
from annotated.training.loop import SimpleLossCompute, TrainState, run_epoch
from annotated.training.loss import LabelSmoothing
from annotated.transformer.model import make_model

PAD = 2
VOCAB = 11


def random_batch(rows, padded=0, seed=0):
    """Sentence pairs of 5 tokens, the last target's end made padding."""
    generator = torch.Generator().manual_seed(seed)
    src, tgt = (torch.randint(3, VOCAB, (rows, 5), generator=generator) for _ in range(2))
    if padded:
        tgt[-1, -padded:] = PAD
    return Batch(src, tgt, PAD)


def joined(*batches):
    """One batch of all their rows."""
    tgt = torch.cat([torch.cat([b.tgt, b.tgt_y[:, -1:]], dim=1) for b in batches])
    return Batch(torch.cat([b.src for b in batches]), tgt, PAD)


def system(dropout=0.0, dtype=torch.float64):
    """A fresh model, the same each time, with its loss, optimizer and scheduler."""
    torch.manual_seed(0)
    model = make_model(VOCAB, VOCAB, N=1, d_model=8, d_ff=16, h=2, dropout=dropout).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 / (1 + done))
    loss = SimpleLossCompute(model.generator, LabelSmoothing(VOCAB, PAD, 0.1))
    return model, loss, optimizer, scheduler


BATCHES = [random_batch(3), random_batch(2, padded=3, seed=1), random_batch(1, seed=2)]


def test_the_loss_is_summed_and_its_share_divided():
    generator, criterion = torch.nn.Identity(), LabelSmoothing(4, PAD, 0.1)
    x = torch.randn(2, 3, 4).log_softmax(dim=-1).requires_grad_()
    y = torch.tensor([[0, 1, 3], [1, PAD, PAD]])
    total, share = SimpleLossCompute(generator, criterion)(x, y, 5)
    expected = sum(criterion(x[i, j : j + 1], y[i, j : j + 1]) for i in range(2) for j in range(3))
    torch.testing.assert_close(total, expected.detach())
    torch.testing.assert_close(share, expected / 5)
    assert not total.requires_grad


def test_two_batches_accumulated_are_one_of_twice_the_size():
    one, two, *_ = BATCHES
    assert one.ntokens / 3 != two.ntokens / 2  # a mean of the batches' means would differ
    results = []
    for batches, accum_iter in (([one, two], 2), ([joined(one, two)], 1)):
        model, loss, optimizer, scheduler = system()
        mean, state = run_epoch(batches, model, loss, optimizer, scheduler, accum_iter=accum_iter)
        assert (state.samples, state.tokens, state.accum_step) == (5, one.ntokens + two.ntokens, 1)
        results.append((mean, torch.cat([p.detach().flatten() for p in model.parameters()])))
    (first_mean, first), (second_mean, second) = results
    assert first_mean == pytest.approx(second_mean, abs=1e-12)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


def test_the_scheduler_ticks_once_an_update_the_last_short_one_too():
    model, loss, optimizer, scheduler = system()
    before = [p.detach().clone() for p in model.parameters()]
    _, state = run_epoch(BATCHES, model, loss, optimizer, scheduler, accum_iter=2)
    assert (state.step, state.accum_step, scheduler.last_epoch) == (3, 2, 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 3)
    assert any(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))


def test_the_mean_is_over_all_tokens():
    model, loss, *_ = system()
    means = [run_epoch([batch], model, loss, mode="eval")[0] for batch in BATCHES]
    ntokens = [batch.ntokens for batch in BATCHES]
    expected = sum(m * n for m, n in zip(means, ntokens, strict=True)) / sum(ntokens)
    assert run_epoch(iter(BATCHES), model, loss, mode="eval")[0] == pytest.approx(expected)


def test_evaluation_leaves_weights_gradients_mode_and_schedule_alone():
    model, loss, optimizer, scheduler = system(dropout=0.5)
    model.train()
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    before, state = [p.detach().clone() for p in model.parameters()], TrainState()
    means = [
        run_epoch(BATCHES, model, loss, optimizer, scheduler, mode="eval", train_state=state)[0]
        for _ in range(2)
    ]
    assert means[0] == means[1]  # no dropout
    assert model.training
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all((p.grad == 7).all() for p in model.parameters())
    assert scheduler.last_epoch == 0
    assert state == TrainState()


def test_training_uses_dropout_and_counts_on():
    model, loss, optimizer, scheduler = system(dropout=0.5)
    model.eval()
    state = TrainState(step=10, samples=100)
    first, returned = run_epoch(BATCHES[:1], model, loss, optimizer, scheduler, train_state=state)
    assert returned is state
    assert (state.step, state.samples) == (11, 103)
    assert model.training
    assert first != run_epoch(BATCHES[:1], system()[0], system()[1], mode="eval")[0]


def test_a_batch_of_padding_alone_does_no_harm():
    model, _, optimizer, _ = system()
    loss = SimpleLossCompute(
        model.generator, lambda x, y: -(x.gather(1, y.unsqueeze(1)).squeeze(1) * (y != PAD)).sum()
    )
    empty = Batch(BATCHES[0].src, torch.full((3, 5), PAD), PAD)
    before, _ = run_epoch(BATCHES[:1], model, loss, mode="eval")
    mean, _ = run_epoch([empty, BATCHES[0]], model, loss, optimizer)
    assert mean == pytest.approx(before)
    assert all(p.isfinite().all() for p in model.parameters())


def only_once(loss):
    """A loss whose second call is interrupted."""
    calls = iter([loss])

    def compute(*inputs):
        for call in calls:
            return call(*inputs)
        raise KeyboardInterrupt

    return compute


def test_an_epoch_that_was_interrupted_leaves_nothing_to_the_next():
    """Ctrl-C between two batches of a group, and the cell of a notebook is run again."""
    results = []
    for interrupted in (True, False):
        model, loss, optimizer, _ = system()
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                run_epoch(BATCHES, model, only_once(loss), optimizer, accum_iter=2)
        run_epoch(BATCHES, model, loss, optimizer)
        results.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *results))


def test_training_lowers_the_loss():
    model, loss, optimizer, _ = system()
    first, _ = run_epoch(BATCHES, model, loss, optimizer)
    for _ in range(5):
        last, _ = run_epoch(BATCHES, model, loss, optimizer)
    assert last < first


@pytest.mark.parametrize(
    ("batches", "options", "message"),
    [
        (BATCHES, {"mode": "train+log"}, "mode must be"),
        (BATCHES, {}, "an optimizer"),
        ([], {"mode": "eval"}, "no batch"),
        ([Batch(BATCHES[0].src, torch.full((3, 5), PAD), PAD)], {"mode": "eval"}, "no target token"),
    ],
)
def test_what_cannot_be_run_is_refused(batches, options, message):
    model, loss, *_ = system()
    with pytest.raises(ValueError, match=message):
        run_epoch(batches, model, loss, **options)
