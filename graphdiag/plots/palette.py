"""The colours of every picture and what they stand for.

Okabe and Ito's palette, which holds for the common kinds of colour blindness (Wong, Points of
view: Color blindness, Nature Methods 2011). No picture tells things apart by colour alone. All are
drawn on white and on near-black, where black and yellow would not show.
"""

from __future__ import annotations

BLUE = "#0072b2"
SKY = "#56b4e9"
GREEN = "#009e73"
ORANGE = "#e69f00"
VERMILION = "#d55e00"
PURPLE = "#cc79a7"
GREY = "#8a8a8a"

REPLAY = BLUE
PADDING = ORANGE
EAGER = VERMILION
NOW = GREY
FRONTIER = SKY
KNEE = BLUE
RECOMMENDED = GREEN
WHAT_IF = PURPLE
