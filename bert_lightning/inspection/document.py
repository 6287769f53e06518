"""An inspection → JSON that a program reads."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from bert_lightning.inspection.results import Inspection

FORMAT = 1  # a key that is renamed or gone makes it 2


def as_json(inspection: Inspection) -> str:
    """Return all of an inspection; what is not known is null."""
    content = {"format": FORMAT, **dataclasses.asdict(inspection)}
    return json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
