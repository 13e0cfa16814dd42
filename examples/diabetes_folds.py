"""Cross-validate a small regression net on scikit-learn's diabetes data: five folds, five nets.

The error is the root of the mean squared error of the held-out fifths. The baseline predicts the
mean of the training patients.
"""

import argparse

import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from torch import nn


def fit(inputs, targets, args):
    """Return a net trained for a fifth of the steps; dropout and weight decay hold it back."""
    model = nn.Sequential(
        nn.Linear(inputs.shape[1], args.width), nn.Tanh(), nn.Dropout(0.3), nn.Linear(args.width, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1.0)
    for _ in range(args.steps // 5):
        batch = torch.randint(len(inputs), (32,))
        loss = nn.functional.mse_loss(model(inputs[batch]).squeeze(1), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10000, help="of all five folds together")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    data = load_diabetes()
    inputs = torch.tensor(data.data, dtype=torch.float32)
    inputs = inputs / inputs.std(0)
    targets = torch.tensor(data.target, dtype=torch.float32)
    squares, baseline_squares = torch.zeros(len(targets)), torch.zeros(len(targets))
    folds = KFold(5, shuffle=True, random_state=args.seed).split(inputs)
    for number, (train, held_out) in enumerate(folds, start=1):
        mean, scale = targets[train].mean(), targets[train].std()
        model = fit(inputs[train], (targets[train] - mean) / scale, args)
        with torch.no_grad():
            guess = model(inputs[held_out]).squeeze(1) * scale + mean
        squares[held_out] = (guess - targets[held_out]) ** 2
        baseline_squares[held_out] = (mean - targets[held_out]) ** 2
        print(f"fold {number} error {squares[held_out].mean().sqrt().item():.1f}", flush=True)

    error, baseline = squares.mean().sqrt().item(), baseline_squares.mean().sqrt().item()
    print(f"error {error:.1f} (mean of the others {baseline:.1f})")


if __name__ == "__main__":
    main()
