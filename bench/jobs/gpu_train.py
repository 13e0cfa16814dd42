"""One training on a GPU for bench/mps.py: steps for a while, then figures as JSON.

Three sizes, by how much of a large GPU their kernels fill: small (a perceptron 256 wide, batch 64),
medium (convolutions on 64 pictures of 32 x 32), large (a transformer layer 1024 wide, 8 x 512
words).

It warms up, prints `ready`, waits for a line on stdin, steps for `--seconds`, and prints one JSON
object: `size`, `steps`, `seconds`, and `peak_bytes` that torch held of the device.
"""

import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WARM_STEPS = 20
# Steps between two looks at the clock: each look waits for the device.
AT_ONCE = 10


def model_of(size: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    if size == "small":
        model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        return model, torch.randn(64, 256), torch.randint(10, (64,))
    if size == "medium":
        model = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
        return model, torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    model = nn.Sequential(layer, nn.Linear(1024, 10))
    return model, torch.randn(8, 512, 1024), torch.randint(10, (8, 512))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("small", "medium", "large"), required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model, inputs, labels = (one.to(arguments.device) for one in model_of(arguments.size))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    cuda = arguments.device.startswith("cuda")

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            logits = model(inputs)
            functional.cross_entropy(logits.flatten(0, -2), labels.flatten()).backward()
            optimizer.step()
        if cuda:
            torch.cuda.synchronize()

    steps(WARM_STEPS)
    print("ready", flush=True)
    sys.stdin.readline()
    made, began_s = 0, time.monotonic()
    while time.monotonic() - began_s < arguments.seconds:
        steps(AT_ONCE)
        made += AT_ONCE
    seconds = time.monotonic() - began_s
    peak_bytes = torch.cuda.max_memory_reserved() if cuda else 0
    figures = {"size": arguments.size, "steps": made, "seconds": seconds, "peak_bytes": peak_bytes}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
