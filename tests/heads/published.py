"""The published routers as plain torch modules, and their checkpoints, in small sizes.

Written from their papers' and repositories' descriptions; the names of the parts are those of the published files.
"""

import torch
from torch import nn

R2R_CLASS = "HiddenStatesTokenLMHeadLogitsClassifier"


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, width),
            nn.Dropout(0.1),
        )

    def forward(self, x):
        return x + self.mlp(self.layer_norm(x))


class Backbone(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.input_projection = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.output_layer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x):
        x = self.input_projection(x)
        for block in self.blocks:
            x = block(x)
        return self.output_layer(x)


class R2R(nn.Module):
    def __init__(self, hidden=24, top=10, width=16, blocks=3, vocabulary=50):
        super().__init__()
        self.top = top
        self.token_embeddings = nn.Embedding(vocabulary, hidden)
        self.logits_projection = nn.Linear(top, hidden)
        self.combined_projection = nn.Linear(3 * hidden, width)
        self.backbone = Backbone(width, blocks)

    def forward(self, hidden, token, logits):
        largest = logits.sort(-1, descending=True).values[:, : self.top]
        parts = (hidden, self.token_embeddings(token), self.logits_projection(largest))
        return self.backbone(self.combined_projection(torch.cat(parts, -1))).sigmoid()[:, 0]


class Citer(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden),
            nn.BatchNorm1d(2 * hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(2 * hidden, hidden),
            nn.Dropout(0.1),
        )
        self.linear = nn.Linear(hidden, 1)

    def forward(self, hidden):
        return self.linear(self.mlp(hidden)).sigmoid()[:, 0]


def shaken(module, seed=0):
    """Return a module in eval mode whose every number, running statistics too, is off its default."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if "running_var" in name:
                value.copy_(0.5 + torch.rand(value.shape, generator=rng))
            elif value.is_floating_point():
                value.add_(0.3 * torch.randn(value.shape, generator=rng))
    return module.train(False)


def r2r_checkpoint(path, module, *, whole=False, **changes):
    """Write a checkpoint as R2R publishes it: `X.pt` without the embeddings, or `X_all.pt` with them."""
    state = dict(module.state_dict())
    if not whole:
        del state["token_embeddings.weight"]
    content = {
        "model_type": R2R_CLASS,
        "init_args": {"hidden_states_size": 24, "normalize_input": False},
        "common_args": {
            "threshold": 0.40596,
            "input_type": ["hidden_states", "token", "logits"],
        },
        "model_specific_args": {},
        "state_dict": state,
    }
    torch.save(content | changes, path)
    return path
