"""Train a small transformer to predict the next character of Python source code.

The text is a few modules of the standard library of the Python that runs the script; the last
tenth of each is held out. The baseline knows only how often each character occurs.
"""

import argparse
import math
import pathlib
import sysconfig

import torch
from torch import nn

MODULES = ("argparse", "ast", "bdb", "cmd", "difflib", "inspect", "pathlib", "pdb", "tarfile")
CONTEXT = 48


def read_text():
    """Return the text for training and the held-out text; characters beyond ASCII become '?'."""
    folder = pathlib.Path(sysconfig.get_path("stdlib"))
    train, held_out = [], []
    for module in MODULES:
        path = folder / f"{module}.py"
        if not path.exists():  # some modules are packages in later versions of Python
            continue
        text = path.read_text(encoding="utf-8").encode("ascii", "replace").decode()
        cut = len(text) * 9 // 10
        train.append(text[:cut])
        held_out.append(text[cut:])
    return "".join(train), "".join(held_out)


def encode(text):
    """Return the character codes of an ASCII text as a tensor."""
    return torch.tensor(list(text.encode("ascii")))


def unigram_bits(train, held_out):
    """Return the bits per held-out character of a model that knows only character frequencies."""
    counts = train.bincount(minlength=128).float() + 1
    return -(counts / counts.sum()).log2()[held_out].mean().item()


class CharTransformer(nn.Module):
    """A decoder of two layers with learned positions and a causal mask."""

    def __init__(self, width):
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.position = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=4 * width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.output = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, codes):
        """Return the logits of the next character at each position."""
        states = self.embedding(codes) + self.position
        return self.output(self.layers(states, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train, held_out = (encode(text) for text in read_text())
    windows = train.unfold(0, CONTEXT + 1, 1)
    model = CharTransformer(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        batch = windows[torch.randint(len(windows), (8,))]
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    model.eval()
    test = held_out.unfold(0, CONTEXT + 1, CONTEXT)[:1000]
    with torch.no_grad():
        logits = model(test[:, :-1])
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), test[:, 1:].flatten()).item()
    baseline = unigram_bits(train, test[:, 1:].flatten())
    print(f"bits per character {nats / math.log(2):.2f} (character frequencies {baseline:.2f})")


if __name__ == "__main__":
    main()
