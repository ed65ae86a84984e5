"""HumanEval in the sandbox: the authors' solutions pass, mutated ones fail."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from expertmiss.generate.humaneval import HUMANEVAL, Solved, problems
from expertmiss.sandbox import Limits, Sandbox, find_sandbox


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    found, reason = find_sandbox(Limits(seconds=20.0))
    assert found is not None, reason
    return found


def mutated(problem: Solved) -> str:
    """The solution with every ``return x`` of the function itself made ``return (x, x)``."""
    tree = ast.parse(problem.item.prompt + problem.solution)
    waiting: list[ast.AST] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == problem.item.entry_point]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return) and node.value is not None:
            node.value = ast.Tuple([node.value, node.value], ast.Load())
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.FunctionDef | ast.Lambda)]
    return ast.unparse(ast.fix_missing_locations(tree))


def test_there_are_164_and_solutions_are_whole_answers() -> None:
    found = problems()
    assert len(found) == 164 and len({problem.item.problem for problem in found}) == 164
    for problem in found:
        cut = HUMANEVAL.cut(problem.solution.rstrip() + "\n\n\ndef other():")
        assert cut == problem.solution.rstrip() + "\n"  # nothing of an answer is cut off, nothing behind it kept


@pytest.mark.system
@pytest.mark.slow
def test_canonical_solutions_pass_and_mutated_ones_fail(sandbox: Sandbox) -> None:
    found = problems()
    with ThreadPoolExecutor(2) as pool:
        right = list(pool.map(lambda problem: sandbox.run(problem.item.prompt + problem.solution, problem.item.tests), found))
        wrong = list(pool.map(lambda problem: sandbox.run(mutated(problem), problem.item.tests), found))
    assert [(problem.item.problem, outcome) for problem, outcome in zip(found, right, strict=True) if not outcome.passed] == []
    assert [problem.item.problem for problem, outcome in zip(found, wrong, strict=True) if outcome.passed] == []
