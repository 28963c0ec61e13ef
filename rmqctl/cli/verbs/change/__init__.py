"""The verbs that change a store, such as `recover`, `clean` and `undo`."""
