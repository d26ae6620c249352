"""graphdiag: flight recorder and doctor for CUDA graphs and torch.compile in LLM engines."""

__version__ = "0.1.0"
