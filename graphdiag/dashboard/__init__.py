"""The live page: findings over traces that are being written, on this machine's own address."""
