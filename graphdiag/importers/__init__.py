"""Importers: what an engine left behind, turned into trace format 1.

One module a source format. :mod:`graphdiag.importers.registry` recognises a file by its
content; :mod:`graphdiag.importers.source` opens it.
"""
