"""Train a GRU to find the onset of a fault in multivariate series, from a seeded generator.

A plant has six noisy sensors driven by three slow oscillations. In half of the series one sensor
starts at a random moment to lag behind its causes and to drift; the model says for each moment
whether the fault is present. Every training batch is new; the held-out series have another seed.
"""

import argparse
import functools
import math

import torch
from torch import nn

SENSORS, CAUSES, LENGTH = 6, 3, 40


class Plant:
    """A fixed mixing of causes into sensors, from which labelled series are drawn."""

    def __init__(self, generator):
        self.generator = generator
        self.mixing = torch.randn(CAUSES, SENSORS, generator=generator)

    def draw(self, count):
        """Return series (count, LENGTH, SENSORS) and fault flags (count, LENGTH)."""
        rand = functools.partial(torch.rand, generator=self.generator)
        time = torch.arange(LENGTH)
        frequency, phase = 0.1 + 0.2 * rand(count, 1, CAUSES), 2 * math.pi * rand(count, 1, CAUSES)
        causes = torch.sin(frequency * time[:, None] + phase)
        noise = torch.randn(count, LENGTH, SENSORS, generator=self.generator)
        series = causes @ self.mixing + 0.3 * noise
        onset = torch.where(rand(count) < 0.5, (rand(count) * LENGTH).long(), LENGTH)
        faulty = time >= onset[:, None]
        broken = nn.functional.one_hot((rand(count) * SENSORS).long(), SENSORS)[:, None, :]
        drift = 0.15 * (time - onset[:, None]).clamp(min=0)[:, :, None]
        lagging = 0.5 * series + 0.5 * series.roll(3, dims=1) + drift
        changed = faulty[:, :, None] & (broken > 0)
        return torch.where(changed, lagging, series), faulty.float()


class Detector(nn.Module):
    """A GRU over the sensors and one logit for each moment."""

    def __init__(self, width):
        super().__init__()
        self.gru = nn.GRU(SENSORS, width, batch_first=True)
        self.output = nn.Linear(width, 1)

    def forward(self, series):
        """Return the logits (count, LENGTH) of the fault being present."""
        return self.output(self.gru(series)[0]).squeeze(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    plant = Plant(torch.Generator().manual_seed(args.seed))
    model = Detector(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        series, faulty = plant.draw(16)
        loss = nn.functional.binary_cross_entropy_with_logits(model(series), faulty)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    plant.generator.manual_seed(args.seed + 1)
    series, faulty = plant.draw(1000)
    with torch.no_grad():
        accuracy = ((model(series) > 0) == (faulty > 0)).float().mean().item()
    share = faulty.mean().item()
    print(f"accuracy {accuracy:.3f} (majority class {max(share, 1 - share):.3f})")


if __name__ == "__main__":
    main()
