"""One training job of the benches: a kind of work, a number of steps, and figures as JSON.

Five kinds, chosen for what limits them (a step with one thread of a 2.4 GHz core):

- mlp: a perceptron 128 wide, batch 32; small operations, so that overhead decides; about 1 ms.
- lstm: an LSTM 128 wide over 40 moments, batch 32; about 20 ms.
- wide: a perceptron 2048 wide, batch 128; large matrix products; about 150 ms.
- loader: a small net on spectra that two worker processes compute in numpy; about 60 ms.
- memory: momentum on one large vector; the process peaks at `--memory-mb`; bandwidth decides.

The last line of output is one JSON object: `kind`, `steps`, `threads`, `start_up_s` (from the start
of the process to the end of the first step), `steps_s` (all later steps), `loss` of the last step
as `float.hex`, and `parameters_digest`. Start-up and steps are apart because importing torch takes
seconds on one core, which says nothing about training. With one seed and one number of threads,
loss and digest are the same in every run, alone or beside others.

A job that is ended by SIGTERM prints `kind`, `steps` and `steps_done` instead, and exits with 143.
"""

import argparse
import hashlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

MIB_BYTES = 2**20
CLASSES = 10

Step = Callable[[], torch.Tensor]


def process_age_s() -> float:
    """Seconds since this process started; the kernel counts its start in ticks of 10 ms."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def perceptron(width: int, inputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def classify(model: nn.Module, inputs: tuple[int, ...]) -> Step:
    """A step on a fresh batch of random inputs; the label is which of ten sums is the largest."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    teacher = torch.randn(inputs[-1], CLASSES)

    def step() -> torch.Tensor:
        batch = torch.randn(inputs)
        labels = (batch.flatten(1, -2).sum(1) if batch.dim() == 3 else batch) @ teacher
        return descend(optimizer, functional.cross_entropy(model(batch), labels.argmax(1)))

    return step


class LastState(nn.Module):
    """An LSTM and a linear layer on its last output."""

    def __init__(self, width: int, inputs: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, batch_first=True)
        self.output = nn.Linear(width, CLASSES)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.output(self.lstm(series)[0][:, -1])


class Spectra(torch.utils.data.Dataset):
    """Pictures of spectra of generated waves: numpy work, the same for the same index."""

    def __init__(self, items: int, seed: int) -> None:
        self.items, self.seed = items, seed

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        rng = np.random.default_rng((self.seed, index))
        label = index % CLASSES
        moments = np.arange(32768, dtype=np.float64)
        wave = np.sin((0.2 + 0.1 * label) * moments) + rng.normal(size=moments.size)
        frames = wave.reshape(64, 512) * np.hanning(512)
        power = np.abs(np.fft.rfft(frames, axis=1)[:, :256]) ** 2
        picture = power.reshape(32, 2, 32, 8).mean((1, 3))
        return np.log1p(picture).astype(np.float32)[None], label


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, CLASSES),
    )


def build_loader(model: nn.Module, steps: int, seed: int) -> Step:
    """A step on a batch of 32 items that two worker processes have computed."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    items = Spectra(32 * steps, seed)
    batches: Iterator = iter(torch.utils.data.DataLoader(items, batch_size=32, num_workers=2))

    def step() -> torch.Tensor:
        pictures, labels = next(batches)
        return descend(optimizer, functional.cross_entropy(model(pictures), labels))

    return step


def peak_bytes() -> int:
    """The largest resident size so far of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Vector(nn.Module):
    """One parameter, and bytes that are only held."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randn(elements))
        self.held = torch.zeros(0, dtype=torch.uint8)


def build_memory(memory_mb: int) -> tuple[nn.Module, Step]:
    """A vector, its gradient and its momentum: half of `memory_mb`; the rest is torch and filling.

    The vector depends on `memory_mb` alone, so that the numbers do not depend on what torch takes.
    """
    model = Vector(memory_mb * MIB_BYTES // 2 // 12)  # three vectors of 4 bytes an element
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> torch.Tensor:
        # The detached factor keeps the gradient to one vector; through both it would need two.
        values = model.values
        return descend(optimizer, torch.dot(values, values.detach()) / 2)

    step()
    filling_bytes = memory_mb * MIB_BYTES - peak_bytes()
    if filling_bytes < 0:
        needed_mb = peak_bytes() // MIB_BYTES + 1
        raise SystemExit(
            f"--memory-mb {memory_mb}: torch and the vectors take {needed_mb}; give more"
        )
    model.held = torch.ones(filling_bytes, dtype=torch.uint8)
    return model, step


def build(args: argparse.Namespace) -> tuple[nn.Module, Step]:
    if args.kind == "memory":
        return build_memory(args.memory_mb)
    if args.kind == "loader":
        model: nn.Module = convolutions()
        return model, build_loader(model, args.steps, args.seed)
    if args.kind == "lstm":
        model = LastState(128, 32)
        return model, classify(model, (32, 40, 32))
    width, batch = (128, 32) if args.kind == "mlp" else (2048, 128)
    model = perceptron(width, width)
    return model, classify(model, (batch, width))


def digest(model: nn.Module) -> str:
    """A hash of every bit of the parameters, read in place: a copy would raise the peak."""
    result = hashlib.sha256()
    for parameter in model.parameters():
        result.update(memoryview(parameter.detach().numpy()).cast("B"))
    return result.hexdigest()[:32]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One training job of the benches.")
    parser.add_argument(
        "--kind", choices=["mlp", "lstm", "wide", "loader", "memory"], required=True
    )
    parser.add_argument("--steps", type=int, required=True, help="at least 1")
    parser.add_argument("--memory-mb", type=int, default=600, help="peak in MiB, for kind memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stamps", type=Path, help="write the end of each step, monotonic ns")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps {args.steps}: give a number of at least 1")
    return args


def main() -> None:
    args = parse()
    torch.manual_seed(args.seed)
    model, step = build(args)
    loss = step()
    start_up_s = process_age_s()
    stamps_ns = [time.monotonic_ns()]

    def stop(*_: object) -> None:
        figures = {"kind": args.kind, "steps": args.steps, "steps_done": len(stamps_ns)}
        print(json.dumps(figures))
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    for _ in range(args.steps - 1):
        loss = step()
        stamps_ns.append(time.monotonic_ns())
    if args.stamps:
        args.stamps.write_text("".join(f"{stamp_ns}\n" for stamp_ns in stamps_ns))
    figures = {
        "kind": args.kind,
        "steps": args.steps,
        "threads": torch.get_num_threads(),
        "start_up_s": round(start_up_s, 3),
        "steps_s": round((stamps_ns[-1] - stamps_ns[0]) / 1e9, 3),
        "loss": loss.item().hex(),
        "parameters_digest": digest(model),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
