from hypothesis import given
from hypothesis import strategies as st

from infuser_core.capacity.hardware import calibrated, gpus
from infuser_core.capacity.sampling import Batch, Engine, Spread, _decode, sample
from infuser_core.capacity.shape import shapes

ENGINE = Engine(
    shape=next(shape for shape in shapes().values() if shape.layers == 36 and not shape.tied),
    gpu=gpus()["H100"],
    parallel=1,
    cache_tokens=200_000,
    efficiency=calibrated(),
)


def token_by_token(lengths: list[int], prompt: int, width: int) -> float:
    """The plain loop: every step one token for everybody under way, then the finished make room."""
    per_token = ENGINE.moved(ENGINE.shape.cache_bytes)
    waiting, active, seconds = list(lengths), [], 0.0
    while waiting or active:
        while waiting and len(active) < width:
            active.append([waiting.pop(0), 0])
        held = sum(prompt + done + 0.5 for _, done in active)
        seconds += ENGINE.step(len(active)) + held * per_token
        active = [[length, done + 1] for length, done in active]
        active = [pair for pair in active if pair[1] < pair[0]]
    return seconds


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=25),
    prompt=st.integers(0, 300),
    width=st.integers(1, 12),
)
def test_decoding_from_end_to_end_equals_token_by_token(lengths: list[int], prompt: int, width: int):
    fast = _decode(ENGINE, [float(length) for length in lengths], prompt, width)
    assert abs(fast / token_by_token(lengths, prompt, width) - 1) < 1e-9


def test_a_phase_never_ends_before_its_longest_response():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    for rows in (1, 16, 400):
        done = sample(ENGINE, Batch(groups=rows / 8, rows=rows, prompt=300, response=response, of=6400))
        assert done.crowd >= 0
        assert done.longest > 5000 * ENGINE.efficiency.decode_step


def test_a_larger_cache_is_never_slower():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    batch = Batch(groups=100, rows=800, prompt=300, response=response, of=800)
    seconds = [
        sum((done.prefill, done.longest, done.crowd))
        for size in (4_000, 20_000, 100_000, 500_000)
        for done in [
            sample(
                Engine(shape=ENGINE.shape, gpu=ENGINE.gpu, parallel=1, cache_tokens=size, efficiency=ENGINE.efficiency),
                batch,
            )
        ]
    ]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 2 * seconds[-1]


def test_nothing_to_sample_takes_no_time():
    response = Spread(mean=800, deviation=0.8, limit=8192)
    done = sample(ENGINE, Batch(groups=0, rows=0, prompt=300, response=response, of=1))
    assert (done.prefill, done.longest, done.crowd) == (0, 0, 0)
