"""A second, independent reading of the definitions: plain Python, literal, slow.

It exists to be compared with the C++ core, so it shares no code with it; only `exp` is handed in, because gate weights
must agree to the bit. Read it beside the page "Definitions", in this order: scores (Setting), state, rules, choosers,
evictions, step (One step), meters (Measures), run (resets, warm start, whole traces), refusals.
"""
