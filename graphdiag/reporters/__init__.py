"""One module an output. Each renders a finished value as text and computes nothing."""
