"""Statistics: cluster bootstrap over documents, and the tables that figures and report draw from."""
