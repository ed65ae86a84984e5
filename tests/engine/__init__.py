"""Tests of the engine."""

NEEDS_LIBRARY = {
    "test_exactness", "test_session", "test_refusals", "test_traffic", "test_policies", "test_emulator", "test_convert", "test_device", "test_commands",
    "test_reference", "test_c_api", "test_study", "test_landing", "test_node_order",
}  # fmt: skip
