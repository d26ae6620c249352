"""The colours of every picture and what they stand for.

Okabe and Ito's palette, which holds for the common kinds of colour blindness (Wong, Points of
view: Color blindness, Nature Methods 2011), a brown and two greys. No picture tells things apart by
colour alone. All are drawn on white and on near-black, where black and yellow would not show.
"""

from __future__ import annotations

BLUE = "#0072b2"
SKY = "#56b4e9"
GREEN = "#009e73"
ORANGE = "#e69f00"
VERMILION = "#d55e00"
PURPLE = "#cc79a7"
GREY = "#8a8a8a"
BROWN = "#94561f"
SILVER = "#b4bac1"

REPLAY = BLUE
PADDING = ORANGE
EAGER = VERMILION
NOW = GREY
FRONTIER = SKY
KNEE = BLUE
RECOMMENDED = GREEN
WHAT_IF = PURPLE

EXACT = BLUE
FALLBACK = (VERMILION, PURPLE, BROWN, SKY, GREY)
"""Fallback by reason: the most frequent first."""
CAPTURED = GREEN
GRAPHS_OFF = GREY
UNKNOWN = SILVER

CAPTURE = GREEN
COMPILE = PURPLE
LOAD = SKY
COLD = GREY
WARM = SKY

BASE = GREY
CANDIDATE = BLUE
SLOWER = VERMILION
FASTER = GREEN

ACHIEVABLE = BLUE
CASES = {"compile": PURPLE, "shapes": GREEN, "fallback": VERMILION, "padding": ORANGE}
UNEXPLAINED = GREY

SERVED = BLUE
MEMORY = ORANGE
BUSY = BLUE
GAP = SILVER
HOST = SKY
LAUNCH = PURPLE
BLOCKED = GREY
SPAN = GREEN
INTERVAL = "#5c636b"
