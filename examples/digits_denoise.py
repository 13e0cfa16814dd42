"""Train an autoencoder that fills in the missing half of the pixels of a handwritten digit.

The error is the mean squared error over the missing pixels of held-out digits, where a pixel is
between 0 and 1. The baseline puts the mean of each pixel over the training digits.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def network(width):
    """Return an autoencoder for 64 pixels and 64 flags (1 where the pixel is known)."""
    return nn.Sequential(
        nn.Linear(128, width),
        nn.ReLU(),
        nn.Linear(width, width // 4),
        nn.ReLU(),
        nn.Linear(width // 4, width),
        nn.ReLU(),
        nn.Linear(width, 64),
        nn.Sigmoid(),
    )


def missing_error(guess, images, known):
    """Return the mean squared error over the pixels that are not known."""
    return ((guess - images) ** 2 * (1 - known)).sum() / (1 - known).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    pixels = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    images, test_images = train_test_split(pixels, test_size=0.25, random_state=args.seed)
    test_known = (torch.rand(test_images.shape) < 0.5).float()

    model = network(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        batch = images[torch.randint(len(images), (32,))]
        known = (torch.rand(batch.shape) < 0.5).float()
        guess = model(torch.cat([batch * known, known], dim=1))
        loss = missing_error(guess, batch, known)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    with torch.no_grad():
        guess = model(torch.cat([test_images * test_known, test_known], dim=1))
        error = missing_error(guess, test_images, test_known).item()
        baseline = missing_error(images.mean(0), test_images, test_known).item()
    print(f"squared error {error:.4f} (mean of each pixel {baseline:.4f})")


if __name__ == "__main__":
    main()
