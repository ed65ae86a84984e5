"""The order of a device's nodes is recorded and checked: what it really was is accepted, and every order that would decode wrongly is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from expertmiss.engine.library import library
from expertmiss.engine.session import Engine, EngineOptions
from tests.engine.random_gguf import Shape
from tests.engine.test_exactness import FETCH_ALL

Node = tuple[str, str, int, int]  # name, operation, layer whose ids it reads, layer whose weights it reads
KINDS = ("qwen3moe", "qwen3moe-scaled", "qwen3next-fused", "gpt-oss", "glm4moe")
LAYER = 1  # the one that is spoilt


class Order:
    """A recorded order, and where in it the nodes of a layer stand."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.nodes: list[Node] = session.node_order()
        self.logits, self.ids, *_ = self.stops_of(LAYER)
        on_slots = [at for at, node in enumerate(self.nodes) if node[2] == LAYER and node[1] in ("MUL_MAT_ID", "ADD_ID")]
        self.product = on_slots[0]
        self.gates = next(at for at, node in enumerate(self.nodes) if node[2] == LAYER and node[1] == "GET_ROWS")
        self.weighted = next(at for at, node in enumerate(self.nodes) if node[3] == LAYER)

    def stops_of(self, layer: int) -> list[int]:
        """Positions of a layer's stops: logits, ids, weights and, where it is not the weights' node, the last before the products."""
        return [next(at for at, node in enumerate(self.nodes) if node[0] == name) for name, of in self.stops() if of == layer]

    def stops(self, nodes: list[Node] | None = None) -> list[tuple[str, int]]:
        """What the engine would do in an order; it throws where that would be wrong."""
        found: list[tuple[str, int]] = self.session.stops_in(self.nodes if nodes is None else nodes)
        return found

    def moved(self, node: int, before: int) -> list[Node]:
        """With one node at another place: before the one that stands at ``before``."""
        nodes = list(self.nodes)
        taken = nodes.pop(node)
        nodes.insert(before - (node < before), taken)
        return nodes


@pytest.fixture(params=KINDS)
def order(request: pytest.FixtureRequest, model_file: Callable[..., Path]) -> Order:
    engine = Engine(model_file(request.param), EngineOptions(context=16, store="mapped"))
    engine.start(FETCH_ALL, 8)
    return Order(engine._session)


def refused(sentence: str, order: Order, nodes: list[Node]) -> None:
    with pytest.raises(library().EngineError, match=f"^layer [0-9]+: {sentence}.*not supported"):
        order.stops(nodes)


def test_the_real_order_is_accepted(order: Order) -> None:
    """Logits, ids, weights and the last node before the first product of every layer, in this order."""
    layers = order.session.router["layers"]
    places = [order.stops_of(layer) for layer in range(layers)]
    assert all(3 <= len(stops) <= 4 for stops in places)
    flat = [at for stops in places for at in stops]
    assert flat == sorted(set(flat)) and len(flat) == len(order.stops())
    assert order.nodes[order.stops_of(LAYER)[-1] + 1][1] == "MUL_MAT_ID"
    assert order.logits < order.ids < order.gates < order.product < order.weighted


def test_a_product_before_the_routing(order: Order) -> None:
    refused("its experts run before their weights are known", order, order.moved(order.product, order.logits))
    refused("its experts run before their weights are known", order, order.moved(order.product, order.ids + 1))


def test_the_choice_before_the_logits(order: Order) -> None:
    refused("its experts run before their weights are known", order, order.moved(order.ids, order.logits))


def test_true_gates_read_after_the_ids_are_slots(order: Order) -> None:
    """The gates' GET_ROWS behind the first product would read slots as if they were ids."""
    nodes = order.moved(order.gates, order.product + 1)
    kept = {name for name, layer in order.stops() if layer == LAYER}
    sentence = (
        "its experts run before their weights are known"
        if order.nodes[order.gates][0] in kept
        else "the gates of its experts are read after"
    )
    refused(sentence, order, nodes)


def test_factors_read_by_true_ids(order: Order) -> None:
    """A second GET_ROWS by the ids before the products would be a factor's, which lies in slots by then."""
    refused("factors of its experts are read before their products", order, [*order.nodes[: order.product], ("factor", "GET_ROWS", LAYER, -1), *order.nodes[order.product :]])  # fmt: skip


def test_weights_used_before_they_are_replaced(order: Order) -> None:
    refused("the weights of its experts are used before their products", order, order.moved(order.weighted, order.product))


def test_layers_that_overlap(order: Order) -> None:
    """The next layer's logits before this layer's last stop."""
    refused("layers are mixed with each other", order, order.moved(order.stops_of(LAYER + 1)[0], order.ids))


def test_nodes_that_do_not_run_here(order: Order) -> None:
    for at in (order.logits, order.ids):
        refused("node '.*' does not run on this device", order, [node for node in order.nodes if node[0] != order.nodes[at][0]])
    elsewhere = [node for node in order.nodes if not (node[2] == LAYER and node[1] in ("MUL_MAT_ID", "ADD_ID"))]
    refused("its experts run on another device than its router", order, elsewhere)


def test_a_name_that_is_not_unique(order: Order) -> None:
    """The stop is found by its name, so another node of that name between logits and products would be taken for it."""
    last = order.nodes[order.product - 1]
    refused("node '.*' is not the only one of its name", order, [*order.nodes[: order.logits + 1], last, *order.nodes[order.logits + 1 :]])


def test_a_layer_is_named(model_file: Callable[..., Path]) -> None:
    """glm4moe's first block is dense, so layers and blocks are counted differently."""
    engine = Engine(model_file("glm4moe"), EngineOptions(context=16, store="mapped"))
    engine.start(FETCH_ALL, Shape().top_k)
    order = Order(engine._session)
    with pytest.raises(library().EngineError, match=r"^layer 2: "):
        order.stops(order.moved(order.product, order.logits))
