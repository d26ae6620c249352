"""Two traces held against each other: what changed a step's time, and by how much."""
