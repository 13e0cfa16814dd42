"""Train a multi-layer perceptron on scikit-learn's handwritten digits, with noisy inputs."""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--noise", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    images, test_images, labels, test_labels = train_test_split(
        images, labels, test_size=0.25, random_state=args.seed, stratify=labels
    )

    model = nn.Sequential(
        nn.Linear(64, args.width),
        nn.ReLU(),
        nn.Linear(args.width, args.width),
        nn.ReLU(),
        nn.Linear(args.width, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    for step in range(args.steps):
        batch = torch.randint(len(images), (args.batch,))
        noisy = images[batch] + args.noise * torch.randn(args.batch, 64)
        loss = nn.functional.cross_entropy(model(noisy), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    majority = test_labels.bincount().max().item() / len(test_labels)
    print(f"accuracy {accuracy:.3f} (majority class {majority:.3f})")


if __name__ == "__main__":
    main()
