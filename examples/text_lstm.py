"""Train an LSTM to tell which part of SciPy a passage of documentation comes from.

The text is the docstrings of the installed SciPy, cut into passages of 40 words. All passages of
one docstring stay on the same side of the split, so that the held-out ones are new to the model.
"""

import argparse
import ast
import collections
import importlib.util
import pathlib
import random
import re

import torch
from torch import nn

PARTS = ("integrate", "interpolate", "linalg", "ndimage", "spatial", "special")
PASSAGE_WORDS = 40


def docstrings(part):
    """Yield the docstrings of one part of SciPy as lists of lower-case words."""
    root = pathlib.Path(importlib.util.find_spec("scipy").submodule_search_locations[0])
    for path in sorted((root / part).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                # The names of the parts would give the answer away.
                text = (ast.get_docstring(node) or "").lower()
                yield [word for word in re.findall("[a-z]+", text) if word not in PARTS]


def passages(rng):
    """Return the passages for training and the held-out ones, as pairs (words, label)."""
    train, held_out = [], []
    for label, part in enumerate(PARTS):
        for words in docstrings(part):
            side = held_out if rng.random() < 0.2 else train
            starts = range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS)
            side.extend((words[start : start + PASSAGE_WORDS], label) for start in starts)
    return train, held_out


def tensors(pairs, index):
    """Turn passages into word numbers and labels; rare words share the number 0."""
    words = torch.tensor([[index.get(word, 0) for word in text] for text, _ in pairs])
    return words, torch.tensor([label for _, label in pairs])


class Classifier(nn.Module):
    """Embedding, one LSTM, the mean of its outputs over time, and a linear layer."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(width, len(PARTS))

    def forward(self, words):
        """Return the logits of the parts for passages of word numbers."""
        states, _ = self.lstm(self.dropout(self.embedding(words)))
        return self.output(self.dropout(states.mean(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train, held_out = passages(random.Random(args.seed))
    counts = collections.Counter(word for text, _ in train for word in text)
    index = {word: number for number, (word, _) in enumerate(counts.most_common(4000), start=1)}
    words, labels = tensors(train, index)
    test_words, test_labels = tensors(held_out, index)

    model = Classifier(len(index) + 1, args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    for step in range(args.steps):
        batch = torch.randint(len(words), (16,))
        loss = nn.functional.cross_entropy(model(words[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_words).argmax(1) == test_labels).float().mean().item()
    majority = test_labels.bincount().max().item() / len(test_labels)
    print(f"accuracy {accuracy:.3f} (majority class {majority:.3f})")


if __name__ == "__main__":
    main()
