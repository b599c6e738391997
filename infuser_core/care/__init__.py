"""The care of the store: what is damaged, what is left over, what may go, and what must stay."""
