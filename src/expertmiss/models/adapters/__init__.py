"""Router adapters: one file per architecture, found by the model's ``model_type``.

To add one: write ``<model_type>.py`` with an :class:`~expertmiss.models.adapters.base.Adapter`, name it in ``ADAPTERS``, and add the
architecture's tiny configuration to ``tests/models/test_adapters.py``.
"""

from __future__ import annotations

from expertmiss.models.adapters.base import Adapter, Groups, RouterModule
from expertmiss.models.adapters.granitemoe import GRANITEMOE
from expertmiss.models.adapters.olmoe import OLMOE
from expertmiss.models.adapters.qwen3_moe import QWEN3_MOE
from expertmiss.models.adapters.qwen3_next import QWEN3_NEXT

ADAPTERS: dict[str, Adapter] = {adapter.model_type: adapter for adapter in (QWEN3_MOE, QWEN3_NEXT, OLMOE, GRANITEMOE)}

__all__ = ["ADAPTERS", "Adapter", "Groups", "RouterModule"]
