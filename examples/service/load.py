"""Measure what the service sustains: `python examples/service/load.py [ADDRESS]`.

At each level so many clients send one sentence after the other, each as soon as it has an answer.
"""

import argparse
import asyncio
import time
from collections import Counter

import httpx

SENTENCES = (
    "Two young men are playing football in the snow.",
    "A woman in a red coat is reading a newspaper on a bench.",
    "A small dog jumps over a fence.",
    "Several people are waiting for a train at the station, and a child is looking out of the window.",
)


async def client(http: httpx.AsyncClient, number: int, until: float) -> list[tuple[str, float]]:
    """Ask until the time is over: what came of each request, and the seconds that it took."""
    results = []
    while (begun := time.perf_counter()) < until:
        sentence = SENTENCES[(number + len(results)) % len(SENTENCES)]
        try:
            answer = await http.post("/translate", json={"sentences": [sentence]})
            came = str(answer.status_code)
        except httpx.HTTPError as error:
            came = type(error).__name__
        results.append((came, time.perf_counter() - begun))
    return results


async def level(address: str, clients: int, seconds: float) -> str:
    """One line of the table: so many clients at once, for so long."""
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as http:
        begun = time.perf_counter()
        until = begun + seconds
        runs = await asyncio.gather(*(client(http, number, until) for number in range(clients)))
        took = time.perf_counter() - begun
    results = [each for run in runs for each in run]
    waits = sorted(1000 * wait for came, wait in results if came == "200") or [float("nan")]
    others = Counter(came for came, _ in results if came != "200")
    percentiles = " | ".join(f"{waits[int(share * (len(waits) - 1))]:,.0f}" for share in (0.5, 0.95, 1))
    said = ", ".join(f"{count:,} × {came}" for came, count in others.items()) or "none"
    return f"| {clients} | {len(waits) / took:,.0f} | {percentiles} | {said} |"


async def measure(address: str, levels: list[int], seconds: float) -> None:
    """Print the table."""
    print("| clients | answers a second | median ms | 95% below ms | longest ms | other answers |")
    print("| --- | --- | --- | --- | --- | --- |")
    for clients in levels:
        print(await level(address, clients, seconds), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64, 256, 800])
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    asyncio.run(measure(given.address, given.clients, given.seconds))
