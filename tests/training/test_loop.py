"""The classic training loop: `run_epoch` and `SimpleLossCompute`."""

import pytest
import torch

from annotated.batches import Batch
from annotated.loop import SimpleLossCompute, TrainState, run_epoch
from annotated.loss import LabelSmoothing
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


def system(dropout=0.0):
    """A fresh model, the same each time, with its loss, optimizer and scheduler."""
    torch.manual_seed(0)
    model = make_model(VOCAB, VOCAB, N=1, d_model=8, d_ff=16, h=2, dropout=dropout).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 / (1 + done))
    loss = SimpleLossCompute(model.generator, LabelSmoothing(VOCAB, PAD, 0.1))
    return model, loss, optimizer, scheduler


def copies(model):
    return [p.detach().clone() for p in model.parameters()]


BATCHES = [random_batch(3), random_batch(2, padded=3, seed=1), random_batch(1, seed=2)]
EMPTY = Batch(BATCHES[0].src, torch.full((3, 5), PAD), PAD)


def test_the_loss_is_summed_and_its_share_divided():
    criterion = LabelSmoothing(4, PAD, 0.1)
    x = torch.randn(2, 3, 4).log_softmax(dim=-1).requires_grad_()
    y = torch.tensor([[0, 1, 3], [1, PAD, PAD]])
    total, share = SimpleLossCompute(torch.nn.Identity(), criterion)(x, y, 5)
    torch.testing.assert_close(total, criterion(x, y).detach())
    torch.testing.assert_close(share, criterion(x, y) / 5)
    assert not total.requires_grad


def test_two_batches_accumulated_are_one_of_twice_the_size():
    one, two, _ = BATCHES
    assert one.ntokens / 3 != two.ntokens / 2  # a mean of the batches' means would differ
    results = []
    for batches, accum_iter in (([one, two], 2), ([joined(one, two)], 1)):
        model, loss, optimizer, scheduler = system()
        mean, state = run_epoch(batches, model, loss, optimizer, scheduler, accum_iter=accum_iter)
        assert (state.samples, state.tokens, state.accum_step) == (5, one.ntokens + two.ntokens, 1)
        results.append([torch.tensor(mean), *copies(model)])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12, check_dtype=False)


def test_the_scheduler_ticks_once_an_update_the_last_short_one_too():
    model, loss, optimizer, scheduler = system()
    _, state = run_epoch(BATCHES, model, loss, optimizer, scheduler, accum_iter=2)
    assert (state.step, state.accum_step, scheduler.last_epoch) == (3, 2, 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 3)


def test_evaluation_leaves_weights_gradients_mode_and_schedule_alone():
    model, loss, optimizer, scheduler = system(dropout=0.5)
    for p in model.parameters():
        p.grad = torch.full_like(p, 7.0)
    before, state = copies(model), TrainState()
    rest = loss, optimizer, scheduler, "eval", 1, state
    means = [
        run_epoch(batches, model, *rest)[0]
        for batches in (BATCHES, iter(BATCHES), *([batch] for batch in BATCHES))
    ]
    ntokens = [batch.ntokens for batch in BATCHES]
    assert means[0] == means[1]  # no dropout
    assert means[0] == pytest.approx(
        sum(m * n for m, n in zip(means[2:], ntokens, strict=True)) / sum(ntokens)
    )
    assert model.training
    assert all(map(torch.equal, model.parameters(), before))
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
    assert first != run_epoch(BATCHES[:1], *system()[:2], mode="eval")[0]


def test_a_batch_of_padding_alone_does_no_harm():
    model, loss, optimizer, _ = system()
    expected, _ = run_epoch(BATCHES[:1], model, loss, mode="eval")
    assert run_epoch([EMPTY, BATCHES[0]], model, loss, optimizer)[0] == pytest.approx(expected)
    assert all(p.isfinite().all() for p in model.parameters())


def test_an_epoch_that_was_interrupted_leaves_nothing_to_the_next():
    """As by Ctrl-C between two batches of a group, where the cell of a notebook is run again."""
    results = []
    for interrupted in (True, False):
        model, loss, optimizer, _ = system()
        if interrupted:
            once = iter([loss])
            with pytest.raises(StopIteration):
                run_epoch(BATCHES, model, lambda *x: next(once)(*x), optimizer, accum_iter=2)  # noqa: B023
        run_epoch(BATCHES, model, loss, optimizer)
        results.append(copies(model))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize(
    ("batches", "mode"), [(BATCHES, "train+log"), (BATCHES, "train"), ([], "eval"), ([EMPTY], "eval")]
)
def test_what_cannot_be_run_is_refused(batches, mode):
    model, loss, *_ = system()
    with pytest.raises(ValueError, match=r"mode must be|no target token"):
        run_epoch(batches, model, loss, mode=mode)


def test_the_message_about_a_mode_is_one_line_whatever_the_optimizer():
    model, loss, optimizer, _ = system()
    with pytest.raises(ValueError, match=r"^mode must be .*, not 'training' with one$"):
        run_epoch(BATCHES, model, loss, optimizer, mode="training")


def test_no_batch_an_update_is_refused():
    model, loss, optimizer, _ = system()
    with pytest.raises(ValueError, match="accum_iter must be at least 1, not 0"):
        run_epoch(BATCHES, model, loss, optimizer, accum_iter=0)
