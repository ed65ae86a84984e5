"""The study's experiments: which policies each runs, what is computed from the runs, and the rules that judge the paper's claims."""
