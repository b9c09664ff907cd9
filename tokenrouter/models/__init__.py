"""Models on disk without their weights: where they are, what they are, which vocabulary they speak."""

from __future__ import annotations

from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.errors import ModelError
from tokenrouter.models.fingerprint import count_parameters, fingerprint
from tokenrouter.models.locate import Located, locate
from tokenrouter.models.vocabulary import Vocabulary, read_vocabulary

__all__ = [
    "Located",
    "ModelConfig",
    "ModelError",
    "Vocabulary",
    "count_parameters",
    "fingerprint",
    "locate",
    "read_config",
    "read_vocabulary",
]
