"""The bundled engine: a small decoder served as real engines serve one, and recording itself.

Read it in this order: ``scheduler`` makes the batches, ``dispatcher`` chooses what runs them,
``model`` is what runs, ``backends`` are the ways to run it, ``artifacts`` keeps what they made,
``engine`` puts these together and records each step, ``worker`` feeds it a plan. Only ``model``,
``state``, ``identity`` and the backends touch torch.
"""
