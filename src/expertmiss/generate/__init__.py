"""Generation over problems with known answers: greedy decoding, answer extraction, scoring."""
