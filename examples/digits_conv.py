"""Train a small convolutional net on scikit-learn's handwritten digits, shifted by a pixel."""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def shifted(images):
    """Return the images moved by one random offset of at most one pixel in each direction."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return images.roll((down, right), dims=(2, 3))


def network(channels):
    """Return two convolutions with pooling and a linear layer for 8 x 8 images."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(2 * channels * 4, 10),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--width", type=int, default=32, help="channels of the first convolution")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=args.seed, stratify=labels
    )

    model = network(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        batch = torch.randint(len(images), (args.batch,))
        loss = nn.functional.cross_entropy(model(shifted(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    majority = test_labels.bincount().max().item() / len(test_labels)
    print(f"accuracy {accuracy:.3f} (majority class {majority:.3f})")


if __name__ == "__main__":
    main()
