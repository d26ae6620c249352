"""One module a command: it parses its arguments, delegates, and prints what came back."""
