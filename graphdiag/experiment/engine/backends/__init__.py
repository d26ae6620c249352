"""The ways to run the model, behind one interface: :class:`~.base.Backend`."""
